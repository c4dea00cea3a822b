"""Bounds: that every turn ends, and what it can cost at most."""
