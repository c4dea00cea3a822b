"""Performs the effects of flows: agents, functions, questions to people, replies with a schema."""
