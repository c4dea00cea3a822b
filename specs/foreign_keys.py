"""Keys of the configuration files of other systems: one table, with what becomes of each of them.

A key that means the same as one of ours becomes that one (`timeout` in milliseconds becomes `timeout_s`);
where both stand in a section, ours counts. A key without an effect is named in a warning. No key of the
table is taken for a misspelt one of ours. Keys with the same name and meaning are fields of `models.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from toolchart.specs.sections.base import Section


class ForeignKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key of another system in one section."""

    key: str
    becomes: str = ""
    """Our key of the same meaning; empty for a key that is not used."""
    convert: Callable[[Any], Any] = lambda value: value
    """Our value of its value. Raises `ValueError` with what is allowed."""
    is_default: bool = False
    """Whether it gives way to ours without a warning."""


class TranslatedSection(msgspec.Struct, frozen=True, kw_only=True):
    """A section in our keys."""

    data: dict[str, Any]
    unused: tuple[str, ...]
    """Keys without an effect."""
    warnings: Mapping[str, str]
    """By key what a person should know."""
    problems: Mapping[str, str]
    """By key what is wrong with its value."""


def convert_milliseconds(value: Any) -> float:
    """Seconds, from a number of milliseconds or its text.

    >>> convert_milliseconds(30000), convert_milliseconds("1500")
    (30.0, 1.5)
    """
    try:
        number = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = None
    if number is None or not 0 < number < float("inf"):
        raise ValueError(f"a number of milliseconds above 0 is allowed, found {value!r}")
    return number / 1000


_SHORT_TIMEOUT_S = 1.0
"""A timeout below this was probably meant in seconds."""

_HOST_KEYS = (
    ForeignKey(key="baseUrl", becomes="base_url"),
    ForeignKey(key="apiKey", becomes="api_key"),
    ForeignKey(key="timeout", becomes="timeout_s", convert=convert_milliseconds),
    ForeignKey(key="default_model", becomes="model", is_default=True),
    ForeignKey(key="max_tokens"),
)
"""Of an entry of `llms`. `max_tokens` stands in a form of other systems, which read `maxTokens`."""

_SERVICE_KEYS = (
    ForeignKey(key="timeout", becomes="timeout_s", convert=convert_milliseconds),
    ForeignKey(key="default_threshold"),
)
"""Of an entry of `rag_services`."""

_RETRY_KEYS = (ForeignKey(key="delay", becomes="delay_s", convert=convert_milliseconds),)
"""Of `retry` in such an entry."""

FOREIGN_KEYS: Mapping[str, tuple[ForeignKey, ...]] = {
    "LLMConfig": _HOST_KEYS,
    "RagService": _SERVICE_KEYS,
    "ServiceRetry": _RETRY_KEYS,
}
"""The keys by the name of the section's model."""


def translate_section(model: type[Section], data: Mapping[str, Any]) -> TranslatedSection:
    """A section of a document with our keys in place of those of the table."""
    own, unused = dict(data), []
    warnings: dict[str, str] = {}
    problems: dict[str, str] = {}
    for row in FOREIGN_KEYS.get(model.__name__, ()):
        if row.key not in own or row.key in model.model_fields:
            continue
        value = own.pop(row.key)
        if not row.becomes:
            unused.append(row.key)
        if not row.becomes or value is None:
            continue
        try:
            converted = row.convert(value)
        except ValueError as error:
            problems[row.key] = str(error)
            continue
        if own.get(row.becomes, converted) != converted:
            if not row.is_default:
                warnings[row.key] = f"is not used, because `{row.becomes}` stands beside it"
        elif row.becomes == "timeout_s" and converted < _SHORT_TIMEOUT_S:
            warnings[row.key] = f"is {value} milliseconds; `{row.becomes}` takes seconds"
        own.setdefault(row.becomes, converted)
    return TranslatedSection(data=own, unused=tuple(unused), warnings=warnings, problems=problems)
