"""Which recorded conversations would go another way with a changed chart.

The recorded events of a conversation go through the core twice: with the chart that it ran, and with the
other one. As long as both ask for the same, everything that happened outside (replies, results, decisions)
would have happened with the other chart too, so the recording says what it does. At the first step where they
differ the conversation goes another way. What would follow there, no recording knows.

Two steps are the same if they lead to the same states, ask for the same effects with the same content, cancel
the same ones, and end the turn alike. Which row was taken, and how its guard is written, does not count.
Verdicts about calls are facts of the recording: other rules of approval are no matter of the chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.replay import compile_recorded_chart, replay_conversation
from toolchart.engine.reading.steps import ConfigurationReader
from toolchart.states.chart.document import Chart
from toolchart.states.core.step import Step, step
from toolchart.states.effects import Effect, compute_effect_digest
from toolchart.states.errors import ToolchartError
from toolchart.states.events import Configured, Event, Migrated, TurnStarted
from toolchart.states.machine import Machine, get_machine
from toolchart.states.ports import Store
from toolchart.states.snapshot import Configuration, Snapshot


class OtherWay(msgspec.Struct, frozen=True, kw_only=True):
    """The first step of a conversation that another chart takes otherwise."""

    conversation: str
    seq: int
    """Number of the record."""
    turn: int
    event: str
    """The event, with the effect that it answers: `replied.write_draft`."""
    state: str
    """Where the conversation stood, as its own chart calls it."""
    kind: Literal["path", "content", "refused"]
    """It goes to other states or asks for other effects; it asks for the same ones with another content, such
    as another prompt; or the chart does not take the event at all."""
    old: str
    """What happened, in a few words."""
    new: str
    """What the other chart does."""


class UnreadConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that could not be replayed, so that nothing is known of it."""

    conversation: str
    reason: str


