"""Deterministic simulation of faults around the real engine: one seed always gives the same run.

Driver, core, tools and journal are the real ones. What surrounds them is simulated: a model that answers,
calls tools, cuts replies or fails; tools that are slow, raise or hang; a log that is full, locked or used by
another writer; a user who cancels; a process that crashes at any of these points and is started again with
the log. Time is virtual, so waiting costs nothing and the order of events follows from the seed alone.

    PYTHONPATH=tests:tests/support python -m simulation 17      # print the story and the log of one seed
"""

from __future__ import annotations

import asyncio
import itertools
import random
import selectors
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import orjson

from toolchart.engine import Engine, Turn
from toolchart.engine.log import record as records
from toolchart.engine.log.group_commit import LeaseKeeper
from toolchart.engine.log.replay import load_conversation, replay
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_conversation
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.specs.unread_limits import find_read_limits
from toolchart.states.effects import CallModel, compute_effect_digest
from toolchart.states.errors import LogConflict, LogUnavailable, ProviderError
from toolchart.states.events import FAILURE_KINDS, Decided
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.states.ports import InboxEntry, Lease, RecordBatch, Store
from toolchart.testing.invariants import check_calls_answered_once
from toolchart.tools.definition import Tool, ToolFailure

MAX_TURNS = 3
"""Most turns of one run."""

MAX_STARTS = 80
"""Most starts of the process in one turn; a turn that needs more is stuck, which is a fault."""

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Crash(BaseException):
    """The process crashes here."""


class BrokenInvariant(BaseException):
    """An invariant is broken. A `BaseException`, so that the engine does not handle it as a fault."""


def require(holds: bool, promise: str) -> None:
    """Fail the run unless a promise holds."""
    if not holds:
        raise BrokenInvariant(promise)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next scheduled callback."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        """Return the virtual seconds since the start."""
        return self.now_s


class _JumpingSelector(selectors.SelectSelector):
    """A selector that advances the virtual time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        """Return what is ready now, after advancing the time by the timeout."""
        require(timeout is not None, "the run waits for something that never comes")
        self._loop.now_s += timeout or 0.0
        return super().select(0)


