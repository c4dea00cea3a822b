"""Secrecy of a stored log: its encryption, and the erasing of what one person said."""
