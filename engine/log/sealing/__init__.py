"""Seals: signed digests of a whole log, and tombstones of what retention removed from it."""
