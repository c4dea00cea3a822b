"""A whole model: declarations, the process, and what is claimed about it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import to_builtins

from promela.chart_tree import ChartTree
from promela.costs import CostCounters
from promela.effects import Slot, list_quiet_effects, list_slots
from promela.events import EventWriter, close_calls, name_event
from promela.steps import StepWriter
from promela.text import Lines, describe, indent, name_variable, name_word, write_if
from promela.variables import CALLS, PENDING, Variables
from toolchart.states.chart.document import Chart
from toolchart.states.effects import EffectDescriptor
from toolchart.states.events import Limits
from toolchart.states.proofs.bounds.costs import WorstCase

SMALL_LIMITS = Limits(max_iterations=2, max_attempts=2, max_tool_only_streak=2, max_repeats=2)
"""Limits under which a model is small: what a chart does wrong, it does at small limits too."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One formula of a model."""

    name: str
    """What `pan -N` takes."""
    formula: str
    meaning: str
    """What it says, for a comment."""
    holds: bool = True
    """Whether it is claimed to hold; a bound less one is claimed to fail."""


_CLAIMS = (
    Claim(
        name="ends",
        formula="[] <> (over || disturbed)",
        meaning="every turn ends, unless the user disturbs it again and again",
    ),
    Claim(name="handled", formula="[] !unhandled", meaning="every answer has a transition"),
    Claim(name="rests", formula="[] !endless", meaning="every step comes to rest"),
    Claim(name="goes_on", formula="[] !stuck", meaning="the chart never waits for nothing"),
    Claim(name="approved", formula="[] !unapproved", meaning="no tool runs while a call is undecided"),
    Claim(name="reviewed", formula="[] !unreviewed", meaning="no tool runs before its call was reviewed"),
    Claim(name="kept", formula="[] !lost", meaning="no complete answer of the model is lost"),
    Claim(name="concluded", formula="[] !silent", meaning="every end has an answer for the user"),
)

_FLAGS = ("unhandled", "endless", "stuck", "unapproved", "unreviewed", "lost", "silent")


def list_claims(worst: WorstCase | None, chart: Chart) -> list[Claim]:
    """Everything that the model of a chart claims.

    Args:
        worst: the worst case that is claimed; None for none.
    """
    claims = list(_CLAIMS)
    for name, bound in _build_costs(ChartTree(chart), worst).bounds.items():
        claims.append(
            Claim(
                name=f"{name}_bounded", formula=f"[] ({name} <= {bound})", meaning=f"at most {bound} {name}"
            )
        )
        if bound:
            claims.append(
                Claim(
                    name=f"{name}_lower",
                    formula=f"[] ({name} < {bound})",
                    meaning=f"this one fails where {bound} {name} are possible",
                    holds=False,
                )
            )
    return claims


def write_promela(chart: Chart, *, limits: Limits = SMALL_LIMITS, worst: WorstCase | None = None) -> str:
    """The model of a chart for Spin: what can happen in its turns, and claims in linear temporal logic.

    Args:
        limits: the values of the limits that guards read; small ones keep the model small.
        worst: the worst case under these limits, from `check`: each number becomes a claim that it holds
            and one that a lower number does not.

    Raises:
        SpecError: the chart uses something that the translation does not know.
    """
    return _ModelWriter(chart, limits, worst).write()


def _build_costs(tree: ChartTree, worst: WorstCase | None) -> CostCounters:
    bounds = to_builtins(worst) if worst is not None else {}
    return CostCounters(bounds, [slot.row for slot in list_slots(tree)])


