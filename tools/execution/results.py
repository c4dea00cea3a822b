"""Tool results: their four keys, and how a long result is shortened for the model.

The log keeps every result whole. Where a result is longer than its share of the turn's output limit,
the model gets a part of it (the model text), cut at a line or a word, with a notice. A spec without
`output` has no such limits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from toolchart.states.canonical_json import encode_canonical_text, make_json_safe
from toolchart.states.content import AudioPart, ContentPart, FilePart, ImagePart, TextPart, describe_part
from toolchart.states.events import Outcome, ToolFinished
from toolchart.states.messages import ToolCall
from toolchart.states.reading_limits import READING, name_limit
from toolchart.tools.definition import Tool
from toolchart.workers.json_data import has_few_repeats, to_json_data
from toolchart.workers.returned_values import UnusableResult

MAX_SHOWN_CHARACTERS = 1_000_000
"""A model gets at most so much of one result, where the spec has no `output`; the log has the whole."""

_PARTLESS_TYPES = frozenset({str, int, float, bool, dict, type(None)})
"""Types of results that are certainly no parts and no lists of parts."""

_CONTAINERS = (dict, list, tuple)

_CONVERSION_NOTE = "the result was turned into plain JSON"


class ResultTooLarge(UnusableResult):
    """A result is longer than `result_characters`."""


def build_tool_finished(
    call: ToolCall,
    name: str,
    outcome: Outcome,
    value: Any,
    ms: float,
    notes: tuple[str, ...] = (),
    parts: tuple[ContentPart, ...] = (),
    arguments_digest: str = "",
) -> ToolFinished:
    """Build the event for the end of a call.

    Args:
        value: the result where the call succeeded, else the error text.
        ms: run time in milliseconds.
        parts: pictures, files and sounds beside the result.
        arguments_digest: of the arguments that the tool got; empty where it got none.
    """
    is_success = outcome == "succeeded"
    result = {
        "success": is_success,
        "result" if is_success else "error": value,
        "tool_name": name,
        "execution_time_ms": ms,
    }
    return ToolFinished(
        call_id=call.id,
        outcome=outcome,
        result=result,
        notes=notes,
        parts=parts,
        arguments_digest=arguments_digest,
    )


def convert_result(value: Any) -> tuple[Any, tuple[ContentPart, ...], str | None, int]:
    """Convert what a tool returned to JSON data.

    Returns:
        The data, with a description in place of each picture, file and sound; these parts; a note where the
        conversion changed something; and at most how many characters the data has as a text, which is 0 for
        what is never cut: a number, true, false and null.

    Raises:
        ResultTooLarge: it is longer than `result_characters`, or its parts than `result_part_bytes`.
        UnusableResult: it is no data, and has no text of its own.
    """
    kind = type(value)
    if kind is str:
        _check_size(len(value))
        if value.isascii():
            return value, (), None, len(value)
        text = value.encode("utf-8", "replace").decode("utf-8")
        return text, (), None if text == value else _CONVERSION_NOTE, len(text)
    if value is None or kind is bool or (kind is int and -(2**53) <= value <= 2**53):
        return value, (), None, 0
    if kind is float and math.isfinite(value):
        return value, (), None, 0
    parts: tuple[ContentPart, ...] = ()
    if kind not in _PARTLESS_TYPES:
        value, parts = _split_parts(value)
    try:
        if isinstance(value, _CONTAINERS) and not has_few_repeats(value):
            raise TypeError
        # Equal after the way through JSON: the log has what the tool returned. Else a note says that it has
        # not.
        encoded_value = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS)
        is_plain = msgspec.json.decode(encoded_value) == value
    except (TypeError, ValueError):
        encoded_value, is_plain = b"", False
    if is_plain:
        _check_size(len(encoded_value))
        return value, parts, None, len(encoded_value)
    converted_value = make_json_safe(to_json_data(value))
    size = len(orjson.dumps(converted_value))
    _check_size(size)
    return converted_value, parts, _CONVERSION_NOTE, size


def _split_parts(value: Any) -> tuple[Any, tuple[ContentPart, ...]]:
    """What a tool returned, with a description in place of each picture, file and sound; and these parts."""
    items = value if isinstance(value, (list, tuple)) else [value]
    parts = tuple(item for item in items if isinstance(item, ImagePart | FilePart | AudioPart))
    if not parts:
        return value, ()
    for part in parts:
        _check_data(part)
    size = sum(part.size for part in parts)
    if size > READING.result_part_bytes:
        problem = f"the parts of the result have {size} bytes; at most {READING.result_part_bytes} are kept"
        raise ResultTooLarge(f"{problem} {name_limit('result_part_bytes')}")
    described = [
        describe_part(item) if isinstance(item, TextPart | ImagePart | FilePart | AudioPart) else item
        for item in items
    ]
    return (described if items is value else described[0]), parts


def _check_data(part: ImagePart | FilePart | AudioPart) -> None:
    """Refuse a part whose bytes no host could read; the classes check nothing when they are made."""
    try:
        is_good = isinstance(part.data, str) and (not part.data or bool(part.read_bytes()))
    except ValueError:
        is_good = False
    if not is_good:
        kind = type(part).__name__
        raise UnusableResult(
            f"the `data` of the {kind} in the result is not base64: encode the bytes as a text"
        )


def _check_size(size: int) -> None:
    if size > READING.result_characters:
        problem = f"the result has {size} characters; at most {READING.result_characters} are kept"
        raise ResultTooLarge(f"{problem} {name_limit('result_characters')}")


# -- output limits -------------------------------------------------------------------------------


class OutputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Characters of tool output that a model sees; the spec's `output` section."""

    total: int = 6000
    """In one turn."""
    per_tool: int = 2000
    """From one call."""
    listing: int = 5000
    """From one call to a tool whose results are listings."""
    least: int = 300
    """From one call when the total is used up; enough to explain how to continue."""
    per_tool_after: tuple[tuple[int, int], ...] = ()
    """Calls and characters, in ascending order: after so many calls in earlier replies of the turn, one call
    gets no more than that."""


