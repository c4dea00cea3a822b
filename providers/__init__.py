"""Provider adapters: pure maps to and from the wire, plus the official SDK as transport."""
