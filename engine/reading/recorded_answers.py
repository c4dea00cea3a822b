"""The answers of a recorded conversation, found again by what asked for them: for forks and for reruns.

A model request is found by its digest, a tool call by its tool and canonical arguments, anything else by its
name and what it needs. Equal questions get their answers in the recorded order. Nothing is derived, so the
answers of any log of this format can be used, whatever core wrote it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.read_records import AskedEffect, ReadRecord
from toolchart.engine.log.record import describe_ask
from toolchart.states.calls import build_call_key
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.effects import CallModel, Effect, RunAgent, Wait, compute_effect_digest
from toolchart.states.events import (
    AgentAnswering,
    AgentRested,
    Answering,
    Decided,
    Elapsed,
    Event,
    Failed,
    Replied,
    Reviewed,
    ToolFinished,
    TurnStarted,
    UserSaid,
)
from toolchart.states.messages import ToolCall
from toolchart.states.snapshot import Snapshot

Key = tuple[str, ...]
"""What makes two questions the same; its first word says what kind of question it is."""


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded event that answers, or that came from outside."""

    seq: int
    """Number of its record."""
    event: Event

    def is_about(self, call_id: str) -> bool:
        """Whether it answers for a call of this id."""
        if isinstance(self.event, Reviewed):
            return self.event.verdicts[0].call_id == call_id
        return getattr(self.event, "call_id", None) == call_id


class RecordedAnswers:
    """What a recorded conversation answers, and what came to it from outside."""

    def __init__(self) -> None:
        self.external_events: deque[RecordedAnswer] = deque()
        """Events that answer no effect, in order: messages of the user, configurations, cancellations."""
        self._answers: dict[Key, deque[RecordedAnswer]] = defaultdict(deque)
        self._asked_keys: set[Key] = set()

    def find(self, key: Key) -> RecordedAnswer | None:
        """The next answer to a question; None where the log has no more."""
        answers = self._answers.get(key)
        return answers[0] if answers else None

    def take(self, key: Key) -> RecordedAnswer:
        """The next answer, which is used up."""
        return self._answers[key].popleft()

    def find_of_call(self, kind: str, call: ToolCall) -> RecordedAnswer | None:
        """The answer about a call: that of the same id, else the next one about an equal call.

        Args:
            kind: `verdict`, `decision`, `outcome` or `refusal`.
        """
        answers = self._answers.get(build_call_key_of(kind, call), ())
        return next((answer for answer in answers if answer.is_about(call.id)), next(iter(answers), None))

    def take_of_call(self, kind: str, call: ToolCall) -> RecordedAnswer | None:
        """As `find_of_call`; the answer is used up."""
        answer = self.find_of_call(kind, call)
        if answer is not None:
            self._answers[build_call_key_of(kind, call)].remove(answer)
        return answer

    def list_answers(self, kind: str) -> list[tuple[Key, RecordedAnswer]]:
        """The answers to all questions of a kind that are left."""
        return [
            (key, answer) for key, answers in self._answers.items() if key[0] == kind for answer in answers
        ]

    def has_more(self, kind: str) -> bool:
        """Whether an answer to any question of a kind is left."""
        return any(answers for key, answers in self._answers.items() if key[0] == kind)

    def was_asked(self, key: Key) -> bool:
        """Whether the recorded conversation asked this at all, answered or not."""
        return key in self._asked_keys

    def add_answer(self, key: Key, seq: int, event: Event) -> None:
        """Add the answer of a record."""
        self._answers[key].append(RecordedAnswer(seq=seq, event=event))

    def add_question(self, key: Key) -> None:
        """Note that the recorded conversation asked this."""
        self._asked_keys.add(key)


# -- keys ------------------------------------------------------------------------------------------


def build_effect_key(effect: Effect, item: int = 0) -> Key:
    """The key of an effect that one event answers, or of one item of a `run_agent`."""
    match effect:
        case CallModel():
            return ("request", compute_effect_digest(effect))
        case Wait():
            return ("wait", effect.state, effect.name)
        case RunAgent():
            return _build_agent_key(effect.name, describe_ask(effect, _NO_SNAPSHOT).arguments, item)
    return _build_work_key(effect.name, describe_ask(effect, _NO_SNAPSHOT).arguments)


_NO_SNAPSHOT = Snapshot()
"""What an effect needs does not depend on the conversation."""


def build_call_key_of(kind: str, call: ToolCall) -> Key:
    """The key of a tool call: `verdict`, `decision`, `outcome` or `refusal`."""
    return (kind, build_call_key(call))


def build_reply_key(effect: str) -> Key:
    """The key of the answers to the model calls of an effect, whatever was asked."""
    return ("reply", effect)


def _build_agent_key(
    name: str, arguments: Mapping[str, Any], item: int, newest_message: str | None = None
) -> Key:
    history = [(message.get("role"), message.get("content")) for message in arguments.get("history") or ()]
    messages = arguments.get("messages") or [""]
    first_message = messages[item] if item < len(messages) else ""
    message = first_message if newest_message is None else newest_message
    return ("agent", name, encode_canonical_text([arguments.get("agent"), message, history]))


