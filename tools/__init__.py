"""Tools: definitions, registry, executor, manager and the builtins."""
