"""Rules for charts: each rule is enforced, and its error names the line and the remedy."""

from __future__ import annotations

import textwrap

import pytest

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.loading import Chart, make_chart, parse_chart
from toolchart.states.errors import SpecError

FRAME = """
name: probe
states:
  here:
    initial: true
    {enter}
    transitions:
      - {row}
  there: {{final: true}}
"""


def chart(row: str = "{event: replied, target: there}", enter: str = "enter: call_model") -> Chart:
    """A two-state chart with one row and one entry action of the test's choice."""
    return parse_chart(FRAME.format(row=row, enter=enter), source="probe.yaml")


@pytest.mark.parametrize(
    ("row", "error_text"),
    [
        ("{event: replid, target: there}", "did you mean 'replied'"),
        ("{event: succeeded, target: there}", "nothing sends the event 'succeeded'"),
        ("{event: forked, target: there}", "nothing sends the event 'forked'"),
        ("{event: configured, target: there}", "nothing sends the event 'configured'"),
        ("{event: turn_started, target: there}", "nothing sends the event 'turn_started'"),
        ("{event: replied, target: ther}", "did you mean 'there'"),
        ("{event: replied, target: there, cond: 'iterations > 2'}", "did you mean 'iteration'"),
        ("{event: replied, target: there, cond: 'iteration >'}", "cannot be read"),
        ("{event: replied, target: there, cond: 'finish_reason == \"end_turn\"'}", "is never"),
        ("{event: replied, target: there, cond: 'finish_reason in [1]'}", "uses"),
        ("{event: replied, target: there, cond: 'iteration if retryable else 1'}", "IfExp"),
        ("{event: replied, target: there, cond: 'finish_reason.upper() == 1'}", "Attribute"),
        ("{event: replied, target: there, cond: 'iteration ** 9 > 1'}", "Pow"),
        ("{event: replied, target: there, cond: 'retryable || iteration > 1'}", "cannot be read"),
        ("{event: replied, target: there, cond: 'retryable == true'}", "rewritten"),
        ("{event: replied, target: there, cond: \"In('nowhere')\"}", "unknown state"),
        ("{event: replied, target: there, cond: \"In('here') and retryable\"}", "mixes"),
        ("{event: replied, target: there, cond: \"Out('here')\"}", "something other than In"),
        ("{event: replied, target: there, cond: 'machine'}", "unknown fact 'machine'"),
        ("{event: replied, target: there, cond: true}", "not True"),
        ("{event: replied, target: there, cond: \"iteration == 'one'\"}", "not a text"),
        ("{event: replied, target: there, on: [answer, answer]}", "twice in one list"),
        ("{event: replied, target: there, on: {assign: {location: x, expr: '1'}}}", "not pure"),
        ("{event: replied, target: there, on: {send: {event: failed}}}", "not pure"),
        ("{event: replied, target: there, on: {log: hello}}", "not pure"),
        ("{event: replied, target: there, on: {script: x}}", "not pure"),
        ("{event: replied, target: there, on: {cancel: {sendid: x}}}", "not pure"),
        ("{event: replied, target: there, on: {foreach: {array: a, item: b}}}", "not pure"),
        ("{event: replied, target: there, on: {if: {cond: retryable, then: [{log: x}]}}}", "not pure"),
        ("{event: done.state.nowhere, target: there}", "'nowhere' does not exist"),
        ("{event: replied, target: there, guard: retryable}", "unknown key 'guard' in a transition"),
        ("{target: here}", "never rests"),
        ("{event: replied, target: there, internal: true}", "stays in its own state"),
    ],
)
def test_refuses_a_row(row: str, error_text: str) -> None:
    """A row that is impure, misspelt or unreadable is an error that names file, line and remedy."""
    with pytest.raises(SpecError) as caught:
        chart(row)
    assert error_text in str(caught.value)
    assert str(caught.value).startswith("probe.yaml:8")


@pytest.mark.parametrize(
    ("enter", "error_text", "line"),
    [
        ("enter: call_modle", "did you mean 'call_model'", 6),
        ("invoke: {type: x}", "`invoke` keeps state inside the machine", 6),
        ("donedata: {content: x}", "`donedata` keeps state", 6),
        ("enter: {raise: replied}\n    exit: {log: x}", "`log` is not pure", 7),
        ("enter: call_model\n    enter: answer", "occurs twice, first in line 6", 7),
        ("enter:\n\t- call_model", "not valid YAML", 7),
    ],
)
def test_refuses_a_state(enter: str, error_text: str, line: int) -> None:
    """A state with an unknown effect, with memory, or with a key twice is refused at its line."""
    with pytest.raises(SpecError) as caught:
        chart(enter=enter)
    assert error_text in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("name", "error_text"),
    [
        ("replied", "the name is an event"),
        ("call_model", "the name is an effect"),
        ("models", "the name is in use"),
        ("configuration", "the name is in use"),
        ("listeners", "the name is in use"),
        ("on_replied", "begins like a callback"),
        ("after_transition", "begins like a callback"),
        ("__init__", "is not a name for a state"),
        ("two words", "is not a name for a state"),
    ],
)
def test_refuses_a_name(name: str, error_text: str) -> None:
    """A state name that the library would read as something else is refused."""
    with pytest.raises(SpecError, match=error_text):
        make_chart({"name": "n", "states": {"here": {"initial": True}, name: {"final": True}}})


