"""Regular expressions of the `text` tool: search and replacement within a limit of processor time.

The functions run in a process of their own. Python's engine cannot be interrupted, and a short pattern can
take exponential time. A timer of the kernel ends the process at any point.
"""

from __future__ import annotations

import re
import signal
from typing import Any

from toolchart.tools.definition import ToolFailure

CPU_S = 0.5
"""Processor seconds for one pattern."""

MAX_MATCHES = 100


def search(pattern: str, text: str, ignore_case: bool) -> dict[str, Any]:
    """Find matches: `{count, matches: [{text, start, groups?}]}`, at most `MAX_MATCHES` of them."""
    _start_timer()
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
    _start_timer()
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


def _start_timer() -> None:
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
