"""Reading conversations back: one module for each thing that is read; nothing is derived."""
