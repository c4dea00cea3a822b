"""Conversations of programs that others wrote, made of what they send to model hosts and get back."""
