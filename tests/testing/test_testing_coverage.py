"""Coverage of a chart, and the overlay of visited states: how often and for how long."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from diagram_formats import TEXT_DIAGRAMS
from msgspec.structs import replace

from toolchart.engine.log.read_records import read_records
from toolchart.engine.log.stores import open_store
from toolchart.engine.reading.visited_path import build_overlay
from toolchart.specs.charts import load_chart
from toolchart.states.chart.loading import Chart, make_chart, parse_chart
from toolchart.states.diagram import draw
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Event, Replied, Settings, TurnStarted
from toolchart.states.machine import get_machine
from toolchart.states.messages import Reply
from toolchart.testing import find_paths, list_transitions, measure_coverage
from toolchart.testing.manual_turn import make_timestamp, play_events

STOP = Reply(content="It is so.", finish_reason="stop")
CUT = Reply(content="It is", finish_reason="length")


def make_turn_events(*replies: Reply, first: int = 1, pause_tenths: int = 0) -> list[Event]:
    """Make a turn without tools: an event every tenth of a second, the first after `pause_tenths` more."""
    settings = Settings(service="model", provider="scripted", model="m")
    events: list[Event] = [TurnStarted(message="go on", settings=settings)]
    events += [Replied(reply=reply) for reply in replies]
    return [replace(event, at=make_timestamp(first + pause_tenths + n)) for n, event in enumerate(events)]


def write_log(chart: Chart, events: Iterable[Event]) -> list[bytes]:
    """Return the record lines of a conversation with these events."""
    return play_events(chart, get_machine(chart), list(events))[1]


def make_reentering_chart() -> Chart:
    """Make tool_loop with a row that enters its own state again."""
    document = load_chart("tool_loop").document
    rows = [
        {"event": "replied", "target": "prompting", "cond": "finish_reason == 'length'"},
        *document["states"]["prompting"]["transitions"],
    ]
    states = {**document["states"], "prompting": {**document["states"]["prompting"], "transitions": rows}}
    return make_chart({**document, "states": states})


# -- the path ------------------------------------------------------------------------------------


def test_time_passes_in_open_turns_only() -> None:
    """Seconds count in the states of a running turn; the pause before the next turn counts nowhere."""
    chart = load_chart("tool_loop")
    events = make_turn_events(STOP) + make_turn_events(STOP, first=3, pause_tenths=5000)
    overlay = build_overlay(chart, read_records(write_log(chart, events)))
    assert overlay.seconds == pytest.approx({"prompting": 0.2})
    assert overlay.states == {"prompting": 2, "finished": 2}
    assert overlay.current == ("finished",)


def test_a_state_entered_again_is_a_visit() -> None:
    """A self-transition with a target counts as a visit; one without a target does not."""
    chart = make_reentering_chart()
    again = build_overlay(chart, read_records(write_log(chart, make_turn_events(CUT, CUT, STOP))))
    assert again.states == {"prompting": 3, "finished": 1}
    assert again.edges == {("prompting", 0): 2, ("prompting", 2): 1}
    staying = next(
        scenario
        for scenario in find_paths("tool_loop")
        if [(t.source, t.row) for t in scenario.transitions if not t.targets] == [("executing", 0)]
    )
    records = read_records(staying.write_log())
    assert build_overlay(load_chart("tool_loop"), records).states["executing"] == 1


def test_conversations_add_up() -> None:
    """Visits and seconds of several conversations are added; the time between them counts nowhere."""
    chart = load_chart("tool_loop")
    first, second = (write_log(chart, make_turn_events(STOP)), write_log(chart, make_turn_events(CUT)))
    both = build_overlay(chart, (record for lines in (first, second) for record in read_records(lines)))
    assert both.states == {"prompting": 2, "finished": 1, "error": 1}
    assert both.seconds == pytest.approx({"prompting": 0.2})
    assert both.current == ("error",)


def test_parents_and_regions_are_visited() -> None:
    """A compound state counts one visit while its children change."""
    scenario = max(find_paths("planner"), key=lambda path: len(path.events))
    overlay = build_overlay(load_chart("planner"), read_records(scenario.write_log()))
    assert overlay.states["working"] == 1
    assert overlay.states["thinking"] > 1


# -- coverage ------------------------------------------------------------------------------------


def test_counts_what_was_visited() -> None:
    """A conversation with two states and one transition covers 3 of the chart's 26; the rest are named."""
    chart = load_chart("tool_loop")
    coverage = measure_coverage(chart, [write_log(chart, make_turn_events(STOP))])
    assert (coverage.conversations, coverage.other_conversations) == (1, 0)
    assert coverage.percent == 11.5
    assert coverage.missing_states == ("awaiting_tools", "executing", "max_iterations", "error")
    assert len(coverage.missing_transitions) == len(list_transitions(chart)) - 1
    assert "not taken:   line 18: prompting --failed--> error" in str(coverage)


def test_scenarios_cover_the_whole_chart() -> None:
    """All scenarios of a chart together reach 100 percent; without any one of them they do not."""
    logs = [scenario.write_log() for scenario in find_paths("tool_loop")]
    assert measure_coverage("tool_loop", logs).percent == 100
    assert all(
        measure_coverage("tool_loop", logs[:place] + logs[place + 1 :]).percent < 100
        for place in range(len(logs))
    )