def test_refuses_one_name_at_two_levels() -> None:
    """A state's name is unique in the whole chart; the library would keep one of the two."""
    nested_state = {"initial": True, "states": {"there": {"initial": True}}}
    with pytest.raises(SpecError, match="occurs twice"):
        make_chart({"name": "n", "states": {"here": nested_state, "there": {"final": True}}})


def test_refuses_a_datamodel_and_two_beginnings() -> None:
    """Memory inside the machine and two initial states are refused."""
    body = {"here": {"initial": True}, "there": {"initial": True}}
    with pytest.raises(SpecError, match="two initial states"):
        make_chart({"name": "n", "states": body})
    with pytest.raises(SpecError, match="datamodel"):
        make_chart({"name": "n", "datamodel": {"x": "1"}, "states": {"here": {}}})


def test_keeps_words_that_yaml_would_turn_into_truth_values() -> None:
    """`on`, `off`, `yes` and `no` are names in a chart, as they are for the library's own loader."""
    parsed_chart = parse_chart(
        "states:\n  off: {initial: true, transitions: [{event: failed, target: on}]}\n  on: {final: true}"
    )
    assert list(parsed_chart.document["states"]) == ["off", "on"]


# -- extending -----------------------------------------------------------------------------------


def extend(text: str) -> Chart:
    """A chart written in a test that extends the shipped tool_loop."""
    base = load_chart("tool_loop").document
    resolved_chart = make_chart(base)
    assert resolved_chart.name == "tool_loop"
    import yaml

    return parse_chart(
        textwrap.dedent(text), source="mine.yaml", resolve=lambda name: yaml.safe_dump(base, sort_keys=False)
    )


def test_an_added_row_is_asked_first() -> None:
    """A new row stands before the old rows of its event; the others stay as they were."""
    mine = extend(
        """
        extends: tool_loop
        states:
          prompting:
            transitions:
              - {event: replied, target: prompting, cond: "finish_reason == 'length' and replies < 4"}
        """
    )
    rows = mine.document["states"]["prompting"]["transitions"]
    base_rows = load_chart("tool_loop").document["states"]["prompting"]["transitions"]
    assert [row.get("target") for row in rows] == ["prompting", *(row.get("target") for row in base_rows)]


def test_a_row_of_the_same_event_and_guard_is_replaced() -> None:
    """A row with the event and the guard of an old one takes its place, in place."""
    mine = extend(
        """
        extends: tool_loop
        states:
          prompting: {transitions: [{event: failed, target: given_up}]}
          given_up: {final: true, enter: answer_with_error}
        """
    )
    rows = mine.document["states"]["prompting"]["transitions"]
    assert [row["target"] for row in rows if row["event"] == "failed"] == ["prompting", "given_up"]
    assert list(mine.document["states"])[-1] == "given_up"


def test_a_state_set_to_null_is_gone() -> None:
    """A state is taken out by setting it to null; a row that still leads there is then an error."""
    with pytest.raises(SpecError, match="'max_iterations' does not exist"):
        extend("extends: tool_loop\nstates: {max_iterations: null}")


def test_circles_and_unknown_bases_are_errors() -> None:
    """A chart that extends itself and one that extends nothing known are refused with a reason."""
    with pytest.raises(SpecError, match="circle"):
        parse_chart("extends: x\nstates: {a: {}}", resolve=lambda name: "extends: x\nstates: {b: {}}")
    with pytest.raises(SpecError, match="did you mean 'tool_loop'"):
        load_chart({"extends": "tool_lop", "states": {}})


@pytest.mark.parametrize("name", list_shipped_charts())
def test_shipped_charts_are_plain_for_the_library(name: str) -> None:
    """Resolved, a shipped chart loads in plain `statemachine.io.load` and fits its JSON Schema."""
    import yaml
    from statemachine.io import load

    resolved_chart = load_chart(name)
    text = yaml.safe_dump(resolved_chart.document, sort_keys=False)
    assert load(text, format="yaml", validate=True, name=f"Plain_{name}") is not None
    again = parse_chart(text)
    assert again.digest == resolved_chart.digest
