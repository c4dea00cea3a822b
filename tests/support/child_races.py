"""Worlds in which children are cut off: by a deadline, by the user, by a cancellation, by the program."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from child_agents import FunctionModel, make_spec

from toolchart.engine import Engine
from toolchart.engine.log.family import iterate_family
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.log.verify import verify_store
from toolchart.states.errors import IllegalEvent, LogConflict, LogDamaged, NotFound, SpecError
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.states.ports import Store
from toolchart.tools.definition import Tool

CHART: dict[str, Any] = {
    "name": "cut_off",
    "states": {
        "working": {
            "initial": True,
            "enter": "work",
            "after": {"1m": "deciding"},
            "transitions": [
                {"event": "agent_finished", "target": "deciding", "cond": "outcome.pending == 0"},
                {"event": "agent_failed", "target": "deciding", "cond": "outcome.pending == 0"},
                {"event": "user_said", "target": "deciding"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "deciding": {
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
                {"event": "user_said"},
            ],
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}
"""A chart whose children have a minute, and that a message or a cancellation ends sooner."""


class RacingClock:
    """Virtual time that passes while others go first, for as many rounds as a seed says."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._seconds = 0.0

    def now(self) -> str:
        """The virtual time."""
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._seconds)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    async def sleep(self, seconds: float) -> None:
        """Let others go first, and then time pass."""
        await pause(self._rng, 60)
        self._seconds += seconds

    def jitter(self) -> float:
        """No jitter."""
        return 0.0


async def pause(rng: random.Random, most: int) -> None:
    """Let others go first, up to so many times."""
    for _ in range(rng.randint(0, most)):
        await asyncio.sleep(0)


class PausingModel(FunctionModel):
    """A model that calls a tool, or answers, after any pause."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(lambda said, request: said)
        self._rng = rng

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        await pause(self._rng, 8)
        usage = Usage(input=1, output=1, total=2)
        if request.tools and self._rng.random() < 0.6:
            call = ToolCall(id="", name="look", arguments={})
            return Reply(finish_reason="tool_calls", tool_calls=(call,), usage=usage)
        return Reply(content="done", finish_reason="stop", usage=usage)


def make_racing_engine(rng: random.Random, store: Store) -> Engine:
    """An engine of the chart; its children look something up, any number of times."""

    async def look(arguments: dict[str, Any]) -> str:
        await pause(rng, 6)
        return "seen"

    tool = Tool(definition=ToolDefinition(name="look", description="Look."), run=look, execution_mode="async")
    work: dict[str, Any] = {"chart": "tool_loop"}
    if rng.random() < 0.8:
        work |= {"for_each": "items", "message": "do {{item}}", "as": "outcome"}
        work |= {"parallel": rng.randint(1, 3), "at_most": 3}
    else:
        work |= {"message": "do it", "as": "outcome"}
    spec = make_spec(CHART, {"work": {"run_agent": work}}, tools={"registry": []})
    spec["responses"][0]["tools"] = {"enabled": True}
    providers = {"model": PausingModel(rng)}
    return Engine(spec, log=store, functions=[tool], providers=providers, clock=RacingClock(rng))


async def run_world(seed: int, store: Store) -> str:
    """Run the world of a seed: a turn, and somebody who disturbs it at any time. How it was left.

    Raises:
        LogConflict: one writer got into its own way.
    """
    rng = random.Random(seed)
    async with make_racing_engine(rng, store) as engine:
        items = [str(number) for number in range(rng.randint(1, 3))]
        turn = asyncio.create_task(engine.arun("go", conversation="c", variables={"items": items}))
        await pause(rng, 60)
        for _ in range(rng.choice([0, 1, 1, 2])):
            await _disturb(engine, turn, rng)
            await pause(rng, 6)
        try:
            await turn
        except asyncio.CancelledError:
            """The program stopped it; the log has it."""
        while engine.leases.is_claimed("c"):  # noqa: ASYNC110  who stops it twice does not wait for its last record
            await asyncio.sleep(0)
        loaded = load_conversation(store, "c")
        if loaded is not None and not loaded.snapshot.is_over:
            await engine.conversation("c").aresume()
        check_logs(store)
        loaded = load_conversation(store, "c")
    return loaded.snapshot.state if loaded is not None else "nothing"


async def _disturb(engine: Engine, turn: asyncio.Task[Any], rng: random.Random) -> None:
    """Say something, cancel the turn, or stop the program's wait for it."""
    kind = rng.choice(["say", "cancel", "stop"])
    if kind == "stop":
        turn.cancel()
        return
    try:
        await (
            engine.conversation("c").asay("listen")
            if kind == "say"
            else engine.conversation("c").acancel("enough")
        )
    except LogConflict:
        raise
    except (NotFound, SpecError, IllegalEvent):
        """The turn has not begun, or is over."""


def check_logs(store: Store) -> None:
    """Verify and replay the conversation and its children."""
    assert not [outcome for outcome in verify_store(store) if isinstance(outcome, LogDamaged)]
    for _, name in iterate_family(store, "c") if store.read_last_line("c") is not None else ():
        assert list(replay_conversation(store, name))
