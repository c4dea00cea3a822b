"""Random flows in random worlds: what `check` calls clean ends within its bound, and never misbehaves."""

from __future__ import annotations

import random

import orjson
import pytest
from effort import choose_count
from flow_worlds import FlowWorld, Misbehaviour
from random_flows import make_flow

from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import SpecError
from toolchart.states.events import Limits
from toolchart.states.proofs.check import CheckReport, check

BEHAVIOUR = {"gap", "unhandled", "spin", "stuck", "unbounded", "no answer", "too large"}
"""Findings about what a flow does. The others say that a part of it is never used, or what an answer is."""

LIMITS = Limits(max_iterations=3, max_attempts=2)
WORLDS = 12
"""Worlds of each flow."""


def run_seed(seed: int) -> str:
    """Run one flow in several worlds.

    Returns:
        `refused`, `finding`, or `sound` where `check` finds nothing about what it does.

    Raises:
        Misbehaviour: a flow without a finding does what `check` says it cannot do.
    """
    document = make_flow(seed)
    try:
        chart = make_chart(document)
        report = check(chart, limits=LIMITS)
    except SpecError:
        return "refused"
    if {finding.kind for finding in report.findings} & BEHAVIOUR:
        return "finding"
    for number in range(WORLDS):
        rng = random.Random(seed * 1000 + number)
        world = FlowWorld(chart, rng, LIMITS)
        try:
            world.run_turns(rng.randint(1, 3))
            check_costs(report, world)
        except Exception as error:
            error.add_note(f"seed {seed}, world {number}\n{orjson.dumps(document).decode()}")
            raise
    return "sound"


def check_costs(report: CheckReport, world: FlowWorld) -> None:
    """Compare what a world has asked for after one message with the worst case.

    Raises:
        Misbehaviour: it asked for more.
    """
    for field, number in world.greatest_costs.items():
        bound = getattr(report.worst, field, 0)
        if report.worst is not None and number > bound + 1e-9:
            raise Misbehaviour(f"{field}: {number} is more than {bound}")


@pytest.mark.slow
def test_flows_without_findings_behave_in_every_world() -> None:
    """Seeds 0 and up: every answer is taken, every turn ends with an answer and within the stated bound."""
    count = choose_count(short=25, long=4_000)
    results = [run_seed(seed) for seed in range(count)]
    assert results.count("sound") > count // 4, "most flows say nothing about the property"


def test_the_worlds_reach_the_bound() -> None:
    """The bound is not only safe: worlds reach the stated number of model calls of most flows."""
    reached = total = 0
    for seed in range(200, 200 + choose_count(short=15, long=500)):
        try:
            chart = make_chart(make_flow(seed))
        except SpecError:
            continue
        report = check(chart, limits=LIMITS)
        if report.worst is None or not report.worst.model_calls or report.findings:
            continue
        worlds = [FlowWorld(chart, random.Random(number), LIMITS) for number in range(WORLDS)]
        for world in worlds:
            world.run_turns(2)
        total += 1
        reached += max(world.greatest_costs["model_calls"] for world in worlds) == report.worst.model_calls
    assert reached * 2 >= total