@dataclass
class World:
    """Everything outside the engine, and the story of what happened."""

    seed: int
    rng: random.Random = field(init=False)
    story: list[str] = field(default_factory=list)
    call_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Numbers of the calls that the model makes; each has its number as its argument."""
    run_counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    has_crashed: bool = False
    is_calm: bool = False
    """Whether no more faults happen, so that the run can end."""
    loop: VirtualLoop = field(default_factory=VirtualLoop)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def add_to_story(self, words: str) -> None:
        """Add a line with the current time to the story."""
        self.story.append(f"{self.loop.now_s:10.3f}  {words}")

    def draw_fault(self, chance: float) -> bool:
        """Draw whether a fault happens now."""
        return self.rng.random() < chance and not self.is_calm

    def maybe_crash(self, where: str, chance: float = 0.02) -> None:
        """Crash the process here, with some probability."""
        if self.has_crashed or self.draw_fault(chance):
            self.has_crashed = True
            self.add_to_story(f"the process dies {where}")
            raise Crash

    # -- the clock of the driver ---------------------------------------------------------------------

    def now(self) -> str:
        """Return the current time as text, from the time of the loop."""
        ms = int(self.loop.now_s * 1000)
        minutes, rest = divmod(ms, 60_000)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        seconds = f"{rest // 1000:02}.{rest % 1000:03}"
        return f"2026-01-{1 + days:02}T{hours:02}:{minutes:02}:{seconds}Z"

    async def sleep(self, seconds: float) -> None:
        """Sleep for virtual seconds."""
        self.maybe_crash("while it waits")
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """Return a random number from the seed."""
        return round(self.rng.random(), 3)


class FaultyLog:
    """A store that sometimes refuses an append, or crashes the process before or after it."""

    def __init__(self, world: World, inner: Store) -> None:
        self._world = world
        self._inner = inner
        self.read_lines, self.read_last_line = inner.read_lines, inner.read_last_line
        self.list_conversations = inner.list_conversations
        self.delete, self.close = inner.delete, inner.close
        self.read_checkpoints = inner.read_checkpoints
        self.find_lease, self.list_leases = inner.find_lease, inner.list_leases

    commits_at_once = True
    has_upkeep = False

    def append_many(self, batches: Sequence[RecordBatch], *, wait: bool = True) -> Sequence[None]:
        """Append each batch as `append` does."""
        for batch in batches:
            self.append(batch.conversation, batch.first_seq, batch.lines)
        return [None] * len(batches)

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """A lease that no store keeps: there is one worker, and it may have crashed before."""
        return Lease(conversation=conversation, token=1, worker=worker, since=0.0, expires=seconds)

    def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[bool]:
        """Nobody takes them."""
        return [True] * len(leases)

    def release_lease(
        self, lease: Lease, *, is_open: bool, due: float | None = None, wait: bool = True
    ) -> bool:
        """No inbox has an entry."""
        return True

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """No inbox has an entry."""
        return ()

    def append(
        self, conversation: str, first_seq: int, lines: Sequence[bytes], *, is_over: bool = False
    ) -> None:
        """Append the lines, fail before anything is written, or crash before or after."""
        world = self._world
        world.maybe_crash("before it writes")
        if world.draw_fault(0.02):
            kind = world.rng.choice([LogUnavailable("the disk is full"), LogConflict("another writer")])
            world.add_to_story(f"the log refuses: {kind}")
            raise kind
        self._inner.append(conversation, first_seq, lines)
        world.add_to_story(f"written: {', '.join(orjson.loads(line)['event']['type'] for line in lines)}")
        world.maybe_crash("after it wrote")

    def requests_effect(self, effect_type: str, text: str) -> bool:
        """Whether the newest record with an effect of this kind contains this text in it."""
        for line in reversed(list(self.read_lines("c"))):
            for effect in orjson.loads(line).get("asks", ()):
                if effect["effect"].startswith(effect_type):
                    return text in orjson.dumps(effect).decode()
        return False

    def requests_call(self, number: int) -> bool:
        """Whether the log requests to run the call with this number."""
        return any(
            f'"n":{number}}}'.encode() in line for line in self.read_lines("c") if b'"replied"' in line
        ) and self.requests_effect("run_tools", "")


class FaultyModel:
    """A model with random answers. It checks every request: each call in it must have its answer."""

    name = "simulated"

    def __init__(self, world: World, log: FaultyLog) -> None:
        self._world, self._log = world, log

    async def complete(self, request: Request) -> Reply:
        """Return a reply or raise an error."""
        world, rng = self._world, self._world.rng
        world.add_to_story(f"asked, {len(request.tools)} tools")
        # At its end a request may have what the core says about a reply that could not be used, and its text.
        asks = [CallModel(id=0, name="", state="", request=request, own_messages=count) for count in range(3)]
        # Tools as text: the model sees a request that was rewritten after the core had made it.
        digests = [""] if request.writes_tools_as_text else map(compute_effect_digest, asks)
        is_recorded = any(self._log.requests_effect("call_model", digest) for digest in digests)
        require(is_recorded, "invariant 2: a request that the log does not ask for")
        try:
            check_calls_answered_once(request.messages)
        except AssertionError as error:
            raise BrokenInvariant(str(error)) from None
        world.maybe_crash("before the model is asked")
        await asyncio.sleep(rng.choice([0, 0.01, 2]))
        world.maybe_crash("after the model was asked")
        if world.draw_fault(0.15):
            raise ProviderError(
                kind=rng.choice(FAILURE_KINDS),
                message="no",
                retryable=rng.random() < 0.6,
                retry_after_s=rng.choice([None, None, 3.0]),
            )
        if world.draw_fault(0.02):
            raise ValueError("an adapter has a fault")
        return self._make_reply(request)

    def _make_reply(self, request: Request) -> Reply:
        rng = self._world.rng
        content = rng.choice([None, "", "well", "so it is"])
        calls: list[ToolCall] = []
        if request.tools and rng.random() < 0.65:
            calls = [self._make_call() for _ in range(rng.choice([1, 1, 2, 3]))]
        reason: Any = rng.choice(["stop", "stop", "tool_calls", "length", "unknown", "content_filter"])
        return Reply(
            content=content,
            tool_calls=tuple(calls),
            finish_reason="tool_calls" if calls else reason,
            usage=rng.choice([None, Usage(input=5, output=3)]),
        )

    def _make_call(self) -> ToolCall:
        world, rng = self._world, self._world.rng
        number = next(world.call_numbers)
        name = rng.choice(["safe", "safe", "risky", "risky", "slow", "asked", "unknown"])
        arguments: dict[str, Any] = {"n": number} if rng.random() < 0.95 else {}
        return ToolCall(id=rng.choice(["", f"id{number}", "same"]), name=name, arguments=arguments)

    async def aclose(self) -> None:
        """Nothing to close."""


def make_tools(world: World, log: FaultyLog) -> list[Tool]:
    """Make four tools: safe to repeat, not safe, too slow, and one that needs approval."""

    def make_tool(name: str, **options: Any) -> Tool:
        async def run(arguments: dict[str, Any]) -> Any:
            world.add_to_story(f"{name}({arguments['n']}) begins")
            require(log.requests_call(arguments["n"]), "invariant 2: a call that the log does not ask for")
            world.maybe_crash(f"in {name}, before anything was done")
            world.run_counts[name, arguments["n"]] += 1
            await asyncio.sleep(world.rng.choice([0, 0.05, 1]) if name != "slow" else 100)
            world.maybe_crash(f"in {name}, after it was done")
            if world.draw_fault(0.15):
                raise world.rng.choice([ToolFailure("not possible"), KeyError("x"), SystemExit(3)])
            return {"n": arguments["n"]}

        definition = ToolDefinition(name=name, description=name, parameters=SCHEMA)
        return Tool(definition=definition, run=run, execution_mode="async", timeout_s=5, **options)

    return [
        make_tool("safe", idempotent=True),
        make_tool("risky"),
        make_tool("slow"),
        make_tool("asked", requires_approval=True),
    ]


def make_spec(world: World) -> dict[str, Any]:
    """Make an agent spec on a random shipped chart, with low limits where the chart reads them."""
    rng = world.rng
    chart = rng.choice(list_shipped_charts())
    limits = {
        "max_iterations": rng.choice([1, 3, 5]),
        "max_attempts": rng.choice([1, 3]),
        "max_tool_calls": rng.choice([None, 4]),
        "max_tokens": rng.choice([None, 20]),
    }
    read_limits = find_read_limits(load_chart(chart))
    return {
        "chart": chart,
        "llms": {"model": {"provider": "scripted", "model": "m", "context_limit": 300}},
        "tools": {},
        "limits": {name: value for name, value in limits.items() if name in read_limits},
        "responses": [{"llm": "model", "prompt": "Be.", "tools": {"enabled": True}}],
    }


def start_engine(world: World, log: FaultyLog, agent: dict[str, Any]) -> Engine:
    """Start the process again: make a new engine on the same log."""
    world.has_crashed = False
    return Engine(
        agent,
        log=log,
        functions=make_tools(world, log),
        providers={"model": FaultyModel(world, log)},
        clock=world,
    )


async def _run_turn(world: World, log: FaultyLog, agent: dict[str, Any], message: str) -> Turn | None:
    """Run one turn, starting the process again after each crash."""
    line_count = len(list(log.read_lines("c")))
    for attempt in range(MAX_STARTS):
        world.is_calm = world.is_calm or attempt > MAX_STARTS // 2
        engine = start_engine(world, log, agent)
        loaded_conversation = load_conversation(log, "c")
        open_turn = loaded_conversation is not None and not loaded_conversation.snapshot.is_over
        if (
            loaded_conversation is not None
            and not open_turn
            and loaded_conversation.snapshot.turn
            and loaded_conversation.next_seq > line_count
        ):
            return await engine.conversation("c").aresume()  # the turn is over: returns its result
        if open_turn:
            assert loaded_conversation is not None
            work = engine.conversation("c").aresume(_decide_call(world, loaded_conversation.snapshot))
        else:
            work = engine.arun(message, conversation="c")
        await _until_it_ends(world, asyncio.ensure_future(work))
    raise AssertionError(f"still open after {MAX_STARTS} starts")


def _decide_call(world: World, snapshot: Any) -> Decided | None:
    """Make a person's decision if a call needs one."""
    for open_call in snapshot.calls:
        if open_call.ruling == "needs_approval":
            return Decided(call_id=open_call.call.id, approved=world.rng.random() < 0.6, by="a person")
    return None


