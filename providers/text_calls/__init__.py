"""Tool calls written as text, for models and hosts without calls of their own."""
