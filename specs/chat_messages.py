"""The messages of OpenAI's chat API: one reader, from JSON data to `Message`, and one writer.

Every list of messages from outside comes through this reader: the `history` of a turn, `--history`, what the
clients of a server send, and what `import` reads. The rule is one for all of them:

- What can be put right without losing or inventing anything is put right, and a warning says what and where
  (`message_pairs.py` has the list): a call without a result, results elsewhere than behind their calls or in
  another order, the same result twice, ids used twice or missing, a message that says nothing. Arguments that
  are no JSON object stay the text that they are, as if the agent's own model had written them.
- What no message can say, or what would be lost, is refused with its place: an unknown role or part, the
  result of no call, a second result with other words, calls of others than the assistant.

A *history* goes to a model under the prompt of the agent: a system message at the beginning is left out, and
one later is refused. A *recording* is what `import` keeps: its system messages and messages that say nothing
stay where they are, and a call without a result is recorded as interrupted.

Messages `{type, text}`, as some chat pages send them, are read too: all that is not the user's is the
assistant's. So are lists in which a message holds a tool call and its result (`toolCall`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, overload

import msgspec
from msgspec.structs import replace

from toolchart.specs.message_pairs import (
    JSON_RESULT,
    NEW_ID,
    OTHER_KEYS,
    SILENT,
    SYSTEM,
    UNREADABLE,
    Mends,
    PlacedMessage,
    pair_results,
)
from toolchart.states.call_arguments import decode_call, decode_text_call
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
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.messages import ROLES, Message, Role, ToolCall, encode_arguments

EMPTY_MESSAGE = "the message is empty"
"""Of a message that says nothing."""

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
_RESPONSES = ("the Responses API", "read_responses_items")
_ANTHROPIC = ("the Anthropic API", "read_anthropic_messages")
_OTHER_FORMS = {
    "function_call": _RESPONSES,
    "function_call_output": _RESPONSES,
    "reasoning": _RESPONSES,
    "item_reference": _RESPONSES,
    "input_text": _RESPONSES,
    "output_text": _RESPONSES,
    "tool_use": _ANTHROPIC,
    "tool_result": _ANTHROPIC,
    "thinking": _ANTHROPIC,
    "redacted_thinking": _ANTHROPIC,
}
"""Types of items and parts of other APIs, for the message that refuses them; and what reads such lists."""

_CONTENT_KEYS = ("name", "audio", "reasoning", "reasoning_content", "thinking")
"""Keys of the user's and the assistant's messages whose values no message has a place for."""

_ASSISTANT_KEYS = ("role", "content", "tool_calls", "function_call")
"""Keys that become fields of a message; the others of a recording are kept beside it."""


class History(Sequence[Message]):
    """The messages of a history that was read: such that every call has its result right behind it.

    `read_history` gives it back as it is, so each door may read, and what was put right is said once.
    """

    __slots__ = ("_messages", "warnings")

    def __init__(self, messages: Sequence[Message] = (), warnings: Sequence[str] = ()) -> None:
        self._messages = tuple(messages)
        self.warnings = tuple(warnings)
        """What was put right, and where."""

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)


def read_history(
    history: Iterable[Message | Mapping[str, Any]],
    source: str | None = None,
    places: Sequence[str] | None = None,
) -> History:
    """The messages of a history: values, or JSON data. A system message at the beginning is left out: the
    spec has the prompt.

    Args:
        source: file of the history, for errors.
        places: where each message stands in what came in, for errors; without them `history[0]` and so on.

    Raises:
        SpecError: a message breaks the format; names its place.
    """
    if isinstance(history, History):
        return history
    if isinstance(history, str | bytes | Mapping) or not isinstance(history, Iterable):
        raise SpecError(f"a history is a list of messages, not {type(history).__name__}", hint=_HINT)
    entries = list(history)
    if not entries:
        return History()
    places = places or [f"[{index}]" if source else f"history[{index}]" for index in range(len(entries))]
    reader = _MessageReader(source, is_recording=False)
    return History(reader.read_entries(entries, places), reader.mends.list_warnings(source))


def require_words(message: str, attachments: Collection[Any] = (), place: str | None = None) -> None:
    """Refuse a message from outside that says nothing: no host answers it, and some refuse the conversation.

    Each door to which people and other programs send calls this. A program that calls the engine decides
    itself.

    Raises:
        SpecError: it has neither words nor anything attached.
    """
    if not message.strip() and not attachments:
        raise SpecError(EMPTY_MESSAGE, path=place, hint="a message has words, or something attached")


class Recording(NamedTuple):
    """The messages of a recording in their order, each with an id of its own for each call."""

    system: str | None
    """The system prompt at the beginning."""
    messages: list[Message]
    """Results stand behind their calls; a call may have none."""
    warnings: tuple[str, ...]


def read_recording(data: Iterable[Any], source: str | None, places: Sequence[str] | None = None) -> Recording:
    """Read the messages of another program.

    Args:
        places: where each message stands in what came in, for errors; without them `[0]` and so on.

    Raises:
        SpecError: an entry is no message, or holds something that no message can say; or nobody says
            anything.
    """
    entries = list(data)
    reader = _MessageReader(source, is_recording=True)
    messages = reader.read_entries(entries, places or [f"[{index}]" for index in range(len(entries))])
    spoken = [message for message in messages if message.role != "system"]
    if not any(message.content or message.parts or message.tool_calls for message in spoken):
        raise SpecError("nobody says anything in this list of messages", file=source)
    return Recording(reader.system, messages, reader.mends.list_warnings(source))


class _MessageReader:
    """Reads a list entry by entry; what it puts right stands in `mends`."""

    def __init__(self, source: str | None, *, is_recording: bool) -> None:
        self.system: str | None = None
        self.mends = Mends()
        self._source = source
        self._is_recording = is_recording
        self._uses: dict[str, int] = {}
        """How many calls have had each id."""

    def read_entries(self, entries: list[Any], places: Sequence[str]) -> list[Message]:
        """The messages of a list, each result behind its call.

        Raises:
            SpecError: an entry is not understood, or does not follow the one before it.
        """
        expanded, numbers = expand_call_messages(entries)
        messages: list[PlacedMessage] = []
        for entry, number in zip(expanded, numbers, strict=True):
            place = places[number]
            message = self._read_message(entry, place)
            if message.role == "system" and self.system is None and not messages:
                self.system = message.content
                if not self._is_recording:
                    self.mends.add(SYSTEM, place)
            elif message.role == "system" and not self._is_recording:
                raise self._refuse("a system message is allowed only at the beginning", place)
            elif self._is_recording or message.role == "tool" or _says_something(message):
                messages.append(PlacedMessage(message=message, place=place))
            else:
                self.mends.add(SILENT, place)
        return pair_results(messages, self._source, self.mends, tells_missing=not self._is_recording)

    def _refuse(self, problem: str, place: str, form: Any = None, hint: str = "") -> SpecError:
        """The error about something that is not understood.

        Args:
            form: the type of an item or a part, which may tell the API that it is of.
            hint: what to do instead; empty for what is read at all.
        """
        api, function = _OTHER_FORMS.get(form, ("", "")) if isinstance(form, str) else ("", "")
        note = f"; this looks like a list of {api}, which `toolchart.{function}` reads" if api else ""
        return SpecError(problem, file=self._source, path=place, hint=hint or _HINT + note)

    def _read_message(self, entry: Any, place: str) -> Message:
        if isinstance(entry, Message):
            return self._check_value(entry, place)
        if not isinstance(entry, Mapping):
            is_model = hasattr(entry, "model_dump")
            hint = f"turn {type(entry).__name__} into data: `message.model_dump()`" if is_model else ""
            raise self._refuse("a message is an object", place, hint=hint)
        if _is_chat_page_message(entry):
            return Message(role="user" if entry["type"] == "user" else "assistant", content=entry["text"])
        role = self._read_role(entry, place)
        content, parts = self._read_content(entry, role, place)
        message = Message(role=role, content=content, parts=parts)
        if role == "tool":
            return self._read_result(message, entry, place)
        if not self._is_recording and (names := [key for key in _CONTENT_KEYS if entry.get(key)]):
            self.mends.add(OTHER_KEYS, f"{place} ({', '.join(names)})")
        if role != "assistant":
            if entry.get("tool_calls"):
                raise self._refuse(f"only the assistant calls tools, not {role}", f"{place}.tool_calls")
            return message
        if content is None and isinstance(entry.get("refusal"), str):
            message = replace(message, content=entry["refusal"])
        other_keys = {key: value for key, value in entry.items() if key not in _ASSISTANT_KEYS}
        has_others = self._is_recording and other_keys
        return replace(
            message,
            tool_calls=tuple(self._read_calls(entry, place)),
            provider_data={"provider": IMPORTED, "keys": other_keys} if has_others else None,
        )

    def _check_value(self, message: Message, place: str) -> Message:
        """The message with types as they are declared, and calls with ids of their own."""
        try:
            message = msgspec.convert(msgspec.to_builtins(message), Message)
        except (msgspec.ValidationError, TypeError, RecursionError) as error:
            raise self._refuse(f"not a message: {error}", place, hint="see `toolchart.Message`") from None
        if message.tool_calls and message.role != "assistant":
            raise self._refuse(f"only the assistant calls tools, not {message.role}", f"{place}.tool_calls")
        calls = tuple(
            self._name_call(_complete_arguments(call), index, place)
            for index, call in enumerate(message.tool_calls)
        )
        return replace(message, tool_calls=calls) if calls != message.tool_calls else message

    def _name_call(self, call: ToolCall, index: int, place: str) -> ToolCall:
        """The call with an id of its own. Its result may name the one that it came with, too."""
        if not call.name:
            raise self._refuse("a call without a name", f"{place}.tool_calls[{index}]")
        first_id = call_id = call.id or f"call_{len(self._uses)}_{index}"
        while call_id in self._uses:  # some hosts begin with the same ids in each turn
            self._uses[first_id] += 1
            call_id = f"{first_id}+{self._uses[first_id]}"
        self._uses[call_id] = 1
        if call.problem is not None:
            self.mends.add(UNREADABLE, place, call)
        if call_id == call.id:
            return call
        call = replace(call, id=call_id, native_id=call.native_id or call.id or None)
        self.mends.add(NEW_ID, place, call)
        return call

    def _read_result(self, message: Message, entry: Mapping[str, Any], place: str) -> Message:
        ids, name = entry.get("tool_call_ids"), entry.get("name")
        wanted = entry.get("tool_call_id") or (ids[0] if isinstance(ids, list) and ids else None)
        if not isinstance(entry.get("content"), str | list | None):
            self.mends.add(JSON_RESULT, place)
        return replace(
            message,
            tool_call_id=str(wanted) if wanted else None,
            name=name if isinstance(name, str) else None,
        )

    def _read_role(self, entry: Mapping[str, Any], place: str) -> Role:
        role = entry.get("role")
        if "role" not in entry:
            raise self._refuse("a message without a role", place, entry.get("type"))
        if not isinstance(role, str) or role not in _RECORDED_ROLES:
            problem = f"unknown role {role!r}; there are {', '.join(_RECORDED_ROLES)}"
            raise self._refuse(problem, f"{place}.role", entry.get("type"))
        if not any(key in entry for key in ("content", "tool_calls", "function_call", "refusal")):
            raise self._refuse("a message without content", place, entry.get("type"))
        return _RECORDED_ROLES[role]

    def _read_content(
        self, entry: Mapping[str, Any], role: Role, place: str
    ) -> tuple[str | None, tuple[ContentPart, ...]]:
        """The content of an entry; a result that is no text is its JSON."""
        content = entry.get("content")
        try:
            return read_content(content, self._source, place)
        except SpecError as error:
            parts = content if isinstance(content, list) else ()
            if role == "tool" and not parts:
                with suppress(TypeError, ValueError, RecursionError):
                    return json.dumps(content, ensure_ascii=False), ()
            types = [part.get("type") for part in parts if isinstance(part, Mapping)]
            form = next((kind for kind in types if isinstance(kind, str) and kind in _OTHER_FORMS), None)
            raise self._refuse(error.message, error.path or place, form) from None

    def _read_calls(self, entry: Mapping[str, Any], place: str) -> Iterator[ToolCall]:
        calls, function = entry.get("tool_calls"), entry.get("function_call")
        if calls is not None and not isinstance(calls, list | tuple):
            raise self._refuse("the calls are a list", f"{place}.tool_calls")
        for index, call in enumerate(calls or ([{"function": function}] if function else [])):
            yield self._read_call(call, index, place)

    def _read_call(self, call: Any, index: int, place: str) -> ToolCall:
        function = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
            raise self._refuse("a call without `function.name`", f"{place}.tool_calls[{index}]")
        call_id = str(call["id"]) if call.get("id") else ""
        if "function" in call:
            decoded = decode_call(call_id, name, function.get("arguments"))
        else:
            decoded = decode_text_call(call_id, name, function.get("input"))
        return self._name_call(decoded, index, place)


def _complete_arguments(call: ToolCall) -> ToolCall:
    """The call with arguments, or with the problem of its text."""
    if call.problem is not None:
        return replace(call, arguments=None)
    given = call.arguments if call.arguments is not None else call.raw
    decoded = decode_call(call.id, call.name, given)
    raw = call.raw if call.raw is not None else decoded.raw
    return replace(call, arguments=decoded.arguments, raw=raw, problem=decoded.problem)


def _says_something(message: Message) -> bool:
    return bool(message.content or message.parts or message.tool_calls or message.provider_data)


def _is_chat_page_message(entry: Mapping[str, Any]) -> bool:
    kind, text = entry.get("type"), entry.get("text")
    return (
        "role" not in entry and isinstance(text, str) and isinstance(kind, str) and kind not in _OTHER_FORMS
    )


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


def expand_call_messages(data: Iterable[Any]) -> tuple[list[Any], list[int]]:
    """The list in OpenAI's form, and for each message the number of the entry that it comes from.

    Calls in a row belong to the assistant's message right before them, or to one without text.
    """
    entries, messages, numbers = list(data), list[Any](), list[int]()
    calls: list[Mapping[str, Any]] = []
    for number, entry in enumerate(entries):
        if (call := _get_joined_call(entry)) is None:
            messages.append(entry)
        else:
            calls.append(call)
        if calls and (number + 1 == len(entries) or _get_joined_call(entries[number + 1]) is None):
            _add_calls(messages, calls)
            calls = []
        numbers += [number] * (len(messages) - len(numbers))
    return messages, numbers


def _get_joined_call(entry: Any) -> Mapping[str, Any] | None:
    call = entry.get(_CALL_KEY) if isinstance(entry, Mapping) else None
    return call if isinstance(call, Mapping) else None


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

    An id stands for its newest call without a result. A result that answers no call before it stays a message
    of its own.
    """
    messages: list[dict[str, Any]] = []
    open_calls: dict[Any, list[list[dict[str, Any]]]] = {}
    """Calls without a result: by id, for each message that has some."""
    for entry in data:
        call_id = entry.get("tool_call_id")
        waiting = open_calls.get(call_id) if entry.get("role") == "tool" and call_id is not None else None
        if waiting:
            waiting[-1].pop(0)["result"] = entry.get("content")
            if not waiting[-1]:
                waiting.pop()
            continue
        calls = entry.get("tool_calls") or ()
        if entry.get("content") or not calls:
            messages.append({key: value for key, value in entry.items() if key != "tool_calls"})
        joined = list(map(_join_call, calls))
        messages += [{"role": "tool", _CALL_KEY: call} for call in joined]
        for call_id in dict.fromkeys(call["id"] for call in joined):
            open_calls.setdefault(call_id, []).append([call for call in joined if call["id"] == call_id])
    return messages


def _join_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments", "{}")
    with suppress(ValueError, TypeError):  # a recorded call may have an object, or no JSON
        arguments = parse_foreign_json(arguments)
    return {"id": call.get("id"), "name": call["function"]["name"], "arguments": arguments}
