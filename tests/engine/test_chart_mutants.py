"""Mutants of the shipped charts run with the real engine: no crash, no hang, true outcomes of all calls."""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import orjson
from effort import choose_count

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.core.vocabulary import EFFECTS, list_chart_events
from toolchart.states.errors import IllegalEvent, ProviderError, SpecError
from toolchart.states.events import FAILURE_KINDS, Decided
from toolchart.states.machine import get_machine
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.testing.invariants import check_calls_answered_once
from toolchart.tools.definition import Tool, ToolFailure

GUARDS = (
    "iteration > 1",
    "pending_calls > 0",
    "undecided_calls == 0",
    "attempt < 2",
    "tools_sent",
    "replies < 3",
)
PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
MAX_STARTS = 30
"""Times that a turn is resumed after a decision or a suspension; then it is cancelled for good."""


# -- mutants -------------------------------------------------------------------------------------


def make_mutant(rng: random.Random) -> dict[str, Any] | None:
    """A shipped chart with one to three changes; None where no rule lets it pass."""
    document = copy.deepcopy(load_chart(rng.choice(list_shipped_charts())).document)
    for _ in range(rng.choice([1, 1, 2, 3])):
        rng.choice(CHANGES)(document, rng)
    try:
        get_machine(make_chart(document))
    except SpecError:
        return None
    return document


def _choose_body(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    return rng.choice([body for body in _list_bodies(document) if not body.get("final")])


def _list_bodies(holder: dict[str, Any]) -> list[dict[str, Any]]:
    bodies = list(holder.get("states", {}).values())
    return [*bodies, *(inner for body in bodies for inner in _list_bodies(body))]


def _list_names(document: dict[str, Any]) -> list[str]:
    def collect(holder: dict[str, Any]) -> Iterator[str]:
        for name, body in holder.get("states", {}).items():
            yield name
            yield from collect(body)

    return list(collect(document))


def _drop_row(document: dict[str, Any], rng: random.Random) -> None:
    if rows := _choose_body(document, rng).get("transitions"):
        rows.pop(rng.randrange(len(rows)))


def _retarget_row(document: dict[str, Any], rng: random.Random) -> None:
    if rows := _choose_body(document, rng).get("transitions"):
        row = rng.choice(rows)
        row.pop("target", None)
        if rng.random() < 0.8:
            row["target"] = rng.choice(_list_names(document))


def _reorder_rows(document: dict[str, Any], rng: random.Random) -> None:
    rng.shuffle(_choose_body(document, rng).get("transitions", []))


def _change_guard(document: dict[str, Any], rng: random.Random) -> None:
    if rows := _choose_body(document, rng).get("transitions"):
        row = rng.choice(rows)
        row.pop("cond", None)
        if rng.random() < 0.6:
            row["cond"] = rng.choice(GUARDS)


def _add_effect(document: dict[str, Any], rng: random.Random) -> None:
    body, effect = rng.choice(_list_bodies(document)), rng.choice(EFFECTS.names())
    slot = rng.choice(["enter", "enter", "exit", "on"])
    if slot == "on" and body.get("transitions"):
        body = rng.choice(body["transitions"])
    actions = body.get(slot, [])
    body[slot] = [*([actions] if isinstance(actions, str) else actions), effect]


def _replace_effect(document: dict[str, Any], rng: random.Random) -> None:
    rng.choice(_list_bodies(document))["enter"] = rng.choice(EFFECTS.names())


def _add_row(document: dict[str, Any], rng: random.Random) -> None:
    row: dict[str, Any] = {"target": rng.choice(_list_names(document))}
    if rng.random() < 0.8:
        row["event"] = rng.choice([*list_chart_events(), "*", "replied.call_model"])
    if rng.random() < 0.7 or "event" not in row:
        row["cond"] = rng.choice(GUARDS)
    if rng.random() < 0.2:
        row["internal"] = True
    rows = _choose_body(document, rng).setdefault("transitions", [])
    rows.insert(rng.randint(0, len(rows)), row)


def _add_state(document: dict[str, Any], rng: random.Random) -> None:
    names = _list_names(document)
    rows = [
        {"event": event, "target": rng.choice(names)} for event in list_chart_events() if rng.random() < 0.7
    ]
    name = f"added{len(names)}"
    document["states"][name] = {"enter": rng.choice(EFFECTS.names()), "transitions": rows}
    if rows := _choose_body(document, rng).get("transitions"):
        rng.choice(rows)["target"] = name


def _add_region(document: dict[str, Any], rng: random.Random) -> None:
    """Put all states into one region, with a clock that counts down beside it."""
    names = _list_names(document)
    if any(body.get("parallel") for body in _list_bodies(document)):
        return
    initial = next(
        (n for n, b in document["states"].items() if b.get("initial")), next(iter(document["states"]))
    )
    document["states"][initial]["initial"] = True
    ring = {"event": "elapsed.wait", "target": rng.choice(["rung", *names])}
    clock = {"ticking": {"initial": True, "enter": "wait", "transitions": [ring]}, "rung": {"final": True}}
    regions = {"main": {"states": document["states"]}, "clock": {"states": clock}}
    document["states"] = {"both": {"initial": True, "parallel": True, "states": regions}}


CHANGES = (
    _drop_row,
    _retarget_row,
    _reorder_rows,
    _change_guard,
    _add_effect,
    _replace_effect,
    _add_row,
    _add_state,
    _add_region,
)


# -- the world -----------------------------------------------------------------------------------


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
        seconds, ms = divmod(int(self.clock_s * 1000), 1000)
        return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}Z"

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


