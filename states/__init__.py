"""The vocabulary and the machine: the lowest layer, which imports nothing above it."""
