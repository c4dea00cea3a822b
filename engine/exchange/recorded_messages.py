"""Messages as programs really record them, for the import: nothing is refused that a log can keep.

Some lists are not what a chat API would accept: arguments that are not JSON, a greeting by the assistant
first, two user messages in a row, a `developer` in the middle, results in another order, calls without ids or
without a result. The core gets the nearest events. The list itself is kept beside them as it came, so that
the export gives it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from toolchart.specs.history import parse_content
from toolchart.states.errors import SpecError
from toolchart.states.messages import Message, ToolCall

_TOOL_ROLES = ("tool", "function")
_SYSTEM_ROLES = ("system", "developer")

NO_RESULT = "(the recording has no result of this call)"


def read_recorded_messages(data: list[Any], source: str | None) -> tuple[str | None, list[Message]]:
    """The system prompt at the beginning, and the messages that the core can hold, in their order.

    Each call has an id of its own in the conversation. Messages of unknown roles, and results of unknown
    calls, are left out; they stay in the recorded list.

    Raises:
        SpecError: an entry is not an object.
    """
    reader = _MessageReader()
    for index, entry in enumerate(data):
        if not isinstance(entry, dict):
            raise SpecError("a message is an object", file=source, path=f"[{index}]")
        reader.read_entry(entry)
    return reader.system, reader.messages


class _MessageReader:
    """Reads entry by entry; knows which calls have no result yet."""

    def __init__(self) -> None:
        self.system: str | None = None
        self.messages: list[Message] = []
        self._open_calls: list[ToolCall] = []
        self._used_ids: set[str] = set()

    def read_entry(self, entry: dict[str, Any]) -> None:
        """Read the next entry of the list."""
        role, message = entry.get("role"), _read_content(entry)
        if role in _SYSTEM_ROLES and not self.messages and self.system is None:
            self.system = message.content
        elif role in _SYSTEM_ROLES:
            self.messages.append(replace(message, role="system"))
        elif role == "user":
            self.messages.append(message)
        elif role == "assistant":
            calls = tuple(self._read_calls(entry))
            self._open_calls = list(calls)
            self.messages.append(replace(message, role="assistant", tool_calls=calls))
        elif role in _TOOL_ROLES:
            self._read_result(entry, message)

    def _read_calls(self, entry: dict[str, Any]) -> Iterator[ToolCall]:
        calls = entry.get("tool_calls")
        function = entry.get("function_call")
        entries = calls if isinstance(calls, list) else [{"function": function}] if function else []
        for index, call in enumerate(entries):
            yield self._read_call(call if isinstance(call, dict) else {}, index)

    def _read_call(self, call: dict[str, Any], index: int) -> ToolCall:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        native_id = str(call["id"]) if call.get("id") else None
        call_id = native_id or f"call_{len(self.messages)}_{index}"
        while call_id in self._used_ids:
            call_id += "+"
        self._used_ids.add(call_id)
        raw = function.get("arguments", "{}")
        arguments, problem = _read_arguments(raw)
        return ToolCall(
            id=call_id,
            name=str(function.get("name") or "unknown"),
            arguments=arguments,
            raw=raw if isinstance(raw, str) else None if arguments is not None else json.dumps(raw),
            problem=problem,
            native_id=native_id if native_id != call_id else None,
        )

    def _read_result(self, entry: dict[str, Any], message: Message) -> None:
        """The result of an open call: by its id, by the name of its tool, or the next in order."""
        ids = entry.get("tool_call_ids")
        wanted = entry.get("tool_call_id") or (ids[0] if isinstance(ids, list) and ids else None)
        matches = [call for call in self._open_calls if wanted in (call.id, call.native_id)]
        if not matches and not wanted:
            matches = [call for call in self._open_calls if call.name == entry.get("name")]
            matches = matches or self._open_calls
        if matches:
            call = matches[0]
            self._open_calls.remove(call)
            self.messages.append(replace(message, role="tool", tool_call_id=call.id, name=call.name))


def _read_arguments(raw: Any) -> tuple[dict[str, Any] | None, str | None]:
    """The arguments of a call; None and the problem where they are no JSON object."""
    try:
        arguments = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"
    return (arguments, None) if isinstance(arguments, dict) else (None, "not a JSON object")


def _read_content(entry: dict[str, Any]) -> Message:
    """A user message with the content of an entry; unknown parts as JSON text."""
    content = entry.get("content")
    try:
        text, parts = parse_content(content, None, "")
    except SpecError:
        return Message(role="user", content=json.dumps(content, ensure_ascii=False))
    return Message(role="user", content=text, parts=parts)


# -- files of other programs -----------------------------------------------------------------------


def find_message_lists(data: Any) -> list[Any]:
    """The message lists of a file.

    Known are: a list of messages; objects with such a list as `traj` (tau-bench), `history` (SWE-agent) or
    `messages`; and conversations of ToolTalk, whose turns have `text` and `apis`. Several objects in a list
    are several conversations.
    """
    if isinstance(data, dict):
        return [_find_message_list(data)]
    if (
        isinstance(data, list)
        and data
        and all(isinstance(item, dict) and "role" not in item for item in data)
    ):
        return [_find_message_list(item) for item in data]
    return [data]


def _is_conversation(item: Any) -> bool:
    """Whether an entry of a list is an object with messages, and not a message."""
    return isinstance(item, dict) and "role" not in item


def _find_message_list(item: dict[str, Any]) -> Any:
    if isinstance(item.get("conversation"), list):
        return list(_read_tooltalk(item["conversation"]))
    for key in ("traj", "history", "messages"):
        if isinstance(item.get(key), list):
            return item[key]
    return item


def _read_tooltalk(turns: list[Any]) -> Iterator[dict[str, Any]]:
    """The messages of a ToolTalk conversation: the calls of a turn and their results come before its text."""
    for number, turn in enumerate(turns):
        if not isinstance(turn, dict):
            continue
        apis = [api for api in turn.get("apis") or () if isinstance(api, dict)]
        if apis:
            yield {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    _build_tooltalk_call(api, f"call_{number}_{index}") for index, api in enumerate(apis)
                ],
            }
        for index, api in enumerate(apis):
            result = {key: api.get(key) for key in ("response", "exception")}
            name = _get_request(api).get("api_name")
            content = json.dumps(result, ensure_ascii=False)
            call_id = f"call_{number}_{index}"
            yield {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}
        yield {"role": turn.get("role"), "content": turn.get("text")}


def _build_tooltalk_call(api: dict[str, Any], call_id: str) -> dict[str, Any]:
    request = _get_request(api)
    arguments = json.dumps(request.get("parameters"), ensure_ascii=False)
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": request.get("api_name"), "arguments": arguments},
    }


def _get_request(api: dict[str, Any]) -> dict[str, Any]:
    request = api.get("request")
    return request if isinstance(request, dict) else {}
