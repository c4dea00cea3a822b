"""`Rerouting`: the conversations that would go another way with a changed chart, exactly those."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest
from effort import choose_count
from engine_worlds import FlowEngineWorld
from seeded_chart_changes import SeededChange, make_changes

from toolchart.engine import Engine
from toolchart.engine.log.read_records import ReadRecord, read_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.rerouting import OtherWay, Rerouting
from toolchart.engine.reading.visited_path import read_chart
from toolchart.engine.runtime.migration import migrate_conversation
from toolchart.specs.charts import load_chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.chart_comparison import ChartComparison, compare_charts
from toolchart.states.errors import ToolchartError
from toolchart.tools.execution import executor

CHANGES = list(make_changes(choose_count(short=50, long=500), seed=3))
WORLDS = choose_count(short=4, long=20)

COMPARED = ("digest", "content", "seconds")
"""What is compared of what a record says about an effect."""

Document = dict[str, Any]


def build_spec(document: Document) -> dict[str, Any]:
    """An agent with a chart."""
    return {
        "chart": {key: value for key, value in document.items() if key != "effects"},
        "effects": document.get("effects", {}),
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "tools": {},
        "limits": {"max_steps": 300},
        "responses": [{"llm": "model", "prompt": "Be.", "tools": {"enabled": True}}],
    }


async def run_turns(document: Document, seed: int) -> MemoryStore:
    """The log of two turns in the world of a seed, which does the same while it is asked the same."""
    world, store = FlowEngineWorld(random.Random(seed)), MemoryStore()
    engine = Engine(
        build_spec(document),
        log=store,
        functions=[*world.make_tools(), *world.make_functions()],
        providers={"model": world},
        approver=world.approve,
        asker=world.ask,
        clock=world,
    )
    for number in range(2):
        try:
            await engine.arun(f"turn {number}", conversation="c")
        except ToolchartError:  # a turn that is open takes no second one
            break
    await engine.aclose()
    return store


def describe_step(record: ReadRecord, names: Mapping[str, str]) -> Any:
    """What a record says that its conversation did."""
    asks = [
        (ask.id, names.get(ask.name, ask.name), {key: ask.data.get(key) for key in COMPARED})
        for ask in record.asks
    ]
    target = sorted(names.get(name, name) for name in (record.target or "").split("+"))
    return target, asks, list(record.cancels)


def find_first_difference(old: MemoryStore, new: MemoryStore, comparison: ChartComparison) -> int | None:
    """The number of the first record that two runs in the same world do not share; None if they are equal."""
    names = {**comparison.renamed, **comparison.renamed_timers}
    left, right = (list(read_conversation(store, "c")) for store in (old, new))
    for a, b in zip(left, right, strict=False):
        if describe_step(a, names) != describe_step(b, {}):
            return a.seq
    return None if len(left) == len(right) else min(len(left), len(right))


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call takes no time: models are told how long each took, so two runs would never be the same."""
    monkeypatch.setattr(executor.time, "perf_counter", lambda: 0.0)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.kind}-{change.seed}")
def test_exactly_those_that_do(change: SeededChange) -> None:
    """A conversation is said to go another way, at a record, exactly where the engine takes another way there
    when the same world meets the changed chart."""
    comparison = compare_charts(*change.load())
    names = {**comparison.renamed, **comparison.renamed_timers}
    for seed in range(WORLDS):
        recorded = asyncio.run(run_turns(change.old, seed))
        again = asyncio.run(run_turns(change.new, seed))
        charts = [read_chart(store, "c") for store in (recorded, again)]
        rerouting = Rerouting(*charts, renamed=names)
        assert rerouting.list_conversations(recorded) == ["c"]
        outcome = rerouting.find_other_way(recorded, "c")
        actual = find_first_difference(recorded, again, comparison)
        assert (outcome.seq if isinstance(outcome, OtherWay) else outcome) == actual, (seed, outcome)


