"""Reads a conversation back: what it waits for, its results, what it cost, its steps as they are written.

Everything is read from the records, and from the totals of turns that stand beside them. Nothing is derived:
no chart is compiled and no step is taken again, so a view costs the records that it shows. What an open turn
waits for stands in the records of that turn alone. That is also all that is known after a restart, and it is
enough: a record is durable before the question is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from toolchart.engine.log.family import iterate_family, list_children, read_parent
from toolchart.engine.log.reading.figures import read_turns
from toolchart.engine.log.reading.records import ReadRecord, parse_line, read_conversation
from toolchart.engine.log.reading.summaries import ConversationSummary, summarize_conversation
from toolchart.engine.log.turn_totals import add_usages, decode_totals
from toolchart.engine.runtime.result import PendingApproval, WaitingCall
from toolchart.states.core.encoding import encode
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.events import CONFIGURATION_TYPES, Forked
from toolchart.states.messages import Usage
from toolchart.states.ports import Store
from toolchart.states.visible_text import make_visible_line
from toolchart.tools.whole_definition import describe_run


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
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

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


class ConversationView(ConversationSummary, frozen=True, kw_only=True):
    """A conversation as a page shows it first: its row in a list, and what it waits for and cost."""

    waiting: Waiting
    results: Mapping[str, Any]
    """The newest value of each result of the chart; a text is `{content: text}`."""
    total_usage: Usage
    """Tokens and cost of its model calls and of those of the agents that it runs."""
    children: tuple[str, ...]
    """The conversations of the agents that it runs, in the order in which they were asked for."""

    @property
    def cost(self) -> float | None:
        """The money that it cost with its children, in the currency of the price table; None where it is not
        known."""
        return self.total_usage.cost

    def to_dict(self) -> dict[str, Any]:
        """The view as JSON data; the server and the command line print the same."""
        row = {name: getattr(self, name) for name in ConversationSummary.__struct_fields__}
        return {
            **row,
            "waiting": self.waiting.to_dict(),
            "results": self.results,
            "total_usage": encode(self.total_usage),
            "cost": self.cost,
            "children": list(self.children),
        }


def read_view(store: Store, conversation: str) -> ConversationView:
    """A conversation as a page shows it first.

    Raises:
        SpecError: there is no such conversation.
        LogDamaged: a record cannot be read.
    """
    require_existing(store, conversation)
    summary = summarize_conversation(store, conversation)
    return ConversationView(
        **{name: getattr(summary, name) for name in ConversationSummary.__struct_fields__},
        waiting=read_waiting(store, conversation),
        results=read_results(store, conversation),
        total_usage=read_total_usage(store, conversation),
        children=tuple(list_children(store, conversation, skip_unreadable=True)),
    )


def require_existing(store: Store, conversation: str) -> None:
    """Refuse to read a conversation that does not exist.

    Raises:
        SpecError: there is none.
    """
    if store.read_last_line(conversation) is None:
        raise SpecError(f"there is no conversation {conversation!r} in this log")


def read_total_usage(store: Store, conversation: str) -> Usage:
    """Tokens and cost of a conversation and of all that it runs: of ended turns from their totals."""
    return add_usages(
        turn.usage for _, name in iterate_family(store, conversation) for turn in read_turns(store, name)
    )


async def follow_steps(
    store: Store, conversation: str, start: int, every_s: float
) -> AsyncGenerator[ReadRecord, None]:
    """The records from number `start` on, and then each one when it is written, by whichever process.

    It ends when it is closed. A conversation that does not exist yet begins with its first record.
    """
    while True:
        for record in await asyncio.to_thread(_list_from, store, conversation, start):
            yield record
            start = record.seq + 1
        await asyncio.sleep(every_s)


def _list_from(store: Store, conversation: str, start: int) -> list[ReadRecord]:
    return list(_read_from(store, conversation, start))


def _read_from(store: Store, conversation: str, start: int) -> Iterator[ReadRecord]:
    for seq, line in enumerate(store.read_lines(conversation, start), start):
        yield parse_line(line, seq, conversation)


# -- what waits ------------------------------------------------------------------------------------


class _Question(msgspec.Struct, frozen=True):
    """An open question of the chart."""

    effect: str
    state: str
    arguments: Mapping[str, Any]


class _OpenTurn:
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
        self.approvers: dict[str, tuple[str, ...]] = {}
        self.questions: dict[int, _Question] = {}
        self.timers: dict[int, tuple[str, str]] = {}
        """State and end of each open timer."""
        self.cancelled: set[int] = set()
        self.answered: set[tuple[int, int]] = set()
        """Effect and item of the children that have answered."""
        self.is_open = False

    def add_record(self, record: ReadRecord) -> None:
        """Take in the next record."""
        if record.event_type == "turn_started":
            self.__init__(self._kinds)  # type: ignore[misc]
        self._kinds |= _find_kinds(record)
        self.is_open = not record.ends_turn and (self.is_open or record.event_type == "turn_started")
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
        arguments = data.get("arguments") or {}
        for call_id in data.get("calls") or ():
            if call_id in self.undecided:
                self.approvers[call_id] = tuple(arguments.get("to") or ())
            # A fork asks again for calls that may have begun under the effect of its parent.
            elif call_id in self.idempotent or call_id in begun_before:
                self.begun[call_id] = effect
        if self._kinds.get(name) == "ask_person":
            self.questions[effect] = _Question(name, str(data.get("state", "")), arguments)
        if data.get("due"):
            self.timers[effect] = (str(data.get("state", "")), str(data["due"]))

    def has_dropped(self, link: Mapping[str, Any]) -> bool:
        """Whether a child has answered, or what asked for it was cancelled.

        Args:
            link: of the child to its parent.
        """
        effect = link.get("effect")
        return effect in self.cancelled or (effect, link.get("item", 0)) in self.answered

    # -- as values ---------------------------------------------------------------------------------

    def build(self, conversation: str) -> Waiting:
        """What the turn waits for, without its children."""
        if not self.is_open:
            return Waiting()
        return Waiting(
            approvals=tuple(self._build_approval(id_, conversation) for id_ in self.undecided),
            questions=tuple(self._describe_question(each, conversation) for each in self.questions.values()),
            calls=tuple(
                WaitingCall(id=id_, tool=tool, params=arguments, conversation=conversation)
                for id_, (tool, arguments) in self.arguments.items()
                if id_ in self.begun
            ),
            due=_find_earliest(due for _, due in self.timers.values()),
        )

    def _build_approval(self, call_id: str, conversation: str) -> PendingApproval:
        tool, arguments = self.arguments.get(call_id, ("", None))
        verdict = self.undecided[call_id]
        definition = verdict.get("definition")
        return PendingApproval(
            id=call_id,
            tool=tool,
            params=arguments,
            conversation=conversation,
            approvers=self.approvers.get(call_id, ()),
            runs=describe_run(definition or {}, arguments),
            reason=make_visible_line(verdict.get("reason") or ""),
            definition=definition,
        )

    def _describe_question(self, question: _Question, conversation: str) -> dict[str, Any]:
        own_timers = [due for state, due in self.timers.values() if state == question.state]
        return {
            "effect": question.effect,
            "state": question.state,
            "question": question.arguments.get("question", ""),
            "form": question.arguments.get("form", {}),
            "due": _find_earliest(own_timers),
            "conversation": conversation,
        }


def read_waiting(store: Store, conversation: str) -> Waiting:
    """What the open turn of a conversation waits for, and what waits in its open children.

    Raises:
        LogDamaged: a record of the turn cannot be read.
    """
    newest = store.read_last_line(conversation)
    if newest is None or parse_line(newest[1], newest[0], conversation).ends_turn:
        return Waiting()
    turn = _OpenTurn(_read_kinds(store, conversation))
    for record in _read_since(store, conversation, _find_open_turn(store, conversation)):
        turn.add_record(record)
    waiting = turn.build(conversation)
    if not turn.is_open:
        return waiting
    parts = [waiting]
    for child in list_children(store, conversation, skip_unreadable=True):
        if not turn.has_dropped(read_parent(store, child) or {}):
            parts.append(read_waiting(store, child))
    return Waiting(
        approvals=tuple(call for part in parts for call in part.approvals),
        questions=tuple(question for part in parts for question in part.questions),
        calls=tuple(call for part in parts for call in part.calls),
        due=_find_earliest(part.due for part in parts if part.due is not None),
    )


def needs_person(store: Store, conversation: str) -> bool:
    """Whether a conversation waits for somebody to decide or to answer; one that cannot be read does not."""
    try:
        return read_waiting(store, conversation).needs_person
    except LogDamaged:
        return False


def _find_earliest(times: Iterable[str]) -> str | None:
    return min(times, key=datetime.fromisoformat, default=None)


# -- where to begin --------------------------------------------------------------------------------


def _find_open_turn(store: Store, conversation: str) -> int:
    """Number of a record after the newest turn that is known to have ended; 0 where none is."""
    return next((seq + 1 for seq, _ in store.read_totals(conversation)), 0)


def _read_since(store: Store, conversation: str, start: int) -> Iterator[ReadRecord]:
    """The records from a number on; from 0 on, those that a fork shares come first."""
    if start:
        return _read_from(store, conversation, start)
    return read_conversation(store, conversation, include_shared=True)


def _read_kinds(store: Store, conversation: str) -> dict[str, str]:
    """The kinds of the effects that the chart declares, by their names, as the first record says."""
    line = next(iter(store.read_lines(conversation)), None)
    if line is None:
        return {}
    record = parse_line(line, 0, conversation)
    if record.event_type == Forked.TYPE:
        return _read_kinds(store, str(record.event["parent"]))
    return _find_kinds(record)


def _find_kinds(record: ReadRecord) -> dict[str, str]:
    if record.event_type not in CONFIGURATION_TYPES:
        return {}
    effects = record.event.get("effects") or {}
    return {name: next(iter(spec), "") for name, spec in effects.items() if isinstance(spec, dict)}


# -- results ---------------------------------------------------------------------------------------


def read_results(store: Store, conversation: str) -> dict[str, Any]:
    """The newest value of each result of the chart, from the events that brought them.

    Results live for a run of the chart: where it waits for its user, the next turn goes on with it.

    Raises:
        LogDamaged: a record cannot be read.
    """
    collector = _ResultCollector(_read_kinds(store, conversation))
    for record in _read_since(store, conversation, _find_run(store, conversation)):
        collector.add_record(record)
    return collector.values


def _find_run(store: Store, conversation: str) -> int:
    """Number of the record that began the newest run of the chart, or of one before it.

    A turn that `await_user` or a waiting agent ended goes on with the run. Which effect does so is declared
    in the chart; any declared effect is taken for one, so a run is sought too far back rather than too near.
    """
    ended = [(seq, decode_totals(data)) for seq, data in store.read_totals(conversation)]
    for seq, totals in ended[1:]:
        if totals is None or totals.figures.ended_by in _TERMINATING:
            return seq + 1
    return 0


_TERMINATING = frozenset(["answer", "answer_with_error", "answer_at_limit"])
"""Built-in effects that end a turn and never wait for the user."""


class _ResultCollector:
    """Collects results record by record."""

    def __init__(self, kinds: dict[str, str]) -> None:
        self._kinds = kinds
        self.values: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        """Names of results by the effect that brings them."""
        self._counts: dict[int, int] = {}
        """Number of items, by effect over a list."""
        self._items: dict[int, dict[int, Any]] = {}
        self._has_ended_run = True

    def add_record(self, record: ReadRecord) -> None:
        """Take in the next record."""
        event = record.event
        self._kinds |= _find_kinds(record)
        if record.event_type == "turn_started" and self._has_ended_run:
            self.values = {}
        if record.event_type != Forked.TYPE and not record.is_late:
            self._add_value(event)
        for ask in record.asks:
            if ask.data.get("result"):
                self._names[ask.id] = str(ask.data["result"])
                messages = (ask.data.get("arguments") or {}).get("messages")
                is_list = (ask.data.get("arguments") or {}).get("is_list")
                if isinstance(messages, list) and is_list:
                    self._counts[ask.id] = len(messages)
        if record.ends_turn:
            kind = self._kinds.get(record.ended_by or "", record.ended_by)
            self._has_ended_run = kind != "await_user" and record.event_type != "agent_rested"

    def _add_value(self, event: Mapping[str, Any]) -> None:
        effect = event.get("effect", 0)
        name = self._names.get(effect)
        if name is None:
            return
        match event["type"]:
            case "replied":
                self.values[name] = event.get("output") or {"content": event["reply"].get("content") or ""}
            case "returned":
                value = event.get("value")
                self.values[name] = value if isinstance(value, dict) else {"content": value}
            case "answered":
                self.values[name] = event["content"]
            case "agent_finished" | "agent_failed":
                self._add_answer(name, effect, event)

    def _add_answer(self, name: str, effect: int, event: Mapping[str, Any]) -> None:
        has_failed = event["type"] == "agent_failed"
        value = event.get("output") or {"content": event.get("content", "")}
        if has_failed:
            value = {"error_kind": event.get("kind", ""), "error": event.get("message", "")}
        if effect in self._counts:
            items = self._items.setdefault(effect, {})
            items[event.get("item", 0)] = value
            if len(items) == self._counts[effect]:
                self.values[name] = {"items": [items[index] for index in sorted(items)]}
        elif not event.get("conversation"):
            self.values[name] = {"items": []}  # there was no item to work on
        elif not has_failed:
            self.values[name] = value
