"""Reads a sequence picture from the records of a conversation.

It uses what was recorded and derives nothing: an event comes from whoever performs the effect that it names,
and each effect that a step asked for goes to whoever performs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolchart.engine.exchange.sequence.model import (
    Divider,
    Entry,
    Message,
    Note,
    Participant,
    ParticipantKind,
    SequenceDiagram,
)
from toolchart.engine.log.read_records import AskedEffect, ReadRecord, describe_decider
from toolchart.states.diagram.effect_kinds import EffectKind, find_effect_kind
from toolchart.states.diagram.labels import shorten_text
from toolchart.states.visible_text import make_visible_line

_MAX_TEXT = 60
"""Characters of one text."""

_MAX_PARTICIPANTS = 12

_USER = Participant(key="user", kind="user", label="user")
_CHART = Participant(key="chart", kind="chart", label="chart")
_OTHER = Participant(key="other", kind="other", label="others")

_ORDER: tuple[ParticipantKind, ...] = (
    "user",
    "chart",
    "model",
    "tools",
    "person",
    "agent",
    "function",
    "other",
)
"""Kinds of participants from left to right."""


def read_sequence(title: str, records: Iterable[ReadRecord]) -> SequenceDiagram:
    """The sequence of a conversation.

    Args:
        records: all records, those that a fork shares with its parent first.
    """
    reader = _SequenceReader()
    for record in records:
        reader.add_record(record)
    participants = sorted(reader.participants.values(), key=lambda p: _ORDER.index(p.kind))
    return SequenceDiagram(
        title=_shorten(title), participants=tuple(participants), entries=tuple(reader.entries)
    )


class _SequenceReader:
    def __init__(self) -> None:
        self.participants = {_USER.key: _USER, _CHART.key: _CHART}
        self.entries: list[Entry] = []
        self._service = "model"
        """The `llms` entry that the turn uses."""
        self._performers: dict[int, str] = {}
        """By effect id: the participant who performs it."""
        self._call_names: dict[str, str] = {}
        self._declared_kinds: dict[str, str] = {}
        """By declared effect: its kind."""
        self._reply_text = ""

    def add_record(self, record: ReadRecord) -> None:
        """Add what a step says: its event, the states, and the effects that it asked for."""
        self._add_event(record)
        if record.target and record.target != record.source:
            self._add_note(record, f"state {record.target}", is_state=True)
        for ask in record.asks:
            self._add_ask(record, ask)
        if record.cancels:
            self._add_note(record, f"cancels {len(record.cancels)}")
        if record.ended is not None and not any(self._gives_answer(ask) for ask in record.asks):
            self._add_message(record, _CHART.key, _USER.key, f"ended: {record.ended.by or 'no answer'}")

    # -- events ------------------------------------------------------------------------------

    def _add_event(self, record: ReadRecord) -> None:
        event, marks = record.event, _describe_marks(record)
        self._service = str(_get_mapping(event, "settings").get("service") or self._service)
        for name, body in _get_mapping(event, "effects").items():
            self._declared_kinds[str(name)] = str(next(iter(body), "")) if isinstance(body, Mapping) else ""
        match record.event_type:
            case "configured" | "migrated" | "forked" | "continued" | "resumed" as name:
                self._add_note(record, name + marks)
            case "calls_started":
                names = [str(self._call_names.get(call_id, call_id)) for call_id in event.get("calls") or ()]
                self._add_note(record, f"starts {_join(names)}{marks}" if names else f"starts{marks}")
            case "call_submitted":
                self._add_note(record, f"waits for batch job {event.get('job') or event.get('key')}{marks}")
            case "turn_started":
                self.entries.append(Divider(text=f"turn {record.turn}"))
                self._add_message(record, _USER.key, _CHART.key, str(event.get("message")) + marks)
            case "user_said":
                self._add_message(record, _USER.key, _CHART.key, str(event.get("message")) + marks)
            case "cancelled":
                text = ": ".join(filter(None, ["cancelled", event.get("reason")]))
                self._add_message(record, _USER.key, _CHART.key, text + marks)
            case _:
                self._add_answer(record, marks)

    def _add_answer(self, record: ReadRecord, marks: str) -> None:
        sender = self._performers.get(record.event.get("effect", 0), _CHART.key)
        if record.event_type == "replied":
            self._keep_reply(record)
        text = self._describe_event(record) + marks
        if sender == _CHART.key:
            self._add_note(record, text)
        else:
            self._add_message(record, sender, _CHART.key, text, is_answer=True)

    def _keep_reply(self, record: ReadRecord) -> None:
        reply = _get_mapping(record.event, "reply")
        self._reply_text = str(reply.get("content") or reply.get("refusal") or "")
        calls = [call for call in reply.get("tool_calls") or () if isinstance(call, Mapping)]
        for index, call in enumerate(calls):
            call_id = record.calls[index] if index < len(record.calls) else str(call.get("id"))
            self._call_names[call_id] = str(call.get("name"))

    def _describe_event(self, record: ReadRecord) -> str:
        event, name = record.event, record.event_type
        match name:
            case "replied":
                reply = _get_mapping(event, "reply")
                calls = [
                    str(_get_mapping({"": call}, "").get("name")) for call in reply.get("tool_calls") or ()
                ]
                return f"{name}: {f'calls {_join(calls)}' if calls else self._reply_text}"
            case "reviewed":
                rulings = [str(verdict.get("ruling")) for verdict in event.get("verdicts") or ()]
                return f"{name}: {_join(rulings)}"
            case "decided":
                ruling = "approved" if event.get("approved") else "denied"
                who = describe_decider(event)
                return f"{name}: {self._name_call(event.get('call_id'))} {ruling}{who}"
            case "tool_finished":
                return f"{name}: {self._name_call(event.get('call_id'))} {event.get('outcome')}"
            case "failed":
                return f"{name}: {event.get('kind')}"
        return name

    # -- effects -----------------------------------------------------------------------------

    def _add_ask(self, record: ReadRecord, ask: AskedEffect) -> None:
        if self._gives_answer(ask):
            text = ask.data.get("content")
            self._add_message(record, _CHART.key, _USER.key, f"{ask.name}: {text or self._reply_text}")
            return
        performer = self._find_performer(ask.name, ask.data)
        self._performers[ask.id] = performer
        if performer != _CHART.key or self._find_kind(ask.name) == "timer":
            self._add_message(record, _CHART.key, performer, self._describe_ask(ask))

    def _describe_ask(self, ask: AskedEffect) -> str:
        calls = [*(ask.data.get("calls") or ()), *(ask.data.get("refused") or ())]
        if calls:
            return f"{ask.name}: {_join([self._name_call(_find_call_id(call)) for call in calls])}"
        seconds = ask.data.get("seconds")
        return ask.name if seconds is None else f"{ask.name} {seconds} s"

    def _find_performer(self, effect: str, data: Mapping[str, Any]) -> str:
        """The participant who performs an effect; the chart itself where nobody else does."""
        kind = self._find_kind(effect)
        match kind:
            case "model":
                service = str(data.get("host") or self._service)
                label = kind if service == kind else f"{kind} {service}"
                return self._add_participant(label, kind, label)
            case "tools" | "person":
                return self._add_participant(kind, kind, kind)
            case "user":
                return _USER.key
            case "agent" | "function":
                return self._add_participant(f"{kind} {effect}", kind, effect)
        return _CHART.key

    def _find_kind(self, effect: str) -> EffectKind:
        return find_effect_kind(self._declared_kinds.get(effect, effect))

    def _gives_answer(self, ask: AskedEffect) -> bool:
        return self._find_kind(ask.name) == "answer"

    def _name_call(self, call_id: Any) -> str:
        return self._call_names.get(str(call_id), str(call_id or "no call"))

    # -- entries -----------------------------------------------------------------------------

    def _add_participant(self, key: str, kind: ParticipantKind, label: str) -> str:
        if key not in self.participants and len(self.participants) >= _MAX_PARTICIPANTS:
            key, kind, label = _OTHER.key, _OTHER.kind, _OTHER.label
        self.participants.setdefault(key, Participant(key=key, kind=kind, label=_shorten(label)))
        return key

    def _add_message(
        self, record: ReadRecord, source: str, target: str, text: str, *, is_answer: bool = False
    ) -> None:
        self.entries.append(
            Message(seq=record.seq, source=source, target=target, text=_shorten(text), is_answer=is_answer)
        )

    def _add_note(self, record: ReadRecord, text: str, *, is_state: bool = False) -> None:
        self.entries.append(
            Note(seq=record.seq, participant=_CHART.key, text=_shorten(text), is_state=is_state)
        )


def _describe_marks(record: ReadRecord) -> str:
    marks = [word for word, holds in (("late", record.is_late), ("not taken", record.is_untaken)) if holds]
    return f" ({', '.join(marks)})" if marks else ""


def _get_mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _find_call_id(call: Any) -> Any:
    return call.get("id") if isinstance(call, Mapping) else call


def _join(names: list[str]) -> str:
    """Names in order, equal neighbours counted: `echo x2, search`."""
    counts: list[tuple[str, int]] = []
    for name in names:
        if counts and counts[-1][0] == name:
            counts[-1] = (name, counts[-1][1] + 1)
        else:
            counts.append((name, 1))
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counts) or "none"


def _shorten(text: str) -> str:
    # Cut first: a text can be a whole document.
    return shorten_text(make_visible_line(" ".join(text[:1000].split())), _MAX_TEXT)
