"""Splits streamed Markdown into blocks; each block is returned as soon as no later text can change it.

A block ends at an empty line outside a code fence, or at the closing fence. From then on it can be rendered.
The blocks together are exactly the text that came in.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class BlockSplitter:
    """Collects text as it arrives and returns complete Markdown blocks."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial_line = ""
        self._fence: str | None = None

    def add_text(self, text: str) -> list[str]:
        """Add text and return the blocks that it completes."""
        if "\n" not in text:
            self._partial_line += text
            return []
        *lines, self._partial_line = (self._partial_line + text).split("\n")
        return [block for line in lines if (block := self._add_line(line + "\n"))]

    def peek(self) -> str:
        """Return the incomplete last block, to which more text may come."""
        return "".join(self._lines) + self._partial_line

    def finish(self) -> str:
        """Return the incomplete last block when no more text comes."""
        block = self.peek()
        self._lines, self._partial_line, self._fence = [], "", None
        return block

    def _add_line(self, line: str) -> str | None:
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
