"""A regular expression on a text, within half a second of processor time.

Run in a process of its own: Python's engine cannot be interrupted, and a pattern of a dozen characters
can keep it busy for years. The kernel's timer ends the process, wherever it is.
"""

from __future__ import annotations

import re
import signal
from typing import Any

from toolchart.tools.definition import ToolFailure

CPU_S = 0.5
"""Processor seconds for one pattern."""

MOST_MATCHES = 100


def search(pattern: str, text: str, ignore_case: bool) -> dict[str, Any]:
    """Every match with its place and groups, at most a hundred, and how many there are."""
    _timer()
    compiled = _compiled(pattern, ignore_case)
    found = []
    count = 0
    for match in compiled.finditer(text):
        count += 1
        if count <= MOST_MATCHES:
            found.append(_match(match))
    return {"count": count, "matches": found}


def substitute(pattern: str, text: str, ignore_case: bool, replacement: str) -> dict[str, Any]:
    """The text with every match replaced; `\\1` and `\\g<name>` stand for groups."""
    _timer()
    try:
        result, count = _compiled(pattern, ignore_case).subn(replacement, text)
    except (re.error, IndexError) as error:
        raise ToolFailure(f"the replacement cannot be used: {error}") from None
    return {"text": result, "count": count}


def _match(match: re.Match[str]) -> dict[str, Any]:
    told: dict[str, Any] = {"text": match.group(), "start": match.start()}
    if match.groups():
        told["groups"] = list(match.groups())
    return told


def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolFailure(f"not a regular expression: {error}") from None


def _timer() -> None:
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
