"""A limit that nothing in the chart reads is an error that says what would read it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, make_spec

from toolchart.engine import Engine
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.specs.loader import list_shipped_agents, load_spec
from toolchart.specs.sections.limits import LimitsConfig, RetryConfig
from toolchart.specs.unread_limits import check_limits_are_read, find_read_limits, load_agent_chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import SpecError
from toolchart.states.vocabulary import get_effects, get_facts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "limits.md"
LIMIT_KEYS = ({*LimitsConfig.model_fields} | {*RetryConfig.model_fields}) - {"comment", "unbounded"}

SPEC = """\
chart: tool_loop
llms: {m: {provider: scripted, model: m, replies: [x]}}
limits:
  max_tokens: 10
responses:
  - llm: m
retry:
  first_wait_s: 1
policy: strict
"""


def test_the_chart_for_production_reads_every_limit() -> None:
    """`full` reads every limit that a spec can set, but the one of summaries, which need a second model; and
    it is the chart of a spec that names none."""
    assert find_read_limits(load_chart("full")) == {*LIMIT_KEYS, "strict"} - {"long_result_size"}
    assert load_agent_chart(load_spec(make_spec(chart=None))).name == "full"


def test_an_unread_limit_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    """The error names file, line, key path, what would read the limit, and a chart that does."""
    path = tmp_path / "agent.yaml"
    path.write_text(SPEC)
    with pytest.raises(SpecError) as raised:
        Engine(path, log="memory")
    text = str(raised.value)
    assert (
        f"{path}:4: limits.max_tokens: nothing in the chart 'tool_loop' reads the limit 'max_tokens'" in text
    )
    assert "use `chart: full`, or add a row whose guard reads `budget_spent`" in text
    assert f"{path}:8: retry.first_wait_s:" in text
    assert "add a state that asks for `wait`" in text
    assert f"{path}:9: policy: nothing in the chart 'tool_loop' reads `policy: strict`" in text
    assert "`strict_warnings`" in text


@pytest.mark.parametrize(
    ("chart", "changes", "paths"),
    [
        ("tool_loop", {"limits": {"max_iterations": 3, "max_steps": 100, "unbounded": True}}, ()),
        ("tool_loop", {"limits": {"comment": "none", "max_tokens": None}}, ()),
        ("tool_loop", {"limits": {"max_repeats": 2}}, ("limits.max_repeats",)),
        ("tool_loop", {"limits": {"max_attempts": 3}}, ()),
        ("tool_loop", {"limits": {"max_tokens": 3}}, ("limits.max_tokens",)),
        ("tool_loop", {"limits": {"long_result_size": 3}}, ("limits.long_result_size",)),
        ("tool_loop", {"retry": {"max_wait_s": 9}}, ("retry.max_wait_s",)),
        ("resilient", {"retry": {"max_wait_s": 9, "first_wait_s": 1, "max_attempts": 2}}, ()),
        ("budgeted", {"limits": {"max_cost": 1, "max_seconds": 9, "max_tool_calls": 3}}, ()),
        ("budgeted", {"limits": {"max_tool_only_streak": 2}}, ("limits.max_tool_only_streak",)),
        ("planner", {"limits": {"max_repeats": 2}, "policy": "strict"}, ("policy",)),
        ("full", {"policy": "strict"}, ()),
    ],
)
def test_only_limits_that_the_spec_sets_need_a_reader(
    chart: str, changes: dict[str, Any], paths: tuple[str, ...]
) -> None:
    """A default, a null or a comment needs no reader; what the spec sets, even to its default, does."""
    spec = load_spec(make_spec(chart=chart, **changes))
    if not paths:
        check_limits_are_read(spec, load_chart(chart))
        return
    with pytest.raises(SpecError) as raised:
        check_limits_are_read(spec, load_chart(chart))
    assert (raised.value.path,) == paths


def test_iterations_count_where_a_section_sets_them() -> None:
    """`max_iterations` of the tools section or of a handler counts only if the file has it."""
    chart = make_chart(
        {
            "name": "once",
            "states": {
                "prompting": {
                    "initial": True,
                    "enter": "call_model",
                    "transitions": [{"event": "replied failed cancelled", "target": "done"}],
                },
                "done": {"final": True, "enter": "answer"},
            },
        }
    )
    check_limits_are_read(load_spec(make_spec()), chart)
    tools = {**make_spec()["tools"], "max_iterations": 5}
    with pytest.raises(SpecError, match=r"tools\.max_iterations"):
        check_limits_are_read(load_spec(make_spec(tools=tools)), chart)
    handler = {"llm": "model", "tools": {"enabled": True, "max_iterations": 2}}
    with pytest.raises(SpecError, match=r"responses\[0\]\.tools\.max_iterations"):
        check_limits_are_read(load_spec(make_spec(responses=[handler])), chart)


def test_guards_inside_actions_count() -> None:
    """A guard of an `if` action reads limits as one of a row does."""
    document = load_chart("tool_loop").document
    branch = {"if": {"cond": "budget_spent", "then": [{"raise": "rich"}]}}
    finished = {"final": True, "enter": ["answer", branch]}
    chart = make_chart({**document, "states": {**document["states"], "finished": finished}})
    assert "max_tokens" in find_read_limits(chart)


def test_the_page_lists_what_reads_each_limit() -> None:
    """The table of docs/limits.md names, for each key, the facts and effects that read it and the charts."""
    rows = re.findall(r"^\| (`.*) \| .* \| (.*) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    documented_limits: set[str] = set()
    for keys, readers, charts in rows:
        for key in re.findall(r"`([^`]+)`", keys):
            limit = "strict" if key == "policy: strict" else key.rpartition(".")[2]
            documented_limits.add(limit)
            found = [name for name in list_shipped_charts() if limit in find_read_limits(load_chart(name))]
            expected = list_shipped_charts() if charts == "all" else re.findall(r"`(\w+)`", charts)
            assert list(expected) == found, key
            if limit not in ("strict", "max_steps"):
                names = {
                    row.name
                    for row in (*get_facts().values(), *get_effects().values())
                    if limit in row.reads_limits
                }
                assert set(re.findall(r"`(\w+)`", readers)) == names, key
    assert documented_limits == {*LIMIT_KEYS, "strict"}


@pytest.mark.parametrize("name", list_shipped_agents())
def test_shipped_agents_set_no_unread_limit(name: str) -> None:
    """The limits of every agent that comes with Toolchart are read by its chart."""
    load_agent_chart(load_spec(name))


@pytest.mark.parametrize("name", list_shipped_charts())
def test_every_chart_is_bounded_by_iterations(name: str) -> None:
    """Every shipped chart reads `max_iterations`, and `max_steps` holds in all."""
    assert {"max_iterations", "max_steps"} <= find_read_limits(load_chart(name))


def test_policies_are_recorded() -> None:
    """`policy: strict` is part of the recorded settings of a turn."""
    with make_engine(["fine"], policy="strict", chart="full") as engine:
        engine.run("go", conversation="c")
        lines = b"".join(engine.store.read_lines("c"))
    assert b'"strict":true' in lines


@pytest.mark.parametrize(
    ("child", "is_read"),
    [
        ({"chart": "full"}, True),
        ({"chart": "budgeted"}, True),
        ({"chart": "tool_loop"}, False),
        ({"chart": "nested"}, True),
        ({"spec": "quickstart"}, False),
    ],
)
def test_a_limit_that_an_agent_of_the_same_spec_reads_has_an_effect(
    child: dict[str, Any], is_read: bool
) -> None:
    """Issue 52: it has the limits of the spec, however deep the agents run each other; one of another spec
    has its own."""
    if child == {"chart": "nested"}:
        child = {"chart": build_running_chart({"chart": "budgeted"})}
    spec = load_spec(make_spec(chart=build_running_chart(child), limits={"max_tokens": 10}))
    if is_read:
        assert load_agent_chart(spec).name == "running"
    else:
        with pytest.raises(SpecError, match="nothing in the chart 'running' reads the limit 'max_tokens'"):
            load_agent_chart(spec)


@pytest.mark.parametrize(
    ("chart", "is_read"), [("full", True), ("tool_loop", False), (None, True), ("running", True)]
)
def test_a_limit_that_an_agent_behind_a_tool_reads_has_an_effect(chart: str | None, is_read: bool) -> None:
    """Issue 52: the agent that a tool runs has the limits of the spec too, and so has one that it runs."""
    own = build_running_chart({"chart": "budgeted"}) if chart == "running" else chart
    implementation = {"type": "agent", "handler": "helper", **({"chart": own} if own else {})}
    responses = [{"llm": "model", "tools": {"enabled": True}}, {"name": "helper", "llm": "model"}]
    tools = {"registry": [{"name": "ask", "description": "Ask.", "implementation": implementation}]}
    limits = {"max_tokens": 10}
    spec = load_spec(make_spec(chart="tool_loop", responses=responses, tools=tools, limits=limits))
    if is_read:
        assert load_agent_chart(spec).name == "tool_loop"
    else:
        with pytest.raises(SpecError, match="nothing in the chart 'tool_loop' reads the limit 'max_tokens'"):
            load_agent_chart(spec)


def build_running_chart(agent: dict[str, Any]) -> dict[str, Any]:
    """A chart that runs an agent and answers with what it says."""
    rows = [
        {"event": "agent_finished", "target": "finished"},
        {"event": "agent_failed cancelled", "target": "error"},
    ]
    states = {
        "running": {"initial": True, "enter": "run_it", "transitions": rows},
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    }
    return {"name": "running", "states": states, "effects": {"run_it": {"run_agent": agent}}}
