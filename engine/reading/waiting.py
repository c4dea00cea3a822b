"""What waits in an open turn: calls to decide, questions, calls without an outcome, the next due time.

`Waiting` is the one value for it: results of turns, views, the command line and all protocols show it. It is
read from the records of the open turn, those of its children included. Nothing is derived. That is also all
that is known after a restart, and it is enough: a record is durable before a question is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from toolchart.engine.log.family import ChildLink, list_child_links
from toolchart.engine.log.read_records import ReadRecord, parse_line
from toolchart.engine.reading.steps import read_kinds, read_since
from toolchart.states.content import Value
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import Store
from toolchart.states.visible_text import make_visible_line
from toolchart.tools.whole_definition import describe_run


class Row(Value, frozen=True, kw_only=True):
    """A value whose fields can also be read by name, as in its JSON form: `call["tool"]`."""

    def __getitem__(self, name: str) -> Any:
        """The field with this name.

        Raises:
            KeyError: there is none.
        """
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)


class PendingApproval(Row, frozen=True, kw_only=True, omit_defaults=True):
    """One tool call that waits for a person's decision."""

    id: str
    """The call id that a decision names."""
    tool: str
    params: dict[str, Any] | None
    """The arguments."""
    conversation: str
    """The conversation in which it waits: that of the result, or a child of it."""
    approvers: tuple[str, ...] = ()
    """Who may decide; empty for anybody."""
    runs: str = ""
    """What running it does, on one line with deceptive characters visible: method and address of a request
    with the arguments in place, command of a server, reference of a function."""
    reason: str = ""
    """Why people are asked, where a pin or a rule says it: which part of the tool has changed."""
    definition: dict[str, str] | None = None
    """The whole definition of the tool that the question is about, part by part; an approval lets run this
    and nothing else."""


class WaitingCall(Row, frozen=True, kw_only=True, omit_defaults=True):
    """One tool call that was begun and has no outcome yet."""

    id: str
    tool: str
    params: dict[str, Any] | None
    """The arguments."""
    conversation: str
    """The conversation in which it waits: that of the result, or a child of it."""


class Waiting(Value, frozen=True, kw_only=True):
    """What the open turn of a conversation waits for, in its children too; empty where no turn is open."""

    approvals: tuple[PendingApproval, ...] = ()
    """The calls that wait for a decision: `approve` takes their ids."""
    questions: tuple[dict[str, Any], ...] = ()
    """The questions of the chart that wait for an answer: `{effect, state, question, form, due,
    conversation}`."""
    calls: tuple[WaitingCall, ...] = ()
    """The calls that were begun and have no outcome: they run, or their outcome comes from outside."""
    due: str | None = None
    """When the earliest open timer runs out: RFC 3339, UTC."""

    @property
    def needs_person(self) -> bool:
        """Whether somebody has to decide or to answer."""
        return bool(self.approvals or self.questions)


NOTHING_WAITS = Waiting()


def join_waiting(parts: Sequence[Waiting]) -> Waiting:
    """What waits in a conversation and in its children, as one value."""
    if len(parts) == 1:
        return parts[0]
    return Waiting(
        approvals=tuple(call for part in parts for call in part.approvals),
        questions=tuple(question for part in parts for question in part.questions),
        calls=tuple(call for part in parts for call in part.calls),
        due=_find_earliest(part.due for part in parts if part.due is not None),
    )


def build_approval(
    call_id: str,
    tool: str,
    arguments: dict[str, Any] | None,
    conversation: str,
    approvers: tuple[str, ...],
    definition: dict[str, str] | None,
    reason: str | None,
) -> PendingApproval:
    """A call that waits for a decision, with what running it does."""
    return PendingApproval(
        id=call_id,
        tool=tool,
        params=arguments,
        conversation=conversation,
        approvers=approvers,
        runs=describe_run(definition or {}, arguments),
        reason=make_visible_line(reason or ""),
        definition=definition,
    )


def build_question(
    effect: str, state: str, question: str, form: Any, timers: Iterable[tuple[str, str]], conversation: str
) -> dict[str, Any]:
    """A question that waits for an answer; `due` is when the first timer of its state runs out.

    Args:
        timers: state and end of each open timer.
    """
    return {
        "effect": effect,
        "state": state,
        "question": question,
        "form": form,
        "due": _find_earliest(due for timer_state, due in timers if timer_state == state),
        "conversation": conversation,
    }


