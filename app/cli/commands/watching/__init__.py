"""Commands that watch programs which others wrote."""
