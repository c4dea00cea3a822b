"""Sections of existing configuration files that find the context of a turn before its handler is chosen.

They are `topic`, `rag_services`, `embedding` and `intent`; `docs/existing-files.md` says what each does.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from toolchart.specs.sections.base import Section


class ModelChoice(Section):
    """A model of an entry of `llms`."""

    llm: str
    """Name of the `llms` entry."""
    model: str | None = None
    """The model; default: that of the entry."""


class RagService(Section):
    """One service that searches collections of documents by `POST {url}/query`."""

    url: str
    """Address of the service; `/query` is added."""
    provider: str | None = None
    """Kind of service; accepted for existing files."""
    collections: list[str] = Field(default_factory=list)
    """Collections that are searched where the caller names none by the variable `collections`."""
    match_threshold: float = Field(default=0.25, ge=0)
    """Below this distance a result is a match, and the search ends."""
    partial_threshold: float = Field(default=0.5, ge=0)
    """Below this distance a result is a partial match."""
    intent_identifier: str | None = None
    """Accepted for existing files."""
    embedding: ModelChoice | None = None
    """The model with which the service embeds; the service itself asks it."""


class IntentConfig(Section):
    """How the intent of a message is detected."""

    provider: ModelChoice | None = None
    """The model that is asked; default: that of the last handler."""
    detection: dict[str, str] = Field(default_factory=dict)
    """Intents by name, each with a description for the model."""


class TopicConfig(Section):
    """How the topic of a conversation is found."""

    provider: ModelChoice | None = None
    """The model that is asked; default: that of `intent`, else that of the last handler."""


def describe_place(choice: ModelChoice | None, default: dict[str, Any]) -> dict[str, Any]:
    """The keys `llm` and `model` of a model call."""
    if choice is None:
        return default
    return {"llm": choice.llm, **({"model": choice.model} if choice.model else {})}
