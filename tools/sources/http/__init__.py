"""HTTP tools: their settings, the address guard, and the client that sends the request."""
