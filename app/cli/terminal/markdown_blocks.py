"""Markdown that grows: its blocks, each as soon as nothing can be added to it.

A block ends at an empty line outside of a code fence, or at the fence's own end; only then can it be
rendered once and for all. Nothing is lost: the blocks together are the text.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class Blocks:
    """Takes text as it comes and gives the blocks that are whole."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest = ""
        self._fence: str | None = None

    def feed(self, text: str) -> list[str]:
        """The blocks that this text completes."""
        if "\n" not in text:
            self._rest += text
            return []
        *lines, self._rest = (self._rest + text).split("\n")
        return [block for line in lines if (block := self._line(line + "\n"))]

    def end(self) -> str:
        """What is left when no more text comes."""
        left = "".join(self._lines) + self._rest
        self._lines, self._rest, self._fence = [], "", None
        return left

    def _line(self, line: str) -> str | None:
        self._lines.append(line)
        fence = _FENCE.match(line)
        if self._fence is not None:
            closes = fence and fence[1].startswith(self._fence) and not line[fence.end() :].strip()
            if not closes:
                return None
            self._fence = None
        elif fence:
            self._fence = fence[1]
            return None
        elif line.strip():
            return None
        block = "".join(self._lines)
        self._lines = []
        return block
