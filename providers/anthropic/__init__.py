"""The adapter for Anthropic's Messages API."""
