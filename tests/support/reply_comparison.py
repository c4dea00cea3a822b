"""Compares replies whose requests were sent in different bodies: streamed and whole, live and recorded."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from toolchart.states.messages import Reply

Outcome = TypeVar("Outcome")


def drop_digest(outcome: Outcome) -> Outcome:
    """A reply without the digest of its request's body; any other value unchanged."""
    return replace(outcome, wire_digest=None) if isinstance(outcome, Reply) else outcome  # type: ignore[return-value]
