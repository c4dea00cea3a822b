"""A small world that goes wrong by a seed: one seed is one run, exactly, every time.

The engine is the real one, with its driver, core, tools and journal. What surrounds it is simulated: a
model that answers, calls tools, cuts replies or fails; tools that are slow, raise or hang; a log that is
full, locked or taken by another writer; somebody who cancels; a process that dies at any of these points
and is started again on what the log has. Time is virtual, so a wait costs nothing and order follows from
the seed alone.

    PYTHONPATH=tests:tests/support python -m simulation 17      # one seed, told step by step
"""

from __future__ import annotations

import asyncio
import random
import selectors
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import orjson

from toolchart.engine import Engine, TurnResult
from toolchart.engine.log.replay import replay, standing
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_lines
from toolchart.specs.charts import shipped
from toolchart.states.errors import LogConflict, LogUnavailable, ProviderError
from toolchart.states.events import FAILURE_KINDS, Decided
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.states.ports import Store
from toolchart.testing.invariants import answered_once
from toolchart.tools.definition import Tool, ToolFailure

TURNS = 3
MOST_TRIES = 80
"""Starts of the process in one run; beyond it the run is stuck, which is a fault."""

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Crash(BaseException):
    """The process dies here."""


class Broken(BaseException):
    """An invariant is broken: nothing in the engine may take this for a fault of model or tool."""


def demand(holds: bool, promise: str) -> None:
    """Fail the run unless a promise holds."""
    if not holds:
        raise Broken(promise)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to whatever is due next."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Seconds since the world began."""
        return self.now_s


class _Jumping(selectors.SelectSelector):
    """Where a loop would wait, its time passes instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        """What is ready now; the time that would have been waited is over."""
        demand(timeout is not None, "the run waits for something that never comes")
        self._loop.now_s += timeout or 0.0
        return super().select(0)


@dataclass
class World:
    """Everything outside the engine, and what is known of what happened."""

    seed: int
    rng: random.Random = field(init=False)
    told: list[str] = field(default_factory=list)
    counter: int = 0
    """Calls that the model has asked for; each carries its number as its argument."""
    ran: Counter[tuple[str, int]] = field(default_factory=Counter)
    crashed: bool = False
    calm: bool = False
    """Whether nothing goes wrong any more, so that a run comes to its end."""
    loop: VirtualLoop = field(default_factory=VirtualLoop)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def tell(self, words: str) -> None:
        """A line of the world's own account."""
        self.told.append(f"{self.loop.now_s:10.3f}  {words}")

    def happens(self, chance: float) -> bool:
        """Whether something goes wrong now."""
        return self.rng.random() < chance and not self.calm

    def dies(self, where: str, chance: float = 0.02) -> None:
        """Perhaps the process ends here."""
        if self.crashed or self.happens(chance):
            self.crashed = True
            self.tell(f"the process dies {where}")
            raise Crash

    # -- the clock of the driver ---------------------------------------------------------------------

    def now(self) -> str:
        """The moment, from the loop's time."""
        ms = int(self.loop.now_s * 1000)
        minutes, rest = divmod(ms, 60_000)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        seconds = f"{rest // 1000:02}.{rest % 1000:03}"
        return f"2026-01-{1 + days:02}T{hours:02}:{minutes:02}:{seconds}Z"

    async def sleep(self, seconds: float) -> None:
        """Virtual time passes."""
        self.dies("while it waits")
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """Chance, from the seed."""
        return round(self.rng.random(), 3)


