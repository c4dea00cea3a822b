"""Which adapter speaks to a host: found by the `provider` word of the spec, loaded when it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.naming import nearest
from toolchart.states.ports import Provider

ADAPTERS: dict[str, str] = {
    "openai": "toolchart.providers.openai:OpenAIProvider",
    "ollama": "toolchart.providers.ollama:OllamaProvider",
    "gemini": "toolchart.providers.gemini:GeminiProvider",
    "scripted": "toolchart.providers.scripted:ScriptedProvider",
    "recorded": "toolchart.providers.recorded:RecordedProvider",
}
"""Adapter classes by the word that a spec uses; each has a `from_config`."""


def create_provider(config: LLMConfig, *, resolve: Callable[[str], str]) -> Provider:
    """The provider of an `llms` entry.

    Args:
        resolve: fills in `${VARIABLE}`; called here, at the last moment, for key and address.

    Raises:
        SpecError: an unknown provider, an unset variable, or a setting that the adapter refuses.
    """
    if config.provider not in ADAPTERS:
        raise SpecError(
            f"unknown provider {config.provider!r}", path="llms.*.provider",
            hint=nearest(config.provider, ADAPTERS),
        )  # fmt: skip
    module, _, name = ADAPTERS[config.provider].partition(":")
    adapter = getattr(importlib.import_module(module), name)
    return cast(Provider, adapter.from_config(config, resolve))
