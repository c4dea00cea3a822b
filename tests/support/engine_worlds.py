"""A world for the engine: a model, tools and people that do anything, and a count of what really happened."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from flow_worlds import make_schema_value

from toolchart.states.effects import AskPerson
from toolchart.states.errors import ProviderError
from toolchart.states.events import FAILURE_KINDS, Answered, Decided
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.testing.invariants import check_calls_answered_once
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.sources.effect_functions import effect

PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class World:
    """A model, tools and people that do anything, and a count of what the tools really did."""

    name = "scripted"

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.runs: Counter[int] = Counter()
        """How often each call was begun, by its number."""
        self.completed: set[int] = set()
        self.made_calls = 0
        self.clock_s = 0.0

    def now(self) -> str:
        """The virtual time."""
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.clock_s)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.clock_s += min(seconds, 30)
        await asyncio.sleep(0)

    def jitter(self) -> float:
        """No jitter."""
        return 0.0

    async def complete(self, request: Request) -> Reply:
        """Any reply, or a failure; every request must be one that hosts accept."""
        rng = self.rng
        check_calls_answered_once(request.messages)
        await asyncio.sleep(0)
        if rng.random() < 0.15:
            raise ProviderError(kind=rng.choice(FAILURE_KINDS), message="no", retryable=rng.random() < 0.5)
        calls = tuple(self._make_call() for _ in range(rng.choice([0, 0, 1, 2, 3])))
        return Reply(
            content=rng.choice([None, "", "well"]),
            tool_calls=calls,
            finish_reason="tool_calls" if calls else rng.choice(["stop", "stop", "length", "unknown"]),
            usage=rng.choice([None, Usage(total=9)]),
        )

    def _make_call(self) -> ToolCall:
        self.made_calls += 1
        name = self.rng.choice(["good", "good", "bad", "asked", "unknown"])
        return ToolCall(id=self.rng.choice(["", "same"]), name=name, arguments={"n": self.made_calls})

    async def aclose(self) -> None:
        """Nothing to close."""

    def make_tools(self) -> list[Tool]:
        """A tool that works, one that fails, and one that needs approval."""

        def make_tool(name: str) -> Tool:
            async def run(arguments: dict[str, Any]) -> Any:
                self.runs[arguments["n"]] += 1
                await asyncio.sleep(0)
                if name == "bad":
                    raise ToolFailure("no")
                self.completed.add(arguments["n"])
                return {"n": arguments["n"]}

            definition = ToolDefinition(name=name, description=name, parameters=PARAMETERS)
            return Tool(
                definition=definition, run=run, execution_mode="async", requires_approval=name == "asked"
            )

        return [make_tool(name) for name in ("good", "bad", "asked")]

    async def approve(self, call: ToolCall) -> Decided | None:
        """A person decides, or is not there."""
        decision = self.rng.choice([True, False, None])
        return None if decision is None else Decided(call_id=call.id, approved=decision, by="a person")


class FlowEngineWorld(World):
    """The world of `World`, with schemas, functions, questions and a clock that also stands still."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.habit = rng.choice([0.0, 0.0, 0.7, 1.0])
        """How often a model fails or breaks its schema."""

    async def sleep(self, seconds: float) -> None:
        """Let others go first, sometimes, and then virtual time pass."""
        for _ in range(self.rng.choice([0, 1, 5, 30])):
            await asyncio.sleep(0)
        self.clock_s += seconds

    async def complete(self, request: Request) -> Reply:
        """A reply; for a schema mostly one that fits it."""
        reply = await super().complete(request)
        form = (request.options or {}).get("response_format")
        if form is None:
            return reply
        rng = self.rng
        value = make_schema_value(form["json_schema"]["schema"], rng)
        if rng.random() < 0.2 + 0.6 * self.habit:
            return Reply(content=rng.choice(["{", "[]", "{}", ""]), finish_reason="stop")
        text = orjson.dumps({**value, "attempt": 0}).decode()
        return Reply(content=text, finish_reason=rng.choice(["stop", "stop", "stop", "length"]))

    async def ask(self, question: AskPerson) -> Answered | None:
        """A person answers, or is not there."""
        await asyncio.sleep(0)
        if self.rng.random() < 0.3:
            return None
        return Answered(effect=question.id, content=make_schema_value(question.form, self.rng))

    def make_functions(self) -> list[Any]:
        """The function that flows call."""

        @effect(isolation="inline")
        def work() -> dict[str, Any]:
            if self.rng.random() < 0.1 + 0.6 * self.habit:
                raise ValueError("no")
            return {"score": self.rng.randint(0, 5), "tone": "warm", "done": self.rng.random() < 0.5}

        return [work]


def check_outcomes(steps: list[Any], world: World) -> None:
    """What the model was told about each call is what the tools did."""
    snapshot = steps[-1].step.snapshot
    assert max(world.runs.values(), default=0) <= 1, "a call ran twice"
    messages = list(snapshot.messages)
    if snapshot.is_over:
        check_calls_answered_once(messages)
    numbers = {call.id: (call.arguments or {}).get("n", 0) for m in messages for call in m.tool_calls}
    for message in messages:
        if message.role != "tool":
            continue
        number, text = numbers[message.tool_call_id or ""], message.content or ""
        if '"success":true' in text:
            assert number in world.completed, f"call {number} never succeeded: {text}"
        elif "not executed" in text or "denied" in text:
            assert not world.runs[number], f"call {number} ran: {text}"
