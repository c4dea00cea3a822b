"""The agents of an engine: their tools, model hosts, prompts, and children."""
