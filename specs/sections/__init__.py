"""Sections of an agent spec that stand apart from the main models: the base class, and what finds context."""
