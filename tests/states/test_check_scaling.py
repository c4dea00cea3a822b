"""`check` where counters and regions multiply: large charts, and small ones beside the explicit search."""

from __future__ import annotations

from typing import Any

import pytest
from effort import IS_LONG, choose_count
from random_counters import build_regions, build_retries, couple, make_random_counters, make_random_regions

from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart, parse_chart
from toolchart.states.chart.yaml_document import write_yaml
from toolchart.states.effects import EffectDescriptor
from toolchart.states.events import Limits
from toolchart.states.machine import get_machine
from toolchart.states.proofs.bounds.cycles import find_unbounded_cycle
from toolchart.states.proofs.bounds.prices import bound_worst_case
from toolchart.states.proofs.bounds.worst_case import NoBound, WorstCase, compute_worst_case
from toolchart.states.proofs.check import CheckReport, check
from toolchart.states.proofs.dataflow.agents import FlowAgent, FlowHandler
from toolchart.states.proofs.exploration import explore_chart
from toolchart.states.proofs.regions import split_chart

_STRUCTURE_KINDS = {"unreachable", "dead row"}
_NEVER = 10**9
"""A number of configurations that no chart here has."""


def print_chart(chart: Chart) -> str:
    """A chart with its effects as YAML."""
    return write_yaml({**chart.document, "effects": dict(chart.effects)}, default_flow_style=None, width=100)


def count_model_calls(report: CheckReport) -> int:
    """The bound of a clean chart."""
    assert report.findings == ()
    assert report.worst is not None
    return report.worst.model_calls


# -- known shapes --------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "counters"), [(12, 12), (16, 16), (50, 50), (200, 50)])
def test_independent_retries_in_one_cycle_have_a_bound(length: int, counters: int) -> None:
    """Four rounds, and two retries of each counter: the exact number, whatever the number of counters."""
    report = check(build_retries(length, counters, goes_back=True))
    assert count_model_calls(report) == 4 * (length + 1) + 2 * counters
    assert not report.is_exact


def test_retries_without_a_way_back_are_searched() -> None:
    """A counter that nothing reads later tells no nodes apart, so the longest path is found."""
    report = check(build_retries(100, 50, goes_back=False))
    assert count_model_calls(report) == 101 + 2 * 50
    assert report.is_exact


def test_small_charts_are_searched() -> None:
    """Where the search ends its number counts, and it is exact."""
    report = check(build_retries(6, 6, goes_back=True))
    assert count_model_calls(report) == 40
    assert report.is_exact


@pytest.mark.parametrize("count", [5, 10, 20])
def test_independent_regions_add_up(count: int) -> None:
    """Regions that share nothing are proved one at a time: the states and the bounds add up."""
    report = check(build_regions(count))
    assert count_model_calls(report) == 6 * count
    assert report.state_count == 7 * count


def test_a_chart_of_a_thousand_states_loads() -> None:
    """A thousand states that each ask a model are read from YAML, compiled and proved."""
    chart = parse_chart(print_chart(build_retries(1000, 50, goes_back=True)))
    assert count_model_calls(check(chart)) == 4 * 1001 + 2 * 50


# -- what couples --------------------------------------------------------------------------------


def test_a_guard_over_two_counters_still_bounds_both() -> None:
    """A sum below a number keeps each of its counters below it."""
    chart = build_retries(16, 16, goes_back=True)
    for number in range(15):
        guard = f"d{number}.failures + d{number + 1}.failures < 3"
        chart = couple(chart, guard, f"in_d{number}", 1)
    assert count_model_calls(check(chart)) <= 4 * 17 + 2 * 16


def test_a_guard_that_couples_counters_is_named() -> None:
    """Where no bound is found, the finding names the guard that reads two counters, and its line."""
    chart = build_retries(12, 12, goes_back=True)
    for number in range(0, 12, 2):
        guard = f"d{number}.failures < 3 or d{number + 1}.failures < 2"
        chart = couple(chart, guard, f"in_d{number}", 1)
    text = print_chart(chart)
    (finding,) = check(parse_chart(text)).findings
    assert finding.kind in {"too large", "unbounded"}
    if finding.kind == "too large":
        assert "couples" in finding.message
        assert finding.line is not None


