"""What the protocols share: names of models, turns as streams, what a turn waits for, tools of clients."""
