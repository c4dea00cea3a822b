"""A model host on loopback that answers by rule, and knows which conversation each request is really of.

Programs of several frameworks ask it, in five wire formats, whole and streamed. What it says is written in
the words of the user:

    [look_up Paris] [look_up Rome + look_up Oslo] Where shall I go?

asks for a call, then for two at once, and then answers. `(busy 1)` among the words refuses the request after
the first calls once, with status 429; `(cut 0)` breaks off the first stream once.

The truth comes in a header that nothing else reads: `X-Run: b`, and `X-Run: b/Paris` for what a call of `b`
runs. So what a request says is never what tells it apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from web import QuietHandler, run_server

from toolchart.providers.shared.host_rows import Wire, find_row
from toolchart.providers.transport.raw_answers import compute_answer_digest
from toolchart.states.messages import Reply, ToolCall
from toolchart.testing.emulators.answers import Answer, build_error, find_answer_schema, make_value
from toolchart.testing.emulators.checks import Entry, OfferedTool, RequestView, read_view

RUN = "X-Run"
HELPER = ": helper"
"""How the names of helpers end, which are asked once and not again."""

_WIRES: tuple[tuple[str, Wire, str], ...] = (
    (r"/v1/chat/completions", "chat", "openai"),
    (r"/v1/responses", "responses", "openai"),
    (r"(/v1)?/messages", "messages", "anthropic"),
    (r"/v1(beta)?/models/.*:(stream)?[gG]enerateContent", "gemini", "gemini"),
    (r"/api/chat", "ollama", "ollama"),
)
"""By the path: the wire format, and the host that speaks it."""

_STEP = re.compile(r"\[([^\]]+)\]")
_FAULT = re.compile(r"\((busy|cut) (\d)\)")
_OUTPUT_TOOLS = ("final_result", "Advice")
"""The tools by which frameworks ask for a typed answer."""


@dataclass(frozen=True)
class Noted:
    """A request, and what it got."""

    run: str
    """The conversation that it is of."""
    asked: str
    """What is the same for a request that is sent again."""
    digest: str
    """Of the answer, which no other answer has."""
    said: tuple[str, ...]
    """What users have said in it, in order."""
    fault: str
    """`busy` or `cut`; empty for an answer."""
    content: bytes
    """The body of a refusal, which clients do not always read to its end."""
    calls: dict[str, str]
    """By the id of each call: the text among its arguments. Without ids, by a number."""


@dataclass
class ScenarioHost:
    """A running host, and what came."""

    port: int = 0
    noted: list[Noted] = field(default_factory=list)
    """In the order in which the requests came."""
    refused: list[str] = field(default_factory=list)
    """What was wrong with requests: nothing, in a good scenario."""
    _number: int = 0
    _responses: dict[str, list[Any]] = field(default_factory=dict)
    """By the id of a response: all items up to its end."""
    _items: dict[str, Any] = field(default_factory=dict)
    """By its id: each item of a response."""
    _failed: set[tuple[str, str, str]] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def make_environment(self) -> dict[str, str]:
        """The variables that lead clients to it, and keys that nobody has."""
        url = f"http://127.0.0.1:{self.port}"
        keys = ("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE")
        return {
            **{f"{name}_API_KEY": "nobody-has-it" for name in keys[:3]},
            "OPENAI_BASE_URL": f"{url}/v1",
            "ANTHROPIC_BASE_URL": url,
            "GOOGLE_GEMINI_BASE_URL": url,
            "OLLAMA_HOST": url,
        }

    def answer(self, path: str, run: str, data: bytes) -> tuple[str, Answer | bytes]:
        """What happens to a request: `ok`, `stream` or `cut` and the answer, or a status and a body."""
        path = path.partition("?")[0]
        found = next((row for row in _WIRES if re.fullmatch(row[0], path)), None)
        if found is None or not run:
            self.refused.append(f"{path} without {RUN}" if found else f"no path {path}")
            return "404", json.dumps(build_error("object", 404, self.refused[-1])).encode()
        _, wire, host = found
        body = json.loads(data)
        with self._lock:
            self._number += 1
            if wire == "responses" and not self._complete(body):
                return "400", json.dumps(build_error("object", 400, self.refused[-1])).encode()
            view = read_view(wire, body, re.sub(r".*/|:.*", "", path) if wire == "gemini" else "")
            words, rounds = _find_turn(view.entries)
            said = tuple(
                _get_text(entry.wire) for entry in view.entries if entry.role == "user" and not entry.results
            )
            asked = f"{len(view.entries)} {rounds} {words}"
            if run.endswith(HELPER):  # each question to it is a conversation
                run = f"{run} {self._number}"
            fault = self._find_fault(run, words, rounds)
            if fault == "busy":
                error = build_error("object", 429, f"slow down, request {self._number}", "rate_limit")
                content = json.dumps(error).encode()
                self.noted.append(Noted(run, asked, compute_answer_digest(content), said, fault, content, {}))
                return "429", content
            answer = Answer(
                find_row(host), view, _make_reply(view, words, rounds), self._number, thinks=False
            )
            if wire == "responses":
                response = answer.build_body()
                self._responses[response["id"]] = [*body["input"], *response["output"]]
                self._items |= {item["id"]: item for item in response["output"]}
            is_streamed = "streamGenerate" in path or body.get("stream", wire == "ollama")
            kind = "cut" if fault == "cut" else "stream" if is_streamed else "ok"
            content = b"".join(list_frames(answer, kind))
            calls = {} if fault else dict(_list_calls(answer, self._number))
            self.noted.append(Noted(run, asked, compute_answer_digest(content), said, fault, b"", calls))
            return kind, answer

    def _complete(self, body: dict[str, Any]) -> bool:
        """Put the items of the response that a request goes on from before its own, and those that it
        names in their places; whether they are there."""
        previous = body.get("previous_response_id")
        earlier = self._responses.get(previous, ())
        if previous is not None and not earlier:
            self.refused.append(f"no response {previous}")
            return False
        items = body["input"] if isinstance(body["input"], list) else [_make_item(body["input"])]
        try:
            items = [
                self._items[item["id"]] if item.get("type") == "item_reference" else item for item in items
            ]
        except KeyError as error:
            self.refused.append(f"no item {error}")
            return False
        body["input"] = [*earlier, *items]
        return True

    def _find_fault(self, run: str, words: str, rounds: int) -> str:
        """What goes wrong with a request: once for each conversation and place."""
        for match in _FAULT.finditer(words):
            key = (run, words, match[0])
            if int(match[2]) == rounds and key not in self._failed:
                self._failed.add(key)
                return match[1]
        return ""


def list_frames(answer: Answer, kind: str) -> list[bytes]:
    """The pieces of an answer as they are sent."""
    if kind == "ok":
        return [json.dumps(answer.build_body()).encode()]
    if kind == "stream":
        return list(answer.iterate_frames())
    content = b"".join(answer.iterate_frames())
    return [content[: len(content) // 2]]


def _make_item(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def _find_turn(entries: tuple[Entry, ...]) -> tuple[str, int]:
    """The newest words of the user, and how often calls were asked for since."""
    words, rounds, was_call = "", 0, False
    for entry in entries:
        if entry.role == "user" and not entry.results:
            words, rounds = _get_text(entry.wire), 0
        rounds += bool(entry.calls) and not was_call
        was_call = bool(entry.calls)
    return words, rounds


def _get_text(wire: Mapping[str, Any]) -> str:
    content = wire.get("content", wire.get("parts"))
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return str(content)


def _make_reply(view: RequestView, words: str, rounds: int) -> Reply:
    """The reply by rule."""
    tools = {tool.name: tool for tool in view.tools}
    for step in _STEP.findall(words)[rounds:]:
        wanted = [part.split(None, 1) for part in step.split(" + ")]
        if all(name in tools for name, *_ in wanted):  # one who has taken over offers others
            calls = [_make_call(tools[name], " ".join(rest)) for name, *rest in wanted]
            return Reply(tool_calls=tuple(calls), finish_reason="tool_calls")
    output = next((tools[name] for name in _OUTPUT_TOOLS if name in tools), None)
    if output is not None:
        call = ToolCall(id="", name=output.name, arguments=make_value(output.schema))
        return Reply(tool_calls=(call,), finish_reason="tool_calls")
    schema = find_answer_schema(view.body)
    text = "It is as you thought." if schema is None else json.dumps(make_value(schema))
    return Reply(content=text, finish_reason="stop")


def _make_call(tool: OfferedTool, text: str) -> ToolCall:
    """A call with a text for the only parameter; one that asks another agent says what that shall do."""
    names = list((tool.schema or {}).get("properties") or {})
    if tool.name.startswith("ask_"):
        text = f"Please find out what {text} is like. [look_up {text}]"
    return ToolCall(id="", name=tool.name, arguments={names[0]: text} if names else {})


def _list_calls(answer: Answer, number: int) -> Iterator[tuple[str, str]]:
    for index, (call_id, _, arguments) in enumerate(answer.list_calls()):
        key = f"{number}.{index}" if answer.view.wire == "gemini" else call_id
        yield key, "".join(str(value) for value in arguments.values())


@contextmanager
def serve_scenarios() -> Iterator[ScenarioHost]:
    """Run a host until the block ends."""
    host = ScenarioHost()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle(self) -> None:
            with suppress(ConnectionError):  # of a client that has gone
                super().handle()

        def answer_request(self) -> None:
            kind, answer = host.answer(self.path, self.headers.get(RUN, ""), self.read_body())
            if isinstance(answer, bytes):
                headers = {"Content-Type": "application/json", "Retry-After-Ms": "20", "Retry-After": "0"}
                self.send_whole(int(kind), headers, answer)
            elif kind == "ok":
                self.send_whole(200, {"Content-Type": "application/json"}, list_frames(answer, kind)[0])
            else:
                self._stream(answer, kind)

        def _stream(self, answer: Answer, kind: str) -> None:
            types = {"ollama": "application/x-ndjson"}
            self.send_response(200)
            self.send_header("Content-Type", types.get(answer.view.wire, "text/event-stream"))
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for frame in list_frames(answer, kind):
                self.wfile.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")
            if kind == "cut":
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

    with run_server(Handler) as host.port:
        yield host
