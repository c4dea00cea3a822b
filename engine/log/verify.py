"""Verification: checks hashes, form and order of stored records, without running the chart.

Checked are the hash chain byte by byte, the form of every record and event, and the order of records.
Whether the recorded steps are right is checked by `replay.py`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import TypeAlias

import msgspec

from toolchart.engine.log.continuation.checkpoint import read_checkpoint_link
from toolchart.engine.log.family import check_family_links
from toolchart.engine.log.read_records import LineReader, ReadRecord, read_records
from toolchart.engine.log.record import compute_line_hash
from toolchart.engine.log.turn_counting import TotalsCheck
from toolchart.states.errors import LogDamaged, LogUnavailable
from toolchart.states.events import Configured, Event, Forked, Replied, Reviewed, ToolFinished, TurnStarted
from toolchart.states.ports import Store

Outcome: TypeAlias = "VerifiedConversation | LogDamaged | LogUnavailable"
"""Of one conversation: it is intact, it is damaged, or this release cannot check it (a newer format)."""


class VerifiedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation without damage."""

    conversation: str
    records: int
    head: str
    """Hash of the newest record."""


def verify_conversation(
    lines: Iterable[bytes],
    conversation: str,
    *,
    relatives: LineReader | None = None,
    checkpoints: Iterable[tuple[int, bytes]] = (),
    totals: Iterable[tuple[int, bytes]] = (),
) -> VerifiedConversation:
    """Check one conversation.

    Args:
        relatives: reads its parent, its children and what it was forked from; without it the links to them
            are not checked.
        checkpoints: record number and data of each checkpoint that the store keeps.
        totals: the same of the totals of each turn.

    Raises:
        LogDamaged: names the first record that is not the one that was written.
        LogUnavailable: another release wrote it, in another format.
    """
    count, head = 0, ""
    record_order = RecordOrder(conversation)
    checkpoint_links = CheckpointLinks(conversation, checkpoints)
    totals_check = TotalsCheck(conversation, totals)
    for record in read_records(lines, conversation):
        event = _decode_event(record, conversation)
        record_order.check_next(record, event)
        checkpoint_links.check_next(record)
        totals_check.check_next(record)
        if relatives is not None:
            check_family_links(relatives, conversation, record)
        if isinstance(event, (Configured, Forked)):
            if isinstance(event, Forked) and relatives is not None:
                _check_fork_parent(event, conversation, relatives)
            if event.conversation != conversation:
                raise LogDamaged(
                    f"it belongs to conversation {event.conversation!r}",
                    conversation=conversation,
                    seq=record.seq,
                )
        count, head = record.seq + 1, record.hash
    if not count:
        raise LogDamaged("it has no records", conversation=conversation, seq=0)
    checkpoint_links.check_end()
    totals_check.check_end()
    return VerifiedConversation(conversation=conversation, records=count, head=head)


def _decode_event(record: ReadRecord, conversation: str) -> Event:
    """The event of a record; with the conversation in the error."""
    try:
        return record.decode_event()
    except (LogDamaged, RecursionError) as error:
        problem = "its event is nested too deeply" if isinstance(error, RecursionError) else error.problem
        raise LogDamaged(problem, conversation=conversation, seq=record.seq) from None


def _check_fork_parent(event: Forked, conversation: str, parents: LineReader) -> None:
    """Check that the parent of a fork still has the shared record, with the same hash."""
    line = next(islice(parents(event.parent), event.seq, None), None) if event.seq >= 0 else None
    if line is None or compute_line_hash(line) != event.head:
        raise LogDamaged(
            f"record {event.seq} of conversation {event.parent!r}, its parent, is missing or changed",
            conversation=conversation,
            seq=0,
        )


def verify_store(store: Store, conversations: Iterable[str] | None = None) -> Iterator[Outcome]:
    """The result of each conversation, and damage of the store that belongs to none.

    Args:
        conversations: their ids; None verifies all, and then every table and file of the store too.
    """
    damages: dict[str | None, list[LogDamaged]] = {}
    if conversations is None:
        for damage in store.check_storage():
            damages.setdefault(damage.conversation, []).append(damage)
    try:
        names = list(store.list_conversations() if conversations is None else conversations)
    except LogDamaged as damage:
        yield damage
        names = []
    for conversation in names:
        own_damages = damages.pop(conversation, [])
        yield own_damages[0] if own_damages else _verify_stored_conversation(store, conversation)
    for remaining_damages in damages.values():
        yield from remaining_damages


def _verify_stored_conversation(store: Store, conversation: str) -> Outcome:
    """The result of one conversation of a store."""
    try:
        return verify_conversation(
            store.read_lines(conversation),
            conversation,
            relatives=store.read_lines,
            checkpoints=store.read_checkpoints(conversation),
            totals=store.read_totals(conversation),
        )
    except (LogDamaged, LogUnavailable) as problem:
        return problem


class IntactPart(msgspec.Struct, frozen=True, kw_only=True):
    """Which of some conversations can be read elsewhere, and why the others cannot."""

    conversations: list[str]
    """Those whose records are intact, and which verify without any other one of the log."""
    damages: list[LogDamaged]
    """Of each damaged one, the first record that is wrong."""
    dependants: list[LogDamaged]
    """Of each intact one that does not verify without one that is left out, the record that refers to it."""


