"""Commands that check, prune, import and export logs."""
