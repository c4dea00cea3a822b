"""Running conversations: the engine, the driver and what they depend on."""
