"""Stores: where the log keeps its records."""
