"""Runs of an agent in the form of AG-UI, for front ends that show them as they happen."""
