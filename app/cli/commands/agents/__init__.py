"""Commands about agents, their tools, models and hosts."""