async def _until_it_ends(world: World, turn: asyncio.Future[Turn]) -> None:
    """Wait for a turn, or cancel it at a random time; ignore the faults that end it early."""
    if world.draw_fault(0.15):
        delay = world.rng.choice([0, 0.005, 0.03, 0.7, 4])
        asyncio.get_running_loop().call_later(delay, lambda: (world.add_to_story("cancelled"), turn.cancel()))
    try:
        await turn
    except (Crash, LogUnavailable, LogConflict) as error:
        world.add_to_story(f"the turn is left: {type(error).__name__}")
    except asyncio.CancelledError:
        world.add_to_story("the turn was cancelled")


async def _run_conversation(world: World, log: FaultyLog) -> None:
    agent = make_spec(world)
    world.add_to_story(f"chart {agent['chart']}, limits {agent['limits']}")
    for number in range(world.rng.randint(1, MAX_TURNS)):
        before = list(log.read_lines("c"))
        result = await _run_turn(world, log, agent, f"turn {number}")
        after = list(log.read_lines("c"))
        assert after[: len(before)] == before, "invariant 2: something acknowledged was lost"
        check_invariants(world, log, result)


def check_invariants(world: World, log: FaultyLog, result: Turn | None) -> None:
    """Check the invariants of the log and of the tools that ran."""
    lines = list(log.read_lines("c"))
    verify_conversation(lines, "c")
    steps = list(replay(lines, "c"))  # invariant 3
    snapshot = steps[-1].step.snapshot
    check_calls_answered_once(snapshot.messages)  # invariant 1
    repeated_calls = {call for call, times in world.run_counts.items() if times > 1 and call[0] != "safe"}
    assert not repeated_calls, f"invariant 5: ran twice: {sorted(repeated_calls)}"
    call_count = 0
    for replayed_step in steps:
        event = replayed_step.record.event
        call_count = 0 if event["type"] == "turn_started" else call_count
        call_count += len(event["reply"].get("tool_calls", ())) if event["type"] == "replied" else 0
    assert result is not None
    assert snapshot.is_over
    assert len(result.tool_calls) == call_count, "invariant 4: a call was lost"
    assert result.content == snapshot.answer


