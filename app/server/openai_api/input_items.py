"""What a response was made of, as items: the conversation before it, and what its request brought.

Source: `openai/types/responses/response_item.py` and `.../input_item_list_params.py` of the SDK 3.54.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from starlette.datastructures import QueryParams

from toolchart.app.server.answers import Refusal
from toolchart.app.server.openai_api.response_ids import ResponseName
from toolchart.app.server.openai_api.response_items import (
    SERVER_LABEL,
    describe_call_end,
    describe_picture,
    encode_source,
    make_text,
)
from toolchart.app.server.protocols.waiting import APPROVAL, CLIENT_CALL, QUESTION, WaitingKind, make_wire_id
from toolchart.engine.log.read_records import ReadRecord, read_conversation
from toolchart.engine.reading.messages import TranscriptCollector, build_user_message
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import CitationPart, ImagePart, Note, encode_chat_part
from toolchart.states.messages import Message, ToolCall, encode_arguments
from toolchart.states.ports import Store

# -- pages ---------------------------------------------------------------------------------------

_USUAL_PAGE, _LARGEST_PAGE = 20, 100  # OpenAI's own


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which items of a list are asked for."""

    limit: int = _USUAL_PAGE
    after: str | None = None
    is_ascending: bool = False


def read_page_query(query: QueryParams) -> PageQuery:
    """What a request for a page says.

    Raises:
        Refusal: 400; a value is none that OpenAI's API has.
    """
    limit, order = query.get("limit", str(_USUAL_PAGE)), query.get("order", "desc")
    is_number = limit.isascii() and limit.isdecimal() and len(limit) <= 3
    if not is_number or not 1 <= int(limit) <= _LARGEST_PAGE:
        raise Refusal(400, f"limit: a whole number from 1 to {_LARGEST_PAGE}, not {limit[:40]!r}")
    if order not in ("asc", "desc"):
        raise Refusal(400, f"order: 'asc' (the oldest first) or 'desc', not {order[:40]!r}")
    return PageQuery(limit=int(limit), after=query.get("after"), is_ascending=order == "asc")


def cut_page(items: list[dict[str, Any]], query: PageQuery) -> dict[str, Any]:
    """One page of items, which come the oldest first.

    Raises:
        Refusal: 400; the item that the page comes after is none of them.
    """
    ordered = items if query.is_ascending else items[::-1]
    start = 0
    if query.after is not None:
        ids = [item["id"] for item in ordered]
        if query.after not in ids:
            raise Refusal(400, f"after: this response has no input item {query.after[:80]!r}")
        start = ids.index(query.after) + 1
    page = ordered[start : start + query.limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + len(page) < len(ordered),
    }


# -- items ---------------------------------------------------------------------------------------


def list_input_items(
    store: Store, name: ResponseName, is_client_tool: Callable[[str], bool]
) -> list[dict[str, Any]]:
    """All that a response was made of, the oldest first: the messages of the conversation before it as the
    model saw them, and the messages, outputs and decisions that its request brought.

    Decisions about calls of agents that the conversation runs stand in logs of their own, and are no part.

    Args:
        store: as whoever asks sees it.
        is_client_tool: whether a tool runs at the client.

    Raises:
        Refusal: 404; there is no such response.
        LogDamaged: the log is not the one that was written.
    """
    records = list(read_conversation(store, name.conversation, include_shared=True))
    # The records that a fork shares come first, each log with its own numbers.
    first = next((place for place in reversed(range(len(records))) if records[place].seq == 0), 0)
    begin = first + name.seq
    own = [record for record in records[begin:] if record.turn <= name.turn]
    if not own or own[-1].turn != name.turn:
        raise Refusal(404, f"there is no response {name.id!r}")
    lister = _ItemLister(name, is_client_tool)
    collector = TranscriptCollector()
    for record in records[:begin]:
        lister.add_record(record, collector.add_record(record))
    lister.end_context()
    for record in _iterate_input(own):
        lister.add_input(record, collector.add_record(record))
    return lister.items


def _iterate_input(records: list[ReadRecord]) -> Iterator[ReadRecord]:
    """The records of a response before its first reply, and before a later response took its turn up."""
    has_rested = False
    for record in records:
        if record.event_type == "replied" or (record.event_type == "resumed" and has_rested):
            return
        has_rested = has_rested or record.event_type == "user_said"
        yield record


