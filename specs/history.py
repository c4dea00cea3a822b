"""Reads and checks the earlier messages of a conversation, in the JSON format of OpenAI's chat API.

Messages `{type, text}`, as some chat pages send them, are read too: all that is not the user's is the
assistant's. So are lists in which a message holds a tool call and its result (`toolCall`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from toolchart.states.content import ContentPart, TextPart, decode_chat_part, join_texts
from toolchart.states.errors import SpecError
from toolchart.states.messages import ROLES, Message, ToolCall


def load_history(file: str | Path) -> tuple[Message, ...]:
    """Read the messages of a file: a JSON list, or one JSON object on each line.

    Raises:
        SpecError: the file cannot be read, or a message breaks the format; names the message.
    """
    file = Path(file)
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the history cannot be read: {error}", file=str(file)) from None
    return parse_messages(_parse_entries(text, str(file)), str(file))


def read_history(history: Sequence[Message | Mapping[str, Any]]) -> tuple[Message, ...]:
    """The messages of a history that a program gives: values, or dicts as `parse_messages` reads them.

    Raises:
        SpecError: a dict breaks the format; names its position in the list.
    """
    if all(isinstance(entry, Message) for entry in history):
        return cast("tuple[Message, ...]", tuple(history))
    return parse_messages(list(history))


def _parse_entries(text: str, source: str) -> list[Any]:
    try:
        if text.lstrip().startswith("["):
            data = json.loads(text)
        else:
            data = [json.loads(line) for line in io.StringIO(text, newline=None) if line.strip()]
    except ValueError as error:
        raise SpecError(f"not JSON: {error}", file=source) from None
    return list(data)


def parse_messages(data: list[Any], source: str | None = None) -> tuple[Message, ...]:
    """Parse messages from JSON data. A system message at the beginning is dropped: the spec has the prompt.

    Raises:
        SpecError: a message breaks the format; names its position in the list.
    """
    if has_call_messages(data):
        data = expand_call_messages(data)
    messages: list[Message] = []
    open_calls: dict[str, str] = {}
    for number, entry in enumerate(data):
        path = f"[{number}]"
        message = _parse_message(entry, source, path)
        if message.role == "tool":
            _close_call(message, open_calls, source, path)
        elif open_calls:
            missing = next(iter(open_calls))
            raise SpecError(f"the call {missing!r} before it has no answer", file=source, path=path)
        open_calls.update({call.id: call.name for call in message.tool_calls})
        if message.role != "system":
            messages.append(message)
        elif number:
            raise SpecError("a system message is allowed only at the beginning", file=source, path=path)
    if open_calls:
        raise SpecError(f"the call {next(iter(open_calls))!r} has no answer", file=source, path="[end]")
    return tuple(messages)


def _close_call(message: Message, open_calls: dict[str, str], source: str | None, path: str) -> None:
    if not message.tool_call_id:
        raise SpecError("a tool message needs `tool_call_id`", file=source, path=path)
    if message.tool_call_id not in open_calls:
        raise SpecError(
            f"it answers the call {message.tool_call_id!r}, which does not exist", file=source, path=path
        )
    del open_calls[message.tool_call_id]


def _parse_message(entry: Any, source: str | None, path: str) -> Message:
    if isinstance(entry, Message):
        return entry
    if not isinstance(entry, dict):
        raise SpecError("a message is an object", file=source, path=path)
    if "role" not in entry and isinstance(entry.get("text"), str) and "type" in entry:
        return Message(role="user" if entry["type"] == "user" else "assistant", content=entry["text"])
    role = entry.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise SpecError(
            f"unknown role {role!r}", file=source, path=f"{path}.role", hint="known: " + ", ".join(ROLES)
        )
    calls = entry.get("tool_calls") or []
    if not isinstance(calls, list):
        raise SpecError("the calls are a list", file=source, path=f"{path}.tool_calls")
    content, parts = parse_content(entry.get("content"), source, path)
    return Message(
        role=role,
        content=content,
        parts=parts,
        tool_calls=tuple(
            _parse_tool_call(call, source, f"{path}.tool_calls[{index}]") for index, call in enumerate(calls)
        ),
        tool_call_id=_read_text(entry, "tool_call_id", source, path),
        name=_read_text(entry, "name", source, path) if role == "tool" else None,
    )


def _read_text(entry: Mapping[str, Any], key: str, source: str | None, path: str) -> str | None:
    text = entry.get(key)
    if text is not None and not isinstance(text, str):
        raise SpecError("expected a text", file=source, path=f"{path}.{key}")
    return text


def parse_content(content: Any, source: str | None, path: str) -> tuple[str | None, tuple[ContentPart, ...]]:
    """The text of a message, and its parts where it is more than text.

    Raises:
        SpecError: it is neither text nor a list of parts.
    """
    if content is None or isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        raise SpecError("content is text or a list of parts", file=source, path=f"{path}.content")
    parts: list[ContentPart] = []
    for index, entry in enumerate(content):
        try:
            parts.append(decode_chat_part(entry))
        except ValueError as error:
            raise SpecError(str(error), file=source, path=f"{path}.content[{index}]") from None
    is_text = all(isinstance(part, TextPart) for part in parts)
    return join_texts(parts), () if is_text else tuple(parts)


def _parse_tool_call(entry: Any, source: str | None, path: str) -> ToolCall:
    function = entry.get("function") if isinstance(entry, dict) else None
    if not isinstance(function, dict) or not function.get("name") or not entry.get("id"):
        raise SpecError("a call needs `id` and `function.name`", file=source, path=path)
    raw = function.get("arguments", "{}")
    try:
        arguments = raw if isinstance(raw, dict) else json.loads(raw)
    except (ValueError, TypeError) as error:
        raise SpecError(f"its arguments are not JSON: {error}", file=source, path=path) from None
    if not isinstance(arguments, dict):
        raise SpecError("its arguments are not an object", file=source, path=path)
    return ToolCall(
        id=str(entry["id"]),
        name=str(function["name"]),
        arguments=arguments,
        raw=raw if isinstance(raw, str) else None,
    )


# -- messages with their tool calls apart ----------------------------------------------------------

# Some chat pages keep a call and its result in one message: `{role: "tool", toolCall: {id, name, arguments,
# result?}}`. Such a list is read as if it had OpenAI's form, and it can be written.

_CALL_KEY = "toolCall"


def has_call_messages(data: Iterable[Any]) -> bool:
    """Whether a message of a list has its tool call apart."""
    return any(isinstance(entry, Mapping) and _CALL_KEY in entry for entry in data)


def expand_call_messages(data: Iterable[Any]) -> list[Any]:
    """The list in OpenAI's form. Calls in a row belong to the assistant's message right before them, or to
    one without text."""
    messages: list[Any] = []
    calls: list[Mapping[str, Any]] = []
    for entry in (*data, None):
        call = entry.get(_CALL_KEY) if isinstance(entry, Mapping) else None
        if isinstance(call, Mapping):
            calls.append(call)
            continue
        if calls:
            _add_calls(messages, calls)
            calls = []
        if entry is not None:
            messages.append(entry)
    return messages


def _add_calls(messages: list[Any], calls: list[Mapping[str, Any]]) -> None:
    newest = messages[-1] if messages else None
    is_assistant = isinstance(newest, Mapping) and newest.get("role") == "assistant"
    if is_assistant and not newest.get("tool_calls"):  # type: ignore[union-attr]
        message = dict(messages.pop())
    else:
        message = {"role": "assistant", "content": None}
    messages.append({**message, "tool_calls": [_encode_call(call) for call in calls]})
    messages += [
        {
            "role": "tool",
            "tool_call_id": call.get("id"),
            "name": call.get("name"),
            "content": _encode_result(call["result"]),
        }
        for call in calls
        if "result" in call
    ]


def _encode_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    function = {"name": call.get("name"), "arguments": text}
    return {"id": call.get("id"), "type": "function", "function": function}


def _encode_result(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def join_call_messages(data: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A list of OpenAI's form with each tool call and its result as one message.

    A result without the id of a call stays a message of its own.
    """
    data = list(data)
    ids = {call.get("id") for entry in data for call in entry.get("tool_calls") or ()} - {None}
    results = {
        entry["tool_call_id"]: entry.get("content") for entry in data if entry.get("tool_call_id") in ids
    }
    messages: list[dict[str, Any]] = []
    for entry in data:
        if entry.get("role") == "tool" and entry.get("tool_call_id") in ids:
            continue
        calls = entry.get("tool_calls") or ()
        if entry.get("content") or not calls:
            messages.append({key: value for key, value in entry.items() if key != "tool_calls"})
        messages += [_join_call(call, results) for call in calls]
    return messages


def _join_call(call: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments", "{}")
    with suppress(ValueError, TypeError):  # a recorded call may have an object, or no JSON
        arguments = json.loads(arguments)
    joined = {"id": call.get("id"), "name": call["function"]["name"], "arguments": arguments}
    if call.get("id") in results:
        joined["result"] = results[call["id"]]
    return {"role": "tool", _CALL_KEY: joined}
