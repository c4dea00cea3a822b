"""Example agents, each one also a test."""
