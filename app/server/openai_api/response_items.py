"""Results of turns as responses: their output items, and the events that build them up.

Source: `openai/types/responses/` and `openai/lib/streaming/responses/` of the SDK 3.54; the models
`ResponseResource` and `...StreamingEvent` of the Open Responses specification (github.com/openresponses).

    response.created, response.in_progress
    a message:      output_item.added, content_part.added, output_text.delta ..., content_part.done, ...
    no answer:      a message that closes as `incomplete`, with its text under the key `toolchart`
    a tool inside:  an item `mcp_call` with its output
    what is asked:  an item `function_call` (a client's tool, a question) or `mcp_approval_request`
    a picture:      an item `image_generation_call` with its result; sources are annotations of the text
    response.completed, .incomplete or .failed, and `[DONE]`; .in_progress where the turn goes on elsewhere
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from toolchart.app.server.protocols.contents import describe_turn, describe_usage
from toolchart.app.server.protocols.turns import HELD, AnswerText, count_seconds
from toolchart.app.server.protocols.waiting import APPROVAL, CLIENT_CALL, WaitingItem, list_waiting_items
from toolchart.engine.runtime.agent import INSTRUCTIONS
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.streaming import Piece, StepTaken
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import CitationPart, ImagePart, encode_chat_source
from toolchart.states.events import Cancelled, Settings, ToolFinished
from toolchart.states.messages import ToolCall, ToolDefinition, encode_arguments
from toolchart.states.snapshot import Snapshot

SERVER_LABEL = "toolchart"
"""Where tools run that run inside."""


class ResponseBuilder:
    """Builds one response from the pieces of a turn; `response` is what there is so far.

    Args:
        head: the parts of the response that are known at the start.
        is_client_tool: whether a tool runs at the client.
        read_times: when the first and the newest record of the response were written; asked for, like
            `read_snapshot`, where no step of it was streamed.
    """

    def __init__(
        self,
        head: dict[str, Any],
        is_client_tool: Callable[[str], bool],
        read_times: Callable[[], tuple[str, str]],
        read_snapshot: Callable[[], Snapshot],
    ) -> None:
        self._is_client_tool = is_client_tool
        self._read_times = read_times
        self._read_snapshot = read_snapshot
        self.ignored: list[str] = []
        """The options of the request that have no effect; the log has none of them."""
        self.is_followed = False
        """Whether a later response has gone on with the turn: then this one rested where it ends."""
        self._is_cancelled = False
        self.asks_instructions = False
        """Whether the request has instructions: they have no effect where no prompt names them."""
        self._text = AnswerText(HELD, can_withdraw=True)
        self._output: list[dict[str, Any]] = []
        self._words: list[str] = []
        """The text of the message that is being written."""
        self._message_id = ""
        """Id of that message; empty for none."""
        self._number = -1
        self.response: dict[str, Any] = {**_EMPTY, **head, "status": "in_progress", "output": self._output}

    def _begin_response(self) -> Iterator[dict[str, Any]]:
        """The events before all others."""
        if self._text.steps.snapshot is None:
            self._describe_turn_start(self._read_snapshot())
        self.response["created_at"] = count_seconds(self._text.steps.first_at or self._read_times()[0])
        yield self._event("response.created", response=self._copy_response())
        yield self._event("response.in_progress", response=self._copy_response())

    def _describe_turn_start(self, snapshot: Snapshot) -> None:
        """What the turn was begun with, as it holds and not as a request asked for it. So it is the same when
        the response is read from the log."""
        tools = [tool for tool in snapshot.tools if self._is_client_tool(tool.name)]
        self.response |= {
            **_describe_options(snapshot.settings),
            "instructions": snapshot.variables.get(INSTRUCTIONS),
            "tools": [_describe_tool(tool) for tool in tools],
        }

    def take(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The events of a piece, the first with those that begin a response; the result ends the response."""
        change = self._text.take(piece)
        if isinstance(piece, StepTaken) and piece.step.snapshot is self._text.steps.snapshot:
            self._describe_turn_start(piece.step.snapshot)
        if self._number < 0:
            yield from self._begin_response()
        if change.is_withdrawn:
            yield from self._withdraw_message(change.reason)
        if change.text:
            yield from self._write(change.text)
        if isinstance(piece, StepTaken):
            self._is_cancelled = isinstance(piece.event, Cancelled)
            if isinstance(piece.event, ToolFinished):
                yield from self._add_finished_call(piece, piece.event)
        if isinstance(piece, Turn):
            yield from self._complete(piece)

    def fail(self, message: str) -> Iterator[dict[str, Any]]:
        """The events of a turn that could not be run to its end: the response has failed."""
        if self._number < 0:
            yield from self._begin_response()
        yield from self._end_message()
        self.response["error"] = {"code": "server_error", "message": message}
        self.response["status"] = "failed"
        yield self._event("response.failed", response=self._copy_response())

    # -- messages --------------------------------------------------------------------------------

    def _write(self, words: str) -> Iterator[dict[str, Any]]:
        if not self._message_id:
            self._message_id = f"msg_{self.response['id'][5:]}_{len(self._output)}"
            yield from self._add_item(self._describe_message("in_progress", []))
            yield self._part_event("response.content_part.added", part=make_text(""))
        self._words.append(words)
        yield self._part_event("response.output_text.delta", delta=words, logprobs=[])

    def _end_message(self, citations: Sequence[CitationPart] = ()) -> Iterator[dict[str, Any]]:
        if not self._message_id:
            return
        text = "".join(self._words)
        notes = [encode_source(source) for source in citations]
        for number, note in enumerate(notes):
            kind = "response.output_text.annotation.added"
            yield self._part_event(kind, annotation_index=number, annotation=note)
        yield self._part_event("response.output_text.done", text=text, logprobs=[])
        part = {**make_text(text), "annotations": notes}
        yield self._part_event("response.content_part.done", part=part)
        yield from self._end_item(self._describe_message("completed", [part]))
        self._message_id, self._words = "", []

    def _withdraw_message(self, reason: str) -> Iterator[dict[str, Any]]:
        """Close the message as an item that is no part of the answer. Clients join the contents of all
        messages, and parse each of them; so it has none."""
        if not self._message_id:
            return
        note = {"withdrawn": reason, "text": "".join(self._words).strip()}
        yield from self._end_item({**self._describe_message("incomplete", []), "toolchart": note})
        self._message_id, self._words = "", []

    def _describe_message(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    # -- calls -----------------------------------------------------------------------------------

    def _add_finished_call(self, piece: StepTaken, event: ToolFinished) -> Iterator[dict[str, Any]]:
        before = piece.step.before
        calls = [entry.call for entry in before.calls if entry.call.id == event.call_id] if before else []
        for call in calls:
            if not self._is_client_tool(call.name):
                yield from self._end_message()
                yield from self._add_inside_call(call, event)

    def _add_inside_call(self, call: ToolCall, event: ToolFinished) -> Iterator[dict[str, Any]]:
        item = {
            "id": f"mcp_{self.response['id'][5:]}_{len(self._output)}",
            "type": "mcp_call",
            "server_label": SERVER_LABEL,
            "name": call.name,
            "arguments": encode_arguments(call),
        }
        end = describe_call_end(event.outcome, event.result)
        yield from self._add_item({**item, "status": "in_progress", "output": None, "error": None})
        yield self._item_event("response.mcp_call.in_progress", item)
        yield self._item_event(f"response.mcp_call.{end['status']}", item)
        yield from self._end_item({**item, **end})

    def _add_waiting(self, item: WaitingItem) -> Iterator[dict[str, Any]]:
        arguments = encode_canonical_text(item.arguments)
        if item.kind is APPROVAL:
            request = {
                "id": item.wire_id,
                "type": "mcp_approval_request",
                "server_label": SERVER_LABEL,
                "name": item.tool,
                "arguments": arguments,
                **({"runs": item.runs} if item.runs else {}),
            }
            yield from self._add_item(request)
            yield from self._end_item(request)
            return
        call = {
            "id": f"fc_{item.wire_id[5:]}",
            "type": "function_call",
            "call_id": item.wire_id,
            "name": item.call_name,
            "arguments": "",
            "status": "in_progress",
        }
        yield from self._add_item(call)
        yield self._item_event("response.function_call_arguments.delta", call, delta=arguments)
        name = call["name"]
        yield self._item_event("response.function_call_arguments.done", call, arguments=arguments, name=name)
        yield from self._end_item({**call, "arguments": arguments, "status": "completed"})

    def _add_picture(self, part: ImagePart) -> Iterator[dict[str, Any]]:
        item = {"id": f"ig_{self.response['id'][5:]}_{len(self._output)}", **describe_picture(part)}
        yield from self._add_item({**item, "status": "in_progress", "result": None})
        yield from self._end_item(item)

    # -- the end ---------------------------------------------------------------------------------

    def _complete(self, result: Turn) -> Iterator[dict[str, Any]]:
        yield from self._end_message(result.citations)
        for part in result.parts:
            if isinstance(part, ImagePart) and part.data:
                yield from self._add_picture(part)
        # A call of the agent's own tool that has begun is none that a client could answer.
        items = [
            item
            for item in list_waiting_items(result.waiting, result.conversation)
            if item.kind is not CLIENT_CALL or self._is_client_tool(item.tool)
        ]
        for item in items:
            yield from self._add_waiting(item)
        status = self._find_status(result, waits=bool(items))
        if status == "failed" and result.error is not None:
            self.response["error"] = {"code": "server_error", "message": result.error.message}
        elif status == "incomplete":
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        elif status == "completed":
            # The time of the record, so that the response says the same when it is read from the log.
            newest_at = self._text.steps.newest_at or self._read_times()[1]
            self.response["completed_at"] = count_seconds(newest_at)
        is_unused = self.asks_instructions and self.response["instructions"] is None
        ignored = [*self.ignored, INSTRUCTIONS] if is_unused else self.ignored
        self.response |= {
            "status": status,
            "usage": _build_usage(result),
            "toolchart": {**_describe_turn(result), **({"ignored": ignored} if ignored else {})},
        }
        # The API has no event for a response that was cancelled.
        kind = "failed" if status == "cancelled" else status
        yield self._event(f"response.{kind}", response=self._copy_response())

    def _find_status(self, result: Turn, *, waits: bool) -> str:
        """How the response stands.

        Args:
            waits: whether the turn waits for something that a client can give.
        """
        is_over = result.is_over
        if result.error is not None:
            return "cancelled" if result.error.kind == "cancelled" else "failed"
        if self._is_cancelled and not (is_over or self.is_followed):
            return "cancelled"  # its chart has no row for that: the turn stays open until somebody resumes it
        if not (is_over or waits or self.is_followed):
            return "in_progress"
        return "incomplete" if result.limit_reached and not result.ok else "completed"

    # -- events ----------------------------------------------------------------------------------

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **fields}

    def _item_event(self, kind: str, item: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return self._event(kind, item_id=item["id"], output_index=len(self._output), **fields)

    def _part_event(self, kind: str, **fields: Any) -> dict[str, Any]:
        index = len(self._output)
        return self._event(kind, item_id=self._message_id, output_index=index, content_index=0, **fields)

    def _add_item(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield self._event("response.output_item.added", output_index=len(self._output), item=item)

    def _end_item(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        index = len(self._output)
        self._output.append(item)
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _copy_response(self) -> dict[str, Any]:
        return {**self.response, "output": list(self._output)}


def describe_call_end(outcome: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """What became of a call, as keys of its item.

    Args:
        outcome: that of `tool_finished`, as `result`.
    """
    if outcome != "succeeded":
        return {"status": "failed", "output": None, "error": str(result.get("error"))}
    value = result.get("result")
    output = value if isinstance(value, str) else encode_canonical_text(value)
    return {"status": "completed", "output": output, "error": None}


def describe_picture(part: ImagePart) -> dict[str, Any]:
    """A picture as an item, without its id."""
    return {
        "type": "image_generation_call",
        "status": "completed",
        "result": part.data,
        "output_format": part.media_type.partition("/")[2],
    }


def _describe_turn(result: Turn) -> dict[str, Any]:
    """What an item of a response has no place for: sounds, files, pictures by address."""
    has_address = any(isinstance(part, ImagePart) and not part.data for part in result.parts)
    return describe_turn(result, shown=(CitationPart,) if has_address else (CitationPart, ImagePart))


def encode_source(source: CitationPart) -> dict[str, Any]:
    """A source as an annotation of a text."""
    if source.file_id and not source.url:
        name = source.title or source.file_id
        return {
            "type": "file_citation",
            "file_id": source.file_id,
            "filename": name,
            "index": source.end or 0,
        }
    return {"type": "url_citation", **encode_chat_source(source)["url_citation"]}


def make_text(text: str) -> dict[str, Any]:
    """A text as a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _describe_options(settings: Settings | None) -> dict[str, Any]:
    """What the handler sets, of the options that a response names."""
    options = settings.options if settings is not None else {}
    described = {key: options[name] for name, key in _OPTIONS.items() if options.get(name) is not None}
    if options.get("reasoning_effort") is not None:
        described["reasoning"] = {"effort": options["reasoning_effort"], "summary": None}
    return {**described, "text": _describe_format(options.get("response_format"))}


def _describe_tool(tool: ToolDefinition) -> dict[str, Any]:
    """A function of the client, as a response names it: with every key."""
    shape = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", **shape, "strict": None}


def _describe_format(format_: Any) -> dict[str, Any]:
    """The form of the answer, as a response names it."""
    form: dict[str, Any] = format_ if isinstance(format_, dict) else {"type": "text"}
    if form.get("type") != "json_schema":
        return {"format": form}
    schema: dict[str, Any] = form.get("json_schema") or {}
    return {"format": {"description": None, "strict": False, **schema, "type": "json_schema"}}


def _build_usage(result: Turn) -> dict[str, Any]:
    usage = result.usage
    prompt, answer, total = describe_usage(usage)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cached or 0,
            "cache_write_tokens": usage.cache_write or 0,
        },
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": total,
    }


_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "logprobs": "top_logprobs",
    "service_tier": "service_tier",
    "max_tokens": "max_output_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
}
"""By option of a turn: its key of a response."""

_EMPTY: dict[str, Any] = {
    "object": "response",
    "created_at": None,
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    # What the handler leaves to its host: the usual default, because the specification wants a number.
    "temperature": 1.0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "service_tier": "default",
    "tool_choice": "auto",
    "tools": [],
    "usage": None,
    "text": {"format": {"type": "text"}},
    "previous_response_id": None,
    "reasoning": None,
    "truncation": "disabled",
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": True,  # the log keeps every turn
    "background": False,
    "user": None,
    "safety_identifier": None,
    "prompt_cache_key": None,
}
"""Every key that the specification requires, as it is where this server has nothing to say."""
