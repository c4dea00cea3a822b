"""Read values from a host's JSON: of the wrong type, in pieces, or beside those that an adapter knows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from toolchart.states.errors import ProviderError

_HALVES = re.compile("[\ud800-\udfff]")
_EMPTY_VALUES: tuple[Any, ...] = (None, "", [], {})


def read_string(value: Any) -> str | None:
    """The value if it is non-empty text, else None.

    >>> read_string("a"), read_string(""), read_string(["a"])
    ('a', None, None)
    """
    return value if isinstance(value, str) and value else None


def read_mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; empty if the value is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def read_token_count(value: Any) -> int | None:
    """The value as an integer number of tokens; None if it is no finite number below 2**53.

    >>> read_token_count(3), read_token_count("3"), read_token_count(True), read_token_count(2.0)
    (3, None, None, 2)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if value == value and abs(value) < 2**53 else None


def add_separate_reasoning(
    output: int | None, *, prompt: int | None, reasoning: int | None, total: int | None
) -> int | None:
    """The tokens of a reply with its reasoning, for hosts that count it apart from the reply.

    xAI's chat completions do so. The total tells: there it is the sum of all three.
    Source: recorded answers, Wei-Shaw/sub2api#5771, UKGovernmentBEIS/inspect_ai#5528, vercel/ai#12425.

    >>> add_separate_reasoning(5, prompt=10, reasoning=100, total=115)
    105
    >>> add_separate_reasoning(105, prompt=10, reasoning=100, total=115)
    105
    """
    if output is None or not reasoning or prompt is None or total != prompt + output + reasoning:
        return output
    return output + reasoning


def join_text(pieces: Iterable[str]) -> str:
    """The text of its pieces. A character whose halves (UTF-16 surrogates) came in two pieces is whole.

    >>> join_text(["a\\ud83d", "\\ude00"]) == "a\\U0001f600"
    True
    """
    text = "".join(pieces)
    if text.isascii() or not _HALVES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def select_others(mapping: Any, known_keys: Collection[str]) -> dict[str, Any]:
    """What a mapping holds besides the known keys and empty values."""
    if not isinstance(mapping, Mapping):
        return {}
    return {
        key: value
        for key, value in mapping.items()
        if key not in known_keys and not any(value is empty or value == empty for empty in _EMPTY_VALUES)
    }


def select_other_counts(usage: Any, known_keys: Collection[str]) -> dict[str, Any]:
    """`{"usage": ...}` with the counts besides the known ones and zeros; empty where there are none.

    Args:
        known_keys: names of counts, at any depth.
    """
    others = _select_counts(usage, known_keys)
    return {"usage": others} if others else {}


def _select_counts(value: Any, known_keys: Collection[str]) -> Any:
    if not isinstance(value, Mapping):
        return value
    counts = {key: _select_counts(item, known_keys) for key, item in value.items() if key not in known_keys}
    return {key: count for key, count in counts.items() if count}


_OWN_KEYS = ("model", "messages", "input", "contents", "instructions", "system", "systemInstruction", "tools")
_OWN_FLAGS = ("stream", "stream_options", "n")


def add_extra_body(body: dict[str, Any], extra: Any) -> dict[str, Any]:
    """The body with the keys of a handler's `extra_body`, merged into its objects.

    Raises:
        ProviderError: `bad_request`; a key for which the engine answers: the conversation, the tools, the
            model, the stream.
    """
    if not isinstance(extra, Mapping):
        return body
    for key in extra:
        if key in (*_OWN_KEYS, *_OWN_FLAGS):
            raise ProviderError(kind="bad_request", message=f"extra_body must not set {key!r}")
    return _merge_objects(body, extra)


def _merge_objects(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in more.items():
        old = merged.get(key)
        is_object = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge_objects(old, value) if is_object else value  # type: ignore[arg-type]
    return merged
