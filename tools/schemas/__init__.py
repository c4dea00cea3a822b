"""JSON Schemas: whether data fits one, what is wrong with it, and its repair."""
