"""Sections of the spec about what is kept in the log: what is struck out of it, and what encrypts it."""

from __future__ import annotations

from pydantic import Field

from toolchart.specs.sections.base import Section


class RedactConfig(Section):
    """What is removed from records before they are hashed; the model still gets it."""

    keys: list[str] = Field(default_factory=list)
    """Keys in arguments and results whose values are secret; globs, case is ignored."""
    patterns: list[str] = Field(default_factory=list)
    """Patterns removed from any text: `email`, `phone`, `card`, `iban`, `ipv4`, `token` or `/expression/`."""


class LogKeyConfig(Section):
    """Where the keys are that encrypt the log: `env` or `file`. They never stand in the spec or the log."""

    env: str | None = None
    """Variable of the environment with the keys, separated by spaces; the newest is the last."""
    file: str | None = None
    """Key file, relative to the spec: a key in each line, the newest last."""
