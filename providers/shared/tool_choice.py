"""Read the `tool_choice` option of a request: which tools the model may, must or must not call.

Every spelling is parsed into one `ToolChoice`; each adapter's `wire.py` encodes it for its host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from toolchart.states.errors import ProviderError, suggest_name
from toolchart.states.messages import Request, ToolDefinition
from toolchart.states.schema_dialects import ANTHROPIC, OLLAMA, SchemaDialect

ToolChoiceMode = Literal["auto", "none", "required"]

_MODES: tuple[ToolChoiceMode, ...] = ("auto", "none", "required")


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the offered tools the reply may or must call."""

    mode: ToolChoiceMode = "auto"
    names: tuple[str, ...] = ()
    """The tools that may be called; empty means every offered tool."""

    @property
    def required_name(self) -> str | None:
        """The tool that must be called, if the choice leaves only one."""
        return self.names[0] if self.mode == "required" and len(self.names) == 1 else None


def select_offered_tools(
    choice: ToolChoice, tools: Sequence[ToolDefinition], dialect: SchemaDialect | None
) -> tuple[ToolDefinition, ...]:
    """The tools that a request to a host of that dialect contains.

    Ollama has no tool choice, and Anthropic none among several tools: for them the list of tools expresses
    the choice. Anthropic keeps all tools with `none`, because a history with calls needs their definitions.
    """
    if dialect not in (OLLAMA, ANTHROPIC):
        return tuple(tools)
    if choice.mode == "none":
        return () if dialect is OLLAMA else tuple(tools)
    return tuple(tool for tool in tools if not choice.names or tool.name in choice.names)


def read_tool_choice(request: Request) -> ToolChoice | None:
    """The choice of a request; None where it has none, or offers no tools.

    Raises:
        ProviderError: `bad_request`; it has no known form, or names a tool that is not offered.
    """
    option = request.options.get("tool_choice")
    if option is None or not request.tools:
        return None
    choice = parse_tool_choice(option)
    tool_names = [tool.name for tool in request.tools]
    for name in choice.names:
        if name not in tool_names:
            raise ProviderError(
                kind="bad_request",
                message=f"tool_choice names {name!r}, which is not offered; {suggest_name(name, tool_names)}",
            )
    return choice


def parse_tool_choice(option: Any) -> ToolChoice:
    """The choice of an option value.

    Accepts `auto`, `none`, `required`, a tool's name, `{"allowed": [...], "mode": ...}`, and OpenAI's
    spellings (`{"type": "function", ...}`, `{"type": "allowed_tools", ...}`). None means `auto`.

    >>> parse_tool_choice("required"), parse_tool_choice({"allowed": ["a", "b"]}).names
    (ToolChoice(mode='required', names=()), ('a', 'b'))

    Raises:
        ProviderError: `bad_request`; the value is none of these.
    """
    if option is None:
        return ToolChoice()
    if isinstance(option, str) and option:
        for mode in _MODES:
            if mode == option:
                return ToolChoice(mode=mode)
        return ToolChoice(mode="required", names=(option,))
    choice = _parse_choice_mapping(option) if isinstance(option, Mapping) else None
    if choice is None:
        raise ProviderError(
            kind="bad_request",
            message=f"tool_choice {option!r} is none of: auto, none, required, a tool's name, "
            '{"allowed": [names], "mode": "auto" or "required"}',
        )
    return choice


def _parse_choice_mapping(option: Mapping[str, Any]) -> ToolChoice | None:
    """The choice of a mapping; None if it has no valid form."""
    inner = option.get("allowed_tools", option)
    if not isinstance(inner, Mapping):
        return None
    tools = inner.get("allowed", inner.get("tools"))
    if isinstance(tools, list):
        names = tuple(map(_read_tool_name, tools))
        is_valid = names and all(names)
        return ToolChoice(mode=_read_choice_mode(inner), names=names) if is_valid else None
    name = _read_tool_name(option)
    return ToolChoice(mode="required", names=(name,)) if name else None


def _read_choice_mode(option: Mapping[str, Any]) -> ToolChoiceMode:
    mode = option.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise ProviderError(
            kind="bad_request", message=f"tool_choice: mode {mode!r} is none of: auto, required"
        )
    return cast(ToolChoiceMode, mode)


def _read_tool_name(option: Any) -> str:
    """The name, from a name itself or from OpenAI's function mapping; empty if there is none."""
    function = option.get("function", option) if isinstance(option, Mapping) else option
    name = function.get("name") if isinstance(function, Mapping) else function
    return name if isinstance(name, str) else ""
