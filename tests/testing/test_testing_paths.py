"""Scenarios from a chart: together they take every transition that can be taken."""

from __future__ import annotations

import copy
import textwrap
from collections import Counter

import pytest

from toolchart.engine.log.replay import replay
from toolchart.specs.charts import load_chart, shipped
from toolchart.states.chart.loading import Chart, parse_chart, walk_states
from toolchart.testing import Paths, find_paths, measure_coverage, transitions_of

NEVER_DECIDED_THERE = {("awaiting_tools", 2), ("awaiting_tools", 3)}
"""In a chart that sends undecided calls to a state of their own, the inherited rows for `decided`
in awaiting_tools stay behind."""

IMPOSSIBLE = {"approval": NEVER_DECIDED_THERE, "full": NEVER_DECIDED_THERE}


def chart(text: str) -> Chart:
    """A chart written in a test, which extends shipped ones by name."""
    return parse_chart(
        textwrap.dedent(text), source="test.yaml", resolve=lambda name: load_chart(name).text()
    )


def reasons(found: Paths) -> dict[tuple[str, int], str]:
    """Why transitions are not taken, by transition."""
    return {one.transition.key: one.reason for one in found.untaken}


@pytest.fixture(scope="module")
def walked() -> dict[str, Paths]:
    """The scenarios of every shipped chart."""
    return {name: find_paths(name) for name in shipped()}


@pytest.mark.parametrize("name", shipped())
def test_every_transition_is_taken_or_explained(walked: dict[str, Paths], name: str) -> None:
    """The card: scenarios take every transition of a shipped chart but those known to be left over."""
    found = walked[name]
    taken = {one.key for scenario in found for one in scenario.takes}
    assert {one.key for one in transitions_of(load_chart(name))} - taken == IMPOSSIBLE.get(
        name, set()
    )
    assert reasons(found).keys() == IMPOSSIBLE.get(name, set())


@pytest.mark.parametrize("name", shipped())
def test_scenarios_are_whole_turns_that_run(walked: dict[str, Paths], name: str) -> None:
    """A scenario drives the real core to a final state, takes what it says, and its log replays."""
    for scenario in walked[name]:
        steps = scenario.steps()
        took = {(taken.source, taken.row) for step in steps for taken in step.taken}
        assert took == {one.key for one in scenario.takes}
        assert steps[-1].target == scenario.ends_in
        assert steps[-1].snapshot.over
        assert len(list(replay(scenario.log(), "scripted"))) == len(scenario.events) + 1


@pytest.mark.parametrize("name", shipped())
def test_no_scenario_is_superfluous(walked: dict[str, Paths], name: str) -> None:
    """Each scenario takes a transition that no other one takes."""
    times = Counter(one.key for scenario in walked[name] for one in scenario.takes)
    assert all(any(times[one.key] == 1 for one in scenario.takes) for scenario in walked[name])


def test_every_state_is_entered(walked: dict[str, Paths]) -> None:
    """Coverage of all scenarios of a chart: every state, and every transition that can be taken."""
    for name, found in walked.items():
        whole = measure_coverage(name, (scenario.log() for scenario in found))
        assert whole.missing_states == ()
        assert {one.key for one in whole.missing_transitions} == IMPOSSIBLE.get(name, set())


def test_a_state_that_nothing_enters_is_the_reason() -> None:
    """A row of an orphaned state: the reason names the state."""
    found = find_paths(
        chart(
            """
            extends: tool_loop
            states:
              forgotten:
                enter: wait
                transitions:
                  - {event: waited, target: prompting}
              executing:
                transitions:
                  - {event: replied, target: forgotten}
            """
        )
    )
    assert reasons(found)[("forgotten", 0)] == "no turn enters 'forgotten'"
    assert "nothing that waits in 'executing' is answered with replied" in reasons(found).values()


def test_a_guard_that_cannot_hold_is_the_reason() -> None:
    """A row whose guard is never true: the reason quotes the guard."""
    found = find_paths(
        chart(
            """
            extends: tool_loop
            states:
              prompting:
                transitions:
                  - {event: replied, target: error, cond: "tool_calls < 0"}
            """
        )
    )
    assert list(reasons(found)) == [("prompting", 0)]
    assert reasons(found)["prompting", 0].startswith("'tool_calls < 0' was false each of the")


def test_a_row_behind_one_that_always_wins_is_the_reason() -> None:
    """A row that stands after an unguarded one of the same event is never asked."""
    found = find_paths(
        chart(
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
    assert reasons(found) == {
        ("asking", 1): "a row that is asked before it is always taken instead"
    }
    assert [str(one) for one in found.untaken] == [
        "line 9: asking --replied [finish_reason == 'length']--> done_badly: "
        "a row that is asked before it is always taken instead"
    ]


def test_a_search_that_was_cut_short_claims_nothing() -> None:
    """Beyond the bound a transition is reported as not found, not as impossible."""
    found = find_paths("full", most_situations=20)
    assert found.untaken
    assert all("may be possible" in one.reason for one in found.untaken)


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
    """What a guard asks for is brought about: many calls, many replies, a limit, a kind of failure."""
    event = (
        "failed" if "error_kind" in guard else "tool_finished" if "calls" in guard else "replied"
    )
    document = copy.deepcopy(load_chart("tool_loop").document)
    state = "executing" if event == "tool_finished" else "prompting"
    rows = document["states"][state]["transitions"]
    rows.insert(0, {"event": event, "target": "error", "cond": guard})
    document["states"]["prompting"]["transitions"].insert(
        1, {"event": "replied", "target": "prompting", "cond": "finish_reason == 'length'"}
    )
    assert any(guard in one.guards for scenario in find_paths(document) for one in scenario.takes)


def test_compound_parallel_and_eventless_rows_are_taken() -> None:
    """Rows of parents, of regions, without an event and of `done.state` count like any other."""
    found = chart(
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
              - {target: answered}
          answered: {final: true, enter: answer}
          failed_state: {final: true, enter: answer_with_error}
        """
    )
    walked = find_paths(found)
    taken = {one.key for scenario in walked for one in scenario.takes}
    every = {one.key for one in transitions_of(found)}
    assert every - taken == set(reasons(walked))
    assert {
        ("working", 0),
        ("working", 1),
        ("settled", 0),
        ("settled", 1),
        ("prompted", 0),
    } <= taken
    assert {name for name, _, _ in walk_states(found)} >= {source for source, _ in every}


def test_a_scenario_is_data() -> None:
    """A scenario as JSON data names its events with their times and the transitions as the chart does."""
    import orjson

    (first, *_) = find_paths("tool_loop")
    data = orjson.loads(orjson.dumps(first.to_dict()))
    assert [event["type"] for event in data["events"]] == [event.TYPE for event in first.events]
    assert data["takes"] == [str(one) for one in first.takes]
    assert data["events"][0]["at"] < data["events"][-1]["at"]
