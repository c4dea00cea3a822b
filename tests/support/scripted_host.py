"""A model host on loopback that gives replies in order, by OpenAI's chat completions and its Responses API.

Programs of several frameworks ask it, each by the API that the framework prefers. What it gives and what
requests say is kept in one form for both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from web import QuietHandler, run_server

OUTPUT_TOOL = "final_result"
"""The tool by which Pydantic AI asks for a typed answer where the program names no other way."""


ONLY = "*"
"""Stands for the name of the only parameter of a tool."""


@dataclass(frozen=True)
class Step:
    """One reply: a text, calls of tools, or a typed answer."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    answer: Mapping[str, Any] | None = None
    """Sent as the request asks for it: by a call of its output tool, else as JSON text."""


def say(text: str) -> Step:
    """A reply with a text."""
    return Step(text=text)


def call(name: str, /, **arguments: Any) -> Step:
    """A reply with a call."""
    return Step(calls=[(name, arguments)])


def ask(name: str, text: str) -> Step:
    """A reply that asks another agent: a call whose only parameter each framework names as it likes."""
    return Step(calls=[(name, {ONLY: text})])


def answer(**value: Any) -> Step:
    """A reply with a typed answer."""
    return Step(answer=value)


@dataclass
class ScriptedHost:
    """A running host, and what came."""

    steps: list[Step]
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    calls: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """By the id of a call that the host gave: name and arguments."""
    results: dict[str, Any] = field(default_factory=dict)
    """By the id of a call: its value, as a request says it."""
    _lock: Lock = field(default_factory=Lock)

    @property
    def url(self) -> str:
        """The base URL of its API."""
        return f"http://127.0.0.1:{self.port}/v1"

    def list_outcomes(self) -> list[tuple[str, Any, Any]]:
        """Name, arguments and value of each call whose result has come, in order of the calls."""
        return [(*self.calls[key], self.results[key]) for key in self.calls if key in self.results]

    def take_step(self, request: dict[str, Any]) -> tuple[str, list[tuple[str, str, str]]]:
        """The text and the calls (id, name, arguments) of the next reply.

        Raises:
            IndexError: there is none.
        """
        with self._lock:
            self.requests.append(request)
            for key, content in iterate_results(request):
                if key in self.calls:
                    self.results.setdefault(key, read_value(content))
            step = self.steps[len(self.requests) - 1]
            calls = list(step.calls)
            text = step.text
            if step.answer is not None and OUTPUT_TOOL in list_tools(request):
                return "", [("output", OUTPUT_TOOL, json.dumps(step.answer))]
            if step.answer is not None:
                text = json.dumps(step.answer)
            given = []
            for name, arguments in calls:
                key = f"call_{len(self.calls) + 1}"
                self.calls[key] = (name, dict(arguments))
                given.append((key, name, json.dumps(name_arguments(request, name, arguments))))
            return text, given


def list_tools(request: Mapping[str, Any]) -> list[str]:
    """The names of the tools that a request offers."""
    return [read_function(tool)["name"] for tool in request.get("tools") or ()]


