"""Exchange with other programs: exports of conversations, the import of messages, and pictures."""