def build_editor(**names: str) -> Document:
    """A chart with two questions, its states by other names."""
    first, second = names.get("asking", "asking"), names.get("checking", "checking")

    def ask(effect: str, target: str) -> Document:
        rows = [{"event": "answered", "target": target}, {"event": "cancelled", "target": "published"}]
        return {"enter": effect, "transitions": rows}

    states = {
        first: {"initial": True, **ask("ask_editor", second)},
        second: ask("ask_again", "published"),
        "published": {"final": True, "enter": "tell"},
    }
    asks = {
        name: {"ask_person": {"question": name, "as": f"{name}_result"}}
        for name in ("ask_editor", "ask_again")
    }
    return {"name": "editor", "states": states, "effects": {**asks, "tell": {"answer": "published"}}}


EDITOR, SECOND, THIRD = (
    build_editor(asking="asking"),
    build_editor(asking="waiting", checking="asking"),
    build_editor(asking="checking", checking="verifying"),
)
"""One chart under three sets of names, which say other things in each."""


async def migrate_editor() -> MemoryStore:
    """A conversation that stands in the first question, and moved from the first chart to the second."""
    store = MemoryStore()
    async with Engine(build_spec(EDITOR), log=store, asker=None) as engine:
        await engine.arun("go", conversation="c")
    async with Engine(build_spec(SECOND), log=store) as engine:
        renamed = {"asking": "waiting", "checking": "asking"}
        report = await migrate_conversation(engine, "c", is_recorded=True, renamed=renamed)
        assert report is not None
        assert report.is_approved
    return store


@pytest.mark.parametrize(
    ("old", "new", "renamed"),
    [
        (SECOND, THIRD, {"waiting": "checking", "asking": "verifying"}),
        (SECOND, EDITOR, {"waiting": "asking", "asking": "checking"}),
        (EDITOR, THIRD, {"asking": "checking", "checking": "verifying"}),
        (EDITOR, SECOND, {"asking": "waiting", "checking": "asking"}),
    ],
    ids=["to a third", "back", "a third instead of the first", "from the beginning"],
)
def test_a_migration_has_the_names_of_the_other_chart(
    old: Document, new: Document, renamed: dict[str, str]
) -> None:
    """A conversation that was migrated goes the same way with a chart that only has other names, whichever of
    its charts it replaces."""
    store = asyncio.run(migrate_editor())
    rerouting = Rerouting(make_chart(old), make_chart(new), renamed=renamed)
    assert rerouting.find_other_way(store, "c") is None


def test_a_migration_to_a_chart_without_the_states_is_refused() -> None:
    """Where a conversation moved to a chart, and the other one has no such state, it would not have moved."""
    store = asyncio.run(migrate_editor())
    outcome = Rerouting(make_chart(SECOND), make_chart(THIRD)).find_other_way(store, "c")
    assert isinstance(outcome, OtherWay)
    assert (outcome.kind, outcome.event, outcome.old) == ("refused", "migrated", "waiting")
    assert "waiting" in outcome.new


def test_a_turn_of_another_chart_keeps_its_limits() -> None:
    """Limits take the place of those that the old chart ran with; a turn of a third one keeps its own."""
    third = load_chart("tool_loop").document
    old = {**third, "name": "old"}
    call = {"content": "look", "tool_calls": [{"name": "look", "arguments": {}}]}

    def look() -> str:
        """Looks."""
        return "seen"

    async def run() -> MemoryStore:
        store = MemoryStore()
        for document, replies in ((third, [call, call, "done"]), (old, ["done"])):
            spec = build_spec(document)
            spec["llms"]["model"]["replies"] = replies
            async with Engine(spec, log=store, functions=[look]) as engine:
                await engine.arun("go", conversation="c")
        return store

    store = asyncio.run(run())
    rerouting = Rerouting(make_chart(old), make_chart(old), limits={"max_iterations": 1})
    assert rerouting.list_conversations(store) == ["c"]
    assert rerouting.find_other_way(store, "c") is None
    rerouting = Rerouting(make_chart(third), make_chart(third), limits={"max_iterations": 1})
    outcome = rerouting.find_other_way(store, "c")
    assert isinstance(outcome, OtherWay)
    assert outcome.turn == 1
