"""Answers of OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolchart.app.watch.held_answers.reading import (
    CALL,
    HEAD,
    HELD,
    PLAIN,
    Verdict,
    find_call_word,
    find_other_spelling,
    judge_all,
    read_kind,
    read_list,
    read_object,
    tell_unknown,
)
from toolchart.app.watch.held_answers.wire import Json, Wire, get_id, write_arguments
from toolchart.providers.openai.responses_wire import ResponsesAccumulator
from toolchart.states.messages import Reply, ToolCall

_HOST_ITEMS = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_call", "mcp_list_tools", "compaction", "x_search_call"),
    }
)
_SEARCHES = ("tool_search_call", "tool_search_output")
"""Items of searches that the host runs, or the program."""
_PLAIN_PARTS = ("output_text", "text", "refusal", "reasoning_text", "summary_text")
_PLAIN_STEMS = (
    *("response.content_part.", "response.output_text.", "response.refusal."),
    *("response.reasoning_text.", "response.reasoning_summary_text.", "response.reasoning_summary_part."),
    *(f"response.{kind}." for kind in sorted(_HOST_ITEMS)),
    *("response.mcp_call_arguments.", "response.code_interpreter_call_code."),
)
_BEGINNINGS = ("response.created", "response.queued", "response.in_progress")
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_ECHOES = (
    *("output", "usage", "tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "input"),
    *("instructions", "metadata", "text", "prompt", "reasoning"),
)
"""Keys of a response that are looked at otherwise, or say what the request said."""


def _judge_item(item: Any) -> Verdict:
    if item is None:
        return HEAD
    kind = read_kind(item)
    if kind == "function_call":
        return CALL.join(tell_unknown(find_other_spelling(item)))
    if kind in _HOST_ITEMS or (kind in _SEARCHES and item.get("execution") == "server"):
        return PLAIN
    if kind == "reasoning":
        return PLAIN.join(tell_unknown(find_call_word(item)))
    if kind != "message":
        return tell_unknown(kind or "an item without a type")
    parts = item.get("content")
    if parts is not None and not isinstance(parts, list):
        return tell_unknown("content that is no list")
    verdict = PLAIN.join(tell_unknown(find_call_word(item, ("content",))))
    return verdict.join(judge_all(map(_judge_part, parts or [])))


def _judge_part(part: Any) -> Verdict:
    kind = read_kind(part)
    if kind not in _PLAIN_PARTS:
        return tell_unknown(kind or "a part without a type")
    return PLAIN.join(tell_unknown(find_call_word(part)))


class ResponsesWire(Wire):
    """A list of items, each with its index; the last event has all of them once more."""

    names_events = True

    def __init__(self) -> None:
        self._response: Json = {}
        """As the first event had it, if that has passed."""
        self._has_ended = False
        self._names: dict[str, Any] = {}
        """By the id of an item of this answer that is a call: its name."""
        self._number = 0
        """The next `sequence_number`."""
        self._next = 0
        self._items: dict[int, Json] = {}
        """The items that have passed, by index."""
        self._open: dict[int, dict[int, str]] = {}
        """By the index of an item that has not ended: the texts of its parts."""

    def make_accumulator(self) -> ResponsesAccumulator:
        """A new accumulator of events, of another answer."""
        self._has_ended = False
        self._names.clear()
        return ResponsesAccumulator()

    def judge(self, event: Json) -> Verdict:
        """What an event is."""
        kind = str(event.get("type"))
        if kind in _BEGINNINGS or kind in _ENDS:
            response = event.get("response") or {}
            verdict = tell_unknown("" if isinstance(response, dict) else "a response that is no object")
            verdict = verdict.join(self.judge_body(read_object(response)))
            verdict = verdict.join(tell_unknown(find_call_word(event, ("response",))))
            if kind in _ENDS:
                self._has_ended = True
                for item in read_list(read_object(event.get("response")).get("output")):
                    verdict = verdict.join(self._judge_name(read_object(item)))
                return verdict.join(HELD)
            return verdict.join(tell_unknown("a call in the beginning" if verdict.has_call else ""))
        if kind in ("response.output_item.added", "response.output_item.done"):
            item = event.get("item")
            verdict = _judge_item(item).join(tell_unknown(find_call_word(event, ("item",))))
            return verdict.join(self._judge_name(read_object(item))).join(self._judge_place(verdict))
        if kind.startswith("response.function_call_arguments."):
            return CALL.join(self._judge_place(CALL))
        known = ("type",) if kind.startswith(_PLAIN_STEMS) else ()
        verdict = tell_unknown(find_call_word(event, known))
        if kind.startswith(("response.content_part.", "response.reasoning_summary_part.")):
            verdict = verdict.join(_judge_part(event.get("part")))
        return (PLAIN if known else HELD).join(verdict)

    def _judge_name(self, item: Json) -> Verdict:
        """Whether an item has the name that it began with: clients take the one or the other."""
        item_id, name = item.get("id"), item.get("name")
        if item.get("type") != "function_call" or not item_id or not name:
            return HEAD
        is_other = self._names.setdefault(str(item_id), name) != name
        return tell_unknown("a call with two names" if is_other else "")

    def _judge_place(self, verdict: Verdict) -> Verdict:
        is_late = self._has_ended and verdict.has_call
        return tell_unknown("a call after the end" if is_late else "")

    def judge_body(self, body: Json) -> Verdict:
        """What a whole response has."""
        output = body.get("output")
        if output is not None and not isinstance(output, list):
            return tell_unknown("output that is no list")
        verdict = tell_unknown(find_call_word(body, _ECHOES))
        return verdict.join(judge_all(map(_judge_item, output or [])))

    def note(self, event: Json) -> None:
        """Keep the items that pass, and the numbers that come next."""
        number, index = event.get("sequence_number"), event.get("output_index")
        self._number = (number if isinstance(number, int) else self._number) + 1
        index = index if isinstance(index, int) else self._next
        match event.get("type"):
            case "response.created":
                self._response = read_object(event.get("response"))
            case "response.output_item.added" if isinstance(event.get("item"), Mapping):
                self._items[index], self._open[index] = event["item"], {}
                self._next = max(self._next, index + 1)
            case "response.output_item.done" if isinstance(event.get("item"), Mapping):
                self._items[index] = event["item"]
                self._open.pop(index, None)
                self._next = max(self._next, index + 1)
            case "response.output_text.delta" if index in self._open:
                place, texts = event.get("content_index"), self._open[index]
                place = place if isinstance(place, int) else 0
                texts[place] = texts.get(place, "") + str(event.get("delta"))
            case _:
                pass

    def list_calls(self, body: Json) -> list[tuple[str, str, Json]]:
        """The items of calls."""
        items = map(read_object, read_list(body.get("output")))
        return [
            (str(item.get("call_id") or ""), str(item.get("name")), item)
            for item in items
            if item.get("type") == "function_call"
        ]

    def _build_calls(self, body: Json, calls: Sequence[ToolCall]) -> list[Json]:
        return [
            {
                "id": f"fc_{get_id(call)}",
                "status": "completed",
                **entry,
                "type": "function_call",
                "call_id": get_id(call),
                "name": call.name,
                "arguments": write_arguments(call),
            }
            for call, entry in self.pair_calls(body, calls)
        ]

    def change_body(self, body: Json, reply: Reply) -> Json:
        """The response with another text and other calls."""
        items = [item for item in map(read_object, body["output"]) if item.get("type") != "function_call"]
        messages = [item for item in items if item.get("type") == "message"]
        if "".join(map(_read_text, messages)) != (reply.content or ""):
            items = [item for item in items if item not in messages]
            items += [_build_message(body, reply.content)] if reply.content else []
        return _complete(body, [*items, *self._build_calls(body, reply.tool_calls)])

    def write_rest(self, body: Json, text: str, calls: Sequence[ToolCall]) -> Iterator[Json | str]:
        """More items, and the response."""
        for event in self._write_events(body, text, calls):
            yield {**event, "sequence_number": self._number}
            self._number += 1

    def _write_events(self, body: Json, text: str, calls: Sequence[ToolCall]) -> Iterator[Json]:
        body = body or self._response  # where the answer was cut
        if not self._response:
            start = {**body, "status": "in_progress", "output": [], "usage": None}
            yield {"type": "response.created", "response": start}
        for index, texts in self._open.items():
            item = self._items[index]
            if item.get("type") == "message":
                parts = [_build_part(part) for _, part in sorted(texts.items())]
                item = {**item, "status": "completed", "content": parts}
                self._items[index] = item
                for place, part in zip(sorted(texts), parts, strict=True):
                    yield from _end_part(item, index, place, part)
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        # Calls may need the reasoning before them, which did not pass if this answer was collected.
        passed = [item.get("id") for item in self._items.values()]
        items = [item for item in map(read_object, read_list(body.get("output"))) if _is_other(item)]
        new = [item for item in items if item.get("id") not in passed]
        new += [_build_message(body, text)] if text else []
        for item in [*new, *self._build_calls(body, calls)]:
            yield from _write_item(self._next, item)
            self._items[self._next] = item
            self._next += 1
        output = [item for _, item in sorted(self._items.items())]
        # A response has one id from its first event to its last: that of the SDK's helper raises else.
        shown = {**body, "id": self._response["id"]} if self._response.get("id") else body
        yield {"type": "response.completed", "response": _complete(shown, output)}

    def write_error(self, words: str) -> Json:
        """The event of an error. The SDK raises at its inner one, which OpenAI sends too."""
        error = {"type": "server_error", "code": "server_error", "message": words, "param": None}
        return {**error, "type": "error", "error": error, "sequence_number": self._number}


def _is_other(item: Json) -> bool:
    """Whether an item is neither text nor a call of ours."""
    return item.get("type") not in ("message", "function_call") and _judge_item(item).is_plain


def _read_text(item: Json) -> str:
    parts = map(read_object, read_list(item.get("content")))
    return "".join(str(part.get("text")) for part in parts if part.get("type") in ("output_text", "text"))


def _build_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": []}


def _build_message(body: Json, text: str) -> Json:
    """The host's own message, where it says this; else a new one."""
    items = map(read_object, read_list(body.get("output")))
    own = [item for item in items if item.get("type") == "message" and item.get("id")]
    if len(own) == 1 and _read_text(own[0]) == text and len(own[0]["content"]) == 1:
        return own[0]
    head = {"type": "message", "id": f"msg_{body.get('id') or ''}_new", "role": "assistant"}
    return {**head, "status": "completed", "content": [_build_part(text)]}


