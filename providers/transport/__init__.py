"""How a model host is called: connections, limits of calls and replies, encoded bodies, frames of streams."""
