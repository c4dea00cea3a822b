"""The pure core, the driver, the log and its stores, and replay."""