@pytest.mark.skipif(not IS_LONG, reason="half a minute; TOOLCHART_LONG=1 runs all")
def test_too_many_regions_name_the_guard_that_couples_them() -> None:
    """Where regions read each other's counters and are too many together, the finding names such a guard."""
    text = print_chart(build_coupled_regions())
    (finding,) = check(parse_chart(text)).findings
    assert finding.kind == "too large"
    assert "reads 'd1_0.failures', which changes in the region 'region_1'" in finding.message
    assert finding.line is not None
    assert "d1_0.failures" in text.splitlines()[finding.line - 1]


def build_coupled_regions() -> Chart:
    """Eight regions, each of which reads a counter of the next one."""
    chart = build_regions(8)
    for number in range(7):
        guard = f"d{number + 1}_0.failures < 3 and d{number}_0.failures < 3"
        chart = couple(chart, guard, f"in_d{number}_0", 1)
    return chart


def test_what_couples_regions_is_named() -> None:
    """Eight regions that read one another stay together, and each guard that couples two is named."""
    text = print_chart(build_coupled_regions())
    partition = split_chart(parse_chart(text))
    assert len(partition.parts) == 1
    assert len(partition.couplings) == 7
    line = partition.couplings[0].line
    assert line is not None
    assert "d1_0.failures" in text.splitlines()[line - 1]


def test_regions_that_share_a_counter_stay_together() -> None:
    """A guard across two of eight regions keeps these two in one part, and the others are proved alone."""
    chart = couple(build_regions(8), "d1_0.failures < 3 and d0_0.failures < 3", "in_d0_0", 1)
    partition = split_chart(chart)
    assert len(partition.parts) == 7
    assert len(partition.couplings) == 1
    assert count_model_calls(check(chart)) == 48


@pytest.mark.parametrize(
    ("target", "event"),
    [("error", "failed.write_d0_0"), ("in_d0_0", "user_said"), ("finished", "done.state.region_0")],
)
def test_rows_outside_that_depend_on_a_region_keep_it(target: str, event: str) -> None:
    """A row around the regions that takes an event of one keeps that one in every part."""
    chart = build_regions(5)
    document = {**chart.document}
    row = {"event": event, "target": target}
    document["states"]["together"]["transitions"].append(row)
    partition = split_chart(parse_chart(print_chart(chart)))
    kept = [
        part for part in partition.parts if "region_0" in part.chart.document["states"]["together"]["states"]
    ]
    is_outer = event == "user_said"  # it is no event of the region
    assert (len(partition.parts), len(kept)) == ((5, 1) if is_outer else (4, 4))


# -- beside the explicit search ------------------------------------------------------------------


def test_prices_bound_what_the_search_finds() -> None:
    """On random charts no bound is below the longest path, and `check` reports the path where it is found."""
    counts = {"equal": 0, "greater": 0, "missing": 0}
    for seed in range(choose_count(short=120, long=4_000)):
        chart = make_random_counters(seed)
        graph = explore_chart(get_machine(chart))
        if find_unbounded_cycle(graph):
            continue
        found = compute_worst_case(graph, Limits(), max_nodes=2_000)
        if isinstance(found, NoBound):
            continue
        bound = bound_worst_case(graph, Limits())
        if bound is None:
            counts["missing"] += 1
            continue
        assert bound.model_calls >= found.model_calls, seed
        counts["equal" if bound == found else "greater"] += 1
        if seed % 20 == 0:
            assert check(chart).worst in (found, None)
    assert counts["missing"] <= 0.02 * sum(counts.values())
    assert counts["equal"] > counts["greater"]


