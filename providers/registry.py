"""Which adapter speaks to a host: found by the `provider` word of the spec, loaded when it is needed."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from toolchart.providers.shared.addresses import refuse_offline
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.ports import Provider
from toolchart.states.suggestions import nearest

ADAPTERS: dict[str, str] = {
    "openai": "toolchart.providers.openai.client:OpenAIProvider",
    "azure": "toolchart.providers.openai.azure:AzureProvider",
    "ollama": "toolchart.providers.ollama.client:OllamaProvider",
    "anthropic": "toolchart.providers.anthropic.client:AnthropicProvider",
    "gemini": "toolchart.providers.gemini.client:GeminiProvider",
    "scripted": "toolchart.providers.scripted.provider:ScriptedProvider",
    "recorded": "toolchart.providers.recording.player:RecordedProvider",
}
"""Adapter classes by the word that a spec uses; each has a `from_config`."""


_ASK_NOBODY = ("scripted", "recorded")

_FILES = ("record", "cassette", "log")
"""Keys of an entry that name files."""


def create_provider(
    config: LLMConfig, *, resolve: Callable[[str], str], beside: Path | None = None
) -> Provider:
    """The provider of an `llms` entry.

    Args:
        resolve: fills in `${VARIABLE}`; called here, at the last moment, for key and address.
        beside: folder of the spec, to which files in the entry are relative.

    Raises:
        SpecError: an unknown provider, an unset variable, a setting that the adapter refuses, or a host
            elsewhere where `TOOLCHART_OFFLINE=1` forbids it.
    """
    if config.provider not in ADAPTERS:
        raise SpecError(
            f"unknown provider {config.provider!r}",
            path="llms.*.provider",
            hint=nearest(config.provider, ADAPTERS),
        )
    refuse_offline(config, resolve, asks=config.provider not in _ASK_NOBODY)
    config = _placed(config, beside or Path(), resolve)
    module, _, name = ADAPTERS[config.provider].partition(":")
    adapter = getattr(importlib.import_module(module), name)
    if config.record is None:
        made = cast(Provider, adapter.from_config(config, resolve))
    else:
        made = _recorded(adapter, config, resolve)
    if config.tool_format == "native":
        return made
    from toolchart.providers.text_calls.provider import TextCalls

    return TextCalls(made, config.tool_format)


def _placed(config: LLMConfig, beside: Path, resolve: Callable[[str], str]) -> LLMConfig:
    """The entry with its files found from anywhere."""
    named = {key: getattr(config, key, None) for key in _FILES}
    found = {key: str(beside / resolve(str(name))) for key, name in named.items() if name}
    return config.model_copy(update=found) if found else config


def _recorded(adapter: Any, config: LLMConfig, resolve: Callable[[str], str]) -> Provider:
    from toolchart.providers.recording.recorder import Recorder

    if "hooks" not in inspect.signature(adapter.from_config).parameters:
        raise SpecError(
            f"provider {config.provider!r} has no traffic to record",
            path="llms.*.record",
            hint="leave `record` out",
        )
    recorder = Recorder(Path(str(config.record)), config)
    watching = recorder.watching(resolve)
    return cast(Provider, adapter.from_config(config, watching, recorder.hooks()))
