"""Data flow: which words of strangers reach effects that can do harm."""
