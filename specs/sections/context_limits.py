"""How many tokens one request may have: from the `llms` entry, or from the table `context_limits.yaml`.

A chart that reads `context_limit` needs a number for each model that its agent may ask. A limit that nobody
knows is therefore an error at load, and no guess.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

from toolchart.specs.models import LLMConfig

_VERSION = re.compile(r"-(?:\d{4}-\d\d-\d\d|\d{8}|\d{3})$")
"""The version at the end of a name: `gpt-5-2025-08-07`, `claude-haiku-4-5-20251001`, `gemini-2.5-pro-001`."""


class ContextLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the table."""

    provider: str
    models: tuple[str, ...]
    """The names of the models; a dated version of a model has the same limit."""
    tokens: int
    source: str


class _LimitFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limits: tuple[ContextLimit, ...]


@cache
def list_context_limits() -> tuple[ContextLimit, ...]:
    """The rows of the table."""
    text = Path(__file__).with_name("context_limits.yaml").read_bytes()
    return msgspec.yaml.decode(text, type=_LimitFile).limits


def find_context_limit(entry: LLMConfig, model: str) -> int:
    """The tokens that one request to a model of an entry may have; 0 where nobody knows.

    The key `context_limit` counts first, then `num_ctx` among the options of an `ollama` entry, then the
    table, but only for the provider's own address and models that it names.
    """
    if entry.context_limit is not None:
        return entry.context_limit
    options = entry.extra_options().get("options")
    window = options.get("num_ctx") if isinstance(options, dict) else None
    if isinstance(window, int) and window > 0:
        return window
    if entry.base_url is not None:
        return 0
    name = _VERSION.sub("", model)
    rows = (row for row in list_context_limits() if row.provider == entry.provider)
    return next((row.tokens for row in rows if name in row.models), 0)
