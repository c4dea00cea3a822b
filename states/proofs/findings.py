"""`Finding`: one result of a check, used for faults and for notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolchart.states.chart.document import Chart, walk_states


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a chart, or one note about it."""

    kind: str
    """Faults: the keys of `CHANGES`. Notes: `order`, `idle`, `not cancelled`, `not heard`, `template` and
    `idle rule`."""
    message: str
    state: str
    """Empty for what is about no state."""
    event: str | None = None
    line: int | None = None
    """One-based line in the chart's own file; None where it comes from a chart that is extended."""
    counterexample: dict[str, Any] | None = None
    """Facts under which it happens."""
    run: tuple[str, ...] = ()
    """The events that lead there, from the user's message on; empty for what never happens."""
    change: str = ""
    """What to change."""


CHANGES: dict[str, str] = {
    "unreachable": "delete the state, or add a row that leads to it",
    "dead end": "add a row that leads to a final state",
    "gap": "add a row for this event without a guard, after the others",
    "unhandled": "add a row for this event",
    "spin": "give one of the rows without an event a guard that turns false, or an event",
    "stuck": "give the state an effect, make it final, or lead the row elsewhere",
    "dead row": "delete the row, move it up, or correct its guard",
    "unapproved": "ask `undecided_calls == 0` in the guard of the row that leads to `run_tools`",
    "unreviewed": "lead the reply to a state with `enter: review_calls` first",
    "lost answer": "lead `replied` with `finish_reason == 'stop'` to a state with `enter: answer`",
    "no answer": "give the final state an effect such as `enter: answer`",
    "tools left running": "begin with the row `{event: tool_finished, cond: pending_calls > 0}`",
    "unanswerable": "correct the schema, so that some value fits it",
    "unbounded": "give a row of the cycle a guard over a counter, such as `iteration < max_iterations`",
    "too large": "split the chart: let `run_agent` run a part of it",
    "no such state": "keep the state, or migrate when the run has ended",
    "no such effect": "keep the effect in this state until the run has ended",
    "other form": "let it be answered first, or keep the form until the run has ended",
    "no such result": "ask `RESULT.count >= 1` first in the guards that read the result",
    "undeclared": "say of the tool or function whether strangers write what it returns: `trust`",
    "dead rule": "write the name of a tool that the agent has, or delete the rule",
    "data flow": "let a person approve the calls, or pass on only fields without free text",
}
"""By kind of fault: what to change."""


def find_finding_line(chart: Chart, state: str, row: int | None = None) -> int | None:
    """The line of a state, or of one of its transitions, in the chart's file."""
    for name, _, place in walk_states(chart):
        if name == state:
            return chart.find_line(place if row is None else (*place, "transitions", row))
    return None


def find_guard_place(chart: Chart, guard: str) -> tuple[str, int | None] | None:
    """The state with the first row that has a guard, and the row's line; None where no row has it."""
    for name, body, place in walk_states(chart):
        for row, transition in enumerate(body.get("transitions") or ()):
            for guards in (transition.get("cond"), transition.get("unless")):
                if guard in (guards if isinstance(guards, list) else [guards]):
                    return name, chart.find_line((*place, "transitions", row))
    return None


def format_facts(facts: Mapping[str, Any]) -> str:
    """Facts as text: `finish_reason = 'length', iteration = 2`."""
    return ", ".join(f"{name} = {value!r}" for name, value in facts.items())
