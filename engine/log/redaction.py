"""Redaction: what a spec declares secret is taken out of a record before it is hashed.

By key, inside arguments and results; by pattern, in every text. A secret found by its key is remembered,
so that it is taken out of later texts too. What stands in its place is a mark that tells two secrets
apart and nothing else: a keyed hash, whose key is drawn anew for every process and kept nowhere.

The log must still derive again. So the conversation as it is written, redacted, takes its own steps
through the core, beside the real one; what the log says of a step is what that shadow did. If redaction
ever made the machine do something else, the turn stops before the record is written.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import orjson

from toolchart.engine.log.record import plain_event
from toolchart.states.canonical_json import canonical
from toolchart.states.core.step import Step, step
from toolchart.states.encoding import decode_event
from toolchart.states.errors import SpecError, ToolchartError
from toolchart.states.events import AnyEvent, Configured
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot
from toolchart.states.suggestions import nearest

PATTERNS: Mapping[str, str] = {
    "email": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}",
    "phone": r"(?<![\w+])\+\d[\d ()./-]{6,}\d",
    "card": r"(?<!\d)(?:\d[ -]?){12,18}\d(?!\d)",
    "iban": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b",
    "ipv4": r"\b(?:\d{1,3}\.){3}\d{1,3}\b",
    "token": r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bAKIA[A-Z0-9]{16}\b"
    r"|\bey[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*|(?<=Bearer )[A-Za-z0-9._~+/-]{8,}",
}
"""Patterns by name; a spec may write its own as `/expression/`."""

MARK = re.compile(r"(\[redacted:[0-9a-f]{8}\])")

_STRUCTURE = frozenset(
    [
        "type",
        "id",
        "call_id",
        "native_id",
        "tool_call_id",
        "name",
        "tool_name",
        "role",
        "kind",
        "outcome",
        "ruling",
        "finish_reason",
        "native_reason",
        "model",
        "provider",
        "service",
        "response_id",
        "parent",
        "head",
        "conversation",
    ]
)
"""Keys of the log's own form whose texts are words of the machine and nobody's secret."""

_SHORTEST = 4
"""Characters below which a secret found by key is not looked for in other texts."""

_PASSES = 4


class Redactor:
    """Takes secrets out of event data.

    Args:
        keys: globs over keys, upper and lower case alike.
        patterns: names of `PATTERNS`, or `/expression/`.

    Raises:
        SpecError: a pattern that is not known or cannot be read.
    """

    def __init__(self, keys: Sequence[str] = (), patterns: Sequence[str] = ()) -> None:
        self._keys = [key.lower() for key in keys]
        self._patterns = [_pattern(text) for text in patterns]
        self._secret = secrets.token_bytes(32)
        self._known: dict[str, str] = {}

    def event(self, data: dict[str, Any]) -> dict[str, Any]:
        """The event without what is secret; a configuration is left as it is, being the author's own."""
        if data["type"] == Configured.TYPE:
            return data
        once: dict[str, Any] = self._structure(data)
        if self._known:  # what was found by its key may stand earlier in the same event
            once = self._structure(once)
        return once

    def _structure(self, value: Any, key: str = "") -> Any:
        """A part of the log's own form: keys are ours, texts may be anybody's."""
        if key == "arguments" or (key == "result" and not _is_tool_result(value)):
            return self._payload(value)
        if key in ("raw", "shown") and isinstance(value, str):
            return self._json_text(value)
        if isinstance(value, dict):
            return {
                name: item if name in _STRUCTURE else self._structure(item, name)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self._structure(item, key) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _payload(self, value: Any) -> Any:
        """Somebody's data: its keys are looked at."""
        if isinstance(value, dict):
            return {
                key: self._marked(item) if self._is_secret(key) else self._payload(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._payload(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _json_text(self, text: str) -> str:
        """Text that may hold JSON: looked at by its keys where it does."""
        try:
            value = json.loads(text)  # keeps integers beyond 64 bits, as canonical JSON does not
            told = self._structure(value) if _is_tool_result(value) else self._payload(value)
            return text if told == value else json.dumps(told, ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError):
            return self._text(text)

    def _is_secret(self, key: str) -> bool:
        return any(fnmatchcase(key.lower(), glob) for glob in self._keys)

    def _marked(self, value: Any) -> Any:
        if value is None or (isinstance(value, str) and MARK.fullmatch(value)):
            return value
        mark = self._mark(canonical(value))
        if isinstance(value, (str, int, float)) and len(str(value)) >= _SHORTEST:
            self._known[str(value)] = mark
        return mark

    def _mark(self, secret: bytes) -> str:
        return f"[redacted:{hmac.new(self._secret, secret, hashlib.sha256).hexdigest()[:8]}]"

    def _text(self, text: str) -> str:
        """The text without known secrets and without what a pattern finds; marks stay as they are."""
        for _ in range(_PASSES):
            told = "".join(
                part if place % 2 else self._plain(part)
                for place, part in enumerate(MARK.split(text))
            )
            if told == text:
                return text
            text = told
        return text

    def _plain(self, text: str) -> str:
        for secret in sorted(self._known, key=len, reverse=True):
            if secret in text:
                text = text.replace(secret, self._known[secret])
        for pattern in self._patterns:
            text = pattern.sub(lambda found: self._mark(canonical(found.group())), text)
        return text


def _is_tool_result(value: Any) -> bool:
    return isinstance(value, dict) and "tool_name" in value and "success" in value


def _pattern(text: str) -> re.Pattern[str]:
    if text in PATTERNS:
        return re.compile(PATTERNS[text])
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        try:
            found = re.compile(text[1:-1])
        except re.error as error:
            raise SpecError(
                f"{text} is no regular expression: {error}", path="redact.patterns"
            ) from None
        if found.search("") or found.search("[redacted:0123abcd]"):
            raise SpecError(
                f"{text} finds the empty text or the mark that stands for a secret",
                path="redact.patterns",
                hint="ask for at least one character of the secret itself",
            )
        return found
    raise SpecError(
        f"there is no pattern {text!r}",
        path="redact.patterns",
        hint=nearest(text, PATTERNS) + "; your own is written /expression/",
    )


class Shadow:
    """The conversation as it is written, taking its own steps.

    Args:
        redact: event data without what is secret.
    """

    def __init__(
        self,
        machine: Machine,
        snapshot: Snapshot,
        redact: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        self._machine = machine
        self._snapshot = snapshot
        self._redact = redact

    def take(self, event: AnyEvent, data: bytes, real: Step) -> tuple[bytes, Step]:
        """What the log says of a real step: the redacted event, and the step that it makes.

        Raises:
            ToolchartError: redaction would make the machine do something else.
        """
        told, written = plain_event(decode_event(self._redact(orjson.loads(data)), event.at))
        noted = step(self._machine, self._snapshot, told)
        if (noted.target, _names(noted)) != (real.target, _names(real)):
            raise ToolchartError(
                f"redaction would change what the machine does after {event.TYPE!r}: "
                f"{noted.target!r} instead of {real.target!r}; nothing was written of it"
            )
        self._snapshot = noted.snapshot
        return written, noted


def _names(taken: Step) -> list[str]:
    return [effect.name for effect in taken.effects]
