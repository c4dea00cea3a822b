"""Programs of others that ask models in loops of their own: what a proxy in front of the hosts would note.

Nothing here uses what is tested: a loop keeps its own list of messages, sends it in the form of its wire, and
knows which loop each exchange was of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from toolchart.engine.watching.exchanges import Exchange
from toolchart.providers.anthropic import wire as anthropic_wire
from toolchart.providers.gemini import wire as gemini_wire
from toolchart.providers.ollama import wire as ollama_wire
from toolchart.providers.openai import responses_wire
from toolchart.providers.openai import wire as chat_wire
from toolchart.providers.shared.host_rows import find_row
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition
from toolchart.testing.emulators.answers import Answer
from toolchart.testing.emulators.checks import read_view

ENCODERS: dict[str, Callable[[Request], dict[str, Any]]] = {
    "chat": chat_wire.encode_request,
    "responses": responses_wire.encode_request,
    "messages": anthropic_wire.encode_request,
    "gemini": gemini_wire.encode_request,
    "ollama": ollama_wire.encode_request,
}
ROWS = {
    "chat": "openai",
    "responses": "openai",
    "messages": "anthropic",
    "gemini": "gemini",
    "ollama": "ollama",
}
HOSTS = {wire: f"http://{wire}.invalid" for wire in ENCODERS}
WITHOUT_IDS = ("gemini", "ollama")
"""Wires whose calls have no ids here, as those of older hosts."""

TOOLS = (
    ToolDefinition(name="look_up", description="Looks something up."),
    ToolDefinition(name="ask_expert", description="Asks an expert."),
)
WORDS = ["Hello", "Which way?", "Sum it up, please", "And then?"]
"""What users say: few words, so that conversations are alike."""
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Loop:
    """One conversation of a program.

    Args:
        name: of the loop: the truth that a recording is held against.
        first: its first words; those of a child are the argument of the call that runs it.
    """

    name: str
    wire: str
    rng: Random
    first: str
    system: str = "Be brief."
    parent: str = ""
    connection: int = 1
    messages: list[Message] = field(default_factory=list)
    turns: int = 0
    children: list[Loop] = field(default_factory=list)
    wanted: list[ToolCall] = field(default_factory=list)
    has_failed: bool = False
    is_over: bool = False
    segment: int = 0
    """Counts how often it began another list of messages."""

    def __post_init__(self) -> None:
        self.messages = [Message(role="user", content=self.first)]
        self.turns = self.rng.randint(1, 3)

    def choose_reply(self, number: int) -> Reply:
        """What the model says next."""
        asked = sum(message.role == "assistant" for message in self.messages)
        if asked < 12 and self.rng.random() < 0.55:
            calls = [self._choose_call(number, index) for index in range(self.rng.randint(1, 2))]
            text = self.rng.choice([None, "One moment."])
            return Reply(content=text, tool_calls=tuple(calls), finish_reason="tool_calls")
        return Reply(content=self.rng.choice(["Done.", "It is so.", "No."]), finish_reason="stop")

    def _choose_call(self, number: int, index: int) -> ToolCall:
        is_child = not self.parent and self.rng.random() < 0.3
        name = "ask_expert" if is_child else "look_up"
        text = (
            f"Find out what number {number} and {index} have in common" if is_child else self.rng.choice("xy")
        )
        call_id = "" if self.wire in WITHOUT_IDS else f"call_{number}_{index}"
        return ToolCall(id=call_id, name=name, arguments={"text": text}, native_id=call_id or None)

    def take_reply(self, reply: Reply) -> list[Loop]:
        """Go on with a reply; the children that it runs first."""
        self.messages.append(Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls))
        self.wanted = list(reply.tool_calls)
        if not self.wanted:
            self._end_turn()
            return []
        children = []
        for index, call in enumerate(self.wanted):
            if call.name == "ask_expert":
                child = Loop(
                    name=f"{self.name}/{len(self.children) + len(children)}",
                    wire=self.wire,
                    rng=self.rng,
                    first=str((call.arguments or {})["text"]),
                    system="You are the expert.",
                    parent=self.name,
                    connection=1 if self.connection == 1 else self.connection + 100 + index,
                )
                child.turns = 1
                children.append(child)
        self.children += children
        return children

    @property
    def waits(self) -> bool:
        """Whether a child of it is at work."""
        return any(not child.is_over for child in self.children)

    def prepare(self) -> None:
        """Add the results of the calls, where there are some; now and then, change what a program changes."""
        for call in self.wanted:
            text = f"result of {call.arguments}"
            self.messages.append(Message(role="tool", content=text, tool_call_id=call.id, name=call.name))
        if self.wanted and self.rng.random() < 0.1:
            self.system = "You are another one now."
        self.wanted = []

    def _end_turn(self) -> None:
        self.turns -= 1
        if self.turns <= 0:
            self.is_over = True
            return
        if self.rng.random() < 0.15:  # it sums up and goes on with that
            self.messages = [
                Message(role="user", content=f"Summary of {self.name} so far, part {self.segment}")
            ]
            self.segment += 1
            return
        self.messages.append(Message(role="user", content=self.rng.choice(WORDS)))


@dataclass
class SeenExchange:
    """An exchange, and the truth about it."""

    exchange: Exchange
    loop: Loop
    segment: int
    messages: list[Message]
    system: str


class World:
    """Loops that run beside each other; exchanges come in the order in which they end."""

    def __init__(self, seed: int, wires: Sequence[str], *, loops: int = 4, failures: float = 0.12) -> None:
        self.rng = Random(seed)
        self.loops = [
            Loop(
                name=f"loop {index}",
                wire=self.rng.choice(list(wires)),
                rng=self.rng,
                first=self.rng.choice(WORDS),
                connection=1 if seed % 3 == 0 else index + 1,
            )
            for index in range(loops)
        ]
        self._failures = failures
        self._number = 0
        self._now = 0.0

    def iterate_exchanges(self) -> Iterator[SeenExchange]:
        """All exchanges, as they end."""
        asked: list[tuple[Loop, int, float, list[Message]]] = []
        while True:
            free = [
                loop
                for loop in self.loops
                if not (loop.is_over or loop.waits or any(loop is each for each, *_ in asked))
            ]
            if not (free or asked):
                return
            self._now += 0.5
            if free and (not asked or self.rng.random() < 0.5):
                loop = self.rng.choice(free)
                loop.prepare()
                self._number += 1
                asked.append((loop, self._number, self._now, list(loop.messages)))
                continue
            loop, number, at, messages = asked.pop(self.rng.randrange(len(asked)))
            segment, system = loop.segment, loop.system
            if self.rng.random() < self._failures:
                kind = self.rng.choice(["429", "cut"])
                exchange = make_exchange(loop, number, at, self._now, messages, None, kind=kind)
                yield SeenExchange(exchange, loop, segment, messages, system)
                continue
            reply = loop.choose_reply(number)
            is_streamed = self.rng.random() < 0.5
            exchange = make_exchange(loop, number, at, self._now, messages, reply, is_streamed=is_streamed)
            self.loops += loop.take_reply(reply)
            yield SeenExchange(exchange, loop, segment, messages, system)


def make_exchange(
    loop: Loop,
    number: int,
    asked_at: float,
    ended_at: float,
    messages: Sequence[Message],
    reply: Reply | None,
    *,
    is_streamed: bool = False,
    kind: str = "",
) -> Exchange:
    """The exchange of one model call."""
    sent = [Message(role="system", content=loop.system), *messages]
    body = ENCODERS[loop.wire](Request(model="m", messages=sent, tools=TOOLS))
    request = json.dumps(body)
    if reply is None:
        answer = b'{"error": {"message": "slow down"}}' if kind == "429" else b'data: {"choices"'
        return _make(loop, number, asked_at, ended_at, request, 429 if kind == "429" else 200, answer, kind)
    writer = Answer(
        find_row(ROWS[loop.wire]), read_view(loop.wire, json.loads(request), "m"), reply, number, thinks=False
    )  # type: ignore[arg-type]
    content = b"".join(writer.iterate_frames()) if is_streamed else json.dumps(writer.build_body()).encode()
    if loop.wire in WITHOUT_IDS:
        content = _strike_ids(content, is_streamed, loop.wire)
    return _make(loop, number, asked_at, ended_at, request, 200, content, "stream" if is_streamed else "")


def _strike_ids(content: bytes, is_streamed: bool, wire: str) -> bytes:
    """The answer without the ids of its calls."""
    lines = content.decode().split("\n") if is_streamed else [content.decode()]
    return "\n".join(_strike_line(line) for line in lines).encode()


def _strike_line(line: str) -> str:
    head, data = ("data: ", line[6:]) if line.startswith("data: ") else ("", line)
    if not data.startswith("{"):
        return line

    def strike(value: Any) -> Any:
        if isinstance(value, dict):
            is_call = "name" in value or "function" in value
            return {key: strike(each) for key, each in value.items() if not (is_call and key == "id")}
        return [strike(each) for each in value] if isinstance(value, list) else value

    return head + json.dumps(strike(json.loads(data)))


def _make(
    loop: Loop,
    number: int,
    asked_at: float,
    ended_at: float,
    request: str,
    status: int,
    answer: bytes,
    kind: str,
) -> Exchange:
    streams = {"ollama": "application/x-ndjson"}
    is_streamed = kind in ("stream", "cut")
    at = _START + timedelta(seconds=asked_at)
    return Exchange(
        number=number,
        wire=loop.wire,
        host=HOSTS[loop.wire],
        method="POST",
        path="/v1beta/models/m:generateContent" if loop.wire == "gemini" else "/",
        session="",
        connection=loop.connection,
        request=request.encode(),
        asked_at=at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        first_ms=1.0,
        duration_ms=(ended_at - asked_at) * 1000,
        status=status,
        answer=answer,
        content_type=streams.get(loop.wire, "text/event-stream") if is_streamed else "application/json",
        is_streamed=is_streamed,
        is_cut=kind == "cut",
        problem="the host broke the answer off" if kind == "cut" else "",
    )
