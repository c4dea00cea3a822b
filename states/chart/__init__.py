"""Charts as data: loading, extending, rules, guards and source positions."""
