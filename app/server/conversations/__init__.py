"""The API of conversations: start, continue, list, read, follow, decide, answer, cancel, fork and rerun."""
