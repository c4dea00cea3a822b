"""The agent spec: its models, its loader, the shipped charts and the example agents."""
