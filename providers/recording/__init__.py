"""Recorded traffic: cassettes, the recorder that writes them, the player that answers from them."""