def _find_earliest(times: Iterable[str]) -> str | None:
    return min(times, key=datetime.fromisoformat, default=None)


def read_waiting(store: Store, conversation: str) -> Waiting:
    """What the open turn of a conversation waits for, and what waits in its open children.

    Raises:
        LogDamaged: a record of the turn cannot be read.
    """
    turn = read_open_turn(store, conversation)
    if turn is None:
        return NOTHING_WAITS
    parts = [turn.build(conversation)]
    for link in list_child_links(store, conversation, skip_unreadable=True):
        if not turn.has_dropped(link):
            parts.append(read_waiting(store, link.conversation))
    return join_waiting(parts)


def has_open_turn(store: Store, conversation: str) -> bool:
    """Whether the newest turn of a conversation is open; false also where it has none.

    Raises:
        LogDamaged: a record of the turn cannot be read.
    """
    return read_open_turn(store, conversation) is not None


def needs_person(store: Store, conversation: str) -> bool:
    """Whether a conversation waits for somebody to decide or to answer; one that cannot be read does not."""
    try:
        return read_waiting(store, conversation).needs_person
    except LogDamaged:
        return False


# -- the records of the open turn --------------------------------------------------------------------


class OpenQuestion(msgspec.Struct, frozen=True):
    """An open question of the chart."""

    id: int
    effect: str
    state: str
    arguments: Mapping[str, Any]


class OpenTimer(msgspec.Struct, frozen=True):
    """An open timer whose end is known."""

    name: str
    state: str
    due: str


