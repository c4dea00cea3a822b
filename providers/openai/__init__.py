"""The adapter for OpenAI and compatible hosts: chat completions and Responses."""
