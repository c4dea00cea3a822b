"""Runs many messages through one agent: concurrently, each once, and on after a kill."""
