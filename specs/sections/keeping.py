"""The section of the spec about what is struck out of the log."""

from __future__ import annotations

from pydantic import Field

from toolchart.specs.sections.base import Section


class RedactConfig(Section):
    """What is removed from records before they are hashed; the model still gets it."""

    keys: list[str] = Field(default_factory=list)
    """Keys in arguments and results whose values are secret; globs, case is ignored."""
    patterns: list[str] = Field(default_factory=list)
    """Patterns removed from any text: `email`, `phone`, `card`, `iban`, `ipv4`, `token` or `/expression/`."""