class OpenTurn:
    """What the records of a turn say that is open in it."""

    def __init__(self, kinds: dict[str, str]) -> None:
        self._kinds = kinds
        self.arguments: dict[str, tuple[str, Any]] = {}
        """Tool and arguments of the calls of the newest reply with calls, by id."""
        self.undecided: dict[str, Mapping[str, Any]] = {}
        """The verdicts on calls that wait for a decision, by id."""
        self.begun: dict[str, int] = {}
        """The effects that run calls without an outcome, by id of the call."""
        self.idempotent: set[str] = set()
        """The calls that begin as soon as they are asked for; any other begins with `calls_started`."""
        self.asked: dict[str, tuple[tuple[str, ...], str]] = {}
        """Who was asked about a call last, and in which state, by id of the call."""
        self.questions: dict[int, OpenQuestion] = {}
        self.timers: dict[int, OpenTimer] = {}
        self.cancelled: set[int] = set()
        self.answered: set[tuple[int, int]] = set()
        """Effect and item of the children that have answered."""
        self.is_open = False
        self.author = ""
        """Who sent the message that opened it, or forked it while it was open."""

    def add_record(self, record: ReadRecord) -> None:
        """Take in the next record."""
        if record.event_type == "turn_started":
            self.__init__(self._kinds)  # type: ignore[misc]
        if record.event_type in ("turn_started", "forked"):
            self.author = record.author or self.author
        self._kinds |= record.kinds
        # A timer may end the rest at `await_user`: what its state asks for opens the turn again. A fork only
        # asks again for what is open.
        begins = record.event_type == "turn_started" or (
            record.event_type != "forked" and any(ask.is_work(self._kinds) for ask in record.asks)
        )
        self.is_open = not record.ends_turn and (self.is_open or begins)
        begun_before = self.begun
        for effect in record.cancels:
            self._close_effect(effect)
        if not record.is_late:
            self._add_event(record)
        self._drop_answered_calls(record.messages)
        for ask in record.asks:
            self._add_ask(ask.id, ask.name, ask.data, begun_before)

    def _add_event(self, record: ReadRecord) -> None:
        event = record.event
        match record.event_type:
            case "replied":
                calls = event["reply"].get("tool_calls") or ()
                ids = record.calls or [call.get("id", "") for call in calls]
                for id_, call in zip(ids, calls, strict=False):
                    self.arguments[id_] = (call.get("name", ""), call.get("arguments"))
            case "reviewed":
                for verdict in event["verdicts"]:
                    self._change_arguments(verdict["call_id"], verdict.get("arguments"))
                    if verdict.get("idempotent"):
                        self.idempotent.add(verdict["call_id"])
                    if verdict["ruling"] == "needs_approval":
                        self.undecided[verdict["call_id"]] = verdict
            case "decided":
                self.undecided.pop(event["call_id"], None)
                self._change_arguments(event["call_id"], event.get("arguments"))
            case "calls_started":
                self.begun |= dict.fromkeys(event.get("calls") or (), event["effect"])
            case "tool_finished":
                self._close_call(event["call_id"])
            case "answered":
                self.questions.pop(event["effect"], None)
            case "elapsed":
                self.timers.pop(event["effect"], None)
            case "agent_finished" | "agent_failed":
                self.answered.add((event["effect"], event.get("item", 0)))

    def _change_arguments(self, call_id: str, arguments: Any) -> None:
        if arguments is not None and call_id in self.arguments:
            self.arguments[call_id] = (self.arguments[call_id][0], arguments)

    def _close_call(self, call_id: str) -> None:
        self.undecided.pop(call_id, None)
        self.begun.pop(call_id, None)

    def _close_effect(self, effect: int) -> None:
        self.cancelled.add(effect)
        self.questions.pop(effect, None)
        self.timers.pop(effect, None)
        self.begun = {id_: by for id_, by in self.begun.items() if by != effect}

    def _drop_answered_calls(self, references: Iterable[Any]) -> None:
        """Close the calls that the model has read a result of; the core writes some of them itself."""
        for reference in references:
            if isinstance(reference, dict):
                self._close_call(reference.get("result") or reference.get("tool_call_id") or "")

    def _add_ask(
        self, effect: int, name: str, data: Mapping[str, Any], begun_before: Mapping[str, int]
    ) -> None:
        arguments, state = data.get("arguments") or {}, str(data.get("state", ""))
        for call_id in data.get("calls") or ():
            if call_id in self.undecided:
                self.asked[call_id] = tuple(arguments.get("to") or ()), state
            # A fork asks again for calls that may have begun under the effect of its parent.
            elif call_id in self.idempotent or call_id in begun_before:
                self.begun[call_id] = effect
        if self._kinds.get(name) == "ask_person":
            self.questions[effect] = OpenQuestion(effect, name, state, arguments)
        if data.get("due"):
            self.timers[effect] = OpenTimer(name, state, str(data["due"]))

    def has_dropped(self, child: ChildLink) -> bool:
        """Whether a child has answered, or what asked for it was cancelled."""
        return child.effect in self.cancelled or (child.effect, child.item) in self.answered

    def find_first_timer(self, states: Collection[str]) -> OpenTimer | None:
        """The timer of these states that runs out first."""
        ends = [
            (datetime.fromisoformat(timer.due), id_)
            for id_, timer in self.timers.items()
            if timer.state in states
        ]
        return self.timers[min(ends)[1]] if ends else None

    def build(self, conversation: str) -> Waiting:
        """What the turn waits for, without its children."""
        return Waiting(
            approvals=tuple(
                build_approval(
                    call_id,
                    *self.arguments.get(call_id, ("", None)),
                    conversation,
                    self.asked.get(call_id, ((), ""))[0],
                    verdict.get("definition"),
                    verdict.get("reason"),
                )
                for call_id, verdict in self.undecided.items()
            ),
            questions=tuple(
                build_question(
                    question.effect,
                    question.state,
                    question.arguments.get("question", ""),
                    question.arguments.get("form", {}),
                    [(timer.state, timer.due) for timer in self.timers.values()],
                    conversation,
                )
                for question in self.questions.values()
            ),
            calls=tuple(
                WaitingCall(id=id_, tool=tool, params=arguments, conversation=conversation)
                for id_, (tool, arguments) in self.arguments.items()
                if id_ in self.begun
            ),
            due=_find_earliest(timer.due for timer in self.timers.values()),
        )


def read_open_turn(store: Store, conversation: str) -> OpenTurn | None:
    """What is open in the turn of a conversation, without its children; None where no turn is open.

    Raises:
        LogDamaged: a record of the turn cannot be read.
    """
    newest = store.read_last_line(conversation)
    if newest is None or parse_line(newest[1], newest[0], conversation).ends_turn:
        return None
    turn = OpenTurn(read_kinds(store, conversation))
    for record in read_since(store, conversation, _find_open_turn(store, conversation)):
        turn.add_record(record)
    return turn if turn.is_open else None


def _find_open_turn(store: Store, conversation: str) -> int:
    """Number of a record after the newest turn that is known to have ended; 0 where none is."""
    return next((seq + 1 for seq, data in store.read_totals(conversation) if data), 0)
