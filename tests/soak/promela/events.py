"""The events of a model: one alternative for each event that can arrive, with what it does to the facts.

What an event does is written down a second time here, after `docs/check.md` and the core's own documents, and
not taken from the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from promela.chart_tree import ChartTree
from promela.costs import CostCounters
from promela.effects import Slot, list_items
from promela.text import Lines, indent, name_variable, name_word, write_choice, write_if
from promela.variables import CALLS, PENDING, Variables
from toolchart.states.events import UNUSABLE_KINDS

START = "(start)"
NOT_ASKING = ("stop", "unknown", "paused")
"""Finish reasons of replies without calls."""


def name_event(event: str) -> str:
    """The constant of an event."""
    return name_variable("ev", event)


class EventWriter:
    """Writes the events of one chart."""

    def __init__(self, tree: ChartTree, variables: Variables, slots: list[Slot], costs: CostCounters) -> None:
        self._tree = tree
        self._facts = variables
        self._slots = slots
        self._costs = costs
        for event, names in _BRINGS.items():
            brings = [slot for slot in slots if event in slot.row.answers]
            if brings and not any(slot.row.result for slot in brings):
                variables.keep_for_event(event, names)

    def list_names(self) -> list[str]:
        """The names of all events that arrive from outside."""
        names = [f"{event}.{slot.row.name}" for slot in self._slots for event in slot.row.answers]
        return list(dict.fromkeys([START, *names, "cancelled", "user_said"]))

    def write(self) -> list[Lines]:
        """One alternative for each event that can arrive."""
        alternatives = [self._write_start()]
        for slot in self._slots:
            for event in slot.row.answers:
                write = _ANSWERS.get(event, EventWriter._write_plain_answer)
                for condition, lines in write(self, slot, event):
                    head = [f"{slot.open} && {condition} -> /* {event}.{slot.row.name} in {slot.state} */"]
                    alternatives.append([*head, *self._send(f"{event}.{slot.row.name}"), *lines])
        return [*alternatives, *self._write_outside_events()]

    def _send(self, name: str, needs_row: bool = True) -> Lines:
        return [f"event = {name_event(name)};", f"needs_row = {int(needs_row)};"]

    def _write_start(self) -> Lines:
        facts = self._facts
        return [
            "!started -> /* the first message of the user */",
            *self._send(START),
            "started = 1;",
            *(
                write_choice([facts.assign("tools_offered", n) for n in "01"])
                if facts.has("tools_offered")
                else []
            ),
            *facts.choose_flag("writes_tools_as_text"),
            *facts.choose_flag("strict_warnings"),
            *self._choose_items(),
        ]

    def _choose_items(self) -> Lines:
        """How many children the next list of agents has."""
        lines = []
        for slot in self._slots:
            if slot.is_list:
                name = name_variable("items", slot.state, slot.row.name)
                lines += write_choice([[f"{name} = {n};"] for n in list_items(self._tree, slot)])
        return lines

    def _spend(self) -> Lines:
        """What may have grown with any event: the spent budgets."""
        return self._facts.raise_flag("budget_spent")

    # -- events from outside ---------------------------------------------------------------------

    def _write_outside_events(self) -> Iterator[Lines]:
        events = {name.partition(".")[0] for row in self._tree.rows for name in row.events or ("*",)}
        if events & {"cancelled", "*"}:
            yield [
                "started && !ended -> /* somebody cancels the turn */",
                *self._send("cancelled", needs_row=False),
                "disturbs = 1;",
                *write_if("was_cancelled", self._costs.reset()),
                *self._spend(),
                *self._choose_items(),
            ]
        waits = [slot.open for slot in self._slots if "user_said" in slot.row.closing]
        nobody_waits = " && ".join(["started && !ended", *(f"!{name}" for name in waits)])
        if events & {"user_said", "*"} or self._facts.has("unread_messages"):
            yield [
                f"{nobody_waits} && !awaiting -> /* a message of the user within the turn */",
                *self._send("user_said", needs_row=False),
                *self._write_message(),
            ]
        if any(slot.runs_agents for slot in self._slots):
            yield [
                f"{nobody_waits} && awaiting -> /* the next message, for the agents that wait */",
                *self._send("user_said", needs_row=False),
                *self._open_turn(),
            ]

    def _write_message(self) -> Lines:
        """A message within the turn."""
        return [
            "disturbs = 1;",
            *self._costs.reset(),
            *self._facts.count("unread_messages"),
            *self._spend(),
            *self._choose_items(),
        ]

    def _open_turn(self) -> Lines:
        """The next turn of a chart that waited: its counters begin again, and results stay."""
        facts = self._facts
        lines = ["disturbs = 1;", "answered = 0;", "was_cancelled = 0;", *self._costs.reset()]
        for name in _COUNTERS:
            lines += facts.assign(name, "0")
        lines += [*facts.assign_word("finish_reason", "unknown"), *facts.assign_word("error_kind", "none")]
        lines += facts.choose_flag("strict_warnings")
        lines += close_calls(facts)
        for slot in self._slots:
            if slot.runs_agents:
                lines += write_if(slot.open, self._costs.add(slot.row, slot.resting))  # else it was cancelled
                lines.append(f"{slot.resting} = 0;")
        return [*lines, *self._choose_items()]

    # -- answers ---------------------------------------------------------------------------------

    def _write_plain_answer(self, slot: Slot, event: str) -> Iterator[tuple[str, Lines]]:
        if event in slot.row.closing:
            yield "1", [f"{slot.open} = 0;", *self._spend(), *self._choose_items()]
        if event in slot.row.progress:
            yield "1", [f"{slot.open} = 2;", *self._spend(), *self._choose_items()]

    def _write_reply(self, slot: Slot, event: str) -> Iterator[tuple[str, Lines]]:
        end = [*self._facts.raise_flag("strict_warnings"), *self._spend(), *self._choose_items()]
        if slot.row.result:
            yield "1", [f"{slot.open} = 0;", *self._keep_value(slot.row.result), *end]
            return
        yield "1", [f"{slot.open} = 0;", *self._write_main_reply(), *end]

    def _write_main_reply(self) -> Lines:
        facts = self._facts
        facts.keep("finish_reason")
        facts.keep("has_content")
        with_calls = [
            [f"fresh = {n};", *facts.choose_word("finish_reason", NOT_ASKING, ["tool_calls", "length"])]
            for n in range(1, facts.count_most_calls() + 1)
        ]
        without = ["fresh = 0;", *facts.choose_word("finish_reason", ["tool_calls"], ["stop"])]
        streak = facts.count("tool_only_streak")
        repeats = [facts.assign("repeated_calls", str(n)) for n in range(1, facts.limits["max_repeats"] + 2)]
        return [
            *close_calls(facts),
            *write_choice([without, *with_calls]),
            *facts.choose_flag("has_content"),
            *facts.assign("tool_calls", "fresh"),
            *facts.count("replies"),
            *self._end_failures(),
            *write_if(
                f"fresh && !{facts.read_fact('has_content')}", streak, facts.assign("tool_only_streak", "0")
            ),
            *facts.assign("repeated_calls", "0"),
            *write_if("fresh", write_choice(repeats) if facts.has("repeated_calls") else []),
            *facts.choose_flag("calls_over_budget"),
        ]

    def _end_failures(self) -> Lines:
        facts = self._facts
        return [
            *facts.assign("attempt", "0"),
            *facts.assign("unusable_replies", "0"),
            *facts.assign("retryable", "0"),
            *facts.assign_word("error_kind", "none"),
        ]

    def _keep_value(self, result: str) -> Lines:
        """A new value of a result: its counters, and any content."""
        facts = self._facts
        lines = [*facts.count(f"{result}.count"), *facts.assign(f"{result}.attempt", "0")]
        lines += facts.assign_word(f"{result}.error_kind", "none")
        lines += facts.choose_number("long_results")  # it may be a summary of one
        for name, fact in self._tree.chart.vocabulary.result_facts.items():
            field = name.partition(".")[2]
            if name.startswith(f"{result}.") and field not in (*_RESULT_COUNTERS, "pending", "error_kind"):
                lines += facts.choose_value(fact.name)
        return lines

    def _keep_failure(self, result: str) -> Lines:
        """A failure of a result, or of the conversation's own effects."""
        facts, dot = self._facts, f"{result}." if result else ""
        lines = [*facts.count(f"{dot}failures")] if result else facts.choose_flag("retryable")
        return [*lines, *facts.count(f"{dot}attempt"), *facts.choose_word(f"{dot}error_kind", ["none"])]

    def _count_unusable_replies(self) -> Lines:
        """After a failed model call of the conversation: another unusable reply, or none any more."""
        facts, name = self._facts, "unusable_replies"
        if not facts.has(name):
            return []
        more, none = facts.count(name), facts.assign(name, "0")
        if not facts.has("error_kind"):
            return write_choice([more, none])
        kinds = [f"{facts.read_fact('error_kind')} == {name_word('error_kind', k)}" for k in UNUSABLE_KINDS]
        chosen = facts.choose_word("error_kind", ["none"], UNUSABLE_KINDS)
        return [*chosen, *write_if(" || ".join(kinds), more, none)]

    def _write_failure(self, slot: Slot, event: str) -> Iterator[tuple[str, Lines]]:
        yield (
            "1",
            [
                f"{slot.open} = 0;",
                *self._keep_failure(slot.row.result),
                *([] if slot.row.result else self._count_unusable_replies()),
                *self._spend(),
                *self._choose_items(),
            ],
        )

    def _write_value(self, slot: Slot, event: str) -> Iterator[tuple[str, Lines]]:
        kept = self._keep_value(slot.row.result) if slot.row.result else []
        yield "1", [f"{slot.open} = 0;", *kept, *self._spend(), *self._choose_items()]

    # -- calls -----------------------------------------------------------------------------------

    def _write_review(self, slot: Slot, event: str) -> Iterator[tuple[str, Lines]]:
        facts = self._facts
        rulings = [
            ["runnable++;"],
            ["undecided++;"],
            ["refused++;", *facts.count("denied_calls")],
            *([["refused++;"]] if facts.has("denied_calls") else []),
        ]
        repeats = (
            write_choice([["skip;"], facts.assign("repeated_calls", "0")])
            if facts.has("repeated_calls")
            else []
        )
        yield (
            f"{slot.open} == 1",
            [
                f"calls = {PENDING};",
                *(f"{name} = 0;" for name in CALLS),
                "do",
                ":: calls > 0 ->",
                *indent(["calls--;", *write_choice(rulings)], 2),
                ":: else -> break",
                "od;",
                *repeats,
                f"{slot.open} = (undecided -> 2 : 0);",
                *facts.raise_flag("strict_warnings"),
                *self._spend(),
            ],
        )

    def _write_decision(self, slot: Slot, event: str) -> Iterator[tuple[str, Lines]]:
        facts = self._facts
        approved = ["runnable++;", *facts.count("approved_calls")]
        denied = ["refused++;", *facts.count("denied_calls")]
        is_review = "reviewed" in slot.row.answers
        yield (
            f"{slot.open} == 2" if is_review else "1",
            [
                *write_if("undecided", ["undecided--;", *write_choice([approved, denied])]),
                *write_if("!undecided", [f"{slot.open} = 0;"]),
                *self._spend(),
            ],
        )

    def _write_outcome(self, slot: Slot, event: str) -> Iterator[tuple[str, Lines]]:
        facts = self._facts
        yield (
            f"{PENDING} == 0",
            [
                *facts.assign("tool_calls", "0"),
                *facts.assign("repeated_calls", "0"),
                *facts.count("iteration"),
                f"{slot.open} = 0;",
                *self._spend(),
            ],
        )
        last = [*facts.count("iteration"), *facts.choose_number("long_results"), f"{slot.open} = 0;"]
        for name in CALLS:
            yield (f"{name} > 0", [f"{name}--;", *write_if(f"{PENDING} == 0", last), *self._spend()])

    # -- agents and the user ---------------------------------------------------------------------

    def _write_child_answer(self, slot: Slot, event: str) -> Iterator[tuple[str, Lines]]:
        """A child is done. Only the answer of the last one needs a row."""
        facts, result, has_failed = self._facts, slot.row.result, event == "agent_failed"
        if slot.is_list:
            counted = f"{result}.{'failures' if has_failed else 'count'}"
            kept = facts.count(counted)
            kept += facts.count(f"{result}.attempt") if has_failed else facts.assign(f"{result}.attempt", "0")
            kind = f"{result}.error_kind"
            kept += facts.choose_word(kind, ["none"]) if has_failed else facts.assign_word(kind, "none")
        elif has_failed:
            kept = [*self._keep_failure(result), *([] if result else facts.assign("unusable_replies", "0"))]
        else:
            kept = self._keep_value(result) if result else self._write_words()
        end = [*kept, *self._spend(), *self._choose_items()]
        if slot.is_list and not has_failed:
            yield f"{slot.active} == 0", [f"{slot.open} = 0;", *self._keep_value(result), *self._spend()]
        yield (
            f"{slot.active} > {slot.resting}",
            [
                f"{slot.active}--;",
                *write_if(f"!{slot.active}", [f"{slot.open} = 0;"], ["needs_row = 0;"]),
                *end,
            ],
        )

    def _write_words(self) -> Lines:
        """What an agent says in the conversation."""
        facts = self._facts
        return [
            *close_calls(facts),
            *facts.assign_word("finish_reason", "stop"),
            *facts.choose_flag("has_content"),
            *self._end_failures(),
        ]

    def _write_rest(self, slot: Slot, event: str) -> Iterator[tuple[str, Lines]]:
        words = [] if slot.row.result else self._write_words()
        yield (
            f"{slot.active} > {slot.resting}",
            [f"{slot.resting}++;", "answered = 1;", "needs_row = 0;", *words, *self._spend()],
        )

    def _write_user_answer(self, slot: Slot, event: str) -> Iterator[tuple[str, Lines]]:
        yield "awaiting", [f"{slot.open} = 0;", *self._open_turn()]
        yield "!awaiting", [f"{slot.open} = 0;", *self._write_message()]


