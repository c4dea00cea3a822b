"""Redaction: replaces secrets in events before their records are hashed and written.

Secrets are found by key in tool arguments and results, and by pattern in every text. The value of a
secret key is remembered and replaced in later texts too. A secret is replaced by a mark with a keyed
hash: two different secrets have different marks, and nothing else can be read from a mark. The key of
the hash is random for each process and is not stored.

A redacted log must still replay. So the redacted events make their own steps through the core, in a
second conversation beside the real one, and these steps are logged. Where a redacted event would lead to
another state or other effects, the turn stops before the record is written.
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

from msgspec.structs import replace

from toolchart.engine.log.record import HANDED_DIGESTS, compute_expected_digest
from toolchart.states.canonical_json import encode_canonical
from toolchart.states.core.encoding import decode_event, make_plain_event, read_json
from toolchart.states.core.step import Step, step
from toolchart.states.effects import compute_effect_digest, encode_digest
from toolchart.states.errors import SpecError, ToolchartError, suggest_name
from toolchart.states.events import CONFIGURATION_TYPES, Event, TurnStarted, UserSaid
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot
from toolchart.workers.patterns import Pattern, PatternTimeout, get_pattern

PATTERNS: Mapping[str, str] = {
    "email": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}",
    "phone": r"(?:^|[^\pL\p{Nd}_+])(?P<secret>\+\p{Nd}[\p{Nd} ()./-]{6,}\p{Nd})",
    "card": r"(?:^|\P{Nd})(?P<secret>(?:\p{Nd}[ -]?){12,18}\p{Nd})(?:$|\P{Nd})",
    "iban": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b",
    "ipv4": r"\b(?:\d{1,3}\.){3}\d{1,3}\b",
    "token": r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bAKIA[A-Z0-9]{16}\b"
    r"|\bey[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*|Bearer (?P<secret>[A-Za-z0-9._~+/-]{8,})",
}
"""Patterns by name; a spec may have its own as `/expression/`. Where a pattern has a group `secret`, only
that group is replaced."""

MARK_PATTERN = re.compile(r"(\[redacted:[0-9a-f]{8}\])")

STRUCTURE_KEYS = frozenset(
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
        *HANDED_DIGESTS,
    ]
)
"""Keys of the log format whose texts are names or ids, never secrets."""

_KEYED_TYPES = (TurnStarted.TYPE, UserSaid.TYPE)

_MIN_SECRET_LENGTH = 4
"""A secret with fewer characters is replaced under its key, but not in other texts."""

_MAX_PASSES = 4
"""How often a text is searched again, because a replacement can complete another match."""


_NAME = re.compile(r"(?<![\w.-])([\w.-]{1,100})(?:\\{0,9}[\"'])?[ \t]{0,9}[:=][ \t]{0,9}")
"""A name before a value, with or without quotes: `"name": `, `name=`, `name: `. Bounded: linear time."""

_QUOTE = re.compile(r"\\{0,9}[\"']")

_BARE_VALUE = re.compile(r"[^\s,;&#}\])\"'\\]*")


def count_matches(pattern: str, text: str) -> int:
    """How often a pattern of `redact` occurs in a text; once where it takes too long.

    Raises:
        SpecError: it is unknown or is no regular expression.
    """
    try:
        return len(_compile_redaction_pattern(pattern).find_spans(text))
    except PatternTimeout:
        return 1


def hide_marks(text: str) -> str:
    """A redacted text without its marks, which each process makes anew: so two texts can be compared."""
    return MARK_PATTERN.sub("[redacted]", text)


def _find_value(text: str, start: int) -> tuple[int, int]:
    """Where the value behind a name begins and ends: up to the closing quote, else up to a delimiter."""
    quote = _QUOTE.match(text, start)
    if quote is None:
        bare = _BARE_VALUE.match(text, start)
        return start, bare.end() if bare is not None else start
    end = text.find(quote.group(0), quote.end())
    while end > 0 and len(quote.group(0)) == 1 and _count_backslashes(text, end) % 2:
        end = text.find(quote.group(0), end + 1)
    return quote.end(), end if end >= 0 else len(text)


def _count_backslashes(text: str, end: int) -> int:
    """How many backslashes stand right before a place."""
    start = end
    while start and text[start - 1] == "\\":
        start -= 1
    return end - start


class Redactor:
    """Replaces secrets in event data by marks.

    Args:
        keys: globs over keys; case is ignored.
        patterns: names from `PATTERNS`, or `/expression/`.

    Raises:
        SpecError: a pattern is unknown or is not a regular expression.
    """

    def __init__(self, keys: Sequence[str] = (), patterns: Sequence[str] = ()) -> None:
        self._keys = [key.lower() for key in keys]
        self._patterns = [_compile_redaction_pattern(text) for text in patterns]
        self._hash_key = secrets.token_bytes(32)
        self._mark_of_secret: dict[str, str] = {}

    def redact_event(self, data: dict[str, Any]) -> dict[str, Any]:
        """The event data without secrets; `configured` is not redacted, since the author wrote it."""
        if data["type"] in CONFIGURATION_TYPES:
            return data
        redacted_data: dict[str, Any] = self._redact_structure(data)
        if self._mark_of_secret:  # a secret may also appear before its key in the event
            redacted_data = self._redact_structure(redacted_data)
        if "answer_digest" in redacted_data:  # whoever guesses the secrets of an answer could confirm them
            redacted_data["answer_digest"] = self.sign_digest(redacted_data["answer_digest"])
        if data["type"] in _KEYED_TYPES and "key" in data:  # like an id: a message is found by it
            redacted_data["key"] = data["key"]
        return redacted_data

    def sign_digest(self, digest: str) -> str:
        """The keyed digest of a digest: 192 bits of HMAC-SHA-256 in base64url, 32 characters."""
        return encode_digest(hmac.digest(self._hash_key, digest.encode(), "sha256"))

    def _redact_structure(self, value: Any, key: str = "") -> Any:
        """A redacted part of an event whose keys belong to the log format."""
        is_form = key in ("content", "output", "input") and isinstance(value, dict)
        if is_form or key == "arguments" or (key == "result" and not _is_tool_result(value)):
            return self.redact_payload(value)
        if key in ("raw", "shown") and isinstance(value, str):
            return self._redact_json_text(value)
        if isinstance(value, dict):
            return {
                name: item if name in STRUCTURE_KEYS else self._redact_structure(item, name)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self._redact_structure(item, key) for item in value]
        return self._redact_text(value) if isinstance(value, str) else value

    def redact_payload(self, value: Any) -> Any:
        """JSON data whose keys are nobody's structure, redacted: arguments or results of a tool, tags."""
        if isinstance(value, dict):
            # Keys may be secrets too: accounts by their card numbers, for instance.
            return {
                self._redact_text(key): self._replace_secret(item)
                if self._is_secret_key(key)
                else self.redact_payload(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.redact_payload(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            text = self._redact_text(str(value))  # a number of a card is one, with quotes or without
            return value if text == str(value) else text
        return self._redact_text(value) if isinstance(value, str) else value

    def _redact_json_text(self, text: str) -> str:
        """A redacted text; where it holds JSON, its keys are checked too."""
        try:
            value = json.loads(text)  # keeps integers beyond 64 bits, as canonical JSON does not
            redact = self._redact_structure if _is_tool_result(value) else self.redact_payload
            redacted_value = redact(value)
            if redacted_value == value:
                return text
            return json.dumps(redacted_value, ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError):
            return self._redact_text(text)

    def _is_secret_key(self, key: str) -> bool:
        return any(fnmatchcase(key.lower(), glob) for glob in self._keys)

    def _replace_secret(self, value: Any) -> Any:
        """The mark of a secret value; None and marks stay as they are."""
        if value is None or (isinstance(value, str) and MARK_PATTERN.fullmatch(value)):
            return value
        mark = self._build_mark(encode_canonical(value))
        if isinstance(value, (str, int, float)) and len(str(value)) >= _MIN_SECRET_LENGTH:
            self._mark_of_secret[str(value)] = mark
        return mark

    def _build_mark(self, secret: bytes) -> str:
        """The text that replaces a secret."""
        return f"[redacted:{hmac.new(self._hash_key, secret, hashlib.sha256).hexdigest()[:8]}]"

    def _redact_text(self, text: str) -> str:
        """The text without known secrets and matches of patterns; marks stay as they are."""
        for _ in range(_MAX_PASSES):
            redacted_text = "".join(
                part if index % 2 else self._redact_unmarked_text(part)
                for index, part in enumerate(MARK_PATTERN.split(text))
            )
            if redacted_text == text:
                return text
            text = redacted_text
        return text

    def _redact_unmarked_text(self, text: str) -> str:
        """A text that contains no mark, without known secrets and matches of patterns."""
        if self._keys:
            text = self._redact_named_values(text)
        for secret in sorted(self._mark_of_secret, key=len, reverse=True):
            if secret in text:
                text = text.replace(secret, self._mark_of_secret[secret])
        for pattern in self._patterns:
            text = self._redact_matches(pattern, text)
        return text

    def _redact_named_values(self, text: str) -> str:
        """The text without the values behind secret keys: in JSON inside a text, in arguments that could not
        be parsed, in queries of URLs, in `NAME=VALUE` and `name: value`."""
        pieces, position = [], 0
        for match in _NAME.finditer(text):
            if match.start() < position or not self._is_secret_key(match.group(1)):
                continue
            start, end = _find_value(text, match.end())
            value = text[start:end]
            if value and not MARK_PATTERN.fullmatch(value):
                pieces += [text[position:start], str(self._replace_secret(value))]
                position = end
        return "".join(pieces) + text[position:]

    def _redact_matches(self, pattern: Pattern, text: str) -> str:
        """The text without matches of a pattern; one mark for all of it where the pattern takes too long."""
        try:
            spans = pattern.find_spans(text)
        except PatternTimeout:
            spans = [(0, len(text))]
        pieces, position = [], 0
        for start, end in spans:
            pieces += [text[position:start], self._build_mark(encode_canonical(text[start:end]))]
            position = end
        return "".join(pieces) + text[position:]


def _is_tool_result(value: Any) -> bool:
    """Whether a value has the form of a tool's result."""
    return isinstance(value, dict) and "tool_name" in value and "success" in value


def _compile_redaction_pattern(text: str) -> Pattern:
    """The regular expression of a pattern name or of `/expression/`."""
    if text in PATTERNS:
        return get_pattern(PATTERNS[text])
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        try:
            pattern = get_pattern(text[1:-1])
        except ValueError as error:
            raise SpecError(f"{text} is no regular expression: {error}", path="redact.patterns") from None
        if pattern.occurs_in("") or pattern.occurs_in("[redacted:0123abcd]"):
            raise SpecError(
                f"{text} matches the empty text or the mark that replaces a secret",
                path="redact.patterns",
                hint="match at least one character of the secret itself",
            )
        return pattern
    raise SpecError(
        f"there is no pattern {text!r}",
        path="redact.patterns",
        hint=suggest_name(text, PATTERNS) + "; your own is written /expression/",
    )


class RedactedConversation:
    """The redacted copy of a conversation: makes its own steps, which are the ones that are logged.

    Replay derives the digests of the redacted effects. An effect that is performed with secrets has a keyed
    digest beside it: whoever has the key can check it, and nothing about the secrets can be read from it.

    Args:
        redact: returns event data without secrets.
        sign_digest: returns the keyed digest of a digest.
    """

    def __init__(
        self,
        machine: Machine,
        snapshot: Snapshot,
        redact: Callable[[dict[str, Any]], dict[str, Any]],
        sign_digest: Callable[[str], str] | None = None,
    ) -> None:
        self._machine = machine
        self._snapshot = snapshot
        self._redact = redact
        self._sign_digest = sign_digest

    @property
    def snapshot(self) -> Snapshot:
        """The redacted snapshot."""
        return self._snapshot

    def apply_event(self, data: bytes, real: Step) -> tuple[bytes, Step, dict[int, str]]:
        """The JSON of the redacted event, the step that it makes, and the keyed digest of each effect
        that is performed with other content.

        Args:
            data: JSON of the event.
            real: the step of the event before redaction.

        Raises:
            ToolchartError: the redacted event leads to another state or to other effects.
        """
        redacted_event = decode_event(self._redact(read_json(data)), real.event.at)
        redacted_event = self._sign_handed_content(redacted_event, real)
        redacted_event, redacted_data = make_plain_event(redacted_event)
        redacted_step = step(self._machine, self._snapshot, redacted_event)
        if _describe_outcome(redacted_step) != _describe_outcome(real):
            raise ToolchartError(
                f"redaction would change what the machine does after {real.event.TYPE!r}: "
                f"{redacted_step.target!r} instead of {real.target!r}; nothing was written of it"
            )
        self._snapshot = redacted_step.snapshot
        return redacted_data, redacted_step, self._sign_effects(real, redacted_step)

    def _sign_handed_content(self, redacted: Event, real: Step) -> Event:
        """The redacted event without a digest of what a performer got, which somebody could guess.

        Where that is what was asked for, it gets the digest of what the log asks for; else a keyed one.
        """
        event = real.event
        name = next((name for name in HANDED_DIGESTS if getattr(event, name, "")), "")
        if not name:
            return redacted
        digest: str = getattr(event, name)
        expected_digest = compute_expected_digest(event, real.before)[1] if real.before is not None else ""
        if digest == expected_digest:
            digest = compute_expected_digest(redacted, self._snapshot)[1]
        else:
            digest = self._sign_digest(digest) if self._sign_digest is not None else ""
        return replace(redacted, **{name: digest})

    def _sign_effects(self, real: Step, redacted: Step) -> dict[int, str]:
        """By effect id: the keyed digest of each effect that is not performed as the log shows it."""
        if self._sign_digest is None:
            return {}
        signed = {}
        for effect, redacted_effect in zip(real.effects, redacted.effects, strict=True):
            digest = compute_effect_digest(effect)
            if digest != compute_effect_digest(redacted_effect):
                signed[effect.id] = self._sign_digest(digest)
        return signed


def _describe_outcome(new_step: Step) -> tuple[Any, ...]:
    """What redaction must not change: where a step leads, what it asks for and what it cancels."""
    asks = [(effect.id, effect.name) for effect in new_step.effects]
    return (new_step.target, asks, new_step.cancels, new_step.is_late, new_step.is_untaken)
