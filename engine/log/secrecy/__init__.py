"""Secrecy of a stored log: the erasing of what one person said."""
