"""A provider that answers from a script: deterministic and offline, for tests and demonstrations."""
