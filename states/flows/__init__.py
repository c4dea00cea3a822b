"""Flows: effects that a chart or a spec declares, their results and facts."""
