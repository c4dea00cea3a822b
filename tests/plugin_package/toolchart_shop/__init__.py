"""Adds a host, a store, a tool source, and more to Toolchart."""
