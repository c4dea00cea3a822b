"""Conversion: writes a conversation of format 1 again in format 2, so that it can go on.

The recorded events go through today's core, with the ids of the effects that they answer. Each record of the
old conversation gives one record of the new one, under the same number. The old conversation stays as it is;
record 0 of the new one names its newest hash. A conversation in the middle of a turn is converted too.

Limits and texts are filled in as release 0.1 had them, so that a later change of a default changes nothing.
Where today's core would make another step than the recorded one, nothing is written, and the error names the
record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log import record as records
from toolchart.engine.log.reading.format1 import LIMITS, TEXTS
from toolchart.engine.log.reading.records import ReadRecord, parse_line, read_conversation
from toolchart.specs.unread_limits import find_read_limits
from toolchart.states.chart.loading import Chart, make_chart, parse_recorded_chart
from toolchart.states.core.step import SEMANTICS, Step, find_answered_effect, step
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.events import Answering, Configured, Event, Forked, Settings, TurnStarted, Versions
from toolchart.states.machine import Machine, get_machine
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot
from toolchart.states.vocabulary import EFFECTS

_BACKSTOP = 1_000_000
"""`max_steps` of converted turns: format 1 had no such limit."""


class ConvertedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in format 2; nothing is stored yet."""

    name: str
    converted_from: str
    """Id of the conversation of format 1."""
    lines: tuple[bytes, ...]
    notes: tuple[str, ...] = ()
    """What was left out of the recorded spec, one sentence each."""


def plan_conversion(
    store: Store, conversation: str, version: str, name: str | None = None
) -> list[ConvertedConversation]:
    """Convert a conversation, and those that it was forked from unless they are converted already.

    Args:
        version: of the release that converts.
        name: id of the new conversation; None appends `.2` to the old one.

    Returns:
        The new conversations, parents first. The caller appends them.

    Raises:
        SpecError: the conversation is of format 2, its chart cannot be adapted, or today's core does not
            make the recorded steps.
        LogDamaged: the log is not the one that was written.
    """
    own_records = list(read_conversation(store, conversation))
    if not own_records or own_records[0].format != 1:
        raise SpecError(f"conversation {conversation!r} is not of format 1, so there is nothing to convert")
    plan: list[ConvertedConversation] = []
    new_parent: str | None = None
    parent_heads: tuple[str, ...] = ()
    if own_records[0].event_type == Forked.TYPE:
        parent = str(own_records[0].event["parent"])
        new_parent = _build_name(parent)
        if not _is_conversion(store, new_parent):
            plan = plan_conversion(store, parent, version)
        parent_lines = plan[-1].lines if plan else tuple(store.read_lines(new_parent))
        parent_heads = tuple(parse_line(line, seq).hash for seq, line in enumerate(parent_lines))
    new_name = name or _build_name(conversation)
    if store.read_last_line(new_name) is not None:
        raise SpecError(f"there is a conversation {new_name!r} already", hint="choose another id with --name")
    converter = _Converter(conversation, new_name, own_records[-1].hash, version)
    converter.new_parent, converter.parent_heads = new_parent, parent_heads
    all_records = list(read_conversation(store, conversation, include_shared=True))
    lines = converter.convert_records(all_records, len(all_records) - len(own_records))
    converted = ConvertedConversation(
        name=new_name, converted_from=conversation, lines=tuple(lines), notes=tuple(converter.notes)
    )
    return [*plan, converted]


def _build_name(conversation: str) -> str:
    return f"{conversation}.2"


def _is_conversion(store: Store, name: str) -> bool:
    """Whether a conversation is there that was converted from format 1."""
    first = next(iter(store.read_lines(name)), None)
    return first is not None and parse_line(first, 0, name).event.get("converted_from") is not None