UNLIMITED_OUTPUT = OutputLimits(
    total=MAX_SHOWN_CHARACTERS,
    per_tool=MAX_SHOWN_CHARACTERS,
    listing=MAX_SHOWN_CHARACTERS,
    least=MAX_SHOWN_CHARACTERS,
)
"""What holds where a spec chooses no limits: a model sees every usual result whole."""


class OutputUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn has used of its output limits, before the calls of the newest reply."""

    characters_shown: int = 0
    """Tool output that the model saw."""
    earlier_calls: int = 0
    """Calls that have their outcome."""
    calls_in_reply: int = 1
    """Calls of the newest reply; they share what is left."""


def compute_max_characters(limits: OutputLimits, tool: Tool, use: OutputUse) -> int:
    """Characters of one call's result that the model may see.

    The number falls as the turn's total is used up, and by `per_tool_after` with the calls of the turn. The
    calls of one reply get equal shares of the rest, so that the order in which they end makes no difference.
    A tool's own `max_result_size` overrides every limit.
    """
    if tool.max_result_size is not None:
        return tool.max_result_size
    call_limit = limits.listing if tool.listing else limits.per_tool
    if limits.per_tool_after:
        call_limit = min([call_limit, *_list_smaller_limits(limits, use)])
    share = _compute_share(limits, use)
    return max(min(call_limit, share), min(call_limit, limits.least))


def _list_smaller_limits(limits: OutputLimits, use: OutputUse) -> list[int]:
    """The limits of one call that hold after so many calls."""
    return [size for calls, size in limits.per_tool_after if use.earlier_calls >= calls]


def _compute_share(limits: OutputLimits, use: OutputUse) -> int:
    """Characters that are left of the turn's total for each call of the reply."""
    return max(0, limits.total - use.characters_shown) // max(1, use.calls_in_reply)


def compute_least_characters(limits: OutputLimits, tool: Tool) -> int:
    """Characters of one call's result that the model sees, however much of the limits the turn has used."""
    if tool.max_result_size is not None:
        return tool.max_result_size
    sizes = [size for _, size in limits.per_tool_after]
    return min(limits.least, limits.listing if tool.listing else limits.per_tool, *sizes)


