"""Coverage of a chart and the path of conversations: what was visited, how often, for how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents import calls, engine

from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.visited_path import overlay_of
from toolchart.specs.charts import load_chart
from toolchart.states.chart.loading import Chart, make_chart
from toolchart.states.diagram import TEXT_FORMATS, draw
from toolchart.states.errors import LogDamaged
from toolchart.states.events import AnyEvent, Replied, Settings, TurnStarted
from toolchart.states.machine import machine_of
from toolchart.states.messages import Reply
from toolchart.testing import find_paths, measure_coverage, transitions_of
from toolchart.testing.manual_turn import moment, play

STOP = Reply(content="It is so.", finish_reason="stop")
CUT = Reply(content="It is", finish_reason="length")


def turn(*replies: Reply, first: int = 1, pause_s: int = 0) -> list[AnyEvent]:
    """A turn without tools, an event every tenth of a second; `pause_s` tenths before it begins."""
    settings = Settings(service="model", provider="scripted", model="m")
    events: list[AnyEvent] = [TurnStarted(message="go on", settings=settings)]
    events += [Replied(reply=reply) for reply in replies]
    return [replace(one, at=moment(first + pause_s + n)) for n, one in enumerate(events)]


def log(chart: Chart, events: Iterable[AnyEvent]) -> list[bytes]:
    """The log that events leave."""
    return play(chart, machine_of(chart), list(events))[1]


def continued() -> Chart:
    """tool_loop with a row that enters its own state again."""
    document = load_chart("tool_loop").document
    rows = [
        {"event": "replied", "target": "prompting", "cond": "finish_reason == 'length'"},
        *document["states"]["prompting"]["transitions"],
    ]
    states = {
        **document["states"],
        "prompting": {**document["states"]["prompting"], "transitions": rows},
    }
    return make_chart({**document, "states": states})


# -- the path ------------------------------------------------------------------------------------


def test_time_passes_in_open_turns_only() -> None:
    """Seconds are those of the states of a turn; the pause before the next turn belongs to none."""
    chart = load_chart("tool_loop")
    events = turn(STOP) + turn(STOP, first=3, pause_s=5000)
    overlay = overlay_of(replay(log(chart, events)))
    assert overlay.seconds == pytest.approx({"prompting": 0.2})
    assert overlay.states == {"prompting": 2, "finished": 2}
    assert overlay.current == ("finished",)


def test_a_state_entered_again_is_a_visit() -> None:
    """A transition into its own state leaves and enters it; one that stays does neither."""
    again = overlay_of(replay(log(continued(), turn(CUT, CUT, STOP))))
    assert again.states == {"prompting": 3, "finished": 1}
    assert again.edges == {("prompting", 0): 2, ("prompting", 2): 1}
    staying = next(
        one
        for one in find_paths("tool_loop")
        if [(t.source, t.row) for t in one.takes if not t.targets] == [("executing", 0)]
    )
    assert overlay_of(replay(staying.log())).states["executing"] == 1


def test_conversations_add_up() -> None:
    """Several conversations one after the other count together; times between them count nowhere."""
    chart = load_chart("tool_loop")
    one, two = log(chart, turn(STOP)), log(chart, turn(CUT))
    both = overlay_of(step for lines in (one, two) for step in replay(lines))
    assert both.states == {"prompting": 2, "finished": 1, "error": 1}
    assert both.seconds == pytest.approx({"prompting": 0.2})
    assert both.current == ("error",)


def test_parents_and_regions_are_visited() -> None:
    """A compound state is entered with its child and stays while its children change."""
    scenario = max(find_paths("planner"), key=lambda one: len(one.events))
    overlay = overlay_of(replay(scenario.log()))
    assert overlay.states["working"] == 1
    assert overlay.states["thinking"] > 1


# -- coverage ------------------------------------------------------------------------------------


def test_counts_what_was_visited() -> None:
    """One conversation of two states and one transition: 3 of the chart's 20, the rest named."""
    chart = load_chart("tool_loop")
    found = measure_coverage(chart, [log(chart, turn(STOP))])
    assert (found.conversations, found.others) == (1, 0)
    assert found.percent == 15.0
    assert found.missing_states == ("awaiting_tools", "executing", "max_iterations", "error")
    assert len(found.missing_transitions) == len(transitions_of(chart)) - 1
    assert "not taken:   line 12: prompting --failed--> error" in str(found)


