"""The events that may come next, for generated turns."""