class _ModelWriter:
    """Writes one model."""

    def __init__(self, chart: Chart, limits: Limits, worst: WorstCase | None) -> None:
        self._chart = chart
        self._worst = worst
        self._tree = ChartTree(chart)
        self._slots = list_slots(self._tree)
        self._quiet = list_quiet_effects(self._tree)
        self._costs = _build_costs(self._tree, worst)
        self._facts = Variables(self._tree, limits)
        self._facts.pending.update(_write_pending(self._slots))
        events = EventWriter(self._tree, self._facts, self._slots, self._costs)
        self._alternatives = events.write()
        self._steps = StepWriter(self._tree, self._facts, self._slots, events.list_names())

    def write(self) -> str:
        """The whole text."""
        lines = [
            *self._write_head(),
            *self._declare(),
            "",
            "active proctype chart() {",
            "end:",
            "  do",
            "  :: atomic {",
            "    if",
            *indent([line for lines in self._alternatives for line in _mark_alternative(lines)], 2),
            "    fi;",
            "    d_step {",
            *indent(self._write_step(), 3),
            "    }",
            "  }",
            "  od",
            "}",
            "",
        ]
        for claim in list_claims(self._worst, self._chart):
            lines += [f"/* {claim.meaning} */", f"ltl {claim.name} {{ {claim.formula} }}"]
        return "\n".join(lines) + "\n"

    def _write_head(self) -> Lines:
        limits = ", ".join(
            f"{name} = {self._facts.limits[name]}"
            for name in sorted(self._facts.used & {*self._facts.limits})
        )
        return [
            f"/* The chart {describe(self._chart.name)}, for Spin 6.5 or newer.",
            f"   Limits: {limits or 'no guard reads one'}.",
            "   spin -a FILE && cc -O1 -DNOREDUCE -o pan pan.c && ./pan -a -N ends",
            "   Toolchart's docs/check.md says what the model contains and what it leaves out. */",
            "",
        ]

    # -- declarations ----------------------------------------------------------------------------

    def _declare(self) -> Lines:
        lines = ["/* the chart, its events, and what a step needs */", *self._steps.declare()]
        lines += ["/* facts that guards read, and counters of what a turn costs */", *self._facts.declare()]
        lines += [f"byte {name};" for name in CALLS]
        lines += self._costs.declare()
        lines += ["/* effects that are open, and effects that a step asks for */"]
        for slot in self._slots:
            lines += [f"byte {slot.open};", f"hidden byte {slot.ask};"]
            if slot.runs_agents:
                lines += [f"byte {slot.active};", f"byte {slot.resting};"]
                items = name_variable("items", slot.state, slot.row.name)
                lines += [f"byte {items};"] if slot.is_list else [f"#define {items} 1"]
        lines += [f"hidden byte {name_variable('does', row.name)};" for row in self._quiet]
        lines += ["/* the turn */", "bit started;", "bit ended;", "bit awaiting;", "bit terminated;"]
        lines += ["bit answered;", "bit was_cancelled;", "bit disturbed;", *(f"bit {f};" for f in _FLAGS)]
        lines += ["byte event;", "bit needs_row;", "bit disturbs;", "byte calls;"]
        lines += ["hidden byte fired;", "hidden byte whole_answer;", "#define over (ended || awaiting)"]
        return lines

    # -- one step --------------------------------------------------------------------------------

    def _write_step(self) -> Lines:
        lines = [*(f"{flag} = 0;" for flag in _FLAGS), "disturbed = disturbs; disturbs = 0;"]
        lines += [f"{slot.ask} = 0;" for slot in self._slots]
        lines += [f"{name_variable('does', row.name)} = 0;" for row in self._quiet]
        lines += [f"whole_answer = {self._write_whole_answer()};", *self._steps.write()]
        lines += write_if("endless", self._write_core_end())
        # What follows an answer that nothing takes is not followed: the first fault is the one to mend.
        lines += write_if("!endless && !fired && needs_row", ["unhandled = 1;", *self._write_core_end()])
        lines += write_if(f"fired && event == {name_event('cancelled')}", ["was_cancelled = 1;"])
        lines += write_if("!endless && fired", self._write_completion())
        still_open = " || ".join(slot.open for slot in self._slots) or "0"
        lines += write_if(f"!ended && !terminated && !({still_open})", ["stuck = 1; ended = 1;"])
        lines += write_if("terminated", ["ended = 1;", "silent = !answered;"])
        lines += [f"awaiting = {self._write_awaiting()};", "event = 0; needs_row = 0;"]
        lines += [f"{name_variable('items', s.state, s.row.name)} = 0;" for s in self._slots if s.is_list]
        return [*lines, *self._facts.clear_scratch()]

    def _write_whole_answer(self) -> str:
        """Whether the event is a complete answer of the model: it must not be lost."""
        main = [slot for slot in self._slots if slot.calls_main_model]
        events = [f"event == {name_event(f'replied.{slot.row.name}')}" for slot in main]
        if not events:
            return "0"
        facts = self._facts
        strict = f" && !{facts.read_fact('strict_warnings')}" if facts.has("strict_warnings") else ""
        stop = f"{facts.read_fact('finish_reason')} == {name_word('finish_reason', 'stop')}"
        return f"({' || '.join(dict.fromkeys(events))}) && {stop} && {facts.read_fact('has_content')}{strict}"

    def _write_core_end(self) -> Lines:
        """The turn ends at a fault."""
        return [*(f"{slot.open} = 0;" for slot in self._slots), "ended = 1;", *close_calls(self._facts)]

    def _write_completion(self) -> Lines:
        """What was open in states that were left is cancelled, then what states ask for is open."""
        lines: Lines = []
        for slot in self._slots:
            index = self._tree.nodes[slot.state].index
            lines += write_if(
                f"{slot.open} && (resets[{index}] || terminated)",
                [f"{slot.open} = 0;", *(self._interrupt() if slot.runs_tools else [])],
            )
        for slot in self._slots:
            lines += write_if(f"{slot.ask} && !terminated", self._write_ask(slot))
        for row in self._quiet:
            lines += write_if(name_variable("does", row.name), self._write_quiet_effect(row))
        return [*lines, *write_if("terminated", close_calls(self._facts))]

    def _interrupt(self) -> Lines:
        """Calls that may have begun end as interrupted, and the iteration with them."""
        return write_if(
            "running", ["running = 0;", *write_if(f"{PENDING} == 0", self._facts.count("iteration"))]
        )

    def _write_ask(self, slot: Slot) -> Lines:
        lines = [f"{slot.open} = 1;"]
        if slot.runs_agents:
            items = name_variable("items", slot.state, slot.row.name)
            lines += [f"{slot.active} = {items}; {slot.resting} = 0;", *self._costs.add(slot.row, items)]
        else:
            lines += self._costs.add(slot.row)
        if slot.runs_tools:
            lines += self._write_tool_run(slot)
        if slot.calls_main_model and slot.row.calls_model:
            lines += [*close_calls(self._facts), *self._facts.assign("unread_messages", "0")]
            lines += self._write_offer(slot.row)
        if slot.row.waits_for_user:
            lines += ["answered = 1;", *close_calls(self._facts)]
        return lines

    def _write_tool_run(self, slot: Slot) -> Lines:
        late = [
            f"event != {name_event(f'elapsed.{other.row.name}')}"
            for other in self._slots
            if "elapsed" in other.row.closing
        ]
        in_time = " && ".join(dict.fromkeys(late)) or "1"
        return [
            f"unapproved = (undecided && {in_time});",
            "unreviewed = fresh;",
            "running = running + runnable; runnable = 0;",
        ]

    def _write_offer(self, row: EffectDescriptor) -> Lines:
        """Whether the call offers tools: those of the turn, some of them, or none."""
        facts = self._facts
        if not facts.has("tools_sent"):
            return []
        patterns = getattr(row.parameters, "tools", None)
        offers_none = row.name == "call_model_without_tools" or patterns == ()
        offered = f"({facts.read_fact('tools_offered')} > 0)"
        return facts.assign("tools_sent", "0" if offers_none else offered)

    def _write_quiet_effect(self, row: EffectDescriptor) -> Lines:
        lines = (
            self._facts.assign("writes_tools_as_text", "1") if row.name == "describe_tools_in_text" else []
        )
        if not row.ends_turn:
            return lines
        lines += ["answered = 1;", *close_calls(self._facts)]
        lines += [f"{slot.open} = 0;" for slot in self._slots if slot.row.uses_calls]
        return [*lines, *(["lost = whole_answer;"] if row.name in _LOSING_ENDS else [])]

    def _write_awaiting(self) -> str:
        """Whether only the user's next message, or time, goes on."""
        waiting = [slot for slot in self._slots if slot.waiting != "0" and not slot.row.is_timer]
        others = [f"(!{slot.open} || {slot.waiting})" for slot in self._slots if slot.waiting != "1"]
        if not waiting:
            return "0"
        some = " || ".join(f"({slot.open} && {slot.waiting})" for slot in waiting)
        return " && ".join(["!ended", f"({some})", *others])


_LOSING_ENDS = ("answer_with_error", "answer_at_limit")
"""Effects that end a turn with something other than the model's answer."""


def _mark_alternative(lines: Lines) -> Lines:
    return [f":: {lines[0]}", *indent(lines[1:], 2)]


def _write_pending(slots: list[Slot]) -> Mapping[str, str]:
    """By result: how many effects and children are open under its name."""
    terms: dict[str, list[str]] = {}
    for slot in slots:
        if slot.row.result:
            term = f"({slot.open} -> {slot.active} : 0)" if slot.runs_agents else f"({slot.open} > 0)"
            terms.setdefault(slot.row.result, []).append(term)
    return {result: "(" + " + ".join(parts) + ")" for result, parts in terms.items()}