class _Converter:
    """Feeds the events of a conversation of format 1 to today's core, and encodes the steps."""

    def __init__(self, old_name: str, new_name: str, head: str, version: str) -> None:
        self.new_parent: str | None = None
        self.parent_heads: tuple[str, ...] = ()
        self.notes: list[str] = []
        self._old_name = old_name
        self._new_name = new_name
        self._head = head
        self._versions = Versions(toolchart=version, semantics=SEMANTICS)
        self._snapshot = Snapshot()
        self._machine: Machine | None = None

    def convert_records(self, all_records: Iterable[ReadRecord], shared: int) -> list[bytes]:
        """The new lines of the records after the first `shared` ones, which only lead to the first state."""
        lines: list[bytes] = []
        prev = records.GENESIS
        for index, record in enumerate(all_records):
            data, new_step = self._convert_step(record)
            if index >= shared:
                line, prev = records.encode_record(record.seq, record.at, data, new_step, prev)
                lines.append(line)
        return lines

    def _convert_step(self, record: ReadRecord) -> tuple[bytes, Step]:
        """The JSON of the event and the step of one record."""
        try:
            event, data = records.encode_plain_event(self._translate_event(record))
            assert self._machine is not None, "the first record has a chart"
            new_step = step(self._machine, self._snapshot, event)
        except IllegalEvent as error:
            raise self._refuse(record, str(error)) from None
        for field in ("source", "target", "turn", "iteration", "guards"):
            derived = _get_step_field(new_step, field)
            if derived != getattr(record, field):
                raise self._refuse(
                    record, f"its {field} is {getattr(record, field)!r}, and today's core gives {derived!r}"
                )
        self._snapshot = new_step.snapshot
        return data, new_step

    def _translate_event(self, record: ReadRecord) -> Event:
        """The event as format 2 has it."""
        event = record.decode_event()
        match event:
            case Configured():
                return self._translate_configuration(event, record)
            case Forked():
                settings = _fill_settings(record.event["settings"]) if event.settings is not None else None
                return replace(
                    event,
                    format=records.FORMAT,
                    conversation=self._new_name,
                    parent=self.new_parent or event.parent,
                    head=self.parent_heads[event.seq] if event.seq < len(self.parent_heads) else event.head,
                    settings=settings,
                    converted_from=self._head,
                )
            case TurnStarted():
                return replace(event, settings=_fill_settings(record.event["settings"]))
        return name_answered_effect(self._snapshot, event)

    def _translate_configuration(self, event: Configured, record: ReadRecord) -> Configured:
        chart = _adapt_chart(event.chart, f"the chart of conversation {self._old_name}, record {record.seq}")
        self._machine = get_machine(chart)
        spec, notes = adapt_spec(event.spec, chart)
        self.notes += [note for note in notes if note not in self.notes]
        return replace(
            event,
            format=records.FORMAT,
            conversation=self._new_name,
            chart=chart.to_yaml(),
            spec=spec,
            texts=dict(TEXTS),
            versions=self._versions,
            converted_from=self._head if record.seq == 0 else None,
        )

    def _refuse(self, record: ReadRecord, problem: str) -> SpecError:
        return SpecError(
            f"conversation {self._old_name!r} cannot be converted: record {record.seq}: {problem}",
            hint="it can still be shown, exported, drawn and compared; release 0.1 replays it",
        )


def name_answered_effect(snapshot: Snapshot, event: Event) -> Event:
    """The event with the id of the open effect that it answers.

    Raises:
        IllegalEvent: no open effect is answered by it.
    """
    if not isinstance(event, Answering):
        return event
    effect = find_answered_effect(snapshot, event)
    return event if effect is None else replace(event, effect=effect.id)


def _get_step_field(new_step: Step, field: str) -> Any:
    holder = new_step.snapshot if field in ("turn", "iteration") else new_step
    return getattr(holder, field)


def _fill_settings(data: Mapping[str, Any]) -> Settings:
    """The settings of a turn with every limit as release 0.1 had it."""
    limits = {"max_steps": _BACKSTOP, **LIMITS, **data.get("limits", {})}
    return msgspec.convert({**data, "limits": limits}, Settings)


# -- specs ---------------------------------------------------------------------------------------