_ANSWERS: dict[str, Callable[[EventWriter, Slot, str], Iterable[tuple[str, Lines]]]] = {
    "replied": EventWriter._write_reply,
    "failed": EventWriter._write_failure,
    "reviewed": EventWriter._write_review,
    "decided": EventWriter._write_decision,
    "tool_finished": EventWriter._write_outcome,
    "returned": EventWriter._write_value,
    "answered": EventWriter._write_value,
    "agent_finished": EventWriter._write_child_answer,
    "agent_failed": EventWriter._write_child_answer,
    "agent_rested": EventWriter._write_rest,
    "user_said": EventWriter._write_user_answer,
}

_BRINGS = {"replied": ("finish_reason", "has_content"), "failed": ("error_kind", "retryable")}
"""Facts of the conversation that an event sets, whatever they were."""

_COUNTERS = (
    *("iteration", "replies", "attempt", "unusable_replies", "tool_only_streak"),
    *("approved_calls", "denied_calls"),
    *("unread_messages", "tools_sent", "retryable", "has_content", "budget_spent"),
)
"""Facts that are 0 when a turn begins."""

_RESULT_COUNTERS = ("count", "failures", "attempt")


def close_calls(facts: Variables) -> Lines:
    """No call of the latest reply is open any more."""
    lines = [f"{name} = 0;" for name in CALLS]
    return [*lines, *facts.assign("tool_calls", "0"), *facts.assign("repeated_calls", "0")]
