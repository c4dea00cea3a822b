"""Running tool calls: argument checks, approval, limits of time and number, isolation, results."""
