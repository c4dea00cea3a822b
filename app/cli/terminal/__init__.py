"""Terminal output and input: text, progress bars, the live display of steps, and approval questions."""
