"""An MCP server: handlers as tools, long turns as tasks, approvals as requests for input, records to read."""
