"""Commands for a fleet of workers on a durable host."""