@pytest.mark.parametrize("name", ["approval", "forced_answer", "resilient"])
def test_inherited_rows_that_can_never_fire_are_told_apart(name: str) -> None:
    """All scenarios of a chart that extends another reach 100 percent: rows that it inherits and that can
    never be taken do not count, and are named apart. Each scenario less leaves rows that nobody tested."""
    logs = [scenario.write_log() for scenario in find_paths(name)]
    coverage = measure_coverage(name, logs)
    assert coverage.percent == 100
    assert coverage.missing_transitions == ()
    assert all(row.is_inherited and row.line is None for row in coverage.idle_transitions)
    assert str(coverage).count("inherited, never taken") == len(coverage.idle_transitions)
    fewer = measure_coverage(name, logs[1:])
    assert fewer.percent < 100
    assert fewer.idle_transitions == coverage.idle_transitions


def test_own_rows_that_can_never_fire_count_as_missing() -> None:
    """A chart's own dead row is its author's to delete; the same row is idle where it is inherited."""
    base = """
states:
  prompting:
    initial: true
    enter: call_model
    transitions:
      - {event: replied, target: finished}
      - {event: replied, target: finished, cond: has_content}
      - {event: failed, target: finished}
  finished: {final: true, enter: answer}
"""
    own = parse_chart(base)
    extension = parse_chart("extends: base\nstates: {finished: {enter: answer}}", resolve=lambda name: base)
    for chart, idle_count in ((own, 0), (extension, 1)):
        logs = [scenario.write_log() for scenario in find_paths(chart)]
        coverage = measure_coverage(chart, logs)
        assert len(coverage.idle_transitions) == idle_count
        assert len(coverage.missing_transitions) == 1 - idle_count
        assert (coverage.percent == 100) is bool(idle_count)
        assert sum(row["idle"] for row in coverage.to_dict()["transitions"]) == idle_count


def test_other_charts_are_left_out() -> None:
    """A conversation of another chart is counted separately, even if the charts share states."""
    coverage = measure_coverage("resilient", [write_log(load_chart("tool_loop"), make_turn_events(STOP))])
    assert (coverage.conversations, coverage.other_conversations, coverage.percent) == (0, 1, 0)
    assert "1 of another chart left out" in str(coverage)


def test_is_data_and_a_diagram() -> None:
    """Coverage converts to JSON with every row, and to an overlay that the text formats draw."""
    import orjson

    chart = load_chart("tool_loop")
    coverage = measure_coverage(chart, [write_log(chart, make_turn_events(STOP))])
    data = orjson.loads(orjson.dumps(coverage.to_dict()))
    assert data["states"]["finished"] == 1
    assert [row["taken"] for row in data["transitions"]].count(1) == 1
    assert {(row["source"], row["row"]) for row in data["transitions"]} == {
        transition.key for transition in list_transitions(chart)
    }
    plain = {form: draw(chart, form) for form in TEXT_DIAGRAMS}
    changed_formats = {form for form in TEXT_DIAGRAMS if draw(chart, form, coverage.overlay) != plain[form]}
    assert changed_formats >= {"text", "mermaid", "dot", "table"}
    assert coverage.overlay.current == ()


def test_a_damaged_log_is_an_error() -> None:
    """A log that was changed raises an error instead of being counted."""
    chart = load_chart("tool_loop")
    lines = write_log(chart, make_turn_events(STOP))
    lines[1] = lines[1].replace(b"go on", b"go off")
    with pytest.raises(LogDamaged, match="record 1"):
        measure_coverage(chart, [lines])


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def recorded_log(tmp_path: Path) -> str:
    """A log with one conversation that the real engine wrote."""
    path = tmp_path / "log.db"
    store = open_store(path)
    replies = [reply_with_calls(("echo", {"text": "hello"})), "done"]
    with make_engine(replies, log=store, chart="tool_loop") as running:
        running.run("say hello", conversation="c1")
    store.close()
    return str(path)


def run_coverage_command(*words: Any) -> Any:
    """Run `toolchart check --coverage` in this process."""
    from click.testing import CliRunner

    from toolchart.app.cli import cli

    return CliRunner().invoke(cli, ["check", "--coverage", *map(str, words)], standalone_mode=False)


def test_the_command_reports_and_fails_under(recorded_log: str) -> None:
    """`--fail-under` prints what is missing and exits with 1 below the bound, 0 at it."""
    result = run_coverage_command("tool_loop", "--log", recorded_log)
    assert result.return_value == 0
    assert result.stdout.startswith("tool_loop: 30.7 % visited by 1 conversation\n")
    assert run_coverage_command("tool_loop", "--log", recorded_log, "--fail-under", "30.7").return_value == 0
    below = run_coverage_command("tool_loop", "--log", recorded_log, "--fail-under", "30.8")
    assert below.return_value == 1
    assert "30.7 % is below 30.8 %" in below.stderr


def test_the_command_prints_json(recorded_log: str) -> None:
    """`--json` prints JSON; a conversation can be selected."""
    import orjson

    words = ("tool_loop", "--conversation", "c1", "--log", recorded_log, "--json")
    data = orjson.loads(run_coverage_command(*words).stdout)
    assert (data["conversations"], data["percent"]) == (1, 30.7)


def test_the_command_knows_names_and_files(recorded_log: str, tmp_path: Path) -> None:
    """CHART is a chart's name or file or an agent's name; anything else is an error that lists them."""
    path = tmp_path / "mine.yaml"
    path.write_text(load_chart("tool_loop").to_yaml(), encoding="utf-8")
    for reference in ("tool_loop", path):
        words = (reference, "--log", recorded_log, "--fail-under", "30.7")
        assert run_coverage_command(*words).return_value == 0
    assert run_coverage_command("quickstart", "--log", recorded_log).return_value == 0
    unknown = run_coverage_command("tool_lop", "--log", recorded_log)
    assert "'tool_lop' is not a chart, an agent or a file" in str(unknown.exception)
