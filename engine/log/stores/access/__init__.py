"""Access of the stores to their files, connections and tables."""
