"""Mutants of shipped charts and of random flows in the real engine: no crash, no hang, true outcomes."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import orjson
import pytest
from chart_mutants import make_mutant
from effort import choose_count
from engine_worlds import FlowEngineWorld, check_outcomes

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import IllegalEvent, NotFound, SpecError
from toolchart.states.events import Decided

MAX_STARTS = 30
"""Times that a turn is resumed after a decision or a suspension; then it is cancelled for good."""


async def run_mutant(document: dict[str, Any], rng: random.Random) -> None:
    """Two turns of a chart in a world; raises where something is not true."""
    world, store = FlowEngineWorld(rng), MemoryStore()
    spec = {
        "chart": document,
        "llms": {"model": {"provider": "scripted", "model": "m", "context_limit": 300}},
        "tools": {},
        "limits": {"max_steps": 200},
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
            try:
                result = await _disturb(engine, rng, engine.conversation("c").aresume(decision))
            except IllegalEvent:  # a cancellation came before the decision, and the call waits no more
                waiting_calls = list(replay_conversation(store, "c"))[-1].step.snapshot.calls
                assert not any(c.call.id in waiting and c.outcome is None for c in waiting_calls)
                result = None
            except SpecError as error:
                if "is running" not in str(error):  # else a message came first, and goes on with the turn
                    raise
                result = None
        check_outcomes(steps, world)
        if not snapshot.is_over:
            return  # a chart that does not take a cancellation may be suspended for ever
        # A message that came while a turn ran gave back that turn as it stood; one that came after its end
        # began the next turn.
        answers = [one.step.snapshot.answer for one in steps if one.step.ends_turn]
        assert result is None or not result.is_over or not any(answers) or result.content in answers
    await engine.aclose()


async def _disturb(engine: Engine, rng: random.Random, work: Any) -> Any:
    """Wait for a turn; sometimes a person speaks or cancels meanwhile."""
    task = asyncio.ensure_future(work)
    for _ in range(rng.choice([0, 0, 3, 9])):
        await asyncio.sleep(0)
    if not task.done() and rng.random() < 0.5:
        with suppress(NotFound, SpecError, IllegalEvent):  # the turn has ended, or not begun
            await (
                engine.conversation("c").asay("and hurry")
                if rng.random() < 0.5
                else engine.conversation("c").acancel()
            )
    return await asyncio.wait_for(task, timeout=300)


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


@pytest.mark.slow
def test_mutants_of_shipped_charts_run_and_tell_the_truth() -> None:
    """Rows, guards, effects, states and regions that are dropped, changed or added: all end truthfully."""
    wanted, done, seed = choose_count(short=40, long=1000), 0, 0
    while done < wanted:
        done += run_seed(seed)
        seed += 1
    assert done == wanted
