"""Commands that check, seal, prune, erase, import and export logs."""