def _build_work_key(name: str, arguments: Mapping[str, Any]) -> Key:
    return ("work", name, encode_canonical_text(dict(arguments)))


def _build_ask_key(ask: AskedEffect, item: int = 0, newest_message: str | None = None) -> Key:
    """The key of an effect as a record shows it; the same as `build_effect_key` gives for its value.

    Args:
        newest_message: what the user has told a child that had waited for it.
    """
    data = ask.data
    if ask.asks_model:
        return ("request", data.get("digest", ""))
    if data.get("seconds") is not None:
        return ("wait", data.get("state", ""), ask.name)
    arguments = data.get("arguments") or {}
    if "agent" in arguments and "messages" in arguments:
        return _build_agent_key(ask.name, arguments, item, newest_message)
    return _build_work_key(ask.name, arguments)


# -- reading ---------------------------------------------------------------------------------------


def collect_recorded_answers(
    records: Iterable[ReadRecord], may_answer: Callable[[ReadRecord, Answering], bool] | None = None
) -> RecordedAnswers:
    """The answers and the events from outside of a conversation.

    Args:
        may_answer: whether the event of a record may answer again; None for all.

    Raises:
        LogDamaged: an event cannot be read.
    """
    collector = _Collector(may_answer)
    for record in records:
        collector.add_record(record)
    return collector.answers


class _Collector:
    def __init__(self, may_answer: Callable[[ReadRecord, Answering], bool] | None) -> None:
        self.answers = RecordedAnswers()
        self._may_answer = may_answer
        self._asks: dict[int, AskedEffect] = {}
        self._calls: dict[str, ToolCall] = {}
        self._refused_ids: set[str] = set()
        self._resting: set[tuple[int, int]] = set()
        """Effect and item of each child that waits for the user's next message."""
        self._newest_messages: dict[tuple[int, int], str] = {}
        """What such a child was told last."""
        self._handlers: dict[type[Event], Callable[[Any], Iterator[tuple[Key, Answering]]]] = {
            Reviewed: self._read_review,
            Decided: self._read_decision,
            ToolFinished: self._read_outcome,
        }

    def add_record(self, record: ReadRecord) -> None:
        event = record.decode_event()
        if isinstance(event, Replied):
            self._note_calls(record, event)
        if isinstance(event, TurnStarted | UserSaid):
            self._newest_messages |= dict.fromkeys(self._resting, event.message)
            self._resting.clear()
        if not isinstance(event, Answering):
            self.answers.external_events.append(RecordedAnswer(seq=record.seq, event=event))
        else:
            handler = self._handlers.get(type(event), self._read_effect_answer)
            for key, answer in list(handler(event)):
                if self._may_answer is None or self._may_answer(record, event):
                    self.answers.add_answer(key, record.seq, answer)
        for ask in record.asks:
            self._note_ask(ask)

    def _note_calls(self, record: ReadRecord, event: Replied) -> None:
        calls = event.reply.tool_calls
        ids = record.calls or tuple(call.id for call in calls)
        self._calls |= {call_id: replace(call, id=call_id) for call_id, call in zip(ids, calls, strict=False)}

    def _note_ask(self, ask: AskedEffect) -> None:
        if ask.id is not None:
            self._asks[ask.id] = ask
        self._refused_ids |= set(ask.data.get("refused") or ())
        self.answers.add_question(_build_ask_key(ask))

    def _read_effect_answer(self, event: Answering) -> Iterator[tuple[Key, Answering]]:
        ask = self._asks.get(event.effect)
        if ask is None:
            return
        item = event.item if isinstance(event, AgentAnswering) else 0
        child = (event.effect, item)
        if isinstance(event, Replied | Failed) and ask.asks_model:
            yield build_reply_key(ask.name), event
        key = ("wait", ask.data.get("state", ""), ask.name) if isinstance(event, Elapsed) else None
        yield key or _build_ask_key(ask, item, self._newest_messages.get(child)), event
        if isinstance(event, AgentRested):
            self._resting.add(child)

    def _read_review(self, event: Reviewed) -> Iterator[tuple[Key, Answering]]:
        for verdict in event.verdicts:
            call = self._calls.get(verdict.call_id)
            if call is None:
                continue
            yield build_call_key_of("verdict", call), replace(event, verdicts=(verdict,))
            if verdict.arguments is not None:
                self._calls[call.id] = replace(call, arguments=verdict.arguments)

    def _read_decision(self, event: Decided) -> Iterator[tuple[Key, Answering]]:
        call = self._calls.get(event.call_id)
        if call is None:
            return
        yield build_call_key_of("decision", call), event
        if event.arguments is not None:
            self._calls[call.id] = replace(call, arguments=event.arguments)

    def _read_outcome(self, event: ToolFinished) -> Iterator[tuple[Key, Answering]]:
        call = self._calls.get(event.call_id)
        if call is not None:
            # Refusals follow from the chart and the stop of a process.
            is_refusal = event.call_id in self._refused_ids or event.outcome in ("interrupted", "skipped")
            yield build_call_key_of("refusal" if is_refusal else "outcome", call), event
