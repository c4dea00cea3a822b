"""Shipped charts, in the native YAML of python-statemachine."""
