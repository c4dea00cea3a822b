"""Which handler answers: the first whose `match` fits the variables.

Each key of `match` is one condition, and all must hold: `field: value` is equality,
`field_contains: text` a part of the field (or a member of a list), `field_regexp: pattern` a search
with `/pattern/flags` or a plain pattern, and `rag_results: any` means that a search found something,
in full or in part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolchart.specs.models import AgentSpec, Handler
from toolchart.specs.prompts import look_up
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}

_FOUND_SOMETHING = ("match", "partial", "any")
"""Values of the variable `rag_results` that `rag_results: any` takes."""


def select_handler(
    spec: AgentSpec, variables: Mapping[str, Any], name: str | None = None
) -> Handler:
    """The handler of that name, or the first that matches.

    Raises:
        SpecError: no such handler, or none that matches.
    """
    if name is not None:
        return _named(spec, name)
    for handler in spec.responses:
        if matches(handler.match, variables):
            return handler
    raise SpecError(
        "no handler matches these variables",
        file=spec.source,
        path="responses",
        hint="add a handler without `match` as the fallback, or give variables with --var: "
        + ", ".join(sorted({key for h in spec.responses for key in h.match or {}})),
    )


def _named(spec: AgentSpec, name: str) -> Handler:
    for handler in spec.responses:
        if handler.name == name:
            return handler
    if name.isdigit() and int(name) < len(spec.responses):
        return spec.responses[int(name)]
    known = [handler.name or str(place) for place, handler in enumerate(spec.responses)]
    raise SpecError(
        f"there is no handler {name!r}",
        file=spec.source,
        path="responses",
        hint=nearest(name, known),
    )


def matches(conditions: Mapping[str, Any] | None, variables: Mapping[str, Any]) -> bool:
    """Whether every condition holds; no conditions always match."""
    return all(_holds(key, wanted, variables) for key, wanted in (conditions or {}).items())


def _holds(key: str, wanted: Any, variables: Mapping[str, Any]) -> bool:
    if key == "comment":
        return True
    if key == "rag_results":
        found = look_up(variables, key)
        return found in _FOUND_SOMETHING if wanted == "any" else found == wanted
    if key.endswith("_contains"):
        return _contains(look_up(variables, key.removesuffix("_contains")), wanted)
    if key.endswith("_regexp"):
        found = look_up(variables, key.removesuffix("_regexp"))
        return found is not None and pattern(str(wanted)).search(str(found)) is not None
    return bool(look_up(variables, key) == wanted)


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(found, (list, tuple)):
        return wanted in found
    return found is not None and str(wanted).lower() in str(found).lower()


def pattern(text: str) -> re.Pattern[str]:
    """The compiled form of `/pattern/flags` or of a plain pattern.

    Raises:
        ValueError: it does not compile, or a flag is unknown.
    """
    flags = re.NOFLAG
    if len(text) > 1 and text.startswith("/") and "/" in text[1:]:
        text, _, letters = text[1:].rpartition("/")
        for letter in letters:
            if letter not in _FLAGS and letter not in "gu":  # g and u mean nothing to a search here
                raise ValueError(f"unknown flag {letter!r}; known: {', '.join(_FLAGS)}")
            flags |= _FLAGS.get(letter, re.NOFLAG)
    try:
        return re.compile(text, flags)
    except re.error as error:
        raise ValueError(str(error)) from None
