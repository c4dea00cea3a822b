"""Chat completions, models and responses, in the form of OpenAI's API."""