async def run_mutant(document: dict[str, Any], rng: random.Random) -> None:
    """Two turns of a chart in a world; raises where something is not true."""
    world, store = World(rng), MemoryStore()
    spec = {
        "chart": document,
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "tools": {},
        "limits": {"max_steps": 200},
        "responses": [{"llm": "model", "prompt": "Be.", "tools": {"enabled": True}}],
    }
    engine = Engine(
        spec,
        log=store,
        functions=world.make_tools(),
        providers={"model": world},
        approver=world.approve,
        clock=world,
    )
    for number in range(2):
        result = await _disturb(engine, rng, engine.arun(f"turn {number}", conversation="c"))
        for _ in range(MAX_STARTS):
            steps = list(replay_conversation(store, "c"))
            snapshot = steps[-1].step.snapshot
            if snapshot.is_over:
                break
            waiting = [
                c.call.id for c in snapshot.calls if c.ruling == "needs_approval" and c.outcome is None
            ]
            decision = Decided(call_id=waiting[0], approved=rng.random() < 0.5) if waiting else None
            result = await _disturb(engine, rng, engine.aresume("c", decision))
        check_outcomes(steps, world)
        if not snapshot.is_over:
            return  # a chart that does not take a cancellation may be suspended for ever
        assert snapshot.answer is None or result is None or result.content == snapshot.answer
    await engine.aclose()


async def _disturb(engine: Engine, rng: random.Random, work: Any) -> Any:
    """Wait for a turn; sometimes a person speaks or cancels meanwhile."""
    task = asyncio.ensure_future(work)
    for _ in range(rng.choice([0, 0, 3, 9])):
        await asyncio.sleep(0)
    if not task.done() and rng.random() < 0.5:
        with suppress(SpecError, IllegalEvent):  # the turn has ended, or not begun
            await (engine.asay("c", "and hurry") if rng.random() < 0.5 else engine.acancel("c"))
    return await asyncio.wait_for(task, timeout=20)


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


def run_seed(seed: int) -> bool:
    """Run the mutant of one seed; false where the rules for charts refuse it."""
    rng = random.Random(seed)
    document = make_mutant(rng)
    if document is None:
        return False
    try:
        asyncio.run(run_mutant(document, rng))
    except BaseException as error:
        error.add_note(f"seed {seed}\n{orjson.dumps(document).decode()}")
        raise
    return True


def test_mutants_of_shipped_charts_run_and_tell_the_truth() -> None:
    """Rows, guards, effects, states and regions that are dropped, changed or added: all end truthfully."""
    wanted, done, seed = choose_count(short=60, long=1000), 0, 0
    while done < wanted:
        done += run_seed(seed)
        seed += 1
    assert done == wanted
