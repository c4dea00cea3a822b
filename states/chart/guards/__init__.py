"""The language of guards: its syntax and its types."""
