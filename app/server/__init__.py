"""The HTTP server of `toolchart serve`: access, the protocols, and how they are put together."""
