"""Which conversations are meant: by state, time, tool, model or words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toolchart.engine.log import record as records
from toolchart.states.ports import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What a conversation must be; all of it, where several are given."""

    state: str | None = None
    """The state in which it rests."""
    since: datetime | None = None
    """Written to at that time or later."""
    until: datetime | None = None
    """Begun at that time or earlier."""
    tool: str | None = None
    """A tool that the model asked for."""
    model: str | None = None
    """A model that was asked, or that answered."""
    text: str | None = None
    """Words of a message, upper and lower case alike."""

    def fits_row(self, row: dict[str, Any], newest_at: str) -> bool:
        """Whether a summary fits, as far as it tells."""
        if self.state is not None and row["state"] != self.state:
            return False
        if self.since is not None and _moment(newest_at) < self.since:
            return False
        return self.until is None or _moment(row["at"]) <= self.until

    def fits(self, store: Store, conversation: str) -> bool:
        """Whether the records fit; read only as far as it takes."""
        wanted = {
            name: value.lower()
            for name, value in (("tool", self.tool), ("model", self.model), ("text", self.text))
            if value is not None
        }
        if not wanted:
            return True
        for seq, line in enumerate(store.read(conversation)):
            event = records.parse(line, seq, conversation).event
            for name in list(wanted):
                if any(_same(name, wanted[name], found) for found in _FOUND[name](event)):
                    del wanted[name]
            if not wanted:
                return True
        return False


def _same(name: str, wanted: str, found: str) -> bool:
    return wanted in found.lower() if name == "text" else wanted == found.lower()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _tools(event: dict[str, Any]) -> Iterator[str]:
    for call in event.get("reply", {}).get("tool_calls", ()):
        yield call["name"]


def _models(event: dict[str, Any]) -> Iterator[str]:
    for part in ("settings", "reply"):
        model = event.get(part, {}).get("model") if isinstance(event.get(part), dict) else None
        if model:
            yield model


def _texts(event: dict[str, Any]) -> Iterator[str]:
    if event["type"] == "turn_started":
        yield event["message"]
        yield from (one["content"] for one in event.get("history", ()) if one.get("content"))
    elif event["type"] == "replied":
        yield event["reply"].get("content") or ""


_FOUND = {"tool": _tools, "model": _models, "text": _texts}
