"""What a fleet of workers shows to others: turns for whoever asks for them, and figures."""
