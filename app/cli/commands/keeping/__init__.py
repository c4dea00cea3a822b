"""Commands that check, prune, erase, import and export logs."""
