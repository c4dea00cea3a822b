"""Which tools a reply may, must or must not call: `tool_choice` in one form, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from toolchart.states.errors import ProviderError
from toolchart.states.messages import ToolDefinition

Mode = Literal["auto", "none", "required"]

_MODES: tuple[Mode, ...] = ("auto", "none", "required")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a reply does with the offered tools."""

    mode: Mode = "auto"
    names: tuple[str, ...] = ()
    """The tools that may be called; empty means all that are offered."""

    def offered(self, tools: Sequence[ToolDefinition]) -> tuple[ToolDefinition, ...]:
        """The tools to show, for a host that can be told of a choice in no other way."""
        if self.mode == "none":
            return ()
        return tuple(one for one in tools if not self.names or one.name in self.names)


def choice_of(given: Any) -> Choice:
    """The choice: `auto`, `none`, `required`, a tool's name, or `{"allowed": [...], "mode": ...}`.

    OpenAI's spellings (`{"type": "function", ...}`, `{"type": "allowed_tools", ...}`) are read as well.

    >>> choice_of("required"), choice_of({"allowed": ["a", "b"]}).names
    (Choice(mode='required', names=()), ('a', 'b'))

    Raises:
        ProviderError: `bad_request`; it is none of these.
    """
    if given is None:
        return Choice()
    if isinstance(given, str) and given:
        mode = next((word for word in _MODES if word == given), None)
        return Choice(mode=mode) if mode else Choice(mode="required", names=(given,))
    found = _chosen(given) if isinstance(given, Mapping) else None
    if found is None:
        raise ProviderError(
            kind="bad_request",
            message=f"tool_choice {given!r} is none of: auto, none, required, a tool's name, "
            '{"allowed": [names], "mode": "auto" or "required"}',
        )
    return found


def _chosen(given: Mapping[str, Any]) -> Choice | None:
    """Of a mapping; None where it is no choice."""
    inner = given.get("allowed_tools", given)
    if not isinstance(inner, Mapping):
        return None
    listed = inner.get("allowed", inner.get("tools"))
    if isinstance(listed, list):
        names = tuple(map(_name, listed))
        return Choice(mode=_mode(inner), names=names) if names and all(names) else None
    name = _name(given)
    return Choice(mode="required", names=(name,)) if name else None


def _mode(given: Mapping[str, Any]) -> Mode:
    mode = given.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise ProviderError(
            kind="bad_request", message=f"tool_choice: mode {mode!r} is none of: auto, required"
        )
    return cast(Mode, mode)


def _name(given: Any) -> str:
    function = given.get("function", given) if isinstance(given, Mapping) else given
    name = function.get("name") if isinstance(function, Mapping) else function
    return name if isinstance(name, str) else ""
