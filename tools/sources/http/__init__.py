"""HTTP tools: their settings, the guard of addresses, and the request itself."""
