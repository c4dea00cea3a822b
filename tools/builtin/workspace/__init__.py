"""Builtin tools that work in one folder: files and a shell."""
