"""Which tools a reply may, must or must not call: `tool_choice` in one form, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from toolchart.states.errors import ProviderError
from toolchart.states.messages import ToolDefinition
from toolchart.states.schema_dialects import ANTHROPIC, OLLAMA, Dialect

NOTHING = "(nothing)"
"""What Anthropic is told for a message without text: an empty text block, or a blank one, is refused."""

MAX_TOKENS = 4096
"""What Anthropic is told where a request says nothing: the interface demands a number."""

Mode = Literal["auto", "none", "required"]

_MODES: tuple[Mode, ...] = ("auto", "none", "required")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a reply does with the offered tools."""

    mode: Mode = "auto"
    names: tuple[str, ...] = ()
    """The tools that may be called; empty means all that are offered."""

    @property
    def demanded(self) -> str | None:
        """The one tool that must be called, where it is one."""
        return self.names[0] if self.mode == "required" and len(self.names) == 1 else None


def offered_by(
    choice: Choice, tools: Sequence[ToolDefinition], dialect: Dialect | None
) -> tuple[ToolDefinition, ...]:
    """The tools that are shown to a host of that dialect.

    Ollama can be told of a choice in no other way, and Anthropic of none among several; its tools stay
    with `none`, since a history with calls needs their definitions.
    """
    if dialect not in (OLLAMA, ANTHROPIC):
        return tuple(tools)
    if choice.mode == "none":
        return () if dialect is OLLAMA else tuple(tools)
    return tuple(one for one in tools if not choice.names or one.name in choice.names)


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
