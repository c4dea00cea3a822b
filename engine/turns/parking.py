"""Parking: a conversation whose workers die at the same place again and again is left alone.

Each worker that goes on with a conversation appends `resumed` first. So records that end with `resumed`,
`resumed`, and a lease that its worker has lost, say: three workers went on from here, and none got as far as
one more record. Nothing else need be kept, and it is the same on every durable host and without one.

A parked conversation has its turn open, work to do, and a lease that was given back without a time at which
it goes on. Nobody takes it up by itself. Whoever resumes it has it tried once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.clock import SystemClock
from toolchart.engine.runtime.parts import Parts
from toolchart.engine.runtime.waiting import has_open_work
from toolchart.states.core.encoding import read_json
from toolchart.states.events import Resumed
from toolchart.states.ports import Lease, Store

PARK_AFTER = 3
"""Workers that a conversation loses at one place before it is parked."""


def count_losses(store: Store, conversation: str, limit: int) -> int:
    """How many workers a conversation has lost at the place where it stands, at most `limit`.

    It is 0 where the newest one was not lost and the conversation is not parked.

    Workers that were stopped in an orderly way at the same place count too, if the newest one was lost.
    """
    lease = store.find_lease(conversation)
    if lease is None:
        return 0
    is_lost = bool(lease.worker) and conversation not in [held.conversation for held in store.list_leases()]
    if not (is_lost or _is_left(lease)):
        return 0
    if store.read_last_line(conversation) is None:  # each lease was one beginning, and none got to a record
        return min(lease.token, limit)
    # The first worker began there without `resumed`.
    return min(1 + _count_resumptions(store, conversation, limit - 1), limit)


def find_parking(store: Store, conversation: str) -> str | None:
    """Why a conversation is parked; None where it is not."""
    newest, lease = store.read_last_line(conversation), store.find_lease(conversation)
    if newest is None or lease is None or not _is_left(lease) or not _is_resumption(newest[1]):
        return None
    loaded_conversation = load_conversation(store, conversation)
    now = SystemClock().now()
    if loaded_conversation is None or not has_open_work(
        store, loaded_conversation.snapshot, conversation, now, Parts()
    ):
        return None
    return describe_parking(1 + _count_resumptions(store, conversation, newest[0] + 1))


def describe_parking(losses: int) -> str:
    """Why a conversation is parked."""
    return f"parked: {losses} workers in a row ended at the same place, without one more record"


def _is_left(lease: Lease) -> bool:
    """Whether a lease was given back with an open turn that goes on at no time by itself."""
    return not lease.worker and lease.is_open and lease.due is None


def _is_resumption(line: bytes) -> bool:
    return bool(read_json(line)["event"].get("type") == Resumed.TYPE)


def _count_resumptions(store: Store, conversation: str, limit: int) -> int:
    """With how many `resumed` a conversation ends, at most `limit`; those before its children went on do not
    count."""
    newest = store.read_last_line(conversation)
    if newest is None or limit < 1:
        return 0
    lines = list(store.read_lines(conversation, max(0, newest[0] + 1 - limit)))
    times: list[str] = []
    for line in reversed(lines):
        if not _is_resumption(line):
            break
        times.append(str(read_json(line)["at"]))
    # A worker whose child got further was not lost at this place, though the parent has only `resumed`.
    if times:
        progress = _find_progress_of_children(store, conversation)
        times = [time for time in times if time > progress]
    return len(times)


def _find_progress_of_children(store: Store, conversation: str) -> str:
    """The time of the newest record of a child that is no `resumed`; empty where there is none."""
    newest = ""
    for name in store.find_names(f"{conversation}."):
        newest = max(newest, _find_progress(list(store.read_lines(name))))
    return newest


def _find_progress(lines: Sequence[bytes]) -> str:
    return next((str(read_json(line)["at"]) for line in reversed(lines) if not _is_resumption(line)), "")
