"""List the models that a host offers, with what each can do (tools, vision, thinking, context window).

The lists are fetched over plain HTTP, because the SDKs drop fields that they do not know: a compatible host
describes its models in more detail than OpenAI does. `catalog.py` in the folder of a host reads its list.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from toolchart.providers.hosts import HOSTS, find_host
from toolchart.providers.shared.addresses import check_offline_mode
from toolchart.providers.shared.host_client import HostClient
from toolchart.specs.models import LLMConfig
from toolchart.states.descriptors import guard_row, load_row_reference
from toolchart.states.errors import SpecError, suggest_name

_MAX_TIMEOUT_S = 20.0
"""Longest wait in seconds for one answer: a list takes less time than a reply may."""


class OfferedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a host. None means that the host does not say."""

    name: str
    tools: bool | None = None
    """Whether it calls tools natively."""
    vision: bool | None = None
    """Whether it accepts images."""
    thinking: bool | None = None
    """Whether it reasons before it answers."""
    context: int | None = None
    """Size of its context window in tokens."""


def list_models(
    config: LLMConfig, resolve: Callable[[str], str], beside: Path | None = None
) -> list[OfferedModel]:
    """The models of an entry's host, sorted by name.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.
        beside: folder of the spec; certificates in the entry are relative to it.

    Raises:
        SpecError: the provider has no models to list, a variable is not set, or the host is remote in offline
            mode.
        ProviderError: the host could not be reached, refused the request, or sent no list.
    """
    row = find_host(config.provider)
    reference = row.list_models
    if reference and not row.can_list_models(config.extra_options()):
        raise SpecError(
            f"provider {config.provider!r} lists models only with `{row.list_needs}`",
            path=f"llms.*.{row.list_needs}",
            hint=f"add `{row.list_needs}: ...` to the llms entry",
        )
    if not reference:
        raise SpecError(
            f"provider {config.provider!r} has no models to list",
            path="llms.*.provider",
            hint=suggest_name(config.provider, [row.name for row in HOSTS.known_rows if row.list_models]),
        )
    check_offline_mode(config, resolve)
    host = HostClient(config, resolve, beside)
    with host.open_client(min(config.timeout_s, _MAX_TIMEOUT_S)), guard_row(row):
        models: list[OfferedModel] = list(load_row_reference(row, reference)(host))
    return sorted(models, key=lambda model: model.name)


def find_model(name: str, models: list[OfferedModel]) -> OfferedModel | None:
    """The model of that name; Ollama's `:latest` and Gemini's `models/` may be left out of the name."""
    short_name = name.removeprefix("models/")
    models_by_name = {model.name: model for model in models}
    return models_by_name.get(short_name) or models_by_name.get(f"{short_name}:latest")
