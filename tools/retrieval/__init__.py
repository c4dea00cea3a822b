"""Search in the document services of existing chat servers."""
