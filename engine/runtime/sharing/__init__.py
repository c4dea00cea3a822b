"""Sharing conversations: several threads, workers and people on the same log."""
