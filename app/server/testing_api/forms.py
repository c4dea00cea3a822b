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


class ConfigForm(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration to be checked."""

    config: Any = None


class SearchForm(msgspec.Struct, frozen=True, kw_only=True):
    """The document service to be searched: by its name, or by its configuration."""

    service: str = ""
    provider: str = ""
    config: dict[str, Any] = {}
    collection: str = ""
    query: str = "test"


class IntentForm(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose intent or topic is wanted."""

    query: str = ""
    config: dict[str, Any] = {}
    previousMessages: list[dict[str, Any]] = []  # noqa: N815
