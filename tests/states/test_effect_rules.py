"""Charts that ask for effects where nothing can answer are refused when they are loaded, with the reason."""

from __future__ import annotations

import textwrap

import pytest

from toolchart.specs.charts import load_chart
from toolchart.states.chart.loading import Chart, parse_chart
from toolchart.states.errors import SpecError

REGIONS = """\
name: regions
states:
  both:
    initial: true
    parallel: true
    states:
      talk:
        states:
          asking:
            initial: true
            enter: {first}
            transitions:
              - {{event: {row}, target: said}}
              - {{event: failed.call_model, target: said}}
          said: {{final: true}}
      clock:
        states:
          ticking:
            initial: true
            enter: {second}
            transitions: [{{event: {other_row}, target: rung}}]
          rung: {{final: true}}
    transitions: [{{event: done.state.both, target: finished}}]
  finished: {{final: true, enter: answer}}
"""


def fill_regions(
    first: str = "call_model",
    second: str = "wait",
    row: str = "replied.call_model",
    other_row: str = "elapsed.wait",
) -> str:
    """A chart of two regions, with these effects and rows."""
    return REGIONS.format(first=first, second=second, row=row, other_row=other_row)


def parse(text: str) -> Chart:
    """A chart of a file."""
    return parse_chart(
        textwrap.dedent(text), source="mine.yaml", resolve=lambda name: load_chart(name).to_yaml()
    )


def write_chart(asking: str, *more: str) -> str:
    """A chart with one state that asks the model, written in these lines, and further states."""
    lines = ["name: mine", "states:", "  asking:", *(f"    {line}" for line in asking.splitlines())]
    rows = "" if "transitions" in asking else "    transitions: [{event: replied failed, target: finished}]"
    end = "  finished: {final: true, enter: answer}"
    return "\n".join([*lines, *([rows] if rows else []), *(f"  {line}" for line in more), end])


COMPOUND = "enter: call_model\nstates:\n  inner: {enter: call_model}"

REFUSED = {
    "two effects at once": (
        write_chart("enter: [call_model, call_model_without_tools]"),
        4,
        "states.asking.enter",
        "asks for 'call_model' and 'call_model_without_tools' at once",
    ),
    "parent and child": (
        write_chart(COMPOUND),
        4,
        "states.asking.enter",
        "the compound state asks for 'call_model'",
    ),
    "the same timer twice": (
        write_chart("enter: wait\nstates:\n  inner: {enter: [wait, call_model]}"),
        6,
        "states.asking.states.inner.enter",
        "'wait' is asked for here and by a state around it",
    ),
    "a final state": (
        write_chart("enter: call_model", "over: {final: true, enter: [answer, call_model]}"),
        6,
        "states.over.enter",
        "the final state asks for 'call_model', and the turn is over before the answer",
    ),
    "on leaving": (
        write_chart("enter: call_model\nexit: review_calls"),
        5,
        "states.asking.exit",
        "'review_calls' is asked for on leaving the state",
    ),
    "on a transition": (
        write_chart(
            "enter: call_model\ntransitions: [{event: replied failed, target: finished, on: run_tools}]"
        ),
        5,
        "states.asking.transitions[0].on",
        "'run_tools' is asked for by a transition, and belongs to no state",
    ),
    "a raised answer": (
        write_chart("enter: [{raise: replied}]"),
        4,
        "states.asking.enter",
        "the chart raises 'replied', which only the driver may send",
    ),
    "a raised answer to an effect": (
        write_chart("enter: call_model\ntransitions: [{event: failed, on: {raise: decided.ask_approval}}]"),
        5,
        "states.asking.transitions[0].on",
        "the chart raises 'decided.ask_approval'",
    ),
    "the same effect in two regions": (
        fill_regions(first="wait", row="elapsed.wait"),
        20,
        "states.both.states.clock.states.ticking.enter",
        "the regions 'talk' and 'clock' both ask for 'wait'",
    ),
    "two regions that talk": (
        fill_regions(second="run_tools", other_row="tool_finished.run_tools"),
        20,
        "states.both.states.clock.states.ticking.enter",
        "both work on the conversation's messages at the same time",
    ),
    "a bare event in a region": (
        fill_regions(other_row="elapsed.wait replied"),
        21,
        "states.both.states.clock.states.ticking.transitions[0].event",
        "the row takes every 'replied', also the answer to 'call_model' of another region",
    ),
    "any event in a region": (
        fill_regions(row='"*"'),
        13,
        "states.both.states.talk.states.asking.transitions[0].event",
        "the row takes every '*', also the answer to 'wait'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_charts_whose_effects_cannot_be_answered_are_refused(name: str) -> None:
    """The error names the file, the line, the key path and the reason, and says what to do instead."""
    text, line, path, reason = REFUSED[name]
    with pytest.raises(SpecError) as refusal:
        parse(text)
    error = refusal.value
    assert reason in error.message
    assert (error.file, error.line, error.path) == ("mine.yaml", line, path)
    assert error.hint


def test_the_hint_names_the_dotted_row() -> None:
    """For a bare row in a region the hint spells the row that is meant."""
    with pytest.raises(SpecError) as refusal:
        parse(fill_regions(other_row="elapsed.wait replied"))
    assert "`replied.call_model`" in str(refusal.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        write_chart("enter: [wait, call_model]"),
        write_chart("enter: [call_model]\nexit: describe_tools_in_text"),
        write_chart("enter: wait\nstates:\n  inner: {enter: call_model}"),
        write_chart(
            "enter: call_model\ntransitions:\n  - {event: replied failed, on: {raise: told}}\n"
            "  - {event: told, target: finished}"
        ),
        fill_regions(),
        fill_regions(row="replied", other_row="elapsed"),
        fill_regions(second="describe_tools_in_text", row='"*"', other_row="cancelled"),
    ],
)
def test_what_can_be_answered_loads(text: str) -> None:
    """A timer beside an effect, events of the chart, and names that only one region can mean."""
    assert parse(text).document["states"]


def test_an_inherited_fault_has_no_wrong_line() -> None:
    """In a chart that extends another, the line is that of the extending file, or none."""
    with pytest.raises(SpecError) as refusal:
        parse(
            """\
            extends: tool_loop
            states:
              executing:
                exit: review_calls
            """
        )
    assert refusal.value.line in (4, None)
    assert refusal.value.path == "states.executing.exit"


LISTS = """\
effects:
  map_old: {run_agent: {handler: model, for_each: opened.docs, as: drafts}}
  map_new: {run_agent: {handler: model, OTHER}}
"""


@pytest.mark.parametrize(
    ("other", "is_refused"),
    [
        ("for_each: opened.docs, as: drafts", True),
        ("as: drafts", True),
        ("for_each: opened.docs, as: other_drafts", False),
    ],
)
def test_two_regions_do_not_bring_one_list(other: str, is_refused: bool) -> None:
    """The answers to the items of two lists that are open together are kept under two names."""
    text = fill_regions("map_old", "map_new", "agent_finished.map_old", "agent_finished.map_new")
    text = text.replace("failed.call_model", "agent_failed.map_old") + LISTS.replace("OTHER", other)
    if not is_refused:
        assert set(parse(text).vocabulary.result_names) == {"drafts", "other_drafts"}
        return
    with pytest.raises(SpecError, match="both bring 'drafts' at the same time") as caught:
        parse(text)
    assert caught.value.line == 20
