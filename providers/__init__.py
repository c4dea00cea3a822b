"""Adapters for model hosts: encode requests for each API, decode its replies, record its traffic."""
