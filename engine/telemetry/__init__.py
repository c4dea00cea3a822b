"""Telemetry by the GenAI conventions of OpenTelemetry: the names of attributes, and live spans of turns."""
