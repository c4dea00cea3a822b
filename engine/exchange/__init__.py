"""Exports and imports of conversations: message lists, spans, process-mining logs, diff diagrams."""
