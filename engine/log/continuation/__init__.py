"""Going on with a conversation: checkpoints, open effects as stored values, and versions of what derives."""
