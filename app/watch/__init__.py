"""A recording proxy on loopback between programs and their model hosts: `toolchart watch`."""