def run_simulation(seed: int, inner: Store | None = None) -> tuple[World, list[bytes]]:
    """Run one seed to its end; return the world, with its story, and the log.

    Args:
        inner: a store without a conversation `c`; it has none again afterwards.

    Raises:
        BrokenInvariant, AssertionError: an invariant is broken; its notes have the end of the story.
    """
    world = World(seed)
    log = FaultyLog(world, inner or MemoryStore())
    try:
        # Tools are timed by the virtual clock, and salts count up: the same seed gives the same bytes.
        salts = (f"salt {number}" for number in itertools.count())
        with (
            patch("time.perf_counter", world.loop.time),
            patch.object(records, "generate_salt", lambda: next(salts)),
            # It would look after leases in a thread, which no virtual clock orders.
            patch.object(LeaseKeeper, "_start_timer", lambda *_: None),
        ):
            world.loop.run_until_complete(_run_conversation(world, log))
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}", *world.story[-40:]]))
        raise
    finally:
        close_loop(world.loop)
    lines = list(log.read_lines("c"))
    log.delete("c")
    return world, lines


def close_loop(loop: VirtualLoop) -> None:
    """Cancel the tasks that a crashed process left, and close the loop."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


if __name__ == "__main__":
    import conftest  # noqa: F401  makes a checkout importable

    world, lines = run_simulation(int(sys.argv[1]))
    print("\n".join(world.story))
    print("\n".join(line.decode() for line in lines))
