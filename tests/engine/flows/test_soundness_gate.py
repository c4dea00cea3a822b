"""The soundness gate: what `check` calls clean never misbehaves in the real engine, and keeps its bound.

Charts are random flows, and mutants of shipped charts and of random flows. The worlds are scripted hosts,
functions, people and children that do anything, a clock, and a user who interrupts.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import orjson
import pytest
from chart_mutants import make_mutant
from effort import choose_count
from engine_worlds import FlowEngineWorld, check_outcomes
from flow_worlds import count_costs
from random_flows import make_flow
from watched_worlds import BEHAVIOUR_KINDS, check_step

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.chart.loading import make_chart
from toolchart.states.effects import RunAgent
from toolchart.states.errors import IllegalEvent, NotFound, SpecError
from toolchart.states.events import Limits, TurnStarted, UserSaid
from toolchart.states.proofs.check import CheckReport, check
from toolchart.states.snapshot import ENDED_BY_CORE

LIMITS = Limits()
MAX_STARTS = 60
"""Times that a turn is resumed after a pause; a bounded flow needs fewer."""


async def run_flow(document: dict[str, Any], report: CheckReport, rng: random.Random) -> None:
    """Some turns of a flow; raises where something is not as `check` says."""
    world, store = FlowEngineWorld(rng), MemoryStore()
    spec = {
        "chart": {key: value for key, value in document.items() if key != "effects"},
        "effects": document.get("effects", {}),
        "llms": {"model": {"provider": "scripted", "model": "m", "context_limit": 300}},
        "tools": {},
        "responses": [{"llm": "model", "prompt": "Be.", "tools": {"enabled": True}}],
    }
    engine = Engine(
        spec,
        log=store,
        functions=[*world.make_tools(), *world.make_functions()],
        providers={"model": world},
        approver=world.approve,
        asker=world.ask,
        clock=world,
    )
    for number in range(rng.randint(1, 3)):
        variables = {"papers": ["a", "b"][: rng.randint(0, 2)]}
        await _disturb(engine, rng, engine.arun(f"turn {number}", conversation="c", variables=variables))
        for _ in range(MAX_STARTS):
            steps = list(replay_conversation(store, "c"))
            if steps[-1].step.snapshot.is_over:
                break
            world.clock_s += rng.choice([0, 10, 10_000])
            await _disturb(engine, rng, engine.conversation("c").aresume())
        check_turn(steps, report)
        check_outcomes(steps, world)
    await engine.aclose()


async def _disturb(engine: Engine, rng: random.Random, work: Any) -> None:
    """Wait for a turn; sometimes a person speaks or cancels meanwhile.

    What is said before the turn has begun is a turn of its own: then the other one may be refused.
    """
    task, has_spoken = asyncio.ensure_future(work), False
    for _ in range(rng.choice([0, 0, 3, 9, 25])):
        await asyncio.sleep(0)
    if not task.done() and rng.random() < 0.4:
        with suppress(NotFound, SpecError, IllegalEvent):  # the turn has ended, or not begun
            has_spoken = rng.random() < 0.6
            await (
                engine.conversation("c").asay("and hurry")
                if has_spoken
                else engine.conversation("c").acancel()
            )
    with suppress(*([SpecError] if has_spoken else [])):
        await asyncio.wait_for(task, timeout=300)


def check_turn(steps: list[Any], report: CheckReport) -> None:
    """The turn has ended, by the chart and with an answer, and asked for no more than its worst case."""
    snapshot = steps[-1].step.snapshot
    assert snapshot.is_over, f"after {MAX_STARTS} starts the turn waits in {snapshot.state!r}"
    assert snapshot.ended_by not in ENDED_BY_CORE, f"the core ended the turn: {snapshot.error}"
    assert snapshot.answer is not None, f"the turn ended in {snapshot.state!r} without an answer"
    costs: Counter[str] = Counter()
    open_effects: tuple[Any, ...] = ()
    for step in steps:
        if step.record.event["type"] in (TurnStarted.TYPE, UserSaid.TYPE):
            costs = Counter()
            runs = [e for e in open_effects if isinstance(e, RunAgent)]
            costs["agent_runs"] = sum(len(e.resting) for e in runs)
        count_costs(costs, step.step.effects)
        if step.step.event is not None:
            check_step(step.step.event, step.step)
        open_effects = step.step.snapshot.open_effects
        for field, number in costs.items():
            bound = getattr(report.worst, field, 0)
            assert report.worst is None or number <= bound + 1e-9, f"{field}: {number} is more than {bound}"


def make_document(seed: int) -> dict[str, Any] | None:
    """A random flow, or a mutant; None where no rule lets it pass."""
    return make_flow(seed) if seed % 2 else make_mutant(random.Random(seed))


def run_seed(seed: int) -> bool:
    """Run the chart of a seed; false where the rules refuse it or `check` has a finding about it."""
    document = make_document(seed)
    if document is None:
        return False
    try:
        report = check(make_chart(document), limits=LIMITS, risky=True)
    except SpecError:
        return False
    if {finding.kind for finding in report.findings} & BEHAVIOUR_KINDS:
        return False
    for number in range(3):
        try:
            asyncio.run(run_flow(document, report, random.Random(10 * seed + number)))
        except BaseException as error:
            error.add_note(f"seed {seed}, world {number}\n{orjson.dumps(document).decode()}")
            raise
    return True


@pytest.mark.slow
def test_clean_charts_behave_in_the_engine() -> None:
    """S1.7: what `check` calls clean ends in the real engine, answered, within the bound and truthfully."""
    count = choose_count(short=30, long=6_000)
    clean_count = sum(map(run_seed, range(10_000, 10_000 + count)))
    assert clean_count > count // 4
