"""Selects the handler of a turn: the first whose `match` conditions hold for the variables.

Each key of `match` is one condition, and all must hold. `field: value` compares for equality.
`field_contains: text` looks for a part of the field, or a member of a list. `field_regexp: pattern` searches
with `/pattern/flags` or a plain pattern; the flag `y` lets it match only at the beginning. `rag_results: any`
holds if the document search had a full or partial result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.specs.models import AgentSpec, Handler
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.flows.templates import look_up_variable
from toolchart.workers.patterns import Pattern, PatternTimeout, get_pattern

_FLAGS = "imsx"

_SUCCESSFUL_SEARCHES = ("match", "partial", "any")
"""Values of the variable `rag_results` for which the condition `rag_results: any` holds."""


def select_handler(spec: AgentSpec, variables: Mapping[str, Any], name: str | None = None) -> Handler:
    """Return the handler with this name; without a name, the first whose conditions hold.

    Raises:
        SpecError: there are no handlers, no handler has the name, or no handler matches.
    """
    require_handlers(spec)
    if name is not None:
        return _find_named_handler(spec, name)
    for handler in spec.responses:
        if conditions_hold(handler.match, variables):
            return handler
    raise SpecError(
        "no handler matches these variables",
        file=spec.source,
        path="responses",
        hint="add a handler without `match` as the fallback, or give variables with --var: "
        + ", ".join(sorted({key for h in spec.responses for key in h.match or {}})),
    )


def require_handlers(spec: AgentSpec) -> None:
    """Refuse an agent that is not configured yet.

    Raises:
        SpecError: it has no handlers.
    """
    if not spec.responses:
        raise SpecError(
            "the agent has no handlers, so no message can be answered",
            file=spec.source,
            path="responses",
            hint="add a host to `llms`, and a handler that names it to `responses`: `toolchart init` writes "
            "an example",
        )


def _find_named_handler(spec: AgentSpec, name: str) -> Handler:
    for handler in spec.responses:
        if handler.name == name:
            return handler
    if name.isdigit() and int(name) < len(spec.responses):
        return spec.responses[int(name)]
    names = [handler.name or str(number) for number, handler in enumerate(spec.responses)]
    raise SpecError(
        f"there is no handler {name!r}", file=spec.source, path="responses", hint=suggest_name(name, names)
    )


def conditions_hold(conditions: Mapping[str, Any] | None, variables: Mapping[str, Any]) -> bool:
    """Whether every condition holds; an empty mapping or None always holds."""
    return not conditions or all(
        _condition_holds(key, condition, variables) for key, condition in conditions.items()
    )


def _condition_holds(key: str, condition: Any, variables: Mapping[str, Any]) -> bool:
    if key == "comment":
        return True
    if key == "rag_results":
        value = look_up_variable(variables, key)
        return value in _SUCCESSFUL_SEARCHES if condition == "any" else value == condition
    if key.endswith("_contains"):
        return _value_contains(look_up_variable(variables, key.removesuffix("_contains")), condition)
    if key.endswith("_regexp"):
        value = look_up_variable(variables, key.removesuffix("_regexp"))
        return value is not None and _pattern_occurs(key, str(condition), str(value))
    return bool(look_up_variable(variables, key) == condition)


def _pattern_occurs(key: str, pattern: str, text: str) -> bool:
    try:
        return compile_pattern(pattern).occurs_in(text)
    except PatternTimeout as error:
        hint = "write it without look-around and back references: then its time is linear"
        raise SpecError(str(error), path=f"match.{key}", hint=hint) from None


def _value_contains(value: Any, condition: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return condition in value
    return value is not None and str(condition).lower() in str(value).lower()


def compile_pattern(text: str) -> Pattern:
    """Compile `/pattern/flags` or a plain pattern.

    Raises:
        ValueError: it does not compile, or a flag is unknown.
    """
    letters = ""
    if len(text) > 1 and text.startswith("/") and "/" in text[1:]:
        text, _, letters = text[1:].rpartition("/")
    for letter in letters:
        if letter not in (*_FLAGS, "g", "u", "y"):  # g and u change nothing here
            raise ValueError(f"unknown flag {letter!r}; known: {', '.join((*_FLAGS, 'y'))}")
    if "y" in letters:  # in JavaScript: match where the last match ended, and so at the beginning
        text = rf"\A(?:{text})"
    return get_pattern(text, "".join(letter for letter in letters if letter in _FLAGS))
