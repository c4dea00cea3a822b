"""Loaders that make tools from Python functions, HTTP, OpenAPI, MCP servers and documents."""
