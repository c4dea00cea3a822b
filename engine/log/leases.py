"""Leases: who may take one, when it is lost, and which conversations a worker may go on with.

A lease names its worker. Where that process ran on this machine and is gone, its lease can be taken at once;
any other lease can be taken when it has expired. Every store keeps leases in its own way and applies these
rules. Times are seconds since 1970: of the machine for stores on a disk, of the server for PostgreSQL.
"""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from toolchart.states.canonical_json import is_whole_number
from toolchart.states.errors import LeaseHeld, LeaseLost
from toolchart.states.ports import Lease


def is_held(lease: Lease | None, now: float) -> bool:
    """Whether a worker holds a lease now, and is not known to have died."""
    return lease is not None and bool(lease.worker) and lease.expires > now and not is_dead(lease.worker)


def build_next_lease(
    lease: Lease | None, conversation: str, worker: str, seconds: float, now: float
) -> Lease:
    """The lease for a worker that asks for one, with the token after the newest.

    Raises:
        LeaseHeld: another worker holds it.
    """
    # The same worker may: its event loop ended before it could give the lease back. The next token keeps
    # out what that loop may still have under way.
    if lease is not None and lease.worker != worker and is_held(lease, now):
        raise LeaseHeld(conversation, describe_worker(lease.worker), lease.since, lease.expires)
    token = 1 if lease is None else lease.token + 1
    # A worker that is still named has not given it back: its turn can go on at once. Else the time stays,
    # for whoever gives this lease back unused.
    due = now if lease is None or lease.worker else lease.due
    return Lease(
        conversation=conversation, token=token, worker=worker, since=now, expires=now + seconds, due=due
    )


def build_released_lease(lease: Lease, *, is_open: bool, due: float | None) -> Lease:
    """A lease after its worker has released it."""
    return replace(lease, worker="", expires=0.0, is_open=is_open, due=due)


def build_closed_lease(conversation: str) -> Lease:
    """What stands for a conversation that nobody goes on with: a child, which is covered by the lease of its
    root, and one that somebody began without a lease and that is over."""
    return Lease(conversation=conversation, token=0, worker="", since=0.0, expires=0.0, is_open=False)


def build_unknown_lease(conversation: str) -> Lease:
    """What stands for a conversation that somebody began without a lease, such as an import: whether it has
    work is not known, so a worker looks once, and gives it back as it found it."""
    return Lease(conversation=conversation, token=0, worker="", since=0.0, expires=0.0, is_open=True, due=0.0)


def is_unfinished(lease: Lease | None, now: float, *, has_entries: bool) -> bool:
    """Whether a worker may go on with a conversation that has this lease now.

    Args:
        has_entries: whether its inbox has entries.
    """
    if lease is None:
        return True
    if is_held(lease, now):
        return False
    is_due = bool(lease.worker) or (lease.due is not None and lease.due <= now)
    return has_entries or (lease.is_open and is_due)


def find_lease_fault(
    conversation: str, newest: Lease | None, lease: Lease | None, now: float
) -> LeaseHeld | LeaseLost | None:
    """Why records must not be appended under a lease; None where they may.

    Args:
        newest: the newest lease of the conversation's family, in the store.
        lease: that of the writer; None where it has none.
    """
    if lease is not None:
        return find_token_fault(conversation, newest, lease)
    if newest is not None and is_held(newest, now):
        return LeaseHeld(conversation, describe_worker(newest.worker), newest.since, newest.expires)
    return None


def find_token_fault(conversation: str, newest: Lease | None, lease: Lease) -> LeaseLost | None:
    """Why a worker must not append; None where the newest lease is its own."""
    if newest is not None and (newest.token, newest.worker) == (lease.token, lease.worker):
        return None
    taker = f" by {describe_worker(newest.worker)}" if newest is not None and newest.worker else ""
    return LeaseLost(f"conversation {conversation}: its lease was taken over{taker}; this worker stops")


# -- workers -------------------------------------------------------------------------------------


def name_worker(number: int) -> str:
    """The name of this process as a worker: `HOST:PID`, and after `/` what tells processes apart.

    Args:
        number: tells apart the engines of one process.
    """
    return f"{_name_process(os.getpid())}.{number}"


@lru_cache(maxsize=1)
def _name_process(pid: int) -> str:
    """The name of this process. It is read once: a forked child asks with another id, and reads its own."""
    return f"{platform.node()}:{pid}/{_read_machine()}.{_read_start_time(pid) or ''}"


def is_dead(worker: str) -> bool:
    """Whether a worker is known to have ended: it ran on this machine, and its process is gone.

    False where that cannot be known.
    """
    place, _, mark = worker.partition("/")
    machine, _, rest = mark.partition(".")
    start, _, _ = rest.partition(".")
    pid = place.rpartition(":")[2]
    if not is_whole_number(pid) or not start or machine != _read_machine():
        return False
    # The system gives the id of a process again; when it began tells the two apart.
    return _read_start_time(int(pid)) != start


def describe_worker(worker: str) -> str:
    """The part of a worker's name that people read: `HOST:PID`."""
    return worker.partition("/")[0]


@lru_cache(maxsize=1)
def _read_machine() -> str:
    """What is the same for two processes that see each other's ids: this start of the system, and the
    namespace of its process ids; empty where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot[:13]}-{os.stat('/proc/self/ns/pid').st_ino}"
    except (OSError, UnicodeDecodeError):
        return ""


def _read_start_time(pid: int) -> str | None:
    """When a process began, in ticks since the system did; None where there is none, or it is a zombie."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The second field is the name in parentheses, which may have blanks and parentheses itself. After it
    # come fields 3, the state, and 22, the start (`man 5 proc`). A zombie has ended: its parent has only
    # not asked.
    fields = data[data.rfind(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()
