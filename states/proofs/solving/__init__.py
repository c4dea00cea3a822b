"""Decides guards: formulas over integers, words and truth values, solved exactly."""
