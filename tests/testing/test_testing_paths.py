"""Scenarios of a chart: together they take every transition that can be taken."""

from __future__ import annotations

import copy
import textwrap
from collections import Counter

import pytest

from toolchart.engine.log.replay import replay
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.loading import Chart, parse_chart, walk_states
from toolchart.testing import Paths, find_paths, list_transitions, measure_coverage

NEVER_DECIDED_THERE = {("awaiting_tools", 3), ("awaiting_tools", 4)}
"""In a chart that sends undecided calls to a state of their own, the inherited rows for `decided`
in awaiting_tools stay behind."""

NEVER_TAKEN_IN_FULL = {("awaiting_tools", 5), ("awaiting_tools", 6)}
"""`full` has two such rows too."""

IMPOSSIBLE = {"approval": NEVER_DECIDED_THERE, "full": NEVER_TAKEN_IN_FULL, "compacting": NEVER_TAKEN_IN_FULL}


def parse_test_chart(text: str) -> Chart:
    """Parse a chart from a test; it may extend shipped charts by name."""
    return parse_chart(
        textwrap.dedent(text), source="test.yaml", resolve=lambda name: load_chart(name).to_yaml()
    )


def map_reasons(paths: Paths) -> dict[tuple[str, int], str]:
    """Return the reason for each transition that no scenario takes, by its key."""
    return {untaken.transition.key: untaken.reason for untaken in paths.untaken_transitions}


@pytest.mark.parametrize("name", list_shipped_charts())
def test_scenarios_of_a_shipped_chart(name: str) -> None:
    """Scenarios take every transition of a shipped chart except those in IMPOSSIBLE, which are explained.

    Each drives the real core to a final state, takes what it lists, and its log replays; each takes a
    transition that no other one takes. Their logs together enter every state.
    """
    paths, impossible = find_paths(name), IMPOSSIBLE.get(name, set())
    times = Counter(transition.key for scenario in paths for transition in scenario.transitions)
    assert {transition.key for transition in list_transitions(load_chart(name))} - set(times) == impossible
    assert map_reasons(paths).keys() == impossible
    for scenario in paths:
        steps = scenario.run_steps()
        taken_keys = {(fired.source, fired.row) for step in steps for fired in step.fired}
        assert taken_keys == {transition.key for transition in scenario.transitions}
        assert any(times[key] == 1 for key in taken_keys)
        assert steps[-1].target == scenario.ends_in
        assert steps[-1].snapshot.is_over
        assert len(list(replay(scenario.write_log(), "scripted"))) == len(scenario.events) + 1
    whole = measure_coverage(name, (scenario.write_log() for scenario in paths))
    assert whole.missing_states == ()
    untaken = {*whole.missing_transitions, *whole.idle_transitions}
    assert {transition.key for transition in untaken} == impossible


def test_a_state_that_nothing_enters_is_the_reason() -> None:
    """For a row of an unreachable state the reason names the state."""
    paths = find_paths(
        parse_test_chart(
            """
            extends: tool_loop
            states:
              forgotten:
                enter: wait
                transitions:
                  - {event: elapsed, target: prompting}
              executing:
                transitions:
                  - {event: replied, target: forgotten}
            """
        )
    )
    assert map_reasons(paths)[("forgotten", 0)] == "no turn enters 'forgotten'"
    assert "nothing that waits in 'executing' is answered with replied" in map_reasons(paths).values()


def test_a_guard_that_cannot_hold_is_the_reason() -> None:
    """For a row whose guard is never true the reason quotes the guard."""
    paths = find_paths(
        parse_test_chart(
            """
            extends: tool_loop
            states:
              prompting:
                transitions:
                  - {event: replied, target: error, cond: "tool_calls < 0"}
            """
        )
    )
    assert list(map_reasons(paths)) == [("prompting", 0)]
    assert map_reasons(paths)["prompting", 0].startswith("'tool_calls < 0' was false each of the")