def name_arguments(request: Mapping[str, Any], name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names that the tool of a request has for them."""
    if ONLY not in arguments:
        return dict(arguments)
    (tool,) = [tool for tool in map(read_function, request["tools"]) if tool["name"] == name]
    (parameter,) = tool["parameters"]["properties"]
    return {parameter: arguments[ONLY]}


def read_function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool of either API: name and parameters."""
    function: Mapping[str, Any] = tool.get("function", tool)
    return function


def iterate_results(request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The id and the text of each result that a request has."""
    for message in request.get("messages") or ():
        if message["role"] == "tool":
            yield message["tool_call_id"], read_text(message["content"])
    for item in request.get("input") or ():
        if isinstance(item, dict) and item.get("type") == "function_call_output":
            yield item["call_id"], read_text(item["output"])


def read_text(content: Any) -> str:
    """The text of a content, whole or in parts."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def read_value(content: str) -> Any:
    """The value that a tool returned, without what a framework writes around it."""
    try:
        value = json.loads(content)
    except ValueError:
        return content
    return value["result"] if isinstance(value, dict) and "tool_name" in value else value


def list_texts(request: Mapping[str, Any]) -> list[str]:
    """The texts of the user and of the model that a request has, in order, without what is said of tools."""
    items = request.get("messages") or request.get("input") or ()
    return [
        read_text(item["content"])
        for item in items
        if item.get("role") in ("user", "assistant") and item.get("content")
    ]


def count_tokens(request: Mapping[str, Any]) -> int:
    """About how many tokens a request takes: a token for four characters."""
    return len(json.dumps([request.get("messages"), request.get("input"), request.get("tools")])) // 4


@contextmanager
def serve_script(steps: Sequence[Step]) -> Iterator[ScriptedHost]:
    """Run a host with these replies until the block ends."""
    host = ScriptedHost(list(steps))

    class Handler(QuietHandler):
        def answer_request(self) -> None:
            request = json.loads(self.read_body())
            try:
                text, calls = host.take_step(request)
            except IndexError:
                error = {
                    "error": {"message": "the script has no more replies", "type": "invalid_request_error"}
                }
                self.send_whole(400, {"content-type": "application/json"}, json.dumps(error).encode())
                return
            wire = write_response if self.path.endswith("/responses") else write_chat
            whole, events = wire(len(host.requests), count_tokens(request), text, calls)
            if not request.get("stream"):
                self.send_whole(200, {"content-type": "application/json"}, json.dumps(whole).encode())
                return
            lines = "".join(
                (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n"
                for event in events
            )
            end = "" if wire is write_response else "data: [DONE]\n\n"
            self.send_whole(200, {"content-type": "text/event-stream"}, (lines + end).encode())

    with run_server(Handler) as host.port:
        yield host


Wire = tuple[dict[str, Any], list[dict[str, Any]]]
"""A whole answer, and the events of a streamed one."""


def split_words(text: str) -> list[str]:
    """The pieces in which a text is streamed."""
    return [word + " " for word in text.split(" ")[:-1]] + [text.rpartition(" ")[2]]


def write_chat(number: int, tokens: int, text: str, calls: list[tuple[str, str, str]]) -> Wire:
    """A reply by chat completions."""
    head = {"id": f"chat_{number}", "created": 1, "model": "gpt-5.1"}
    usage = {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
    tool_calls = [
        {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}
        for key, name, arguments in calls
    ]
    reason = "tool_calls" if calls else "stop"
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if tool_calls:
        message["tool_calls"] = tool_calls
    choice = {"index": 0, "message": message, "finish_reason": reason}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}

    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in split_words(text)] if text else []
    deltas += [{"tool_calls": [{"index": index, **entry}]} for index, entry in enumerate(tool_calls)]
    chunk = {**head, "object": "chat.completion.chunk"}
    events: list[dict[str, Any]] = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    events.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    events.append({**chunk, "choices": [], "usage": usage})
    return whole, events


def write_response(number: int, tokens: int, text: str, calls: list[tuple[str, str, str]]) -> Wire:
    """A reply by the Responses API."""
    usage = {
        **{"input_tokens": tokens, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}},
        **{"output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": tokens + 5},
    }
    head = {
        **{"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "gpt-5.1"},
        **{"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None},
        **{
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "temperature": 1.0,
            "top_p": 1.0,
        },
    }
    output: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}}
    ]
    if text:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
        place = {"output_index": 0, "item_id": item["id"], "content_index": 0}
        begun = {**item, "status": "in_progress", "content": []}
        events += [
            {"type": "response.output_item.added", "output_index": 0, "item": begun},
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            *(
                {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
                for piece in split_words(text)
            ),
            {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
            {"type": "response.output_item.done", "output_index": 0, "item": {**item, "content": [part]}},
        ]
        output.append({**item, "content": [part]})
    for key, name, arguments in calls:
        item = {
            "id": f"fc_{key}",
            "type": "function_call",
            "call_id": key,
            "name": name,
            "status": "completed",
        }
        place = {"output_index": len(output), "item_id": item["id"]}
        begun = {**item, "arguments": "", "status": "in_progress"}
        events += [
            {"type": "response.output_item.added", "output_index": len(output), "item": begun},
            {"type": "response.function_call_arguments.delta", **place, "delta": arguments},
            {"type": "response.function_call_arguments.done", **place, "name": name, "arguments": arguments},
            {
                "type": "response.output_item.done",
                "output_index": len(output),
                "item": {**item, "arguments": arguments},
            },
        ]
        output.append({**item, "arguments": arguments})
    whole = {**head, "status": "completed", "output": output, "usage": usage}
    events.append({"type": "response.completed", "response": whole})
    return whole, [{**event, "sequence_number": index} for index, event in enumerate(events)]
