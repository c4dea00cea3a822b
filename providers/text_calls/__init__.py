"""Tool calls written as text, for models and hosts without native tool calls."""