def explain_max_characters(limits: OutputLimits, tool: Tool, use: OutputUse) -> str:
    """Which limit `compute_max_characters` has followed, for whoever reads that a result was cut."""
    size = compute_max_characters(limits, tool, use)
    if tool.max_result_size is not None:
        return f"a result of {tool.name} may have {size}"
    if size in _list_smaller_limits(limits, use) and size <= _compute_share(limits, use):
        return f"after {use.earlier_calls} calls of this turn a result may have {size}"
    if size in (limits.per_tool, limits.listing) and size <= _compute_share(limits, use):
        return f"a result may have {size}"
    return f"{size} of the {limits.total} of this turn are left for this result"


def format_result_text(value: Any) -> str:
    """A result as the text that is measured and cut: a string as it is, other values as JSON."""
    return value if isinstance(value, str) else encode_canonical_text(value)


def truncate_text(text: str, size: int) -> str:
    """Cut a text to at most `size` characters, after a line, a word or a JSON item if one is near.

    >>> truncate_text("one two three", 8)
    'one two'
    """
    if len(text) <= size:
        return text
    head, next_character = text[:size], text[size]
    for separators, min_share in (("\n", 0.5), (" \t\n,", 0.8)):
        last_separator = max(head.rfind(separator) for separator in separators)
        end = size if next_character in separators else last_separator
        if end >= size * min_share:
            return text[: end + (text[end] == ",")].rstrip()
    return head


def limit_model_text(
    event: ToolFinished,
    size: int,
    notice: str | None = None,
    fetch_tool: str | None = None,
    explain_size: Callable[[], str] | None = None,
) -> ToolFinished:
    """Add a model text to an event whose result is too long, or that has a notice for the model.

    Args:
        size: characters of the result that the model may see.
        explain_size: says which limit that is; asked only where it cuts the result.
        fetch_tool: name of the tool that gives the model more of a result, where it is offered one.
    """
    key = "result" if event.result.get("success") else "error"
    text = format_result_text(event.result.get(key))
    visible_text = truncate_text(text, size)
    hidden_count = len(text) - len(visible_text)
    if not hidden_count:
        return event if notice is None else add_notice(event, notice)
    limit = f" ({explain_size()})" if explain_size is not None else ""
    advice = f'; {fetch_tool} with handle "{event.call_id}" and offset ' if fetch_tool else ""
    cut_notice = _format_cut_notice(len(visible_text), hidden_count, advice, limit)
    shown = {**event.result, key: visible_text, "truncated": cut_notice}
    if notice is not None:
        shown["notice"] = notice
    note = f"cut: {hidden_count} characters were not shown to the model{limit}"
    return replace(event, shown=encode_canonical_text(shown), notes=(*event.notes, note))


def add_notice(event: ToolFinished, notice: str) -> ToolFinished:
    """The event with a text for the model: the whole result, and a notice."""
    return replace(event, shown=encode_canonical_text({**event.result, "notice": notice}))


def add_arguments(event: ToolFinished, notice: str, arguments: Mapping[str, Any]) -> ToolFinished:
    """The event whose text for the model has a further notice, and arguments."""
    shown = event.result if event.shown is None else orjson.loads(event.shown)
    notice = f"{shown['notice']} {notice}" if "notice" in shown else notice
    return replace(
        event, shown=encode_canonical_text({**shown, "notice": notice, "arguments": dict(arguments)})
    )


def _format_cut_notice(visible_count: int, hidden_count: int, advice: str, limit: str) -> str:
    left_out = f"{hidden_count} of {visible_count + hidden_count} characters were left out{limit}"
    return f"{left_out}{advice}{visible_count} gives more" if advice else f"{left_out}; ask for less"


_WHOLE_RESULT_END = re.compile(r'"tool_name":"[^"\\]{0,100}"\}\Z')


def find_cut_notice(content: str | None) -> tuple[str, str] | None:
    """The tool and the notice in a tool message whose result was cut; None where it was not."""
    if content is None:
        return None
    # A result that was not cut ends in the tool's name. Looking there spares the search of a long result.
    if len(content) > 1000 and _WHOLE_RESULT_END.search(content[-200:]):
        return None
    if '"truncated":' not in content:
        return None
    try:
        result_object = orjson.loads(content)
    except ValueError:
        return None
    if not isinstance(result_object, dict) or not isinstance(result_object.get("truncated"), str):
        return None
    return str(result_object.get("tool_name")), result_object["truncated"].partition(";")[0]
