"""The `text` tool: count, change case, replace, regular expressions, slice and compare."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolchart.tools.builtin.worker_calls import run_in_worker
from toolchart.tools.definition import ToolFailure

MAX_CHARACTERS = 200_000
"""Characters of all texts of one call together, and of a result."""

PATTERN_PROCESSOR_S = 0.5
"""Seconds of processor time for one pattern on one text."""

MAX_MATCHES = 100

MAX_DIFF_LINES = 2000
"""Lines of each text of a diff; the time grows with the product of the two."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "operation": {
            "type": "string",
            "enum": ["count", "case", "replace", "regex", "slice", "diff"],
            "description": "What to do.",
        },
        "text": {"type": "string", "description": "The text."},
        "find": {"type": "string", "description": "count, replace: what to look for. regex: the pattern."},
        "replacement": {
            "type": "string",
            "description": "replace: what to put there. regex: with it matches are replaced.",
        },
        "to": {
            "type": "string",
            "enum": ["upper", "lower", "title", "snake", "kebab", "camel"],
            "description": "case: the case.",
        },
        "start": {"type": "integer", "description": "slice: first character, from 0; may be negative."},
        "end": {"type": "integer", "description": "slice: the character after the last one."},
        "other": {"type": "string", "description": "diff: the text to compare with."},
        "ignore_case": {"type": "boolean", "description": "count, replace, regex."},
    },
    "required": ["operation", "text"],
}


def run_text_operation(arguments: Mapping[str, Any]) -> Any:
    """Run one operation; for a regular expression return a coroutine that runs in another process.

    Raises:
        ToolFailure: the operation needs a parameter that is missing, or a text is too long.
    """
    size = sum(len(value) for value in arguments.values() if isinstance(value, str))
    if size > MAX_CHARACTERS:
        raise ToolFailure(f"the texts have {size} characters; at most {MAX_CHARACTERS}")
    return _OPERATIONS[arguments["operation"]](arguments)


def _require_argument(arguments: Mapping[str, Any], name: str) -> Any:
    if name not in arguments:
        raise ToolFailure(f"the operation {arguments['operation']!r} needs {name!r}")
    return arguments[name]


def _count_text(arguments: Mapping[str, Any]) -> dict[str, int]:
    text = arguments["text"]
    if "find" in arguments:
        needle = arguments["find"]
        if not needle:
            raise ToolFailure("'find' is empty")
        if arguments.get("ignore_case"):
            text, needle = text.casefold(), needle.casefold()
        return {"count": text.count(needle)}
    lines = len(text.splitlines())
    return {"characters": len(text), "words": len(text.split()), "lines": lines}


def _change_case(arguments: Mapping[str, Any]) -> str:
    text, case = arguments["text"], _require_argument(arguments, "to")
    if case in ("upper", "lower", "title"):
        return str(getattr(text, case)())
    words = _split_words(text)
    if case == "camel":
        return "".join(word.capitalize() if index else word for index, word in enumerate(words))
    return ("_" if case == "snake" else "-").join(words)


def _split_words(text: str) -> list[str]:
    """The words of a text, or of a name in snake, kebab or camel case, in lower case."""
    spaced_text = ""
    for previous, character in itertools.pairwise(" " + text):
        boundary = character.isupper() and (previous.islower() or previous.isdigit())
        spaced_text += (" " if boundary else "") + (character if character.isalnum() else " ")
    return spaced_text.lower().split()


def _replace_text(arguments: Mapping[str, Any]) -> dict[str, Any]:
    needle, replacement = (_require_argument(arguments, "find"), _require_argument(arguments, "replacement"))
    if not needle:
        raise ToolFailure("'find' is empty")
    text = arguments["text"]
    if arguments.get("ignore_case"):
        raise ToolFailure("replacing without regard to case is a matter for 'regex'")
    count = text.count(needle)
    new_size = len(text) + count * (len(replacement) - len(needle))
    if new_size > MAX_CHARACTERS:
        raise ToolFailure(f"the result would have {new_size} characters; at most {MAX_CHARACTERS}")
    return {"text": text.replace(needle, replacement), "count": count}


def _slice_text(arguments: Mapping[str, Any]) -> str:
    return str(arguments["text"][arguments.get("start") : arguments.get("end")])


def _compare_texts(arguments: Mapping[str, Any]) -> str:
    text_lines, other_lines = (
        arguments["text"].splitlines(),
        _require_argument(arguments, "other").splitlines(),
    )
    if max(len(text_lines), len(other_lines)) > MAX_DIFF_LINES:
        raise ToolFailure(f"a diff takes at most {MAX_DIFF_LINES} lines on each side")
    lines = difflib.unified_diff(text_lines, other_lines, "text", "other", lineterm="")
    return "\n".join(lines) or "no difference"


def _run_regex(arguments: Mapping[str, Any]) -> Awaitable[Any]:
    pattern = _require_argument(arguments, "find")
    values = {
        "pattern": pattern,
        "text": arguments["text"],
        "ignore_case": bool(arguments.get("ignore_case")),
    }
    if "replacement" in arguments:
        return _run_pattern("substitute", {**values, "replacement": arguments["replacement"]})
    return _run_pattern("search", values)


def _run_pattern(function: str, values: dict[str, Any]) -> Awaitable[Any]:
    return run_in_worker(
        function,
        values,
        module="toolchart.tools.builtin.text",
        processor_s=PATTERN_PROCESSOR_S,
        refusal="the pattern takes too much time or memory on this text; use a simpler one, without "
        "repetition inside repetition",
    )


_OPERATIONS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "count": _count_text,
    "case": _change_case,
    "replace": _replace_text,
    "regex": _run_regex,
    "slice": _slice_text,
    "diff": _compare_texts,
}


# -- regular expressions, in a worker: Python's engine cannot be interrupted -----------------------


def search(pattern: str, text: str, ignore_case: bool) -> dict[str, Any]:
    """Find matches: `{count, matches: [{text, start, groups?}]}`, at most `MAX_MATCHES` of them."""
    regex = _compile_pattern(pattern, ignore_case)
    matches = []
    count = 0
    for match in regex.finditer(text):
        count += 1
        if count <= MAX_MATCHES:
            matches.append(_encode_match(match))
    return {"count": count, "matches": matches}


def substitute(pattern: str, text: str, ignore_case: bool, replacement: str) -> dict[str, Any]:
    """Replace every match: `{text, count}`; `\\1` and `\\g<name>` in the replacement are groups."""
    try:
        result, count = _compile_pattern(pattern, ignore_case).subn(replacement, text)
    except (re.error, IndexError) as error:
        raise ToolFailure(f"the replacement cannot be used: {error}") from None
    return {"text": result, "count": count}


def _encode_match(match: re.Match[str]) -> dict[str, Any]:
    result: dict[str, Any] = {"text": match.group(), "start": match.start()}
    if match.groups():
        result["groups"] = list(match.groups())
    return result


def _compile_pattern(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolFailure(f"not a regular expression: {error}") from None
