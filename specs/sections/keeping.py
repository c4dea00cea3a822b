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


class WitnessConfig(Section):
    """A place outside the log that gets seals of it, so that lost records and old copies are noticed."""

    to: str
    """A path relative to the spec, `git:FOLDER` (a git repository), or `https://...`."""
    every: str = "turn"
    """When seals are written: at the end of each `turn`, or at most once in a time such as `10m`."""
    required: bool = False
    """Whether nothing goes on while the witness cannot be reached; else that is a warning."""
    key_file: str | None = None
    """Ed25519 key in PEM, relative to the spec, that signs the seals."""
    token: str | None = None
    """Name of the variable of the environment with the token that an address asks for."""
