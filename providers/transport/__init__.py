"""How a model host is called: deadlines, limits of calls, connections."""
