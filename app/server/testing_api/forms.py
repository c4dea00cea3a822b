"""The JSON bodies of the testing API and of the chat API. Any key may be missing: the answers say which."""

from __future__ import annotations

from typing import Any

import msgspec


class TryForm(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a model: by the name of an `llms` entry, or with a configuration."""

    query: Any = None
    model: Any = None
    llm: Any = None
    provider_config: Any = None
    registry: Any = None


class RunToolForm(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of one call."""

    arguments: dict[str, Any] = {}
    approved: bool = False
    """Whether whoever asks approves the call; needs the role `approve`."""


class DiscoveryForm(msgspec.Struct, frozen=True, kw_only=True):
    """The host whose models are wanted."""

    provider: str = ""
    config: dict[str, Any] = {}


class ChatForm(msgspec.Struct, frozen=True, kw_only=True):
    """A message with what was said before."""

    prompt: Any = None
    previousMessages: list[dict[str, Any]] = []  # noqa: N815  the front end's own name
    retryCount: int = 0  # noqa: N815
    selectedCollections: list[dict[str, Any]] = []  # noqa: N815
    topic: str | None = None


class SearchForm(msgspec.Struct, frozen=True, kw_only=True):
    """The document service whose collections are wanted: by its configuration."""

    provider: str = ""
    config: dict[str, Any] = {}


class CollectionQueryForm(msgspec.Struct, frozen=True, kw_only=True):
    """A search in one collection."""

    service: str = ""
    query: str = ""
    top_k: int | None = None


class IntentForm(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose intent is wanted, with the model that is asked and what it may choose."""

    query: str = ""
    provider_config: dict[str, Any] = {}
    model: str = ""
    working_config: dict[str, Any] = {}
    """The configuration of the page; of it `intent.detection` is read."""
    selected_collections: list[dict[str, Any]] = []


class TopicForm(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation whose topics are wanted, with the model that is asked."""

    provider_config: dict[str, Any] = {}
    model: str = ""
    messages: list[dict[str, Any]] = []
    custom_prompt: str | None = None