def adapt_spec(spec: Mapping[str, Any], chart: Chart) -> tuple[dict[str, Any], list[str]]:
    """The recorded spec with its chart inline, without limits that the chart does not read; notes on those.

    Release 0.1 ignored such limits in silence, and today's loader refuses them.
    """
    read_limits = find_read_limits(chart)
    notes: list[str] = []
    adapted = {**spec, "chart": chart.document}
    for section in ("limits", "retry"):
        if isinstance(spec.get(section), Mapping):
            adapted[section] = _drop_unread_limits(spec[section], section, read_limits, notes)
    if isinstance(spec.get("tools"), Mapping):
        adapted["tools"] = _drop_iteration_limit(spec["tools"], "tools", read_limits, notes)
    if isinstance(spec.get("responses"), list):
        adapted["responses"] = [
            _adapt_handler(handler, f"responses[{index}].tools", read_limits, notes)
            for index, handler in enumerate(spec["responses"])
        ]
    return adapted, notes


def _adapt_handler(handler: Any, path: str, read_limits: frozenset[str], notes: list[str]) -> Any:
    if not isinstance(handler, Mapping) or not isinstance(handler.get("tools"), Mapping):
        return handler
    return {**handler, "tools": _drop_iteration_limit(handler["tools"], path, read_limits, notes)}


def _drop_iteration_limit(
    section: Mapping[str, Any], path: str, read_limits: frozenset[str], notes: list[str]
) -> dict[str, Any]:
    """A section `tools`, whose only limit is `max_iterations`."""
    limit = {key: value for key, value in section.items() if key == "max_iterations"}
    others = {key: value for key, value in section.items() if key != "max_iterations"}
    return {**others, **_drop_unread_limits(limit, path, read_limits, notes)}


def _drop_unread_limits(
    section: Mapping[str, Any], path: str, read_limits: frozenset[str], notes: list[str]
) -> dict[str, Any]:
    """A section without the limits that the chart does not read; adds a note for each that was set."""
    kept = {}
    for key, value in section.items():
        if value is None or key not in LIMITS or key in read_limits:
            kept[key] = value
        else:
            notes.append(f"{path}.{key} is left out of its spec: nothing in its chart reads it")
    return kept


# -- charts --------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _adapt_chart(text: str, source: str) -> Chart:
    """The chart of a record of format 1 as a chart of today; cached, because many conversations share one."""
    return make_chart(adapt_chart_document(parse_recorded_chart(text).document), source=source)


def adapt_chart_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a chart of release 0.1 as a chart of today; the given one does not change.

    The event `waited` is called `elapsed`. A state that waits for decisions asks for them (`ask_approval`).
    Everything else stays, and the rules for charts decide whether the result is allowed.
    """
    return {**document, "states": _adapt_states(document.get("states") or {})}


def _adapt_states(states: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _adapt_state(body) if isinstance(body, Mapping) else body for name, body in states.items()}


def _adapt_state(body: Mapping[str, Any]) -> dict[str, Any]:
    adapted = dict(body)
    if isinstance(body.get("transitions"), list):
        adapted["transitions"] = [_adapt_row(row) for row in body["transitions"]]
    if isinstance(body.get("states"), Mapping):
        adapted["states"] = _adapt_states(body["states"])
    elif _waits_for_decisions(adapted):
        adapted["enter"] = _add_effect(adapted.get("enter"), "ask_approval")
    return adapted


def _adapt_row(row: Any) -> Any:
    if not isinstance(row, Mapping) or not isinstance(row.get("event"), str):
        return row
    words = ["elapsed" if word == "waited" else word for word in row["event"].split()]
    return {**row, "event": " ".join(words)}


def _waits_for_decisions(body: Mapping[str, Any]) -> bool:
    """Whether a state takes `decided` and asks for nothing that is answered by it."""
    rows = body.get("transitions")
    takes_decisions = isinstance(rows, list) and any(
        isinstance(row, Mapping) and "decided" in str(row.get("event")).split() for row in rows
    )
    answers = [
        answer
        for name in _list_names(body.get("enter"))
        if (row := EFFECTS.find_known(name)) is not None  # a log loads no code
        for answer in row.answers
    ]
    return takes_decisions and "decided" not in answers


def _add_effect(enter: Any, effect: str) -> str | list[str]:
    names = _list_names(enter)
    return [*names, effect] if names else effect


def _list_names(enter: Any) -> list[str]:
    if enter is None:
        return []
    return [str(name) for name in enter] if isinstance(enter, list) else str(enter).split()