def find_intact_part(store: Store, conversations: Iterable[str]) -> IntactPart:
    """Check the records of some conversations of a store, and which of them verify by themselves.

    Checkpoints and totals, which are no records, are not looked at.

    Raises:
        LogUnavailable: another release wrote one of them, in another format; or the store cannot be read.
    """
    names, damages = _verify_records(store, conversations)
    dependants: list[LogDamaged] = []
    refused = damages
    while refused:  # who refers to a conversation that is left out is left out, and so on
        names, refused = _verify_records(store, names, set(names))
        dependants += refused
    return IntactPart(conversations=names, damages=damages, dependants=dependants)


def _verify_records(
    store: Store, conversations: Iterable[str], known: Container[str] | None = None
) -> tuple[list[str], list[LogDamaged]]:
    """The conversations that are intact, and the damage of each other one.

    Args:
        known: those whose records count, as if the log had no others; None for all.
    """

    def read_relatives(name: str) -> Iterable[bytes]:
        return store.read_lines(name) if known is None or name in known else ()

    intact_names, damages = [], []
    for name in conversations:
        try:
            verify_conversation(store.read_lines(name), name, relatives=read_relatives)
            intact_names.append(name)
        except LogDamaged as damage:
            damages.append(LogDamaged(damage.problem, conversation=name, seq=damage.seq))
    return intact_names, damages


class CheckpointLinks:
    """Checks the checkpoints of one conversation against its records, in both directions.

    A missing checkpoint is no damage: going on needs none.

    Raises:
        LogDamaged: a checkpoint is not the one that was written.
    """

    def __init__(self, conversation: str, checkpoints: Iterable[tuple[int, bytes]]) -> None:
        self._conversation = conversation
        self._links = {seq: read_checkpoint_link(data, seq, conversation) for seq, data in checkpoints}
        """Hash of the record and digest, by number of the record."""
        self._digest_before = ""
        """Digest of the checkpoint of the record before."""

    def check_next(self, record: ReadRecord) -> None:
        """Check the next record.

        Raises:
            LogDamaged: it names another checkpoint than the one in the store, or its checkpoint belongs to
                another record.
        """
        if record.checkpoint and self._digest_before not in ("", record.checkpoint):
            raise LogDamaged(
                "the record after it names another checkpoint than the one in the store",
                conversation=self._conversation,
                seq=record.seq - 1,
            )
        record_hash, self._digest_before = self._links.pop(record.seq, (record.hash, ""))
        if record_hash != record.hash:
            raise LogDamaged(
                "its checkpoint belongs to another record", conversation=self._conversation, seq=record.seq
            )

    def check_end(self) -> None:
        """Check that no checkpoint is left after the last record.

        Raises:
            LogDamaged: a checkpoint belongs to a record that does not exist.
        """
        for seq in sorted(self._links):
            raise LogDamaged(
                "there is a checkpoint of this record and no such record",
                conversation=self._conversation,
                seq=seq,
            )


class RecordOrder:
    """Checks the order of one conversation's records.

    - The first record is `configured` or `forked`; no other record is `forked`.
    - Each step starts in the state in which the step before ended.
    - Turn numbers rise by one; iteration numbers never fall within a turn.
    - A tool call has at most one outcome, and only after its review.
    """

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._previous: ReadRecord | None = None
        self._open_call_ids: set[str] | None = None
        """Ids of calls without an outcome; None where they are in the log of a fork's parent."""

    def check_next(self, record: ReadRecord, event: Event | None) -> None:
        """Check the next record.

        Raises:
            LogDamaged: it cannot follow the records before it.
        """
        previous, is_start = self._previous, isinstance(event, TurnStarted)
        if previous is None:
            self._require(
                isinstance(event, Configured | Forked), record, "a log begins with its configuration"
            )
            self._open_call_ids = None if isinstance(event, Forked) else set()
        else:
            self._require(not isinstance(event, Forked), record, "only record 0 can be `forked`")
            self._require(
                record.source == previous.target,
                record,
                f"it starts in {record.source!r}, the one before ended in {previous.target!r}",
            )
            expected_turn = previous.turn + is_start
            self._require(
                record.turn == expected_turn, record, f"it says turn {record.turn}, due is {expected_turn}"
            )
            backwards = not is_start and record.iteration < previous.iteration
            self._require(not backwards, record, "its iteration goes backwards")
        self._check_tool_calls(record, event)
        self._previous = record

    def _check_tool_calls(self, record: ReadRecord, event: Event | None) -> None:
        """Check that an outcome belongs to an open call."""
        match event:
            case TurnStarted():
                self._open_call_ids = set()
            case Replied() if event.reply.tool_calls and not record.is_late:
                # A chart may run calls that nobody reviewed. A reply without calls may be that of another
                # region, beside which the calls of this one still run.
                # `calls` has the ids that the core gave where those of the host were missing or used.
                self._open_call_ids = set(record.calls or [call.id for call in event.reply.tool_calls])
            case Reviewed():
                self._open_call_ids = {verdict.call_id for verdict in event.verdicts}
            case ToolFinished(call_id=call_id) if call_id and not record.is_late:
                if self._open_call_ids is None:
                    return
                self._require(
                    call_id in self._open_call_ids,
                    record,
                    f"no call {call_id!r} is open, or it has ended already",
                )
                self._open_call_ids.discard(call_id)

    def _require(self, condition: bool, record: ReadRecord, problem: str) -> None:
        """Raise `LogDamaged` with the problem unless the condition holds."""
        if not condition:
            raise LogDamaged(problem, conversation=self._conversation, seq=record.seq)