class _ItemLister:
    """Makes items of records; `items` are those so far."""

    def __init__(self, name: ResponseName, is_client_tool: Callable[[str], bool]) -> None:
        self._name = name
        self._is_client_tool = is_client_tool
        self.items: list[dict[str, Any]] = []
        self._open: dict[str, tuple[int, ToolCall]] = {}
        """Calls that have no outcome yet, each with the place of its item."""
        self._own_calls: set[str] = set()
        """The calls of the model's replies here; any other comes from a history that a client has sent."""
        self._kept: list[Message] = []
        """Messages of the user that the turn has not taken up yet; their items stand where they came."""
        self._effects: dict[int, str] = {}
        """The names of the effects that were asked for."""

    def add_record(self, record: ReadRecord, messages: tuple[Message, ...]) -> None:
        """Add a record before the response, and the messages of its step."""
        self._note_effects(record)
        if record.event_type == "tool_finished":
            self._add_outcome(record.event)
        if record.event_type == "user_said":
            self._keep_message(record)
        for message in messages:
            if self._kept and message == self._kept[0]:
                del self._kept[0]
            else:
                self._add_message(message, is_own=record.event_type == "replied")

    def _keep_message(self, record: ReadRecord) -> None:
        message = build_user_message(record.event)
        self._kept.append(message)
        self._add_user_message(message)

    def end_context(self) -> None:
        """Show the calls that had not run when the response began: the agent's own wait for approval."""
        for place, call in self._open.values():
            if call.id in self._own_calls and not self._is_client_tool(call.name):
                self.items[place] = {
                    "id": self._name_item(APPROVAL, call.id),
                    "type": "mcp_approval_request",
                    "server_label": SERVER_LABEL,
                    "name": call.name,
                    "arguments": encode_arguments(call),
                }

    def add_input(self, record: ReadRecord, messages: tuple[Message, ...]) -> None:
        """Add a record of the response itself, as far as a client has brought what it says."""
        event = record.event
        match record.event_type:
            case "turn_started":
                for message in messages:
                    self._add_message(message, is_own=False)
            case "user_said":
                self._keep_message(record)
            case "tool_finished" if event["call_id"] in self._open:
                if self._is_client_tool(self._open[event["call_id"]][1].name):
                    self._add_outcome(event)
            case "decided":
                item = {
                    "type": "mcp_approval_response",
                    "approval_request_id": self._name_item(APPROVAL, event["call_id"]),
                    "approve": event["approved"],
                    "reason": event.get("reason"),
                }
                self._add("mcpr", item)
            case "answered":
                effect = self._effects.get(event["effect"], "")
                text = encode_canonical_text(event["content"])
                self._add_output(self._name_item(QUESTION, effect), text)
        self._note_effects(record)

    def _note_effects(self, record: ReadRecord) -> None:
        self._effects |= {ask.id: ask.name for ask in record.asks}

    def _name_item(self, kind: WaitingKind, id_: str) -> str:
        return make_wire_id(kind, self._name.conversation, self._name.conversation, id_)

    def _add(self, prefix: str, item: Mapping[str, Any]) -> None:
        self.items.append({"id": f"{prefix}_{self._name.id[5:]}_in{len(self.items)}", **item})

    # -- messages --------------------------------------------------------------------------------

    def _add_message(self, message: Message, *, is_own: bool) -> None:
        match message.role:
            case "assistant":
                self._add_words(message)
                for call in message.tool_calls:
                    self._add_call(call, is_own=is_own)
            case "tool":
                self._add_result(message)
            case _:
                self._add_user_message(message)

    def _add_user_message(self, message: Message) -> None:
        parts = [part for part in message.list_parts() if not isinstance(part, Note)]
        content = [_describe_part(encode_chat_part(part)) for part in parts]
        self._add("msg", {"type": "message", "role": message.role, "status": "completed", "content": content})

    def _add_words(self, message: Message) -> None:
        if message.content:
            notes = [encode_source(part) for part in message.parts if isinstance(part, CitationPart)]
            content = [{**make_text(message.content), "annotations": notes}]
            item = {"type": "message", "role": "assistant", "status": "completed", "content": content}
            self._add("msg", item)
        for part in message.parts:
            if isinstance(part, ImagePart) and part.data:
                self._add("ig", describe_picture(part))

    # -- calls -----------------------------------------------------------------------------------

    def _add_call(self, call: ToolCall, *, is_own: bool) -> None:
        self._open[call.id] = len(self.items), call
        if is_own:
            self._own_calls.add(call.id)
        if self._is_client_tool(call.name):
            item = {"name": call.name, "arguments": encode_arguments(call), "status": "completed"}
            self._add("fc", {"type": "function_call", "call_id": self._name_call(call), **item})
        else:
            self._add("mcp", _describe_inside_call(call))

    def _name_call(self, call: ToolCall) -> str:
        return self._name_item(CLIENT_CALL, call.id) if call.id in self._own_calls else call.id

    def _add_output(self, call_id: str, output: str) -> None:
        item = {"type": "function_call_output", "call_id": call_id, "output": output, "status": "completed"}
        self._add("fco", item)

    def _add_outcome(self, event: Mapping[str, Any]) -> None:
        """Add the outcome of a call, which a client has sent, or a tool of the agent has given."""
        place, call = self._open.pop(event["call_id"], (0, None))
        if call is None:
            return  # it came too late, or the conversation has no such call any more
        end = describe_call_end(event["outcome"], event["result"])
        if self._is_client_tool(call.name):
            output = end["output"] if end["error"] is None else end["error"]
            self._add_output(self._name_call(call), output)
        else:
            self.items[place] |= end

    def _add_result(self, message: Message) -> None:
        """Add a result of a history, or one that the core wrote; any other is known from its outcome."""
        place, call = self._open.pop(message.tool_call_id or "", (0, None))
        if call is None:
            return
        if self._is_client_tool(call.name):
            self._add_output(self._name_call(call), message.content or "")
        else:
            self.items[place] |= {"status": "completed", "output": message.content or ""}


def _describe_inside_call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "mcp_call",
        "server_label": SERVER_LABEL,
        "name": call.name,
        "arguments": encode_arguments(call),
        "status": "incomplete",
        "output": None,
        "error": None,
    }


def _describe_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a message of chat completions as one of an item."""
    match part:
        case {"type": "text", "text": text}:
            return {"type": "input_text", "text": text}
        case {"type": "image_url", "image_url": {"url": url}}:
            return {"type": "input_image", "detail": "auto", "image_url": url}
        case {"type": "file"}:
            return {"type": "input_file", **part["file"]}
    return dict(part)  # a sound has one form in both