class Log:
    """A store that may be full, locked, taken, or survive the process that was writing it."""

    def __init__(self, world: World, inner: Store) -> None:
        self._world = world
        self._inner = inner
        self.read, self.last = inner.read, inner.last
        self.conversations, self.delete, self.close = inner.conversations, inner.delete, inner.close

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append, or fail before anything was written; die before or after."""
        world = self._world
        world.dies("before it writes")
        if world.happens(0.02):
            kind = world.rng.choice(
                [LogUnavailable("the disk is full"), LogConflict("another writer")]
            )
            world.tell(f"the log refuses: {kind}")
            raise kind
        self._inner.append(conversation, first_seq, lines)
        world.tell(f"written: {', '.join(orjson.loads(line)['event']['type'] for line in lines)}")
        world.dies("after it wrote")

    def asks_for(self, effect: str, found: str) -> bool:
        """Whether the newest record that asks for an effect of this kind says so of this one."""
        for line in reversed(list(self.read("c"))):
            for one in orjson.loads(line)["effects"]:
                if one["type"].startswith(effect):
                    return found in orjson.dumps(one).decode()
        return False

    def runs(self, number: int) -> bool:
        """Whether the log asks to run the call with this number."""
        return any(
            f'"n":{number}}}'.encode() in line for line in self.read("c") if b'"replied"' in line
        ) and self.asks_for("run_tools", "")


class Model:
    """Answers by chance. Looks at every request as a provider would: no call may be dangling."""

    name = "simulated"

    def __init__(self, world: World, log: Log) -> None:
        self._world, self._log = world, log

    async def complete(self, request: Request) -> Reply:
        """One answer, or none."""
        world, rng = self._world, self._world.rng
        world.tell(f"asked, {len(request.tools)} tools")
        known = self._log.asks_for("call_model", request.fingerprint)
        demand(known, "invariant 2: a request that the log does not ask for")
        try:
            answered_once(request.messages)
        except AssertionError as error:
            raise Broken(str(error)) from None
        world.dies("before the model is asked")
        await asyncio.sleep(rng.choice([0, 0.01, 2]))
        world.dies("after the model was asked")
        if world.happens(0.15):
            raise ProviderError(
                kind=rng.choice(FAILURE_KINDS),
                message="no",
                retryable=rng.random() < 0.6,
                retry_after_s=rng.choice([None, None, 3.0]),
            )
        if world.happens(0.02):
            raise ValueError("an adapter has a fault")
        return self._reply(request)

    def _reply(self, request: Request) -> Reply:
        rng = self._world.rng
        content = rng.choice([None, "", "well", "so it is"])
        calls: list[ToolCall] = []
        if request.tools and rng.random() < 0.65:
            calls = [self._call() for _ in range(rng.choice([1, 1, 2, 3]))]
        reason: Any = rng.choice(
            ["stop", "stop", "tool_calls", "length", "unknown", "content_filter"]
        )
        return Reply(
            content=content,
            tool_calls=tuple(calls),
            finish_reason="tool_calls" if calls else reason,
            usage=rng.choice([None, Usage(input=5, output=3)]),
        )

    def _call(self) -> ToolCall:
        world, rng = self._world, self._world.rng
        world.counter += 1
        name = rng.choice(["safe", "safe", "risky", "risky", "slow", "asked", "unknown"])
        given: dict[str, Any] = {"n": world.counter} if rng.random() < 0.95 else {}
        return ToolCall(
            id=rng.choice(["", f"id{world.counter}", "same"]), name=name, arguments=given
        )

    async def aclose(self) -> None:
        """Nothing to give back."""


def tools(world: World, log: Log) -> list[Tool]:
    """What can be called: safe to repeat, not safe, too slow, and with a person's leave."""

    def tool(name: str, **more: Any) -> Tool:
        async def run(arguments: dict[str, Any]) -> Any:
            world.tell(f"{name}({arguments['n']}) begins")
            demand(log.runs(arguments["n"]), "invariant 2: a call that the log does not ask for")
            world.dies(f"in {name}, before anything was done")
            world.ran[name, arguments["n"]] += 1
            await asyncio.sleep(world.rng.choice([0, 0.05, 1]) if name != "slow" else 100)
            world.dies(f"in {name}, after it was done")
            if world.happens(0.15):
                raise world.rng.choice([ToolFailure("not possible"), KeyError("x"), SystemExit(3)])
            return {"n": arguments["n"]}

        definition = ToolDefinition(name=name, description=name, parameters=SCHEMA)
        return Tool(definition=definition, run=run, way="async", timeout_s=5, **more)

    return [
        tool("safe", idempotent=True),
        tool("risky"),
        tool("slow"),
        tool("asked", requires_approval=True),
    ]


def spec(world: World) -> dict[str, Any]:
    """An agent on one of the shipped charts, under tight limits."""
    rng = world.rng
    return {
        "chart": rng.choice(shipped()),
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "tools": {},
        "limits": {
            "max_iterations": rng.choice([1, 3, 5]),
            "max_attempts": rng.choice([1, 3]),
            "max_tool_calls": rng.choice([None, 4]),
            "max_tokens": rng.choice([None, 20]),
        },
        "responses": [{"llm": "model", "prompt": "Be.", "tools": {"enabled": True}}],
    }