def test_a_row_behind_one_that_always_wins_is_the_reason() -> None:
    """A row after an unguarded row of the same event is never taken, and the reason says that."""
    paths = find_paths(
        parse_test_chart(
            """
            name: shadowed
            states:
              asking:
                initial: true
                enter: call_model
                transitions:
                  - {event: replied, target: done_well}
                  - {event: replied, target: done_badly, cond: "finish_reason == 'length'"}
                  - {event: failed, target: done_badly}
              done_well: {final: true, enter: answer}
              done_badly: {final: true, enter: answer_with_error}
            """
        )
    )
    assert map_reasons(paths) == {("asking", 1): "an earlier row is always taken instead"}
    assert [str(transition) for transition in paths.untaken_transitions] == [
        "line 9: asking --replied [finish_reason == 'length']--> done_badly: "
        "an earlier row is always taken instead"
    ]


def test_a_search_that_was_cut_short_claims_nothing() -> None:
    """A search that stopped at its bound reports transitions as not found, not as impossible."""
    paths = find_paths("full", max_situations=20)
    assert paths.untaken_transitions
    assert all("may be possible" in transition.reason for transition in paths.untaken_transitions)


@pytest.mark.parametrize(
    "guard",
    [
        "replies > 5",
        "tool_calls == 7",
        "max_iterations > 40",
        "pending_calls == 4",
        "error_kind == 'context_length'",
        "tools_offered == 0",
        "has_content and finish_reason == 'content_filter'",
        "denied_calls + approved_calls >= 3",
    ],
)
def test_guards_are_met(guard: str) -> None:
    """The search makes guards true that need many calls, many replies, a limit or a kind of failure."""
    event = "failed" if "error_kind" in guard else "tool_finished" if "calls" in guard else "replied"
    document = copy.deepcopy(load_chart("tool_loop").document)
    state = "executing" if event == "tool_finished" else "prompting"
    rows = document["states"][state]["transitions"]
    rows.insert(0, {"event": event, "target": "error", "cond": guard})
    document["states"]["prompting"]["transitions"].insert(
        1, {"event": "replied", "target": "prompting", "cond": "finish_reason == 'length'"}
    )
    assert any(
        guard in transition.guards for scenario in find_paths(document) for transition in scenario.transitions
    )


def test_a_count_of_tokens_is_answered() -> None:
    """A chart that counts goes on after it, with a conversation that is short and with one too long."""
    document = copy.deepcopy(load_chart("tool_loop").document)
    document["states"]["counting"] = {
        "initial": True,
        "enter": "count_tokens",
        "transitions": [
            {"event": "counted", "target": "error", "cond": "context_tokens > context_limit"},
            {"event": "counted", "target": "prompting"},
            {"event": "cancelled", "target": "error"},
        ],
    }
    del document["states"]["prompting"]["initial"]
    assert not map_reasons(find_paths(document))


def test_compound_parallel_and_eventless_rows_are_taken() -> None:
    """Rows of compound states, of regions, without an event and on `done.state` are taken like any other."""
    chart = parse_test_chart(
        """
        name: nested
        states:
          working:
            initial: true
            parallel: true
            states:
              asking:
                states:
                  prompted:
                    initial: true
                    enter: call_model
                    transitions:
                      - {event: replied, target: heard}
                  heard: {final: true}
              watching:
                states:
                  calm:
                    initial: true
                    transitions:
                      - {target: alarmed, cond: "finish_reason == 'length'"}
                  alarmed: {}
            transitions:
              - {event: done.state.asking, target: settled}
              - {event: failed, target: failed_state}
          settled:
            transitions:
              - {target: failed_state, cond: "not has_content"}
              - {target: solved}
          solved: {final: true, enter: answer}
          failed_state: {final: true, enter: answer_with_error}
        """
    )
    paths = find_paths(chart)
    taken_keys = {transition.key for scenario in paths for transition in scenario.transitions}
    all_keys = {transition.key for transition in list_transitions(chart)}
    assert all_keys - taken_keys == set(map_reasons(paths))
    assert {("working", 0), ("working", 1), ("settled", 0), ("settled", 1), ("prompted", 0)} <= taken_keys
    assert {name for name, _, _ in walk_states(chart)} >= {source for source, _ in all_keys}


def test_a_scenario_is_data() -> None:
    """A scenario converts to JSON with its events, their times and its transitions."""
    import orjson

    (first, *_) = find_paths("tool_loop")
    data = orjson.loads(orjson.dumps(first.to_dict()))
    assert [event["type"] for event in data["events"]] == [event.TYPE for event in first.events]
    assert data["takes"] == [str(transition) for transition in first.transitions]
    assert data["events"][0]["at"] < data["events"][-1]["at"]
