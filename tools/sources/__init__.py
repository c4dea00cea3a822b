"""Where tools come from: Python functions, HTTP, OpenAPI, MCP servers and documents."""
