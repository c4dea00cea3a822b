"""The messages of OpenAI's chat API: one reader, from JSON data to `Message`, and one writer.

A *history* goes to a model, so it must be one that a model accepts: each call has its answer, in order.
A *recording* is kept as it was made, whatever is unusual in it: arguments that are not JSON, a greeting by
the assistant first, a `developer` in the middle, results in another order, calls without ids or without a
result. Each message of it is the nearest one that the log can hold.

In both, what no message can say is refused with its place: an unknown role, an unknown part, the result of no
call. Messages `{type, text}`, as some chat pages send them, are read in a history: all that is not the user's
is the assistant's. Lists in which a message holds a tool call and its result (`toolCall`) are read in both.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from toolchart.states.content import (
    CitationPart,
    ContentPart,
    Note,
    TextPart,
    decode_chat_part,
    encode_chat_part,
    encode_chat_source,
    join_texts,
)
from toolchart.states.errors import SpecError
from toolchart.states.messages import ROLES, Message, Role, ToolCall, encode_arguments

IMPORTED = "imported"
"""The mark of what an import keeps beside its messages: keys that no field of a message has."""

_RECORDED_ROLES: Mapping[str, Role] = {
    **{role: role for role in ROLES},
    "function": "tool",
    "developer": "system",
}

_HINT = (
    "messages are read as OpenAI's chat API has them: role, content and tool_calls, with results as tool "
    "messages"
)
_OTHER_FORMS = {
    "function_call": "the Responses API",
    "function_call_output": "the Responses API",
    "reasoning": "the Responses API",
    "item_reference": "the Responses API",
    "input_text": "the Responses API",
    "output_text": "the Responses API",
    "tool_use": "the Anthropic API",
    "tool_result": "the Anthropic API",
    "thinking": "the Anthropic API",
    "redacted_thinking": "the Anthropic API",
}
"""Types of items and parts of other APIs, for the message that refuses them."""

_ASSISTANT_KEYS = ("role", "content", "tool_calls", "function_call")
"""Keys that become fields of a message; the others of a recording are kept beside it."""


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
    return read_history(_parse_entries(text, str(file)), str(file))


def _parse_entries(text: str, source: str) -> list[Any]:
    try:
        if text.lstrip().startswith("["):
            data = json.loads(text)
        else:
            data = [json.loads(line) for line in io.StringIO(text, newline=None) if line.strip()]
    except ValueError as error:
        raise SpecError(f"not JSON: {error}", file=source) from None
    return list(data)


def read_history(
    history: Sequence[Message | Mapping[str, Any]], source: str | None = None
) -> tuple[Message, ...]:
    """The messages of a history: values, or JSON data. A system message at the beginning is dropped: the spec
    has the prompt.

    Args:
        source: file of the history, for errors.

    Raises:
        SpecError: a message breaks the format; names its position in the list.
    """
    if all(isinstance(entry, Message) for entry in history):
        return cast("tuple[Message, ...]", tuple(history))
    reader = _MessageReader(source, is_recording=False)
    reader.read_entries(expand_call_messages(history))
    return tuple(reader.messages)


def read_recording(data: Iterable[Any], source: str | None) -> tuple[str | None, list[Message]]:
    """The system prompt at the beginning of a recording, and its messages in their order. Each call has an id
    of its own.

    Raises:
        SpecError: an entry is no message, or holds something that no message can say; or nobody says
            anything.
    """
    reader = _MessageReader(source, is_recording=True)
    reader.read_entries(data)
    spoken = [message for message in reader.messages if message.role != "system"]
    if not any(message.content or message.parts or message.tool_calls for message in spoken):
        raise SpecError("nobody says anything in this list of messages", file=source)
    return reader.system, reader.messages


class _MessageReader:
    """Reads entry by entry; knows which calls have no result yet."""

    def __init__(self, source: str | None, *, is_recording: bool) -> None:
        self.system: str | None = None
        self.messages: list[Message] = []
        self._source = source
        self._is_recording = is_recording
        self._open_calls: list[ToolCall] = []
        self._used_ids: set[str] = set()

    def read_entries(self, data: Iterable[Any]) -> None:
        """Read a list.

        Raises:
            SpecError: an entry is not understood, or does not follow the one before it.
        """
        for index, entry in enumerate(data):
            path = f"[{index}]"
            self._add_message(entry if isinstance(entry, Message) else self._read_message(entry, path), path)
        if self._open_calls and not self._is_recording:
            raise self._refuse(f"the call {self._open_calls[0].id!r} has no answer", "[end]")

    def _refuse(self, problem: str, path: str, form: Any = None) -> SpecError:
        """The error about something that is not understood.

        Args:
            form: the type of an item or a part, which may tell the API that it is of.
        """
        api = _OTHER_FORMS.get(form) if isinstance(form, str) else None
        note = f"; this looks like a list of {api}" if api else ""
        return SpecError(problem, file=self._source, path=path, hint=_HINT + note)

    def _add_message(self, message: Message, path: str) -> None:
        if message.role == "tool":
            message = self._answer_call(message, path)
        elif self._open_calls and not self._is_recording:
            raise self._refuse(f"the call {self._open_calls[0].id!r} before it has no answer", path)
        if message.role == "assistant":
            self._open_calls = list(message.tool_calls)
        if message.role == "system" and not self.messages and self.system is None:
            self.system = message.content
        elif message.role == "system" and not self._is_recording:
            raise self._refuse("a system message is allowed only at the beginning", path)
        else:
            self.messages.append(message)

    def _answer_call(self, message: Message, path: str) -> Message:
        """The result of an open call: by its id; in a recording also by the name of its tool, or the next in
        order."""
        wanted = message.tool_call_id
        matches = [call for call in self._open_calls if wanted and wanted in (call.id, call.native_id)]
        if not wanted and not self._is_recording:
            raise self._refuse("a tool message needs `tool_call_id`", path)
        if not wanted:
            matches = [call for call in self._open_calls if call.name == message.name] or self._open_calls
        if not matches:
            of_call = f"the call {wanted!r}, which does not exist" if wanted else "no call before it"
            raise self._refuse(f"a result that answers {of_call}", path)
        call = matches[0]
        self._open_calls.remove(call)
        name = call.name if self._is_recording else message.name
        return replace(message, tool_call_id=call.id, name=name)

    def _read_message(self, entry: Any, path: str) -> Message:
        if not isinstance(entry, dict):
            raise self._refuse("a message is an object", path)
        if not self._is_recording and _is_chat_page_message(entry):
            return Message(role="user" if entry["type"] == "user" else "assistant", content=entry["text"])
        role = self._read_role(entry, path)
        content, parts = self._read_content(entry, role, path)
        message = Message(role=role, content=content, parts=parts)
        if role == "tool":
            ids, name = entry.get("tool_call_ids"), entry.get("name")
            wanted = entry.get("tool_call_id") or (ids[0] if isinstance(ids, list) and ids else None)
            name = name if isinstance(name, str) else None
            return replace(message, tool_call_id=str(wanted) if wanted else None, name=name)
        if role != "assistant":
            return message
        other_keys = {key: value for key, value in entry.items() if key not in _ASSISTANT_KEYS}
        has_others = self._is_recording and other_keys
        return replace(
            message,
            tool_calls=tuple(self._read_calls(entry, path)),
            provider_data={"provider": IMPORTED, "keys": other_keys} if has_others else None,
        )

    def _read_role(self, entry: Mapping[str, Any], path: str) -> Role:
        role = entry.get("role")
        if "role" not in entry:
            raise self._refuse("a message without a role", path, entry.get("type"))
        if not isinstance(role, str) or role not in (_RECORDED_ROLES if self._is_recording else ROLES):
            raise self._refuse(f"unknown role {role!r}", f"{path}.role", entry.get("type"))
        has_content = "content" in entry or entry.get("tool_calls") or entry.get("function_call")
        if self._is_recording and not has_content:
            raise self._refuse("a message without content", path, entry.get("type"))
        return _RECORDED_ROLES[role]

    def _read_content(
        self, entry: Mapping[str, Any], role: Role, path: str
    ) -> tuple[str | None, tuple[ContentPart, ...]]:
        """The content of an entry; a recorded result that is no text is its JSON."""
        content = entry.get("content")
        try:
            return read_content(content, self._source, path)
        except SpecError as error:
            if role == "tool" and self._is_recording:
                return json.dumps(content, ensure_ascii=False), ()
            parts = content if isinstance(content, list) else ()
            types = [part.get("type") for part in parts if isinstance(part, dict)]
            form = next((type_ for type_ in types if type_ in _OTHER_FORMS), None)
            raise self._refuse(error.message, error.path or path, form) from None

    def _read_calls(self, entry: Mapping[str, Any], path: str) -> Iterator[ToolCall]:
        calls, function = entry.get("tool_calls"), entry.get("function_call")
        if calls is not None and not isinstance(calls, list):
            raise self._refuse("the calls are a list", f"{path}.tool_calls")
        for index, call in enumerate(calls or ([{"function": function}] if function else [])):
            yield self._read_call(call, index, f"{path}.tool_calls[{index}]")

    def _read_call(self, call: Any, index: int, path: str) -> ToolCall:
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name:
            raise self._refuse("a call without `function.name`", path)
        native_id = str(call["id"]) if call.get("id") else None
        call_id = native_id or f"call_{len(self.messages)}_{index}"
        raw = function.get("arguments", "{}")
        arguments, problem = _read_arguments(raw)
        if not self._is_recording and native_id is None:
            raise self._refuse("a call needs an `id`, which its result names", path)
        if not self._is_recording and problem is not None:
            raise self._refuse(f"its arguments are {problem}", path)
        while self._is_recording and call_id in self._used_ids:
            call_id += "+"
        self._used_ids.add(call_id)
        return ToolCall(
            id=call_id,
            name=name,
            arguments=arguments,
            raw=raw if isinstance(raw, str) else None if arguments is not None else json.dumps(raw),
            problem=problem,
            native_id=native_id if native_id != call_id else None,
        )


def _is_chat_page_message(entry: Mapping[str, Any]) -> bool:
    return "role" not in entry and isinstance(entry.get("text"), str) and "type" in entry


def _read_arguments(raw: Any) -> tuple[dict[str, Any] | None, str | None]:
    """The arguments of a call; None and the problem where they are no JSON object."""
    try:
        arguments = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"
    return (arguments, None) if isinstance(arguments, dict) else (None, "not a JSON object")


def read_content(content: Any, source: str | None, path: str) -> tuple[str | None, tuple[ContentPart, ...]]:
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


def encode_chat_message(message: Message, native_ids: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The message as JSON data, with the keys that its import kept.

    Args:
        native_ids: the ids that calls had where they came from, by ours.
    """
    ids = native_ids or {}
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.parts:
        parts = [part for part in message.parts if not isinstance(part, Note)]
        is_text = all(isinstance(part, TextPart) for part in parts)
        data["content"] = message.content if is_text else list(map(encode_chat_part, parts))
        citations = [part for part in message.parts if isinstance(part, CitationPart)]
        if citations:
            data["annotations"] = list(map(encode_chat_source, citations))
    if message.tool_calls:
        data["tool_calls"] = [
            {
                "id": ids.get(call.id, call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": encode_arguments(call)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        data["tool_call_id"] = ids.get(message.tool_call_id or "", message.tool_call_id)
        data["name"] = message.name
    provider_data = message.provider_data or {}
    if provider_data.get("provider") == IMPORTED:
        data.update(provider_data.get("keys") or {})
    return data


# -- messages with their tool calls apart ----------------------------------------------------------

# Some chat pages keep a call and its result in one message: `{role: "tool", toolCall: {id, name, arguments,
# result?}}`. Such a list is read as if it had OpenAI's form, and it can be written.

_CALL_KEY = "toolCall"


def expand_call_messages(data: Iterable[Any]) -> list[Any]:
    """The list in OpenAI's form. Calls in a row belong to the assistant's message right before them, or to
    one without text."""
    messages: list[Any] = []
    calls: list[Mapping[str, Any]] = []
    for entry in data:
        call = entry.get(_CALL_KEY) if isinstance(entry, Mapping) else None
        if isinstance(call, Mapping):
            calls.append(call)
            continue
        _add_calls(messages, calls)
        calls = []
        messages.append(entry)
    _add_calls(messages, calls)
    return messages


def _add_calls(messages: list[Any], calls: list[Mapping[str, Any]]) -> None:
    if not calls:
        return
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
