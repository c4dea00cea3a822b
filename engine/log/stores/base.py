"""The store primitive, and everything that is written once above it.

A store does two things: it keeps the lines of conversations, and beside them small values that are compared
before they are changed. `StoreBase` has the methods that a store writes for itself, and says what each
promises. From them it makes what the engine calls: appends under a lease, leases, inboxes, checkpoints
and deleting.

| value | kind | key | data |
|---|---|---|---|
| the lease of a conversation | `lease` | empty | `TOKEN WORKER`, a line end, and the lease as JSON |
| an entry of its inbox | `inbox` | the entry's idempotency key | the entry; empty when it was taken |
| a message for a worker | `submission` | `turn/` and the idempotency key | its digest, a line end, and the
message with its options; the digest alone when it was taken, with a mark when it was withdrawn |
| a checkpoint | `checkpoint` | number of its record, with 12 digits | the checkpoint |
| the totals of a turn | `turn` | the same of the record that ended it | the totals |

The rules of leases (who may take one, when it is lost) stand in `leases.py`. Here is how they
become safe without locks: a lease is read, the next one is computed, and it is written only where the value
is still the one that was read. A record is appended only where the value of the lease begins with the
writer's own token and name. The token grows with each lease, so a worker that stood still for an hour cannot
append under the lease of another engine of the same process either. What is prolonged keeps its token, so a
renewal does not disturb an append that is under way.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.leases import (
    build_closed_lease,
    build_next_lease,
    build_released_lease,
    build_unknown_lease,
    find_lease_fault,
    find_token_fault,
    is_held,
    is_unfinished,
)
from toolchart.states.canonical_json import is_whole_number
from toolchart.states.errors import LogConflict, LogDamaged, ToolchartError
from toolchart.states.ports import (
    SUBMISSION_KEY,
    InboxEntry,
    IndexEntry,
    IndexGap,
    IndexQuery,
    Lease,
    Outline,
    RecordBatch,
)

LEASE, INBOX, SUBMISSION, CHECKPOINT, TURN = "lease", "inbox", "submission", "checkpoint", "turn"
"""The kinds of small values; `turn` has the totals of an ended turn."""

KINDS = (LEASE, INBOX, SUBMISSION, CHECKPOINT, TURN)

LISTED_AT_ONCE = 100
"""Conversations that are listed, or deleted, at once."""

_RECORD_KEY = "%012d"
"""The key of a value that belongs to a record: its number."""

_encode_json = msgspec.json.Encoder().encode
_decode_lease = msgspec.json.Decoder(Lease).decode


class SmallValue(msgspec.Struct, frozen=True, gc=False):
    """A small value beside the records of a conversation."""

    conversation: str
    kind: str
    """What it is: lower-case letters."""
    key: str
    """Tells apart the values of one kind; any text."""
    data: bytes
    number: int
    """Grows with each write of a value of this conversation and kind."""


class ValueWrite(msgspec.Struct, frozen=True, gc=False):
    """A small value that is written with a change."""

    conversation: str
    kind: str
    key: str
    data: bytes
    is_listed: bool = False
    """Whether `list_values` finds it: as long as there is something to do about it."""


class ValueCheck(msgspec.Struct, frozen=True, gc=False):
    """What a small value must be for a change to happen."""

    conversation: str
    kind: str
    key: str
    beginning: bytes | None
    """The data begins with these bytes; None: there is no such value."""

    def fits(self, data: bytes | None) -> bool:
        """Whether a value with this data is what the change needs.

        Args:
            data: None where there is no value.
        """
        if data is None or self.beginning is None:
            return data is self.beginning
        return data.startswith(self.beginning)


class Change(msgspec.Struct, frozen=True, gc=False):
    """What is written to one conversation, all or nothing."""

    conversation: str
    first_seq: int = 0
    """Number of records that the conversation must have, where there are lines."""
    lines: Sequence[bytes] = ()
    """Records that are appended."""
    check: ValueCheck | None = None
    values: Sequence[ValueWrite] = ()
    is_deletion: bool = False
    """Whether the conversation goes, with its records and all its values."""


class ValueConflict(LogConflict):
    """A small value is not what a change needs."""


class StoreBase(ABC):
    """A store of the log; see the docstring of `toolchart.engine.log.stores` for what it promises."""

    commits_at_once: bool = False
    """Whether a commit is so short that the event loop may do it: it waits for no disk and no network."""
    has_upkeep: bool = False
    """Whether there is work to do between commits."""

    # -- the primitive: what a store writes for itself ------------------------------------------------

    @abstractmethod
    def commit(
        self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True
    ) -> Sequence[LogConflict | None]:
        """Make changes, each completely or not at all, in this order; of each, None or why it was not made.

        `ValueConflict` where the check of a change fails, else `LogConflict` where the conversation has
        another number of records than `first_seq`. A refused change leaves nothing and does not stop the
        others. Checks and writes of a change are one step: what others commit comes before all of it or after
        all of it.

        Args:
            wait: false raises `LogBusy`, with nothing written, where another writer is at work.
            sync: whether the changes are durable on return, where the store is. Without it they are, before
                any later change that is.

        Raises:
            LogUnavailable: the store cannot be written; nothing of these changes is there, or all that a
                crash of the process at this moment would have left.
        """

    @abstractmethod
    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The record lines from number `start` on, in order; none for an unknown conversation.

        Raises:
            LogDamaged: a line is missing or cannot be read.
        """

    @abstractmethod
    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record; None for an unknown conversation."""

    @abstractmethod
    def read_value(self, conversation: str, kind: str, key: str = "") -> bytes | None:
        """The data of a small value; None where there is none."""

    @abstractmethod
    def read_values(
        self, conversation: str, kind: str, before: str | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Key and data of each value of a kind, the greatest key first.

        Args:
            before: only lesser keys than this one.
        """

    @abstractmethod
    def list_values(self, kind: str, conversations: Sequence[str] | None = None) -> Iterable[SmallValue]:
        """The listed values of a kind, of all conversations or of these; those of one stand together, in the
        order in which they were written. What it costs grows with what is listed, not with the log."""

    @abstractmethod
    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations that have records, the one that was begun first before the others."""

    @abstractmethod
    def close(self) -> None:
        """Close the store; safe to call twice."""

    def read_time(self) -> float:
        """The clock of leases: seconds since 1970. All who share the store must read the same one."""
        return time.time()

    # -- listing: a store with indexes does it faster --------------------------------------------------

    def iterate_newest_first(self, before: str | None = None) -> Iterator[str]:
        """The ids of all conversations, the newest first, read as far as they are asked for.

        Args:
            before: only those that are older than this one; none where it is unknown.
        """
        names = list(self.list_conversations())
        if before is not None:
            names = names[: names.index(before)] if before in names else []
        yield from reversed(names)

    def list_recent(self) -> Sequence[str]:
        """The conversations that may have the newest record; all of a store that does not know."""
        return list(self.list_conversations())

    def find_names(self, beginning: str) -> Sequence[str]:
        """All ids that begin with a text, sorted."""
        return sorted(name for name in self.list_conversations() if name.startswith(beginning))

    def read_ends(self) -> Iterator[tuple[str, bytes, int, bytes]]:
        """Of each conversation with records: id, first line, number of the newest record, its line.

        Large values may be left out: null stands in their place.
        """
        for name in self.list_conversations():
            newest = self.read_last_line(name)
            first = next(iter(self.read_lines(name)), None)
            if newest is not None and first is not None:
                yield name, first, *newest

    # -- the search index: a store with tables keeps one -------------------------------------------------
    #
    # It is derived: whoever searches writes it (`engine/reading/search.py`), and deleting a conversation
    # takes it out of the index in the same commit. A store without one has nothing but gaps.

    def list_index_gaps(self) -> Sequence[IndexGap]:
        """The conversations whose records the search index does not have all, the newest first."""
        gaps = []
        for number, name in enumerate(self.list_conversations(), 1):
            newest = self.read_last_line(name)
            if newest is not None:
                gaps.append(IndexGap(number, name, 0, newest[0] + 1))
        return gaps[::-1]

    def write_index(self, entries: Sequence[IndexEntry]) -> bool:
        """Write to the search index in one commit; false where the store keeps none.

        An entry whose gap is another one by now is left out: the conversation was deleted, or somebody else
        wrote the same.

        Raises:
            LogUnavailable: the store cannot be written.
        """
        return False

    def read_outlines(self, conversations: Sequence[str]) -> Mapping[str, tuple[int, Outline]]:
        """Number and outline of those of these conversations that the index has."""
        return {}

    def find_in_index(self, query: IndexQuery) -> Iterator[tuple[int, str, str]]:
        """Number, id and place of the conversations that the index finds, in the order of the query."""
        return iter(())

    def read_words(self, conversation: str) -> Iterator[tuple[int, str]]:
        """Number and words of the records of a conversation that the index has, in order."""
        return iter(())

    def list_choices(self, owner: str | None = None) -> Sequence[Outline]:
        """The outlines of the newest conversations, as far as they differ in what one can choose from.

        Args:
            owner: of this owner's alone.
        """
        return ()

    # -- what only some stores can do ------------------------------------------------------------------

    def check_place(self) -> None:  # noqa: B027  (most have no files to look at)
        """Return where what stands at the place of the log is what was opened; takes microseconds.

        Raises:
            LogUnavailable: it was deleted, replaced or overwritten; everything is refused from then on.
        """

    def check_storage(self) -> Iterable[LogDamaged]:
        """Everything in its rows and files that is not as the store leaves it, and reading does not see."""
        return ()

    def vacuum(self) -> None:  # noqa: B027  (as above)
        """Give the space of deleted conversations back to the system, where the store keeps it for itself."""

    def close_idle(self, seconds: float) -> None:  # noqa: B027  (as above)
        """Close each connection that nobody has used for so many seconds; the next use opens one."""

    def take_over_upkeep(self) -> None:  # noqa: B027  (as above)
        """Leave the work between commits to `do_upkeep` from now on."""

    def needs_upkeep(self) -> bool:
        """Whether there is enough of it; cheap."""
        return False

    def do_upkeep(self) -> None:  # noqa: B027  (as above)
        """Do it; called from the writer's thread."""

    # -- records -------------------------------------------------------------------------------------

    def append(
        self, conversation: str, first_seq: int, lines: Sequence[bytes], *, is_over: bool = False
    ) -> None:
        """Append canonical record lines, all or none; durable on return.

        Args:
            is_over: of a new conversation, whether its last turn is known to be at its end: then no worker
                looks at it.

        Raises:
            LogConflict: the conversation has another number of records, or a worker holds it.
            LogUnavailable: the store cannot be written; nothing was appended.
        """
        (fault,) = self.append_many((RecordBatch(conversation, first_seq, lines, is_over=is_over),))
        if fault is not None:
            raise fault

    def append_many(
        self, batches: Sequence[RecordBatch], *, wait: bool = True
    ) -> Sequence[ToolchartError | None]:
        """Append several batches in one commit, durable on return; of each, None or why it was refused."""
        changes = []
        for batch in batches:
            changes.append(self._build_change(batch))
        faults = self.commit(changes, wait=wait)
        return faults if not any(faults) else list(map(self._explain_refusal, batches, faults))

    def _build_change(self, batch: RecordBatch) -> Change:
        """The change that a batch is."""
        conversation, lease = batch.conversation, batch.lease
        if lease is None:
            root = conversation
            beginning = self.read_value(root, LEASE)
            newest = _read_lease_value(beginning)
            if newest is not None and newest.worker and is_held(newest, self.read_time()):
                beginning = b"\n"  # no lease begins so: the change is refused, and the refusal says why
        else:
            root, beginning = lease.conversation, _TOKEN % (lease.token, lease.worker.encode())
        values: list[ValueWrite] = []
        if root != conversation and batch.first_seq == 0:
            # A conversation without a lease counts as unfinished, and a worker would go on with the child
            # alone.
            values.append(_build_lease_write(build_closed_lease(conversation)))
        elif beginning is None:
            # What is open is what is listed, so a look costs what is open and not what ever was. To find
            # the conversations that have no lease a look would have to read all of them.
            build = build_closed_lease if batch.is_over else build_unknown_lease
            values.append(_build_lease_write(build(conversation)))
        if batch.checkpoint is not None:
            values.append(_build_checkpoint(conversation, *batch.checkpoint))
        for seq, totals in batch.totals:
            values.append(ValueWrite(conversation, TURN, _RECORD_KEY % seq, totals))
        if batch.taken:
            values += self._build_taken(root, batch.taken)
        check = ValueCheck(root, LEASE, "", beginning)
        return Change(conversation, batch.first_seq, batch.lines, check, values)

    def _build_taken(self, conversation: str, keys: Sequence[str]) -> list[ValueWrite]:
        """What marks entries as taken: their keys stay known, their data goes."""
        # An entry that is not there any more gets its mark too. Its reader saw it before it was durable,
        # and its sync has failed: whoever left it was told so, and a second entry with its key is the same
        # one.
        waiting = {value.key for value in self.list_values(INBOX, (conversation,))}
        values = []
        for key in keys:
            if key.startswith(SUBMISSION_KEY):
                if data := self.read_value(conversation, SUBMISSION, key):  # else it was deleted
                    values.append(ValueWrite(conversation, SUBMISSION, key, _split_submission(data)[0]))
            elif key in waiting or self.read_value(conversation, INBOX, key) is None:
                values.append(ValueWrite(conversation, INBOX, key, b""))
        return values

    def _explain_refusal(self, batch: RecordBatch, fault: ToolchartError | None) -> ToolchartError | None:
        """The fault of a batch in terms of leases."""
        if not isinstance(fault, ValueConflict):
            return fault
        root = batch.conversation if batch.lease is None else batch.lease.conversation
        newest = self.find_lease(root)
        lease_fault = find_lease_fault(batch.conversation, newest, batch.lease, self.read_time())
        if lease_fault is not None or batch.lease is not None:
            return lease_fault or fault
        # The lease changed between the look at it and the commit, and is free now.
        return self.append_many((batch,))[0]

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation with its values; a part of one cannot be deleted.

        Raises:
            LeaseHeld: a worker holds it.
            LogUnavailable: the store cannot be written; nothing was deleted.
        """
        self.delete_many((conversation,))

    def delete_many(self, conversations: Sequence[str]) -> None:
        """Delete whole conversations in one commit; none where a worker holds one of them.

        Raises:
            LeaseHeld: a worker holds one of them, or has just taken it; then the others are gone.
        """
        changes, now = [], self.read_time()
        for name in conversations:
            lease_data = self.read_value(name, LEASE)
            fault = find_lease_fault(name, _read_lease_value(lease_data), None, now)
            if fault is not None:
                raise fault
            changes.append(Change(name, check=ValueCheck(name, LEASE, "", lease_data), is_deletion=True))
        refused = [
            change.conversation
            for change, conflict in zip(changes, self.commit(changes), strict=True)
            if conflict is not None
        ]
        if refused:
            self.delete_many(refused)  # the lease was taken or given back meanwhile

    # -- checkpoints -----------------------------------------------------------------------------------

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record. It is durable before any record that is appended later.

        Raises:
            LogUnavailable: the store cannot be written; the checkpoint was not kept.
        """
        # Deleted meanwhile: a checkpoint without records is damage to `verify`.
        if self.read_last_line(conversation) is not None:
            change = Change(conversation, values=[_build_checkpoint(conversation, seq, data)])
            _require_success(self.commit([change], sync=False))

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Record number and data of each checkpoint, the newest first.

        Args:
            newest: leave out those of later records.
        """
        before = None if newest is None else _RECORD_KEY % (newest + 1)
        for key, data in self.read_values(conversation, CHECKPOINT, before):
            if not is_whole_number(key):
                raise LogDamaged(f"it has a checkpoint of record {key!r}", conversation=conversation)
            yield int(key), data

    def read_totals(self, conversation: str) -> Iterator[tuple[int, bytes]]:
        """Totals of the turns of a conversation, with the number of the record that ended each."""
        for key, data in self.read_values(conversation, TURN):
            if not is_whole_number(key):
                raise LogDamaged(f"it has totals of record {key!r}", conversation=conversation)
            yield int(key), data

    # -- leases ----------------------------------------------------------------------------------------

    def _swap_lease(self, lease_data: bytes | None, lease: Lease, *, wait: bool = True) -> bool:
        """Write a lease in place of one that was read; false where it is another one by now."""
        # Not synced: the first record that is appended under a lease makes it durable too. Where a crash
        # takes one away before that, the record is refused: the value names another token or worker.
        (fault,) = self.commit([_build_swap(lease_data, lease)], wait=wait, sync=False)
        return fault is None

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """Take the lease of a conversation, which need not exist yet.

        Raises:
            LeaseHeld: another worker holds it, which lives.
            LogBusy: another writer is at work, and `wait` is false.
        """
        while True:
            lease_data = self.read_value(conversation, LEASE)
            lease = build_next_lease(
                _read_lease_value(lease_data), conversation, worker, seconds, self.read_time()
            )
            if self._swap_lease(lease_data, lease, wait=wait):
                return lease

    def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[bool]:
        """Prolong leases from now on; of each, whether it was still held."""
        answers = [False] * len(leases)
        open_places: Sequence[int] = range(len(leases))
        while open_places:
            now = self.read_time()
            places, changes = [], []
            for place in open_places:
                lease = leases[place]
                lease_data = self.read_value(lease.conversation, LEASE)
                newest = _read_lease_value(lease_data)
                if newest is not None and find_token_fault(lease.conversation, newest, lease) is None:
                    places.append(place)
                    changes.append(_build_swap(lease_data, replace(newest, expires=now + seconds)))
            conflicts = self.commit(changes, sync=False) if changes else ()
            for place, conflict in zip(places, conflicts, strict=True):
                answers[place] = conflict is None
            open_places = [place for place in places if not answers[place]]
        return answers

    def release_lease(
        self, lease: Lease, *, is_open: bool, due: float | None = None, wait: bool = True
    ) -> bool:
        """End a lease; nothing happens where another worker has taken it.

        Args:
            is_open: whether a turn is left open.
            due: when that turn goes on by itself: seconds since 1970; None where it waits for somebody.

        Returns:
            False where the inbox has entries for this worker: it keeps the lease.
        """
        conversation = lease.conversation
        while True:
            # The inbox before the lease: an entry keeps this worker only if it came while the lease was
            # still its own.
            has_entries = self._has_entries(conversation)
            lease_data = self.read_value(conversation, LEASE)
            newest = _read_lease_value(lease_data)
            if newest is None or find_token_fault(conversation, newest, lease) is not None:
                return True
            if has_entries:
                return False
            released = build_released_lease(newest, is_open=is_open, due=due)
            if self._swap_lease(lease_data, released, wait=wait):
                break
        # Looked into again after the lease went. Who adds an entry looks at the lease afterwards: so one of
        # both sees the other, and no entry waits for a worker that has gone.
        if not self._has_entries(conversation):
            return True
        # It waits in any case: asked once more, this worker would be told that it has no lease to give back.
        return not self._swap_lease(_build_lease_write(released).data, newest)

    def find_lease(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation, also where it was released or has expired."""
        return _read_lease_value(self.read_value(conversation, LEASE))

    def list_leases(self) -> Sequence[Lease]:
        """The leases that are held now, the oldest first."""
        now = self.read_time()
        held = [lease for lease in self._list_open_leases() if is_held(lease, now)]
        return sorted(held, key=lambda lease: lease.since)

    def _list_open_leases(self) -> Iterator[Lease]:
        for value in self.list_values(LEASE):
            lease = _read_lease_value(value.data)
            if lease is not None:
                yield lease

    def list_unfinished(self) -> Iterable[str]:
        """The conversations that a worker may go on with now.

        Nobody holds them, and their worker has died, a timer has run out, their inbox has an entry, or it is
        not known whether they have work. The leases of what is open and the entries of inboxes are listed
        values (`list_values`): a conversation that is over is in neither index, and costs nothing here. The
        write of the lease that ends a turn takes it out.
        """
        with_entries = {value.conversation for value in self.list_values(INBOX)}
        leases = {lease.conversation: lease for lease in self._list_open_leases()}
        now = self.read_time()
        return [
            name
            for name in (*leases, *sorted(with_entries - leases.keys()))
            if is_unfinished(leases.get(name) or self.find_lease(name), now, has_entries=name in with_entries)
        ]

    # -- inboxes ---------------------------------------------------------------------------------------

    def post(self, conversation: str, key: str, data: bytes, taken: Sequence[str] = ()) -> bool:
        """Add an entry to the inbox of a conversation, durable on return; false where its key is known.

        Args:
            taken: keys of submissions that become the entry.
        """
        entry = ValueWrite(conversation, INBOX, key, data, is_listed=True)
        check = ValueCheck(conversation, INBOX, key, None)
        for taken_key in taken:
            submission = self.read_value(conversation, SUBMISSION, taken_key)
            if submission and not _split_submission(submission)[1]:
                return False  # it was an entry before, or was withdrawn
            if submission:  # nobody takes or withdraws it meanwhile
                check = ValueCheck(conversation, SUBMISSION, taken_key, submission)
        values = [entry, *self._build_taken(conversation, taken)] if taken else [entry]
        (fault,) = self.commit([Change(conversation, check=check, values=values)])
        return fault is None

    def submit(self, conversation: str, key: str, digest: str, data: bytes) -> bool:
        """Keep a message for the worker that begins a turn with it, durable on return.

        Args:
            key: begins with `SUBMISSION_KEY`. Under a key that is known nothing is written.
            digest: of the message and its options; it stays when the message was taken.

        Returns:
            Whether the message under the key has this digest.
        """
        beginning = digest.encode() + b"\n"
        value = ValueWrite(conversation, SUBMISSION, key, beginning + data, is_listed=True)
        check = ValueCheck(conversation, SUBMISSION, key, None)
        (fault,) = self.commit([Change(conversation, check=check, values=[value])])
        return fault is None or (self.read_value(conversation, SUBMISSION, key) or b"").startswith(beginning)

    def read_submission(self, conversation: str, key: str) -> bytes | None:
        """The message under a key: empty where it was taken, None where there is none."""
        data = self.read_value(conversation, SUBMISSION, key)
        return None if data is None else _split_submission(data)[1]

    def list_submissions(self, conversations: Sequence[str] | None = None) -> Iterable[InboxEntry]:
        """The messages of all conversations, or of these, that no worker has taken."""
        for value in self.list_values(SUBMISSION, conversations):
            data = _split_submission(value.data)[1]
            yield InboxEntry(number=value.number, conversation=value.conversation, key=value.key, data=data)

    def withdraw_submissions(self, conversation: str) -> int:
        """Take the messages of a conversation back that no worker has taken; how many there were.

        Each stays known as withdrawn. Of whoever takes one at the same time only one succeeds: the token of
        the lease grows with this, so a worker that stood still appends nothing.

        Raises:
            LogConflict: a worker holds the conversation, or has just taken it.
        """
        waiting = list(self.list_values(SUBMISSION, (conversation,)))
        if not waiting:
            return 0
        lease_data = self.read_value(conversation, LEASE)
        lease = _read_lease_value(lease_data)
        released = build_next_lease(lease, conversation, "", 0.0, self.read_time())
        is_open = self.read_last_line(conversation) is not None and (lease is None or lease.is_open)
        values = [_build_lease_write(build_released_lease(released, is_open=is_open, due=released.due))]
        for value in waiting:
            mark = _split_submission(value.data)[0].removesuffix(b"\n") + _WITHDRAWN
            values.append(ValueWrite(conversation, SUBMISSION, value.key, mark))
        check = ValueCheck(conversation, LEASE, "", lease_data)
        _require_success(self.commit([Change(conversation, check=check, values=values)]))
        return len(waiting)

    def is_withdrawn(self, conversation: str, key: str) -> bool:
        """Whether the message under a key was withdrawn."""
        data = self.read_value(conversation, SUBMISSION, key) or b""
        return _split_submission(data)[0].endswith(_WITHDRAWN)

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries of these conversations that are not taken yet, the oldest first."""
        entries = [
            InboxEntry(number=value.number, conversation=value.conversation, key=value.key, data=value.data)
            for value in self.list_values(INBOX, conversations)
        ]
        return sorted(entries, key=lambda entry: entry.number)

    def _has_entries(self, conversation: str) -> bool:
        for _ in self.list_values(INBOX, (conversation,)):
            return True
        return False

    def drop_entries(self, conversation: str, keys: Sequence[str]) -> None:
        """Mark entries as taken that become no record."""
        values = self._build_taken(conversation, keys)
        _require_success(self.commit([Change(conversation, values=values)]))


def _require_success(faults: Sequence[LogConflict | None]) -> None:
    for fault in faults:
        if fault is not None:
            raise fault


def build_conflict(conversation: str, first_seq: int, count: int) -> LogConflict:
    """The error of a change whose first record is not the next one."""
    return LogConflict(
        f"conversation {conversation}: record {first_seq} cannot be appended, the log has {count}"
    )


def build_value_conflict(check: ValueCheck) -> ValueConflict:
    """The error of a change whose check fails."""
    return ValueConflict(f"conversation {check.conversation}: its {check.kind} has changed meanwhile")


_WITHDRAWN = b" withdrawn\n"
"""What stands behind the digest of a message that was withdrawn. No other digest is like that: another try
with the key is refused."""


def _split_submission(data: bytes) -> tuple[bytes, bytes]:
    """The digest of a submission with its line end, and the message; empty where it was taken."""
    digest, line_end, message = data.partition(b"\n")
    return digest + line_end, message


_TOKEN = b"%d %b\n"
"""What the value of a lease begins with as long as its worker has it: its token and its worker."""


def _build_lease_write(lease: Lease) -> ValueWrite:
    data = _TOKEN % (lease.token, lease.worker.encode()) + _encode_json(lease)
    return ValueWrite(lease.conversation, LEASE, "", data, is_listed=lease.is_open)


def _read_lease_value(data: bytes | None) -> Lease | None:
    """The lease of a value; None where there is none, or nobody can read it: then it is not held."""
    if data is None:
        return None
    try:
        return _decode_lease(data[data.index(b"\n") + 1 :])
    except (msgspec.DecodeError, ValueError):
        return None


def _build_swap(lease_data: bytes | None, lease: Lease) -> Change:
    """The change from the value of a lease, as it was read, to another lease."""
    check = ValueCheck(lease.conversation, LEASE, "", lease_data)
    return Change(lease.conversation, check=check, values=(_build_lease_write(lease),))


def _build_checkpoint(conversation: str, seq: int, data: bytes) -> ValueWrite:
    return ValueWrite(conversation, CHECKPOINT, _RECORD_KEY % seq, data)
