"""Compares replies whose requests were sent in different bodies: streamed and whole, live and recorded."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from toolchart.states.messages import Reply

Outcome = TypeVar("Outcome")


def drop_digest(outcome: Outcome) -> Outcome:
    """A reply without what the adapter adds: the digest, host and model; any other value unchanged."""
    if not isinstance(outcome, Reply):
        return outcome
    data = {
        key: value for key, value in (outcome.provider_data or {}).items() if key not in ("host", "model")
    }
    return replace(outcome, wire_digest=None, provider_data=data or None)
