"""The cache of results of tools that are declared `cacheable`."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

import msgspec

from toolchart.states.canonical_json import encode_canonical
from toolchart.tools.definition import Tool
from toolchart.tools.execution.context import CallContext

MAX_ENTRIES = 256

CacheKey = tuple[str, str, bytes, int, str, int]
"""Tool, digest of its definition, canonical arguments, id of the dependencies (0 where the tool reads none),
conversation and turn; the last two are empty for a shared entry."""


class CachedResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one call that ran."""

    value: Any
    size: int
    """Characters of the value as a text, at most."""
    call_id: str
    """The call that ran."""
    stored_at: float
    """Monotonic seconds."""
    dependencies: Any
    """What the call had of its turn; held here, so that no other object gets its id."""


class ResultCache:
    """The 256 results that were used last.

    A result answers calls of the same tool, in the same definition, with the same canonical arguments and,
    where the tool reads them, the same dependencies. It is valid within its turn, or, for a tool with
    `cache_ttl_s`, for that many seconds in every conversation of the executor. So a tool whose result depends
    on the user must not declare a time, unless only its dependencies say who that is. Failures are never
    cached.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[CacheKey, CachedResult] = OrderedDict()

    def make_key(
        self, tool: Tool, definition: str, arguments: dict[str, Any], context: CallContext
    ) -> CacheKey:
        """The key that two calls share when one may be answered from the other.

        Args:
            definition: digest of the tool's whole definition: what another tool of its name answered is not
                its answer.
        """
        is_shared = tool.cache_ttl_s is not None
        conversation, turn = ("", 0) if is_shared else (context.conversation, context.turn)
        dependencies = id(context.dependencies) if tool.needs_context else 0
        return (tool.name, definition, encode_canonical(arguments), dependencies, conversation, turn)

    def find_result(self, key: CacheKey, tool: Tool) -> CachedResult | None:
        """The result under a key, unless its time is over."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if tool.cache_ttl_s is not None and time.monotonic() - entry.stored_at > tool.cache_ttl_s:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry

    def store_result(
        self, key: CacheKey, value: Any, size: int, call_id: str, dependencies: Any = None
    ) -> None:
        """Store a result; the least recently used one is dropped where the cache is full."""
        self._entries[key] = CachedResult(
            value=value, size=size, call_id=call_id, stored_at=time.monotonic(), dependencies=dependencies
        )
        self._entries.move_to_end(key)
        while len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)
