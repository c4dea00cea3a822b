"""The pure core: a snapshot and an event in, the next snapshot and its effects out."""