def _complete(body: Json, output: list[Json]) -> Json:
    ended = {"status": "completed", "error": None, "incomplete_details": None}
    head = {key: value for key, value in body.items() if key != "output_text"}
    return {"object": "response", **head, **ended, "output": output}


def _end_part(item: Json, index: int, place: int, part: Json) -> Iterator[Json]:
    where = {"item_id": item.get("id"), "output_index": index, "content_index": place}
    yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}


def _write_item(index: int, item: Json) -> Iterator[Json]:
    where = {"item_id": item.get("id"), "output_index": index}
    is_message, is_call = item["type"] == "message", item["type"] == "function_call"
    empty = {"content": []} if is_message else {"arguments": ""} if is_call else {}
    yield {
        "type": "response.output_item.added",
        "output_index": index,
        "item": {**item, **empty, **({"status": "in_progress"} if empty else {})},
    }
    if is_message:
        part = item["content"][0]
        begun = {"type": "response.content_part.added", **where, "content_index": 0}
        yield {**begun, "part": {**part, "text": "", "annotations": []}}
        delta = {"type": "response.output_text.delta", **where, "content_index": 0, "logprobs": []}
        yield {**delta, "delta": part["text"]}
        yield from _end_part(item, index, 0, part)
    if is_call:
        kind = "response.function_call_arguments"
        yield {"type": f"{kind}.delta", **where, "delta": item["arguments"]}
        yield {"type": f"{kind}.done", **where, "name": item["name"], "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
