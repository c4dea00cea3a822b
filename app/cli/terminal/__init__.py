"""What a person at a terminal sees: text, progress, live steps and questions."""
