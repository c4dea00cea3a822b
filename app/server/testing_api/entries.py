"""Finds the entry of the agent that the configuration of a request describes: a request chooses no host.

Nothing of such a configuration is ever used but its equality: neither address nor key nor variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from toolchart.specs.foreign_keys import translate_section
from toolchart.specs.secrets import hide_secrets
from toolchart.specs.sections.base import Section

_Entry = TypeVar("_Entry", bound=Section)

_ADDRESS_KEYS = ("base_url", "url")
"""Keys without which a configuration means the usual address of its provider, and no other one."""

_OPEN_KEYS = frozenset({"comment", "description", "model", "name"})
"""Keys that say nothing about where a request goes. `default_model` is `model` here."""


def find_entry(entries: Mapping[str, _Entry], config: Mapping[str, Any]) -> str | None:
    """The name of the entry that a configuration describes; None where it describes another host.

    Keys are compared as they are written, references such as `${KEY}` too, with our defaults for those that
    the entry does not have. A key that the entry has literally is compared with its placeholder, which is all
    that clients know of it.
    """
    for name, entry in entries.items():
        translated = translate_section(type(entry), config)
        entry_data = hide_secrets(entry.model_dump())
        if not translated.problems and _is_described(entry_data, translated.data):
            return name
    return None


def _is_described(entry_data: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a configuration has the address of the entry and says nothing else than it."""
    keys = {**dict.fromkeys(_ADDRESS_KEYS), **config}
    return all(_is_same(entry_data, key, value) for key, value in keys.items())


def _is_same(entry_data: Mapping[str, Any], key: str, value: Any) -> bool:
    is_open = key in _OPEN_KEYS or (key == "api_key" and value == "")
    if is_open or (value is None and key not in _ADDRESS_KEYS):
        return True
    return bool(entry_data.get(key) == value)


def explain_no_entry(section: str, entries: Mapping[str, Any]) -> str:
    """Why a configuration of a request is refused, and what to do about it."""
    names = ", ".join(f"{name} ({entry.provider})" for name, entry in entries.items()) or "none"
    return (
        f"This host is no entry of the agent's `{section}`, so it is not asked. Entries: {names}. To use "
        "another one, add it to the file of the agent and start `toolchart serve` again."
    )
