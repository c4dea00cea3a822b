"""The adapter for Ollama's native chat API."""
