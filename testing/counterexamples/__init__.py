"""Counterexamples: runs that show what `check` has found, driven through the engine."""