def test_regions_one_at_a_time_agree_with_all_at_once() -> None:
    """On random regions one at a time misses no misbehaviour, and finds none where all at once find none."""
    compared = 0
    for seed in range(choose_count(short=30, long=2_000)):
        chart = make_random_regions(seed)
        if len(split_chart(chart, 0).parts) == 1:
            continue
        whole, split = check(chart, split_above=_NEVER), check(chart, split_above=0)
        # More of it may show: a region that never ends hides what would come after it.
        assert list_misbehaviour(split) >= list_misbehaviour(whole), seed
        assert bool(list_misbehaviour(split)) == bool(list_misbehaviour(whole)), seed
        assert list_structure(split) >= list_structure(whole), seed
        if whole.worst is not None and whole.is_exact and not list_misbehaviour(whole):
            assert isinstance(split.worst, WorstCase), seed
            assert split.worst.model_calls >= whole.worst.model_calls, seed
        compared += 1
    assert compared >= 8


def list_misbehaviour(report: CheckReport) -> set[tuple[str, str]]:
    """The findings about behaviour; several events may lead to a state where nothing goes on."""
    return {
        (finding.kind, "" if finding.kind == "stuck" else finding.event or "")
        for finding in report.findings
        if finding.kind not in _STRUCTURE_KINDS
    }


def list_structure(report: CheckReport) -> set[tuple[str, str]]:
    """The findings about structure. A small part is explored with a better memory, so it may show more."""
    return {
        (finding.kind, finding.message) for finding in report.findings if finding.kind in _STRUCTURE_KINDS
    }


# -- data flow -----------------------------------------------------------------------------------


def declare_function(
    name: str, result: str, *, trust: str = "trusted", risk: str = "low", **arguments: str
) -> Any:
    """The declaration of an effect that calls a function."""
    parameters = {"function": name, "as": result, "trust": trust, "risk": risk, "arguments": arguments}
    return {"call_function": parameters}


def build_one_step_region(name: str, effect: str) -> dict[str, Any]:
    """A region that asks for one effect and ends."""
    rows = [{"event": f"returned.{effect} failed.{effect}", "target": f"end_{name}"}]
    asking = {"initial": True, "enter": effect, "transitions": rows}
    return {"states": {f"in_{name}": asking, f"end_{name}": {"final": True}}}


def test_words_of_strangers_are_followed_through_several_parts() -> None:
    """A trail from one region over a state outside to another region is found where both are in no part."""
    effects = {
        "fetch_page": declare_function("fetch_page", "page", trust="untrusted"),
        "copy_note": declare_function("copy_note", "note", text="{{digest}}"),
        "sum_up": declare_function("sum_up", "digest", text="{{page}}"),
        "send_note": declare_function("send_note", "receipt", risk="high", text="{{note}}"),
    }
    regions = {"a": build_one_step_region("a", "fetch_page"), "b": build_one_step_region("b", "copy_note")}
    again = {"event": "returned", "target": "together", "cond": "digest.count < 2"}
    states: dict[str, Any] = {
        "together": {
            "initial": True,
            "parallel": True,
            "states": regions,
            "transitions": [{"event": "done.state.together", "target": "summing"}],
        },
        "summing": {
            "enter": "sum_up",
            "transitions": [again, {"event": "returned failed", "target": "sending"}],
        },
        "sending": {
            "enter": "send_note",
            "transitions": [{"event": "returned failed", "target": "finished"}],
        },
        "finished": {"final": True, "enter": "answer"},
    }
    chart = make_chart({"name": "strangers", "states": states, "effects": effects})
    assert len(split_chart(chart, 0).parts) == 2

    def find_child(row: EffectDescriptor) -> FlowAgent:
        raise AssertionError(f"{row.name} runs no agent")

    agent = FlowAgent(
        chart=chart, handlers=(FlowHandler(),), find_place=lambda effect, state: "", find_child=find_child
    )
    (split,) = check(chart, flow_agent=agent, split_above=0).findings
    (whole,) = check(chart, flow_agent=agent, split_above=_NEVER).findings
    assert split.kind == "data flow"
    assert split.message == whole.message
