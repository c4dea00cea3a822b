"""Messages as programs really record them, for the import: kept as they came, or refused.

Some lists are not what a chat API would accept: arguments that are not JSON, a greeting by the assistant
first, two user messages in a row, a `developer` in the middle, results in another order, calls without ids or
without a result. The core gets the nearest events. The list itself is kept beside them as it came, so that
the export gives it back.

A list with an entry that no event can stand for is refused whole: what people read of a log, and what is
counted of it, would lack that entry, and nobody would know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from toolchart.specs.history import parse_content
from toolchart.states.errors import SpecError
from toolchart.states.messages import Message, ToolCall

SERVICE = "imported"
"""The `llms` entry of imported conversations, and the mark of what an import keeps beside its events."""

_TOOL_ROLES = ("tool", "function")
_SYSTEM_ROLES = ("system", "developer")

_KNOWN_ROLES = ("user", "assistant", *_TOOL_ROLES, *_SYSTEM_ROLES)

_HINT = (
    "import reads messages as OpenAI's chat API has them: role, content and tool_calls, with results as tool "
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
"""Keys that become fields of a message; the others are kept beside it."""

NO_RESULT = "(the recording has no result of this call)"


def read_recorded_messages(data: list[Any], source: str | None) -> tuple[str | None, list[Message]]:
    """The system prompt at the beginning, and the messages that the core can hold, in their order.

    Each call has an id of its own in the conversation.

    Raises:
        SpecError: an entry is no message, or holds something that no message of the log can say: an unknown
            role, an unknown part, the result of no call. Or nobody says anything in the list.
    """
    reader = _MessageReader(source)
    for index, entry in enumerate(data):
        reader.read_entry(entry, f"[{index}]")
    said = [message for message in reader.messages if message.role != "system"]
    if not any(message.content or message.parts or message.tool_calls for message in said):
        raise SpecError("nobody says anything in this list of messages", file=source)
    return reader.system, reader.messages


def build_refusal(problem: str, source: str | None, path: str, form: Any = None) -> SpecError:
    """The error about something that is not understood.

    Args:
        form: the type of an item or a part, which may tell the API that it is of.
    """
    api = _OTHER_FORMS.get(form) if isinstance(form, str) else None
    note = f"; this looks like a list of {api}" if api else ""
    return SpecError(problem, file=source, path=path, hint=_HINT + note)


class _MessageReader:
    """Reads entry by entry; knows which calls have no result yet."""

    def __init__(self, source: str | None) -> None:
        self.system: str | None = None
        self.messages: list[Message] = []
        self._source = source
        self._open_calls: list[ToolCall] = []
        self._used_ids: set[str] = set()

    def read_entry(self, entry: Any, path: str) -> None:
        """Read the next entry of the list.

        Raises:
            SpecError: it is not understood.
        """
        if not isinstance(entry, dict):
            raise SpecError("a message is an object", file=self._source, path=path)
        role = entry.get("role")
        if role not in _KNOWN_ROLES:
            problem = f"unknown role {role!r}" if "role" in entry else "a message without a role"
            raise build_refusal(problem, self._source, path, entry.get("type"))
        if "content" not in entry and not (entry.get("tool_calls") or entry.get("function_call")):
            raise build_refusal("a message without content", self._source, path, entry.get("type"))
        message = self._read_content(entry, path)
        if role in _SYSTEM_ROLES and not self.messages and self.system is None:
            self.system = message.content
        elif role in _SYSTEM_ROLES:
            self.messages.append(replace(message, role="system"))
        elif role == "user":
            self.messages.append(message)
        elif role == "assistant":
            calls = tuple(self._read_calls(entry, path))
            self._open_calls = list(calls)
            extra = {key: value for key, value in entry.items() if key not in _ASSISTANT_KEYS}
            kept = {"provider": SERVICE, "keys": extra} if extra else None
            self.messages.append(replace(message, role="assistant", tool_calls=calls, provider_data=kept))
        else:
            self._read_result(entry, message, path)

    def _read_content(self, entry: dict[str, Any], path: str) -> Message:
        """A user message with the content of an entry; a result that is no text is its JSON."""
        content = entry.get("content")
        try:
            text, parts = parse_content(content, self._source, path)
        except SpecError as error:
            if entry["role"] in _TOOL_ROLES:
                return Message(role="user", content=json.dumps(content, ensure_ascii=False))
            entries = content if isinstance(content, list) else ()
            types = [part.get("type") for part in entries if isinstance(part, dict)]
            form = next((type_ for type_ in types if type_ in _OTHER_FORMS), None)
            raise build_refusal(error.message, self._source, error.path or path, form) from None
        return Message(role="user", content=text, parts=parts)

    def _read_calls(self, entry: dict[str, Any], path: str) -> Iterator[ToolCall]:
        calls, function = entry.get("tool_calls"), entry.get("function_call")
        if calls is not None and not isinstance(calls, list):
            raise build_refusal("the calls are a list", self._source, f"{path}.tool_calls")
        for index, call in enumerate(calls or ([{"function": function}] if function else [])):
            yield self._read_call(call, index, f"{path}.tool_calls[{index}]")

    def _read_call(self, call: Any, index: int, path: str) -> ToolCall:
        function = call.get("function") if isinstance(call, dict) else None
        if (
            not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
            or not function["name"]
        ):
            raise build_refusal("a call without `function.name`", self._source, path)
        native_id = str(call["id"]) if call.get("id") else None
        call_id = native_id or f"call_{len(self.messages)}_{index}"
        while call_id in self._used_ids:
            call_id += "+"
        self._used_ids.add(call_id)
        raw = function.get("arguments", "{}")
        arguments, problem = _read_arguments(raw)
        return ToolCall(
            id=call_id,
            name=function["name"],
            arguments=arguments,
            raw=raw if isinstance(raw, str) else None if arguments is not None else json.dumps(raw),
            problem=problem,
            native_id=native_id if native_id != call_id else None,
        )

    def _read_result(self, entry: dict[str, Any], message: Message, path: str) -> None:
        """The result of an open call: by its id, by the name of its tool, or the next in order."""
        ids = entry.get("tool_call_ids")
        wanted = entry.get("tool_call_id") or (ids[0] if isinstance(ids, list) and ids else None)
        matches = [call for call in self._open_calls if wanted in (call.id, call.native_id)]
        if not matches and not wanted:
            matches = [call for call in self._open_calls if call.name == entry.get("name")]
            matches = matches or self._open_calls
        if not matches:
            of_call = f"the call {wanted!r}, which is not open" if wanted else "no call before it"
            raise build_refusal(f"a result that answers {of_call}", self._source, path)
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


# -- files of other programs -----------------------------------------------------------------------


def find_message_lists(data: Any) -> list[Any]:
    """The message lists of a file; what is none stands among them as it is, to be refused by name.

    Known are: a list of messages; objects with such a list as `traj` (tau-bench), `history` (SWE-agent),
    `messages` or `conversation`; and conversations of ToolTalk, whose turns have `text` and `apis`. Several
    objects, or lists, in a list are several conversations.
    """
    if isinstance(data, dict):
        return [_find_message_list(data)]
    if isinstance(data, list) and any(map(_is_conversation, data)) and not any(map(_is_message, data)):
        return [_find_message_list(item) if isinstance(item, dict) else item for item in data]
    return [data]


def _is_conversation(item: Any) -> bool:
    """Whether an entry of a list is a list, or an object with one."""
    if isinstance(item, dict):
        return not _is_message(item) and any(isinstance(item.get(key), list) for key in _LIST_KEYS)
    return isinstance(item, list)


def _is_message(item: Any) -> bool:
    return isinstance(item, dict) and "role" in item


_LIST_KEYS = ("conversation", "traj", "history", "messages")


def _find_message_list(item: dict[str, Any]) -> Any:
    for key in _LIST_KEYS:
        if isinstance(item.get(key), list):
            has_texts = any(isinstance(entry, dict) and "text" in entry for entry in item[key])
            return list(_read_tooltalk(item[key])) if key == "conversation" and has_texts else item[key]
    return item


def _read_tooltalk(turns: list[Any]) -> Iterator[Any]:
    """The messages of a ToolTalk conversation: the calls of a turn and their results come before its text.

    A turn that is none stands among them as it is.
    """
    for number, turn in enumerate(turns):
        apis = turn.get("apis") or [] if isinstance(turn, dict) else None
        if not isinstance(apis, list) or not all(isinstance(api, dict) for api in apis) or "text" not in turn:
            yield turn
            continue
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
