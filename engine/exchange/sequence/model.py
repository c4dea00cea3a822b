"""The neutral model of a sequence picture: participants, and what passes between them in order."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

ParticipantKind = Literal["user", "chart", "model", "tools", "person", "agent", "function", "other"]

_MAX_ENTRIES = 240
"""Entries of a picture."""


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who sends or receives."""

    key: str
    kind: ParticipantKind
    label: str


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something that one participant sends another, or itself."""

    seq: int
    """The record that says so."""
    source: str
    target: str
    text: str
    is_answer: bool = False
    """Whether it answers an effect; drawn with a broken line."""


class Note(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What happens at one participant: the chart enters a state, for instance."""

    seq: int
    participant: str
    text: str
    is_state: bool = False
    """Whether it says which state was entered."""


class Divider(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A line over all participants: a turn begins, or entries are left out."""

    text: str


Entry = Message | Note | Divider


class SequenceDiagram(msgspec.Struct, frozen=True, kw_only=True):
    """A whole sequence."""

    title: str
    participants: tuple[Participant, ...]
    entries: tuple[Entry, ...]

    def fold(self, max_entries: int = _MAX_ENTRIES) -> SequenceDiagram:
        """The sequence with its middle left out, and a line in its place, if it is long."""
        count = len(self.entries)
        if count <= max_entries:
            return self
        end_count = max_entries // 2
        left_out = count - 2 * end_count
        divider = Divider(text=f"{left_out:,} of {count:,} entries are left out; the format text has all")
        return replace(self, entries=(*self.entries[:end_count], divider, *self.entries[-end_count:]))