def started(world: World, log: Log, agent: dict[str, Any]) -> Engine:
    """The process, started anew on what the log has."""
    world.crashed = False
    return Engine(
        agent,
        log=log,
        functions=tools(world, log),
        providers={"model": Model(world, log)},
        clock=world,
    )


async def _turn(world: World, log: Log, agent: dict[str, Any], message: str) -> TurnResult | None:
    """One turn, however often the process has to be started for it."""
    begun = len(list(log.read("c")))
    for attempt in range(MOST_TRIES):
        world.calm = world.calm or attempt > MOST_TRIES // 2
        engine = started(world, log, agent)
        found = standing(log, "c")
        open_turn = found is not None and not found.snapshot.over
        if found is not None and not open_turn and found.snapshot.turn and found.next_seq > begun:
            return await engine.aresume("c")  # over: tells what it came to
        if open_turn:
            assert found is not None
            work = engine.aresume("c", _decision(world, found.snapshot))
        else:
            work = engine.arun(message, conversation="c")
        await _until_it_ends(world, asyncio.ensure_future(work))
    raise AssertionError(f"still open after {MOST_TRIES} starts")


def _decision(world: World, snapshot: Any) -> Decided | None:
    """A person's answer, where one is waited for."""
    for opened in snapshot.calls:
        if opened.ruling == "needs_approval":
            return Decided(call_id=opened.call.id, approved=world.rng.random() < 0.6, by="a person")
    return None


async def _until_it_ends(world: World, turn: asyncio.Future[TurnResult]) -> None:
    """Wait for a turn, or cancel it at some moment; what ends it early is the world's doing."""
    if world.happens(0.15):
        delay = world.rng.choice([0, 0.005, 0.03, 0.7, 4])
        asyncio.get_running_loop().call_later(
            delay, lambda: (world.tell("cancelled"), turn.cancel())
        )
    try:
        await turn
    except (Crash, LogUnavailable, LogConflict) as error:
        world.tell(f"the turn is left: {type(error).__name__}")
    except asyncio.CancelledError:
        world.tell("the turn was cancelled")


async def _live(world: World, log: Log) -> None:
    agent = spec(world)
    world.tell(f"chart {agent['chart']}, limits {agent['limits']}")
    for number in range(world.rng.randint(1, TURNS)):
        before = list(log.read("c"))
        result = await _turn(world, log, agent, f"turn {number}")
        after = list(log.read("c"))
        assert after[: len(before)] == before, "invariant 2: something acknowledged was lost"
        check(world, log, result)


def check(world: World, log: Log, result: TurnResult | None) -> None:
    """The invariants, of the log and of the world."""
    lines = list(log.read("c"))
    verify_lines(lines, "c")
    steps = list(replay(lines, "c"))  # invariant 3
    snapshot = steps[-1].step.snapshot
    answered_once(snapshot.messages)  # invariant 1
    twice = {what for what, times in world.ran.items() if times > 1 and what[0] != "safe"}
    assert not twice, f"invariant 5: ran twice: {sorted(twice)}"
    asked = 0
    for one in steps:
        event = one.record.event
        asked = 0 if event["type"] == "turn_started" else asked
        asked += len(event["reply"].get("tool_calls", ())) if event["type"] == "replied" else 0
    assert result is not None
    assert snapshot.over
    assert len(result.tool_calls) == asked, "invariant 4: a call was lost"
    assert result.content == snapshot.answer


def simulate(seed: int, inner: Store | None = None) -> tuple[World, list[bytes]]:
    """Run one seed to its end; its account and its log.

    Args:
        inner: a store without a conversation `c`; it has none again afterwards.

    Raises:
        Broken, AssertionError: an invariant is broken; the world's account is in its notes.
    """
    world = World(seed)
    log = Log(world, inner or MemoryStore())
    try:
        with patch("time.perf_counter", world.loop.time):  # tools are timed by the same clock
            world.loop.run_until_complete(_live(world, log))
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}", *world.told[-40:]]))
        raise
    finally:
        _close(world.loop)
    lines = list(log.read("c"))
    log.delete("c")
    return world, lines


def _close(loop: VirtualLoop) -> None:
    """End what a dead process left behind."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


if __name__ == "__main__":
    import conftest  # noqa: F401  makes a checkout importable

    world, lines = simulate(int(sys.argv[1]))
    print("\n".join(world.told))
    print("\n".join(line.decode() for line in lines))