def test_scenarios_cover_the_whole_chart() -> None:
    """The scenarios of a chart reach 100 percent, and only all of them together do."""
    logs = [scenario.log() for scenario in find_paths("tool_loop")]
    assert measure_coverage("tool_loop", logs).percent == 100
    assert all(
        measure_coverage("tool_loop", logs[:place] + logs[place + 1 :]).percent < 100
        for place in range(len(logs))
    )


def test_other_charts_are_left_out() -> None:
    """A conversation of another chart is counted apart, whatever states they share."""
    found = measure_coverage("resilient", [log(load_chart("tool_loop"), turn(STOP))])
    assert (found.conversations, found.others, found.percent) == (0, 1, 0)
    assert "1 of another chart left out" in str(found)


def test_is_data_and_a_diagram() -> None:
    """Coverage is JSON data that names every row, and an overlay that every text format draws."""
    import orjson

    chart = load_chart("tool_loop")
    found = measure_coverage(chart, [log(chart, turn(STOP))])
    data = orjson.loads(orjson.dumps(found.to_dict()))
    assert data["states"]["finished"] == 1
    assert [row["taken"] for row in data["transitions"]].count(1) == 1
    assert {(row["source"], row["row"]) for row in data["transitions"]} == {
        one.key for one in transitions_of(chart)
    }
    plain = {form: draw(chart, form) for form in TEXT_FORMATS}
    shown = {form for form in TEXT_FORMATS if draw(chart, form, found.overlay) != plain[form]}
    assert shown >= {"text", "mermaid", "dot", "table"}
    assert found.overlay.current == ()


def test_a_damaged_log_is_no_evidence() -> None:
    """A log that was changed raises; it is not counted."""
    chart = load_chart("tool_loop")
    lines = log(chart, turn(STOP))
    lines[1] = lines[1].replace(b"go on", b"go off")
    with pytest.raises(LogDamaged, match="record 1"):
        measure_coverage(chart, [lines])


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """A log with one conversation through the real engine."""
    path = tmp_path / "log.db"
    store = open_store(path)
    with engine([calls(("echo", {"text": "hello"})), "done"], log=store) as running:
        running.run("say hello", conversation="c1")
    store.close()
    return str(path)


def command(*words: Any) -> Any:
    """The command, run in this process."""
    from click.testing import CliRunner

    from toolchart.app.cli.commands.coverage import command as coverage_command

    return CliRunner().invoke(
        coverage_command, [str(word) for word in words], standalone_mode=False
    )


def test_the_command_tells_and_fails_under(recorded: str) -> None:
    """`coverage CHART --fail-under`: prints what is missing; 1 below the bound, 0 at it."""
    told = command("tool_loop", "--log", recorded)
    assert told.return_value == 0
    assert told.stdout.startswith("tool_loop: 40 % visited by 1 conversation\n")
    assert command("tool_loop", "--log", recorded, "--fail-under", "40").return_value == 0
    below = command("tool_loop", "--log", recorded, "--fail-under", "40.5")
    assert below.return_value == 1
    assert "40 % is less than 40.5 %" in below.stderr


def test_the_command_gives_json_and_diagrams(recorded: str) -> None:
    """`--json` for programs, `--draw mermaid` for people; one conversation can be chosen."""
    import orjson

    data = orjson.loads(command("tool_loop", "c1", "--log", recorded, "--json").stdout)
    assert (data["conversations"], data["percent"]) == (1, 40.0)
    assert "(1x)" in command("tool_loop", "--log", recorded, "--draw", "mermaid").stdout


def test_the_command_knows_names_and_files(recorded: str, tmp_path: Path) -> None:
    """A chart is meant by its name, its file or an agent's; anything else is an error that lists them."""
    path = tmp_path / "mine.yaml"
    path.write_text(load_chart("tool_loop").text(), encoding="utf-8")
    for meant in ("tool_loop", path, "quickstart"):
        assert command(meant, "--log", recorded, "--fail-under", "40").return_value == 0
    wrong = command("tool_lop", "--log", recorded)
    assert "'tool_lop' is no chart, no agent and no file" in str(wrong.exception)
