"""Commands that show what a log holds."""
