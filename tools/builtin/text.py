"""Text operations: count, case, replace, regex, slice, diff."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

from toolchart.tools.definition import Tool, ToolFailure

MOST_CHARACTERS = 200_000
"""Of the texts of one call."""

MOST_DIFF_LINES = 2000
"""Of each side of a diff: comparing costs their product."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "operation": {
            "type": "string",
            "enum": ["count", "case", "replace", "regex", "slice", "diff"],
            "description": "What to do.",
        },
        "text": {"type": "string", "description": "The text."},
        "find": {
            "type": "string",
            "description": "count, replace: what to look for. regex: the pattern.",
        },
        "replacement": {
            "type": "string",
            "description": "replace: what to put there. regex: with it matches are replaced.",
        },
        "to": {
            "type": "string",
            "enum": ["upper", "lower", "title", "snake", "kebab", "camel"],
            "description": "case: the case.",
        },
        "start": {
            "type": "integer",
            "description": "slice: first character, from 0; may be negative.",
        },
        "end": {"type": "integer", "description": "slice: the character after the last one."},
        "other": {"type": "string", "description": "diff: the text to compare with."},
        "ignore_case": {"type": "boolean", "description": "count, replace, regex."},
    },
    "required": ["operation", "text"],
}


def text_tool(arguments: Mapping[str, Any]) -> Any:
    """The result of one operation; a regex runs elsewhere and is awaited.

    Raises:
        ToolFailure: a parameter that the operation needs is missing, or a text is too long.
    """
    size = sum(len(value) for value in arguments.values() if isinstance(value, str))
    if size > MOST_CHARACTERS:
        raise ToolFailure(f"the texts have {size} characters; at most {MOST_CHARACTERS}")
    return _OPERATIONS[arguments["operation"]](arguments)


def _needed(arguments: Mapping[str, Any], name: str) -> Any:
    if name not in arguments:
        raise ToolFailure(f"the operation {arguments['operation']!r} needs {name!r}")
    return arguments[name]


def _count(arguments: Mapping[str, Any]) -> dict[str, int]:
    text = arguments["text"]
    if "find" in arguments:
        wanted = arguments["find"]
        if not wanted:
            raise ToolFailure("'find' is empty")
        if arguments.get("ignore_case"):
            text, wanted = text.casefold(), wanted.casefold()
        return {"count": text.count(wanted)}
    lines = len(text.splitlines())
    return {"characters": len(text), "words": len(text.split()), "lines": lines}


def _case(arguments: Mapping[str, Any]) -> str:
    text, wanted = arguments["text"], _needed(arguments, "to")
    if wanted in ("upper", "lower", "title"):
        return str(getattr(text, wanted)())
    words = _words(text)
    if wanted == "camel":
        return "".join(word.capitalize() if place else word for place, word in enumerate(words))
    return ("_" if wanted == "snake" else "-").join(words)


def _words(text: str) -> list[str]:
    """The words of a text or of a name in any case, in lower case."""
    spaced = ""
    for before, here in itertools.pairwise(" " + text):
        boundary = here.isupper() and (before.islower() or before.isdigit())
        spaced += (" " if boundary else "") + (here if here.isalnum() else " ")
    return spaced.lower().split()


def _replace(arguments: Mapping[str, Any]) -> dict[str, Any]:
    wanted, replacement = _needed(arguments, "find"), _needed(arguments, "replacement")
    if not wanted:
        raise ToolFailure("'find' is empty")
    text = arguments["text"]
    if arguments.get("ignore_case"):
        raise ToolFailure("replacing without regard to case is a matter for 'regex'")
    count = text.count(wanted)
    grown = len(text) + count * (len(replacement) - len(wanted))
    if grown > MOST_CHARACTERS:
        raise ToolFailure(f"the result would have {grown} characters; at most {MOST_CHARACTERS}")
    return {"text": text.replace(wanted, replacement), "count": count}


def _slice(arguments: Mapping[str, Any]) -> str:
    return str(arguments["text"][arguments.get("start") : arguments.get("end")])


def _diff(arguments: Mapping[str, Any]) -> str:
    one, other = arguments["text"].splitlines(), _needed(arguments, "other").splitlines()
    if max(len(one), len(other)) > MOST_DIFF_LINES:
        raise ToolFailure(f"a diff takes at most {MOST_DIFF_LINES} lines on each side")
    lines = difflib.unified_diff(one, other, "text", "other", lineterm="")
    return "\n".join(lines) or "no difference"


def _regex(arguments: Mapping[str, Any]) -> Awaitable[Any]:
    pattern = _needed(arguments, "find")
    given = {
        "pattern": pattern,
        "text": arguments["text"],
        "ignore_case": bool(arguments.get("ignore_case")),
    }
    if "replacement" in arguments:
        return _elsewhere("substitute", {**given, "replacement": arguments["replacement"]})
    return _elsewhere("search", given)


async def _elsewhere(name: str, given: dict[str, Any]) -> Any:
    from toolchart.tools.execution.isolation import Ended, run_in_process

    try:
        return await run_in_process(_isolated(name), given)
    except Ended:
        raise ToolFailure(
            "the pattern takes too much time or memory on this text; use a simpler one, without "
            "repetition inside repetition"
        ) from None


@cache
def _isolated(name: str) -> Tool:
    from toolchart.tools.builtin import regexes
    from toolchart.tools.sources.python import tool, tool_of

    return tool_of(tool(isolation="process", timeout_s=10.0, memory_mb=256)(getattr(regexes, name)))


_OPERATIONS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "count": _count,
    "case": _case,
    "replace": _replace,
    "regex": _regex,
    "slice": _slice,
    "diff": _diff,
}
