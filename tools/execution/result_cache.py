"""Earlier answers of tools that are declared cacheable."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from toolchart.states.canonical_json import canonical
from toolchart.tools.definition import Tool
from toolchart.tools.execution.context import CallContext

MOST_ENTRIES = 256

Key = tuple[str, bytes, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One answer."""

    value: Any
    call_id: str
    """The call that was really run."""
    at: float
    """Monotonic seconds."""


class ResultCache:
    """The newest answers, at most 256 of them.

    An answer is good for the same tool with the same canonical arguments: within its turn, or for
    `cache_ttl_s` seconds wherever this executor is used, so a tool whose answer depends on who asks
    must not declare a time. Failures are never kept.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Key, Entry] = OrderedDict()

    def key(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Key:
        """What makes two calls the same."""
        shared = tool.cache_ttl_s is not None
        scope = ("", 0) if shared else (context.conversation, context.turn)
        return (tool.name, canonical(arguments), *scope)

    def get(self, key: Key, tool: Tool) -> Entry | None:
        """The answer, while it is good."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if tool.cache_ttl_s is not None and time.monotonic() - entry.at > tool.cache_ttl_s:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry

    def put(self, key: Key, value: Any, call_id: str) -> None:
        """Keep an answer; the one that was unused longest makes room."""
        self._entries[key] = Entry(value=value, call_id=call_id, at=time.monotonic())
        self._entries.move_to_end(key)
        while len(self._entries) > MOST_ENTRIES:
            self._entries.popitem(last=False)
