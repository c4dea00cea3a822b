"""Running tool calls: checking arguments, limits of time and number, isolation, results."""
