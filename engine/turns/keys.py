"""Messages with an idempotency key: where the log has one.

In: a conversation and a key. Out: the record that has the message, and the turn that it is of. Next:
`inbox.py` gives its sender the result of that turn, and says nothing a second time.

The key stands in the record of the message. So whoever asks finds it: after a restart, in another process,
and under the lease, where nobody can say the message meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.states.core.encoding import read_json
from toolchart.states.errors import TurnChanged
from toolchart.states.events import TurnStarted, UserSaid
from toolchart.states.ports import RecordReader


class KeyedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was said with a key."""

    seq: int
    """Number of its record."""
    event: Mapping[str, Any]
    """`turn_started` or `user_said`, as JSON data."""
    start: int
    """Number of the record that began the turn which has it."""
    end: int | None
    """Number of the record that began the next turn; None where none has."""


def build_used_key_error(key: str, difference: str) -> TurnChanged:
    """The error for a key that comes again with something else."""
    return TurnChanged(f"the key {key!r} was used", difference, "use a key of its own for each message")


def find_keyed_message(store: RecordReader, conversation: str, key: str) -> KeyedMessage | None:
    """The newest message of a conversation with a key; None where there is none."""
    # Most records are neither: what does not have these bytes is not parsed.
    key_bytes, start_bytes = msgspec.json.encode(key)[1:-1], TurnStarted.TYPE.encode()
    found: KeyedMessage | None = None
    start = 0
    for seq, line in enumerate(store.read_lines(conversation)):
        if start_bytes not in line and key_bytes not in line:
            continue
        event = read_json(line)["event"]
        if event["type"] == TurnStarted.TYPE:
            start = seq
            if found is not None and found.end is None:
                found = replace(found, end=seq)
        if event["type"] in (TurnStarted.TYPE, UserSaid.TYPE) and event.get("key") == key:
            found = KeyedMessage(seq=seq, event=event, start=start, end=None)
    return found