class Rerouting:
    """Replays conversations with another chart.

    Args:
        renamed: by name of a state, or of a timer, of the old chart: its name in the new one, where they
            differ.
        limits: limits of a turn that take the place of the recorded ones, by name.

    Raises:
        SpecError: the new chart cannot be compiled.
    """

    def __init__(
        self,
        old: Chart,
        new: Chart,
        *,
        renamed: Mapping[str, str] | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        self._old = (old.to_yaml(), dict(old.effects))
        self._new = new
        self._machine = get_machine(new)
        self._renamed = renamed or {}
        self._limits = dict(limits or {})

    def list_conversations(self, store: Store) -> list[str]:
        """The conversations of a log whose newest chart is the old one, in the order of the store."""
        reader = ConfigurationReader()
        return [name for name in store.list_conversations() if self._has_old_chart(store, name, reader)]

    def _has_old_chart(self, store: Store, conversation: str, reader: ConfigurationReader) -> bool:
        record = reader.read(store, conversation)
        if record is None:
            return False
        return (record.event.get("chart"), dict(record.event.get("effects") or {})) == self._old

    def has_run_old_chart(self, store: Store, conversation: str) -> bool:
        """Whether a conversation ran the old chart at any time; true too where it cannot be replayed."""
        try:
            return any(
                isinstance(replayed.step.event, Configured) and self._is_of_old_chart(replayed.step.event)
                for replayed in replay_conversation(store, conversation, include_shared=True)
            )
        except ToolchartError:
            return True

    def find_other_way(self, store: Store, conversation: str) -> OtherWay | UnreadConversation | None:
        """The first step that the new chart takes otherwise; None where the conversation goes the same way.

        Segments of the conversation that ran a third chart keep it, and their limits.
        """
        try:
            return self._find_other_way(store, conversation)
        except ToolchartError as error:
            return UnreadConversation(conversation=conversation, reason=str(error))

    def _find_other_way(self, store: Store, conversation: str) -> OtherWay | None:
        snapshot = own_snapshot = Snapshot()
        machine: Machine | None = None
        is_replaced = False
        names: Mapping[str, str] = {}
        for replayed in replay_conversation(store, conversation, include_shared=True):
            event, old = replayed.step.event, replayed.step
            if isinstance(event, Configured):
                is_replaced = self._is_of_old_chart(event)
                former_names, names = names, self._renamed if is_replaced else {}
                if isinstance(event, Migrated):
                    event = _translate_names(event, own_snapshot, former_names, names)
                event, machine = self._replace_chart(event)
            assert machine is not None, "a log begins with its configuration"
            place = {
                "conversation": conversation,
                "seq": replayed.record.seq,
                "turn": replayed.record.turn,
                "event": _describe_event(event, snapshot),
                "state": own_snapshot.state,
            }
            try:
                new = step(machine, snapshot, self._replace_limits(event) if is_replaced else event)
            except ToolchartError as error:
                return OtherWay(**place, kind="refused", old=_describe_step(old, old), new=str(error))
            if (kind := _compare(old, new, names)) is not None:
                return OtherWay(
                    **place, kind=kind, old=_describe_step(old, new, names), new=_describe_step(new, old)
                )
            snapshot, own_snapshot = new.snapshot, old.snapshot
        return None

    def _is_of_old_chart(self, event: Configured) -> bool:
        return (event.chart, dict(event.effects)) == self._old

    def _replace_chart(self, event: Configured) -> tuple[Configured, Machine]:
        """A configuration with the new chart in place of the old one, and the machine that goes on."""
        if not self._is_of_old_chart(event):
            return event, compile_recorded_chart(event)
        new = replace(event, chart=self._new.to_yaml(), effects=dict(self._new.effects))
        return new, self._machine

    def _replace_limits(self, event: Event) -> Event:
        if not self._limits or not isinstance(event, TurnStarted):
            return event
        settings = event.settings
        return replace(event, settings=replace(settings, limits=replace(settings.limits, **self._limits)))


def _translate_names(
    event: Migrated, snapshot: Snapshot, former_names: Mapping[str, str], names: Mapping[str, str]
) -> Migrated:
    """A migration between the names that the states have with the other chart, before and after it.

    Args:
        snapshot: of the conversation before, as it was recorded.
        former_names: by recorded name of a state or a timer before the migration: its name with the other
            chart, where they differ.
        names: the same of the names after it.
    """

    def translate(own_names: Iterable[str], renamed: Mapping[str, str]) -> dict[str, str]:
        pairs = ((name, renamed.get(name, name)) for name in own_names)
        return {former_names.get(old, old): names.get(new, new) for old, new in pairs}

    configuration = snapshot.configuration or Configuration(states=())
    histories = (name for history, remembered in configuration.history for name in (history, *remembered))
    return replace(
        event,
        renamed_states=translate((*configuration.states, *histories), event.renamed_states),
        renamed_effects=translate((effect.name for effect in snapshot.open_effects), event.renamed_effects),
    )


def _compare(old: Step, new: Step, names: Mapping[str, str]) -> Literal["path", "content"] | None:
    """How two steps differ; None where they do the same.

    Args:
        names: by name of a state or a timer in the old step: its name in the new one.
    """
    if _describe_path(old, names) != _describe_path(new, {}):
        return "path"
    old_work, new_work = ([compute_effect_digest(effect) for effect in s.effects] for s in (old, new))
    ends = [(s.snapshot.answer, s.snapshot.limit_reached, s.snapshot.error) for s in (old, new)]
    return "content" if old_work != new_work or ends[0] != ends[1] else None


def _describe_path(one: Step, renamed: Mapping[str, str]) -> tuple[Any, ...]:
    asks = [(e.id, renamed.get(e.name, e.name), e.result, renamed.get(e.state, e.state)) for e in one.effects]
    return (
        _list_states(one.target, renamed),
        asks,
        one.cancels,
        one.ends_turn,
        one.snapshot.is_over,
        one.snapshot.ended_by,
    )


def _list_states(label: str, renamed: Mapping[str, str]) -> frozenset[str]:
    return frozenset(renamed.get(name, name) for name in label.split("+"))


def _describe_event(event: Event, snapshot: Snapshot) -> str:
    answered = getattr(event, "effect", 0)
    effect = next((each for each in snapshot.open_effects if each.id == answered), None)
    return f"{event.TYPE}.{effect.name}" if effect is not None else event.TYPE


def _describe_step(one: Step, other: Step, renamed: Mapping[str, str] | None = None) -> str:
    """What a step does, in a few words: `published, asks publish`."""
    names = renamed or {}
    parts = ["+".join(names.get(name, name) for name in one.target.split("+")) or "(no state)"]
    asks = list(_list_asks(one.effects))
    if asks:
        parts.append(f"asks {', '.join(asks)}")
    if one.cancels and one.cancels != other.cancels:
        parts.append(f"cancels {len(one.cancels)}")
    if one.is_untaken:
        parts.append("no row takes it")
    snapshot = one.snapshot
    if snapshot.is_over and snapshot.error is not None:
        parts.append(f"error: {snapshot.error.message}")
    elif snapshot.is_over and snapshot.limit_reached:
        parts.append(f"limit: {snapshot.limit_reached}")
    return ", ".join(parts)


def _list_asks(effects: tuple[Effect, ...]) -> Iterator[str]:
    yield from (effect.name for effect in effects)
