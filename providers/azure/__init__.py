"""The adapter for OpenAI models on Azure, which speaks OpenAI's wire formats."""
