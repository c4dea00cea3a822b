"""Conversations of programs that other people wrote, seen from outside: their exchanges with model hosts."""
