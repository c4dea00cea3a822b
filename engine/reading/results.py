"""The results of the chart of a conversation, from the events that brought them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.engine.log.read_records import ReadRecord
from toolchart.engine.log.turn_totals import decode_totals
from toolchart.engine.reading.steps import read_kinds, read_since
from toolchart.states.events import Forked
from toolchart.states.ports import Store


def read_results(store: Store, conversation: str) -> dict[str, Any]:
    """The newest value of each result of the chart, from the events that brought them.

    Results live for a run of the chart: where it waits for its user, the next turn goes on with it.

    Raises:
        LogDamaged: a record cannot be read.
    """
    collector = _ResultCollector(read_kinds(store, conversation))
    for record in read_since(store, conversation, _find_run(store, conversation)):
        collector.add_record(record)
    return collector.values


def _find_run(store: Store, conversation: str) -> int:
    """Number of the record that began the newest run of the chart, or of one before it.

    A turn that `await_user` or a waiting agent ended goes on with the run. Which effect does so is declared
    in the chart; any declared effect is taken for one, so a run is sought too far back rather than too near.
    """
    ended = [(seq, decode_totals(data)) for seq, data in store.read_totals(conversation)]
    for seq, totals in ended[1:]:
        if totals is not None and totals.figures.ended_by in _TERMINATING:
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
        self._kinds |= record.kinds
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
