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


class ServiceRetry(Section):
    """How often a service is asked that fails."""

    max_attempts: int | None = Field(default=None, ge=1)
    """Most attempts; default: 3."""
    delay_s: float | None = Field(default=None, ge=0)
    """Seconds before the second attempt, doubled before each further one; default: 1. Existing files say
    `delay`, in milliseconds."""


class ServiceAuth(Section):
    """How a service wants its callers to sign in; best with `${VARIABLE}`."""

    type: str
    """`bearer`, `basic` or `api-key`; `none` for no sign-in."""
    token: str | None = None
    """Of `bearer`."""
    username: str | None = None
    """Of `basic`."""
    password: str | None = None
    """Of `basic`."""
    api_key: str | None = None
    """Of `api-key`."""
    key: str | None = None
    """As `api_key`."""
    header: str = "X-API-Key"
    """The header with the key of `api-key`."""


class RagService(Section):
    """One service that searches collections of documents by `POST {url}/query`."""

    url: str
    """Address of the service; `/query` is added."""
    provider: str | None = None
    """Kind of service; accepted for existing files."""
    description: str | None = None
    """What people call the service."""
    collections: list[str] = Field(default_factory=list)
    """Collections that are searched where the caller names none by the variable `collections`."""
    collection: str | None = None
    """The only collection of the service that is searched."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Seconds for one request. Existing files say `timeout`, in milliseconds."""
    retry: ServiceRetry | None = None
    """How often it is asked."""
    top_k: int | None = Field(default=None, ge=1)
    """Passages that a tool and the test of a search ask for; default: 3, as before a handler is chosen."""
    max_distance: float = Field(default=1.0, ge=0)
    """Results that are farther away are dropped."""
    headers: dict[str, str] = Field(default_factory=dict)
    """More HTTP headers; `${VARIABLE}` is replaced."""
    auth: ServiceAuth | None = None
    """The sign-in at the service."""
    health_check_endpoint: str = "/health"
    """The path that says whether it runs."""
    match_threshold: float = Field(default=0.25, ge=0)
    """Below this distance a result is a match, and the search ends."""
    partial_threshold: float = Field(default=0.5, ge=0)
    """Below this distance a result is a partial match."""
    intent_identifier: str | None = None
    """Accepted for existing files."""
    embedding: ModelChoice | None = None
    """The model with which the service embeds; the service itself asks it."""

    @property
    def searched_collections(self) -> list[str]:
        """The collections that are searched where the caller names none."""
        return [self.collection] if self.collection else self.collections


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
    prompt: str | None = None
    """Replaces the question to that model: a template with `{{currentTopic}}`, `{{conversationContext}}` and
    `{{userMessage}}`. It asks for JSON with `topic_status` and `topic_summary`."""


def describe_place(choice: ModelChoice | None, default: dict[str, Any]) -> dict[str, Any]:
    """The keys `llm` and `model` of a model call."""
    if choice is None:
        return default
    return {"llm": choice.llm, **({"model": choice.model} if choice.model else {})}
