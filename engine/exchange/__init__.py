"""Conversations in other forms: message lists in and out, spans, process-mining logs."""
