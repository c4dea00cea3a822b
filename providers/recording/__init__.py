"""Recorded traffic: cassettes, the recorder that writes them, and the provider that answers from them."""
