"""The content of events: what people, models and tools said, and the marks that replace it when it is erased.

The form of an event stays: its type, ids, names of tools, kinds, outcomes, usage and times. Every text is
replaced by `[erased]`, and every value that somebody chose (arguments, results, variables, forms) by a mark
with a number. Within one erasing equal values get equal numbers: a chart still sees that a call was repeated.
"""

from __future__ import annotations

import contextlib
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import msgspec

from toolchart.engine.log.record import HANDED_DIGESTS
from toolchart.engine.log.redaction import STRUCTURE_KEYS
from toolchart.providers.transport.raw_answers import read_raw_answer
from toolchart.states.messages import RawAnswer

ERASED = "[erased]"

_MARK = re.compile(r"\[erased(?: [0-9]+)?\]")

_FORM_KEYS = STRUCTURE_KEYS | {"host", "handler", "by", "author", "limit_reached", "source"}
"""Keys of the log format whose texts are names, ids and words of a fixed list."""

_KEPT_KEYS = frozenset(["settings", "usage", "signature", "adaptations"])
"""Keys whose values are no content."""

_VALUE_KEYS = frozenset(["arguments", "result", "variables", "output", "value", "details"])
"""Keys whose values somebody chose; a tool's result keeps its form."""

_DIGEST_KEYS = frozenset(["wire_digest", "answer_digest"])
"""Keys of digests that cover content."""

_DROPPED_KEYS = _DIGEST_KEYS | {
    "parts",
    "labels",
    "deltas",
    "raw_answer",
    "notes",
    "warnings",
    "provider_data",
}
"""Keys that are left out: pictures and files, copies of the content, and digests that cover it."""

_RESULT_KEYS = ("success", "tool_name", "execution_time_ms")

_ONLY_CONTENT = {"forked": "system", "erased": "reason"}
"""Events with one key of content: the prompt that somebody gave a fork, and why content was erased.
All else in them links records, or says who did it."""

UNTOUCHED_TYPES = frozenset(
    ["configured", "migrated", "continued", "resumed", "calls_started", "call_submitted", "elapsed"]
)
"""Events without content of a conversation. What the author wrote (chart, spec, tools) stays."""

_NO_REPEATS = frozenset(["system", "warnings", "notes"])
"""Keys whose texts the author or the core wrote: another record that has the same text repeats nobody."""


