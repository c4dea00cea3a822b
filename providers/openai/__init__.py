"""The adapter for OpenAI and compatible hosts: chat completions, Responses and Azure."""
