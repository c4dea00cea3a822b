"""Adds a host, a store, a tool source, a command, and more to Toolchart."""
