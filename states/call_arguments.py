"""Arguments of calls: from what a model, a host or a history has in their place, to an object or a problem.

Broken text is never repaired or replaced by `{}`: the call carries the problem instead, and never runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.states.canonical_json import has_only_finite_numbers, parse_finite_float
from toolchart.states.json_bounds import MAX_DEPTH, is_deeper
from toolchart.states.messages import Reply, ToolCall

CALLS_PER_REPLY = 128
"""Calls of one reply that are carried out where no limit is set. Hosts take at most 128 tools in a request
(OpenAI), and no model is known to call so many at once: what is beyond it is a fault or an attack, and each
call costs a record, a review and a message."""

MAX_ARGUMENT_CHARACTERS = 1_000_000
"""Longer argument text is refused unread."""


class Unreadable(list[Any]):
    """In the place of arguments that nobody can tell: the reason, then what stands there."""


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """The arguments and None; or None and a description of the problem with its position.

    Accepts a JSON object without duplicate keys, NaN, Infinity or numbers out of range such as `1e999`. A
    JSON *string* that contains such an object is decoded once more, because some hosts encode arguments
    twice. Empty text and `null`, also inside a string, mean no arguments: hosts send them for tools without
    parameters.

    >>> parse_arguments("null"), parse_arguments('""'), parse_arguments('"{}"')
    (({}, None), ({}, None), ({}, None))
    """
    if not text.strip():
        return {}, None
    if len(text) > MAX_ARGUMENT_CHARACTERS:
        return (
            None,
            f"the arguments are {len(text)} characters long; the limit is {MAX_ARGUMENT_CHARACTERS}",
        )
    # Each bracket has its partner, so a shorter text cannot be nested so deeply: the slice costs no call.
    if text[2 * MAX_DEPTH : 2 * MAX_DEPTH + 1] and is_deeper(text, MAX_DEPTH):
        return None, f"the arguments are nested too deeply: more than {MAX_DEPTH} lists and objects"
    try:
        value = _load_strict_json(text.removeprefix("\ufeff"))
        if isinstance(value, str):
            value = _load_strict_json(value) if value.strip() else None
    except json.JSONDecodeError as error:
        place = f"at line {error.lineno} column {error.colno} (character {error.pos})"
        if error.msg == "Extra data" and error.doc[error.pos :].lstrip().startswith("{"):
            return None, f"the arguments are not valid JSON: a second object begins {place}"
        return None, f"the arguments are not valid JSON: {error.msg} {place}"
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        return None, f"the arguments are not valid JSON: {reason}"
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return None, f"the arguments are a JSON {name_json_type(value)}, not an object"
    return value, None


_ARGUMENT_OBJECT = re.compile(r'"(?:arguments|args|input|params|kwargs|tool_input)"\s*:\s*(?=\{\s*")')
"""Where the arguments of a call may stand as an object. `parameters` is left out: hosts repeat the schemas of
tools under it."""


def quote_repeated_keys(data: bytes) -> bytes:
    """JSON of a host, in which arguments are text instead of an object where that has a key twice.

    A reader of JSON keeps the last of two equal keys and tells nobody. `decode_call` refuses such a text.

    >>> quote_repeated_keys(b'{"args": {"a": 1}}').decode()
    '{"args": {"a": 1}}'
    >>> print(quote_repeated_keys(b'{"args": {"a": 1, "a": 2}}').decode())
    {"args": "{\\"a\\": 1, \\"a\\": 2}"}
    """
    try:
        text = data.decode()
        pieces: list[str] = []
        end = 0
        for match in _ARGUMENT_OBJECT.finditer(text):
            start = match.end()
            if start < end:
                continue
            try:
                _repetition_reader.raw_decode(text, start)
            except _RepeatedKeyError:
                _, stop = _plain_reader.raw_decode(text, start)
                pieces += text[end:start], json.dumps(text[start:stop])
                end = stop
    except (ValueError, RecursionError):  # whoever reads it says so
        return data
    return "".join((*pieces, text[end:])).encode() if pieces else data


def decode_call(call_id: str, name: Any, arguments: Any) -> ToolCall:
    """A call whose arguments are an object, the text of one, or nothing, in any of its forms.

    Anything else makes a call with the problem, which never runs and which the model reads. No wire format
    decodes arguments in another way.
    """
    name = "" if name is None else str(name)
    if arguments is None or isinstance(arguments, Mapping):
        values = dict(arguments or {})
        if has_only_finite_numbers(values):
            return ToolCall(id=call_id, name=name, arguments=values)
        problem = "the arguments are not valid JSON: a number is out of range"
        return ToolCall(id=call_id, name=name, raw=json.dumps(values), problem=problem)
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    if isinstance(arguments, Unreadable):
        return ToolCall(id=call_id, name=name, raw=raw, problem=arguments[0])
    values, problem = parse_arguments(raw)
    return ToolCall(id=call_id, name=name, arguments=values, raw=raw, problem=problem)


def decode_text_call(call_id: str, name: Any, text: Any) -> ToolCall:
    """A call of a tool whose input is free text (`custom`): the argument is `input`; nothing is an empty
    text."""
    name = "" if name is None else str(name)
    if text is None or isinstance(text, str):
        return ToolCall(id=call_id, name=name, arguments={"input": text or ""})
    raw = json.dumps(text, ensure_ascii=False)
    return ToolCall(
        id=call_id, name=name, raw=raw, problem=f"the input is a JSON {name_json_type(text)}, not text"
    )


def _load_strict_json(text: str) -> Any:
    return json.loads(
        text, object_pairs_hook=_build_object, parse_constant=_refuse_constant, parse_float=parse_finite_float
    )


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. Raises ValueError for a duplicate key."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {duplicate!r} occurs twice")
    return result


class _RepeatedKeyError(Exception):
    """An object has a key twice."""


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) != len({key for key, _ in pairs}):
        raise _RepeatedKeyError


_repetition_reader = json.JSONDecoder(object_pairs_hook=_check_keys)
_plain_reader = json.JSONDecoder()


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def get_call_limit(limit: int | msgspec.UnsetType) -> int:
    """The most calls of a reply: the limit of a turn, or the default where it sets none."""
    return CALLS_PER_REPLY if limit is msgspec.UNSET else limit


def bound_calls(reply: Reply, limit: int) -> Reply:
    """The reply with at most so many calls, and one more that stands for those behind them.

    That one never runs. The model reads in its result how many were refused and what to do, and the reply
    warns of it. What was asked for is not sent back to the host: each request would be as long again.
    """
    count = len(reply.tool_calls)
    if count <= limit:
        return reply
    refused = count - limit
    problem = (
        f"The reply has {count} calls, and {limit} of them are carried out (limits.max_calls_per_reply): "
        f"the last {refused} were not. Ask for those that are still needed in later replies."
    )
    names = list(dict.fromkeys(call.name[:64] for call in reply.tool_calls[limit : limit + 1000]))[:8]
    warning = f"{refused} of the {count} calls of the reply were refused: {limit} at most"
    refusal = ToolCall(name="", raw=f"{refused} calls: {', '.join(names)}", problem=problem)
    return replace(
        reply, tool_calls=(*reply.tool_calls[:limit], refusal), warnings=(*reply.warnings, warning)
    )


def name_json_type(value: Any) -> str:
    """The name of a value's type in JSON, for errors."""
    if value is None:
        return "null"
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "value")
