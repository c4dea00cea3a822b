"""Commands that run, continue, decide, stop and repeat turns."""
