"""The flows that ship: each runs offline, ends, replays, verifies, is checked clean and is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from flow_conversations import CONVERSATIONS

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.verify import verify_conversation
from toolchart.engine.runtime.result import Turn
from toolchart.specs.flows import list_shipped_flows, read_flow_text
from toolchart.specs.loader import load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.chart.document import list_state_timers
from toolchart.states.diagram import draw
from toolchart.states.flows.times import describe_time
from toolchart.states.proofs.check import check
from toolchart.tools.data_flow import describe_data_flow

PATTERNS = (
    "reflection",
    "plan_and_review",
    "approval_deadline",
    "triage",
    "map_reduce",
    "fallback",
    "interview",
)
"""The seven patterns that other systems write in some twenty lines of code."""


def run_flow(name: str, log: Any = "memory") -> tuple[Engine, Turn]:
    """An engine after the conversation of a flow, and its last result; the caller closes the engine."""
    engine = Engine(name, log=log)
    messages, _, _ = CONVERSATIONS[name]
    results = [engine.run(message, conversation="c") for message in messages]
    return engine, results[-1]


WARNING = {"long_results": "the model read a summary"}
"""What a flow says about each turn by its purpose."""


def test_every_flow_has_its_conversation() -> None:
    """No flow ships without the tests below."""
    assert sorted(CONVERSATIONS) == sorted(list_shipped_flows())


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_flow_runs_offline_replays_and_verifies(name: str) -> None:
    """The rehearsed model leads each flow to its end; its log, with those of its children, replays."""
    engine, result = run_flow(name)
    _, state, content = CONVERSATIONS[name]
    with engine:
        assert (result.state, result.content, result.error) == (state, content, None)
        assert [text for text in result.warnings if name not in WARNING or WARNING[name] not in text] == []
        for conversation in engine.store.list_conversations():
            assert list(replay_conversation(engine.store, conversation))
            verify_conversation(engine.store.read_lines(conversation), conversation)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_flow_is_checked_clean_and_has_a_worst_case(name: str) -> None:
    """`check` finds nothing, in the flow of data neither, and states the most that a turn can cost."""
    spec = load_spec(name)
    chart = load_agent_chart(spec)
    report = check(chart, flow_agent=describe_data_flow(spec, chart))
    assert [finding.message for finding in report.findings] == []
    assert report.worst is not None


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("form", ["mermaid", "svg", "text", "dot"])
def test_a_flow_is_drawn(name: str, form: str) -> None:
    """Each state and each declared effect of a flow stands in each picture, timers by their times."""
    chart = load_agent_chart(load_spec(name))
    picture = str(draw(chart, form))
    timers = {name for names in list_state_timers(chart).values() for name in names}
    for word in (*chart.document["states"], *(effect for effect in chart.effects if effect not in timers)):
        assert word in picture
    for timer in timers:
        assert describe_time(chart.effects[timer]["wait"]["time"]) in picture


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_short(name: str) -> None:
    """The chart and the effects of each pattern take at most 40 lines of YAML."""
    lines = read_flow_text(name).splitlines()
    start = lines.index("chart:")
    end = next(index for index, line in enumerate(lines) if line.startswith("llms:"))
    assert end - start <= 40


@pytest.mark.parametrize("name", ["reflection", "fallback"])
def test_the_chart_of_a_flow_serves_other_agents(name: str) -> None:
    """`chart: reflection` brings its effects; the spec changes their hosts and prompts."""
    document = yaml.safe_load(read_flow_text(name))
    spec = {key: item for key, item in document.items() if key not in ("chart", "effects")}
    with Engine({**spec, "chart": name}, log="memory") as engine:
        result = engine.run(CONVERSATIONS[name][0][0])
    assert result.content == CONVERSATIONS[name][2]


def test_a_spec_changes_a_parameter_of_a_flow() -> None:
    """Parameters of one kind are merged: a spec overrides the prompt and keeps the rest."""
    document = yaml.safe_load(read_flow_text("reflection"))
    spec = {key: item for key, item in document.items() if key not in ("chart", "effects")}
    effects = {"judge_draft": {"call_model": {"prompt": "The moon approves: {{draft}}"}}}
    with Engine({**spec, "chart": "reflection", "effects": effects}, log="memory") as engine:
        result = engine.run("tides")
    assert result.content == "Tides are water that moves."


def test_a_flow_of_many_turns_goes_on_in_another_engine(tmp_path: Path) -> None:
    """Another engine goes on with an interview and its notes: results live for the run of the chart."""
    path = str(tmp_path / "log.db")
    replies = yaml.safe_load(read_flow_text("interview"))["llms"]["interviewer"]["replies"]
    with Engine("interview", log=path) as engine:
        engine.run("Hello", conversation="c")
    document = yaml.safe_load(read_flow_text("interview"))
    document["llms"]["interviewer"]["replies"] = replies[1:]
    with Engine(document, log=path) as engine:
        result = engine.run("Ann", conversation="c")
        assert result.results["notes"]["summary"] == "A name."
