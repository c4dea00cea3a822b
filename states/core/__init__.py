"""The pure core: an event and a snapshot in, the next snapshot and its effects out."""