class ContentEraser:
    """Replaces content by marks, equal content by equal marks."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def erase_event(self, data: dict[str, Any]) -> dict[str, Any]:
        """The event without its content."""
        only = _ONLY_CONTENT.get(str(data.get("type")))
        if only is not None:
            return {**data, only: ERASED} if data.get(only) else data
        return self.erase_fields(data)

    def erase_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        """A part of an event, or a message, without its content."""
        return {key: self._erase(key, value) for key, value in data.items() if key not in _DROPPED_KEYS}

    def _erase(self, key: str, value: Any) -> Any:
        if key in _FORM_KEYS or key in _KEPT_KEYS or value is None or isinstance(value, (bool, int, float)):
            return value if key != "value" else self._mark(value)
        is_form = key == "content" and isinstance(value, dict)
        if is_form or key in _VALUE_KEYS:
            return self._erase_result(value) if _is_tool_result(value) else self._mark(value)
        if isinstance(value, dict):
            return self.erase_fields(value)
        if isinstance(value, list):
            return [self._erase("", item) for item in value]
        return ERASED if value else value

    def _erase_result(self, value: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value[key] for key in _RESULT_KEYS if key in value}
        return {**kept, **{key: ERASED for key in ("result", "error") if key in value}}

    def _mark(self, value: Any) -> Any:
        """What stands for a value; an object stays one."""
        if value is None or value in ({}, {"erased": True}) or self.is_mark(value):
            return value
        text = json.dumps(value, sort_keys=True, default=repr)
        number = self._numbers.setdefault(text, len(self._numbers) + 1)
        return {"erased": number} if isinstance(value, dict) else f"[erased {number}]"

    @staticmethod
    def is_mark(value: Any) -> bool:
        """Whether a value is a mark already."""
        if isinstance(value, dict):
            return list(value) == ["erased"] and isinstance(value["erased"], int)
        return isinstance(value, str) and _MARK.fullmatch(value) is not None


def _is_tool_result(value: Any) -> bool:
    return isinstance(value, dict) and "tool_name" in value and "success" in value


def iterate_texts(event: dict[str, Any], *, only_said: bool = False) -> Iterator[str]:
    """The texts of an event that erasing takes out, JSON in a text included; numbers as JSON writes them.

    Args:
        only_said: leave out what the author and the core wrote: system prompt, notes, warnings, names of
            arguments.
    """
    kind = str(event.get("type"))
    if kind in UNTOUCHED_TYPES:
        return
    only = _ONLY_CONTENT.get(kind)
    if only is None:
        yield from _iterate_fields(event, only_said=only_said)
    elif not only_said and event.get(only):
        yield str(event[only])


def _iterate_fields(data: dict[str, Any], *, only_said: bool) -> Iterator[str]:
    for key, value in data.items():
        is_form = key in _FORM_KEYS or key in _KEPT_KEYS or key in _DIGEST_KEYS
        if not is_form and not (only_said and key in _NO_REPEATS):
            yield from _iterate_value(key, value, only_said=only_said)


def _iterate_value(key: str, value: Any, *, only_said: bool) -> Iterator[str]:
    if key == "raw_answer":
        yield from _iterate_raw_answer(value, with_keys=not only_said)
    elif _is_tool_result(value):
        for name in ("result", "error"):
            yield from _iterate_chosen(value.get(name), with_keys=not only_said)
    elif key in _VALUE_KEYS or key in _DROPPED_KEYS or (key == "content" and isinstance(value, dict)):
        yield from _iterate_chosen(value, with_keys=not only_said)
    elif isinstance(value, dict):
        yield from _iterate_fields(value, only_said=only_said)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_value("", item, only_said=only_said)
    elif isinstance(value, str):
        yield from _iterate_chosen(value, with_keys=not only_said)


def _iterate_raw_answer(value: Any, *, with_keys: bool) -> Iterator[str]:
    """The texts of a kept answer: of its JSON, or of each line of a stream."""
    try:
        content = read_raw_answer(msgspec.convert(value, RawAnswer)).decode("utf-8", "replace")
    except ValueError:
        return
    for text in [content, *content.splitlines()]:
        with contextlib.suppress(ValueError, RecursionError):
            yield from _iterate_chosen(json.loads(text.removeprefix("data:")), with_keys=with_keys)


def _iterate_chosen(value: Any, *, with_keys: bool) -> Iterator[str]:
    """The texts of a value that somebody chose."""
    if ContentEraser.is_mark(value):
        return
    if isinstance(value, dict):
        yield from value if with_keys else ()
        for item in value.values():
            yield from _iterate_chosen(item, with_keys=with_keys)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_chosen(item, with_keys=with_keys)
    elif isinstance(value, str):
        yield value
        if value[:1] in ("{", "[", '"'):
            with contextlib.suppress(ValueError, RecursionError):
                yield from _iterate_chosen(json.loads(value), with_keys=with_keys)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield json.dumps(value)


def fold_text(text: str) -> str:
    """A text for comparison: whatever its capitals, and however its accents are composed."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


_DIGEST_KEYS = frozenset(("wire_digest", *HANDED_DIGESTS))
"""Keys of events whose value covers what was said in earlier records."""


def strike_digests(data: dict[str, Any]) -> dict[str, Any]:
    """The event without the digests that cover what was said before: of bodies, arguments, questions."""
    if not any(_covers_body(value) for value in data.values()) and not _DIGEST_KEYS & data.keys():
        return data
    data = {key: value for key, value in data.items() if key not in _DIGEST_KEYS}
    return {
        key: {name: item for name, item in value.items() if name != "wire_digest"}
        if _covers_body(value)
        else value
        for key, value in data.items()
    }


def _covers_body(value: Any) -> bool:
    return isinstance(value, dict) and "wire_digest" in value
