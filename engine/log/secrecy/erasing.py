"""Erasing: takes what somebody said out of a kept conversation; hash chain, seals and gaps stay visible.

Each record with erased content is replaced by a stand-in: the same record without the content, with the hash
of the record as it was first written (`stand_ins.py`). Later requests covered the content by their digests,
and checkpoints held it. So digests are derived again from what is left, and checkpoints are deleted. A record
`erased` at the end of the conversation names each stand-in by its digest, so nobody can change one later.

What the hash of an erased record covers cannot be guessed: the salt of the record is erased with it.

Other conversations hold the same words, and erasing reaches them (`_list_members`): the agents that chosen
records ran, the conversation that finds the context of its turns, and the forks of all of these. A fork holds
the words of its parent in its checkpoints and in the memory of engines, even where no line of it has them. So
each fork that shares an erased record gets a record `erased` too: its checkpoints go with that, and an engine
that has it in memory reads it anew.

Everything is planned before anything is written, under the leases of all these conversations. Those that
depend on others are written first: as long as the chosen conversation itself has the words, calling again
finds what an interrupted call has left.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log import record as records
from toolchart.engine.log.continuation.checkpoint import CheckpointMark, build_checkpoint, read_checkpoint
from toolchart.engine.log.family import ANSWERS, Relations, find_root, read_parent, read_relations
from toolchart.engine.log.leases import name_worker
from toolchart.engine.log.record import Record, RecordLine, generate_salt
from toolchart.engine.log.replay import (
    ReplayState,
    describe_step,
    enter_segment,
    load_conversation,
    load_parent_state,
)
from toolchart.engine.log.secrecy.content import (
    ERASED,
    UNTOUCHED_TYPES,
    ContentEraser,
    fold_text,
    iterate_texts,
    strike_digests,
)
from toolchart.engine.log.secrecy.stand_ins import add_digest, read_digest
from toolchart.specs.secrets import strike_secrets
from toolchart.states.core.encoding import decode_event, make_plain_event, read_json
from toolchart.states.core.step import Step, step
from toolchart.states.errors import IllegalEvent, LeaseHeld, LeaseLost, ReplayMismatch, SpecError
from toolchart.states.events import Erased, ErasedRecord, Event, Forked
from toolchart.states.ports import Lease, RecordBatch, Store

_encode_json = msgspec.json.Encoder().encode

_LEASE_S = 300.0
"""Seconds of the leases under which conversations are rewritten."""

_MIN_REPEATED = 8
"""Characters of a text whose repetition in a fork or in a child is erased too: a shorter one, `yes` or
`Paris`, stands in records that repeat nobody."""

_SEPARATOR = "\n\0\n"
"""Stands between texts that are searched together."""

_PATH_KEYS = ("source", "target", "fired", "guards", "turn", "iteration", "cancels", "late", "untaken")
"""Keys of a record that say which way the conversation took: erasing never changes them."""


_FOLLOWING = ("asks", "messages", "ended", "calls")
"""Keys of a record that follow from content."""


class ErasureChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which content goes: that of every record that one of these chooses."""

    turns: tuple[int, ...] = ()
    records: tuple[int, ...] = ()
    """Numbers of records."""
    texts: tuple[str, ...] = ()
    """Records whose content has one of these texts, in any spelling of capitals."""
    everything: bool = False

    def chooses(self, record: Record) -> bool:
        """Whether the content of a record goes."""
        kind = record.event["type"]
        if kind in UNTOUCHED_TYPES:
            return False
        # An `erased` record says who had what erased and why: only a text that stands in it chooses it. The
        # record 0 of a fork belongs to no turn.
        is_whole = self.everything and kind != Erased.TYPE
        is_in_turn = record.turn in self.turns and kind not in (Erased.TYPE, Forked.TYPE)
        if is_whole or is_in_turn or record.seq in self.records:
            return True
        return bool(self.texts) and _contains_any(iterate_texts(record.event), self.texts)


def _contains_any(values: Iterable[str], texts: Iterable[str]) -> bool:
    """Whether a value contains a text, in any spelling of capitals."""
    folded_texts = [fold_text(text) for text in texts]
    return any(text in folded for folded in map(fold_text, values) for text in folded_texts)


class ErasedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What erasing did to one conversation.

    Where both lists are empty, it is a fork that shares erased records: its checkpoints are gone.
    """

    conversation: str
    content: tuple[int, ...]
    """Numbers of the records whose content is gone."""
    digests: tuple[int, ...]
    """Numbers of those in which only digests were replaced, because they covered such content."""
    is_derivable: bool
    """Whether the conversation still replays and can go on: no erased value decides a step."""


class ContentElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """Chosen content in a conversation that erasing leaves as it is, because somebody else may own it."""

    conversation: str
    records: tuple[int, ...]
    turns: tuple[int, ...]
    """The turns of these records."""
    relation: str
    """`fork`: the chosen conversation shares these records. `child`: it works for that conversation, whose
    records repeat what it said."""


def erase_content(
    store: Store,
    conversation: str,
    choice: ErasureChoice,
    *,
    at: str,
    by: str | None,
    reason: str | None,
    keep_space: bool = False,
) -> list[ErasedConversation]:
    """Erase content of a conversation, and what other conversations hold of it.

    - Agents that chosen records ran go whole, and so does the context that was found for chosen turns.
    - `texts` go in all agents and forks of the conversation, and in theirs.
    - `everything` takes what forks and agents said of their own too, where a fork shares chosen content.
    - Of forks and other agents each record goes that repeats a text of eight characters or more which stood
      in chosen records and stands in no kept record of the conversation.

    All of that is planned before anything is written. When it was stopped half-way, call it again.

    Args:
        at: time of the records that say so: RFC 3339, UTC.
        by: who has it erased. Known secrets are struck from this and from the reason.
        keep_space: do not shrink the file of a SQLite log afterwards. Pages that were split may keep old
            copies of rows in their free parts then.

    Returns:
        What was changed, one entry a conversation; nothing where nothing was chosen that has content.
        `find_content_elsewhere` says what stays in the parent of a fork or a child.

    Raises:
        SpecError: there is no such conversation; a turn of it, of its agents or of a fork is open; something
            waits in an inbox of theirs; or the reason has a text that is to be erased.
        LeaseHeld: a worker has one of them.
        LogDamaged: one of them is not the one that was written.
    """
    if store.read_last_line(conversation) is None:
        raise SpecError(f"there is no conversation {conversation!r} in this log")
    if choice.texts and _contains_any([by or "", reason or ""], choice.texts):
        raise SpecError(
            "who has it erased, or the reason, repeats the text that is to be erased",
            hint="both stand in the log from then on: say it in other words",
        )
    safe_by, safe_reason = (text and strike_secrets(text) for text in (by, reason))
    notice = Erased(records=(), by=safe_by, reason=safe_reason)
    erased: list[ErasedConversation] = []
    repeated: frozenset[str] = frozenset()
    known: set[str] = set()
    # Somebody may begin a fork while its parent is rewritten. So members are listed until none is new.
    while not known.issuperset(names := _list_names(store, conversation, choice)):
        try:
            with _hold_leases(store, names) as leases:
                _require_rest(store, [*names, *(lease.conversation for lease in leases.values() if lease)])
                # Again: what was begun before the leases were taken. Nothing can be added to these any more.
                members = [
                    member
                    for member in _list_members(store, conversation, choice)
                    if member.conversation in leases
                ]
                repeated |= _collect_repeated_texts(store, members)
                plans = _plan_all(store, members, repeated)
                # What depends on a conversation is written before it: as long as it has the words, a call
                # after an interrupted one finds what is left.
                for plan in reversed(plans):
                    _write_plan(store, plan, leases, notice, at)
        except (SpecError, LeaseHeld) as error:
            if not known:
                raise
            raise _describe_late_fork(error) from None
        known |= set(names)
        erased += [plan.result for plan in plans]
    # Also where a call before this one has died after its last commit: old bytes may be left then.
    if not keep_space and (erased or any(record.digest for record in _read_all(store, conversation))):
        store.vacuum()
    return erased


def _list_names(store: Store, conversation: str, choice: ErasureChoice) -> list[str]:
    return [member.conversation for member in _list_members(store, conversation, choice)]


def _describe_late_fork(error: SpecError | LeaseHeld) -> SpecError:
    """The error where a fork that was begun while the conversation was rewritten cannot be erased."""
    problem, hint = (error.message, error.hint) if isinstance(error, SpecError) else (str(error), None)
    return SpecError(
        f"{problem}; the other conversations are erased",
        hint=f"{hint or 'wait until its turn has ended'}; then erase again",
    )


def find_content_elsewhere(store: Store, conversation: str, choice: ErasureChoice) -> list[ContentElsewhere]:
    """What other conversations hold of the chosen content, and `erase_content` leaves to their owners.

    Call it before: what has been erased is not looked for any more.

    Raises:
        LogDamaged: one of them is not the one that was written.
    """
    found: list[ContentElsewhere] = []
    first = next(iter(_read_all(store, conversation)), None)
    if first is None:
        return found
    shared_choice, link = replace(choice, records=()), first.event
    while link["type"] == Forked.TYPE:
        parent, newest = str(link["parent"]), int(link["seq"])
        shared = [record for record in _read_all(store, parent) if record.seq <= newest]
        chosen = [record for record in shared if shared_choice.chooses(record) and _has_content(record)]
        found += _describe_elsewhere(parent, chosen, "fork")
        if not shared:
            break  # its parent is missing, which `verify` reports
        link = shared[0].event
    owner = read_parent(store, conversation)
    name = str(owner["conversation"]) if owner else read_relations(store).find_subject(conversation)
    if name is not None:
        member = _Member(conversation=conversation, choice=choice)
        texts = _collect_repeated_texts(store, [member])
        repeating = [
            record
            for record in _read_all(store, name)
            if _repeats_any(record, texts) or ErasureChoice(texts=choice.texts).chooses(record)
        ]
        found += _describe_elsewhere(name, repeating, "child")
    return found


def _describe_elsewhere(name: str, chosen: Sequence[Record], relation: str) -> list[ContentElsewhere]:
    if not chosen:
        return []
    turns = tuple(sorted({record.turn for record in chosen}))
    numbers = tuple(record.seq for record in chosen)
    return [ContentElsewhere(conversation=name, records=numbers, turns=turns, relation=relation)]


def _has_content(record: Record) -> bool:
    return ContentEraser().erase_event(record.event) != record.event


# -- which conversations ---------------------------------------------------------------------------


class _Member(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that erasing reaches."""

    conversation: str
    choice: ErasureChoice
    takes_repeats: bool = False
    """Whether its records go that repeat an erased text: not in the conversation that somebody named."""
    is_context: bool = False
    """Whether it finds the context of turns: a turn of it that repeats an erased text goes whole."""
    fork_of: str | None = None
    shared: int = -1
    """Of a fork: number of the newest shared record."""


def _list_members(store: Store, conversation: str, choice: ErasureChoice) -> list[_Member]:
    """The conversation, its agents, its context and its forks, and theirs; each after what it depends on."""
    relations = read_relations(store)
    members = [_Member(conversation=conversation, choice=choice)]
    shares_chosen: dict[str, bool] = {conversation: False}
    for member in members:  # which grows
        chosen = _Chosen(store, member)
        found = [*_list_children(relations, member, chosen), *_list_forks(relations, member, chosen)]
        for other, shares in found:
            if other.conversation not in shares_chosen:
                shares_chosen[other.conversation] = shares or (
                    other.fork_of is not None and shares_chosen[member.conversation]
                )
                if other.fork_of is not None and not shares_chosen[other.conversation]:
                    other = replace(other, choice=replace(other.choice, everything=False))
                members.append(other)
    return members


class _Chosen:
    """What a choice chooses in one conversation."""

    def __init__(self, store: Store, member: _Member) -> None:
        self.numbers: list[int] = []
        """The chosen records."""
        self.turns: list[int] = []
        """The turn of each record."""
        self.children: set[str] = set()
        """The agents that chosen records name."""
        self.effects: set[int] = set()
        """What was asked for in chosen turns."""
        for record in _read_all(store, member.conversation):
            self.turns.append(record.turn)
            if record.turn in member.choice.turns:
                self.effects.update(ask.id for ask in record.asks)
            if member.choice.chooses(record):
                self.numbers.append(record.seq)
                if record.event["type"] in ANSWERS:
                    self.children.add(str(record.event["conversation"]))


def _list_children(relations: Relations, member: _Member, chosen: _Chosen) -> Iterator[tuple[_Member, bool]]:
    """The agents of a conversation and its context; those that chosen records ran or asked for go whole."""
    texts, everything = member.choice.texts, member.choice.everything
    for name, effect in relations.children.get(member.conversation, ()):
        is_whole = everything or name in chosen.children or effect in chosen.effects
        choice = ErasureChoice(texts=texts, everything=is_whole)
        yield _Member(conversation=name, choice=choice, takes_repeats=True), False
    context = relations.find_context(member.conversation)
    if context is not None:
        choice = ErasureChoice(texts=texts, everything=everything)
        yield _Member(conversation=context, choice=choice, takes_repeats=True, is_context=True), False


def _list_forks(relations: Relations, member: _Member, chosen: _Chosen) -> Iterator[tuple[_Member, bool]]:
    """The forks of a conversation, and whether each shares a chosen record with it.

    A fork within a chosen turn tells that turn in another way: so the turn is chosen there too.
    """
    for name, seq in relations.forks.get(member.conversation, ()):
        newest_turn = chosen.turns[seq] if seq < len(chosen.turns) else 0
        turns = tuple(turn for turn in member.choice.turns if turn == newest_turn)
        choice = replace(member.choice, turns=turns, records=())
        fork = _Member(
            conversation=name, choice=choice, takes_repeats=True, fork_of=member.conversation, shared=seq
        )
        yield fork, any(number <= seq for number in chosen.numbers)


def _collect_repeated_texts(store: Store, members: Sequence[_Member]) -> frozenset[str]:
    """The texts that go from chosen records, and stand in no kept record of the named conversation.

    A text that is kept there, `Thank you very much` for instance, is not what somebody wants to have gone.
    """
    texts: set[str] = set()
    for member in members:
        for record in _read_all(store, member.conversation):
            if member.choice.chooses(record):
                texts.update(filter(None, iterate_texts(record.event, only_said=True)))
    if not texts:
        return frozenset()
    for record in _read_all(store, members[0].conversation):
        if not members[0].choice.chooses(record):
            kept = _SEPARATOR.join(iterate_texts(record.event, only_said=True))
            texts = {text for text in texts if text not in kept}
    return frozenset(texts)


def _repeats_any(record: Record, texts: Iterable[str], *, is_context: bool = False) -> bool:
    """Whether a record repeats a text.

    Args:
        is_context: whether it finds the context of a message: then it has that message, and the ones before
            it with their roles, however short they are.
    """
    values = set(iterate_texts(record.event, only_said=True))
    joined = _SEPARATOR.join(values)  # one search for each text, where conversations are long
    if not joined:
        return False
    return any(
        (len(text) >= _MIN_REPEATED and text in joined)
        or (is_context and (text in values or f"user: {text}" in joined or f"assistant: {text}" in joined))
        for text in texts
    )


def _read_all(store: Store, conversation: str) -> Iterator[Record]:
    """All records, with the chain checked."""
    prev = records.GENESIS
    for seq, line in enumerate(store.read_lines(conversation)):
        record = records.read_record(line, seq, prev, conversation)
        prev = record.hash
        yield record


# -- before anything is written --------------------------------------------------------------------


@contextmanager
def _hold_leases(store: Store, names: Sequence[str]) -> Iterator[dict[str, Lease]]:
    """Within the block nobody else appends to these conversations; yields the lease that covers each.

    Afterwards the leases are as they were: a timer that is due later stays due.

    Raises:
        LeaseHeld: a worker has one of them; none is held then.
    """
    relations = read_relations(store)
    covers = {name: find_root(store, relations.find_subject(name) or name) for name in names}
    before: dict[str, bool] = {}
    held: dict[str, Lease] = {}
    try:
        # Sorted, so that two callers do not take them crosswise. The own one of a context too: somebody may
        # have begun a conversation of that name by hand.
        for root in sorted({*covers.values(), *(name for name in names if relations.find_subject(name))}):
            lease = store.find_lease(root)
            held[root] = store.acquire_lease(root, name_worker(), _LEASE_S)
            before[root] = lease is None or lease.is_open
        yield {name: held[root] for name, root in covers.items()}
    finally:
        for root, lease in held.items():
            if not store.release_lease(lease, is_open=before[root], due=lease.due):
                store.renew_leases([lease], 0.0)  # who takes it next finds the entries of its inbox


def _require_rest(store: Store, names: Sequence[str]) -> None:
    """Refuse to erase while there is work left: its worker would need what was said, or say it again.

    Raises:
        SpecError: a turn is open, or something waits in an inbox.
    """
    for name in names:
        try:
            loaded = load_conversation(store, name)
        except ReplayMismatch:  # it cannot go on: nobody holds it
            continue
        if loaded is not None and not loaded.snapshot.is_over:
            root = find_root(store, name)
            of_root = f", which works for {root!r}," if root != name else ""
            raise SpecError(
                f"a turn of conversation {name!r}{of_root} is open",
                hint=f"finish it, or stop it first: toolchart cancel {root}",
            )
    if entries := store.read_inbox(list(names)):
        raise SpecError(
            f"something waits in the inbox of conversation {entries[0].conversation!r}",
            hint="let a worker take it, then erase: toolchart recover",
        )


# -- planning --------------------------------------------------------------------------------------


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written of one conversation."""

    last: Record
    stand_ins: Mapping[int, bytes]
    named: Sequence[ErasedRecord]
    result: ErasedConversation


class _PlannedStore:
    """A log as it will be: planned lines in place of the stored ones, and no checkpoint that will go."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lines: dict[str, Mapping[int, bytes]] = {}

    def add(self, conversation: str, stand_ins: Mapping[int, bytes]) -> None:
        """Plan lines of a conversation, which has no checkpoints then."""
        self._lines[conversation] = stand_ins

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on."""
        planned = self._lines.get(conversation, {})
        for seq, line in enumerate(self._store.read_lines(conversation, start), start):
            yield planned.get(seq, line)

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints that stay."""
        if conversation not in self._lines:
            yield from self._store.read_checkpoints(conversation, newest)

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        return self._store.read_last_line(conversation)


def _plan_all(store: Store, members: Sequence[_Member], repeated: frozenset[str]) -> list[_Plan]:
    """What is to be written, in the order of the members; only of those that change."""
    planned_store = _PlannedStore(store)
    plans: list[_Plan] = []
    affected: dict[str, int] = {}
    """By conversation: number of the first record whose content goes now; -1 where it goes in an ancestor."""
    for member in members:
        name = member.conversation
        inherits = (
            member.fork_of is not None and affected.get(member.fork_of, member.shared + 1) <= member.shared
        )
        rewriting = _Rewriting(store, planned_store, member, repeated, shares_erased_now=inherits)
        for record in _read_all(store, name):
            rewriting.add_record(record)
        content = [named.seq for named in rewriting.named if named.is_content]
        if inherits:
            affected[name] = -1
        elif content:
            affected[name] = content[0]
        last = rewriting.last
        if last is None or not (rewriting.stand_ins or rewriting.needs_notice):
            continue
        planned_store.add(name, rewriting.stand_ins)
        digests = tuple(named.seq for named in rewriting.named if not named.is_content)
        result = ErasedConversation(
            conversation=name, content=tuple(content), digests=digests, is_derivable=rewriting.is_derivable
        )
        plans.append(_Plan(last=last, stand_ins=rewriting.stand_ins, named=rewriting.named, result=result))
    return plans


def _write_plan(store: Store, plan: _Plan, leases: Mapping[str, Lease], notice: Erased, at: str) -> None:
    """Rewrite one conversation.

    Raises:
        LeaseLost: planning took so long that another worker has taken it.
    """
    conversation, last = plan.result.conversation, plan.last
    lease = leases[conversation]
    if not all(store.renew_leases(list(leases.values()), _LEASE_S)):
        raise LeaseLost(f"conversation {conversation}: its lease was taken over; erase again")
    line = RecordLine(
        seq=last.seq + 1,
        at=at,
        turn=last.turn,
        iteration=last.iteration,
        event=read_json(make_plain_event(replace(notice, records=tuple(plan.named)))[1]),
        source=last.target,
        target=last.target,
        salt=generate_salt(),
        prev=last.hash,
        hash="",
    )
    batch = RecordBatch(conversation, line.seq, [records.seal_line(_encode_body(line))[0]], lease)
    store.rewrite_lines(batch, plan.stand_ins)


class _Rewriting:
    """Makes the stand-ins of one conversation, record by record.

    Args:
        planned_store: the log as it will be, for the parents of forks.
        repeated: texts whose repetition goes too.
        shares_erased_now: whether content goes now that the conversation, a fork, shares.
    """

    def __init__(
        self,
        store: Store,
        planned_store: _PlannedStore,
        member: _Member,
        repeated: frozenset[str],
        *,
        shares_erased_now: bool,
    ) -> None:
        self.stand_ins: dict[int, bytes] = {}
        """New lines by number."""
        self.named: list[ErasedRecord] = []
        """What the record `erased` says about them."""
        self.is_derivable = True
        self.last: Record | None = None
        self.needs_notice = shares_erased_now
        """Whether the conversation gets a record `erased` though no line of it changes."""
        self._store = store
        self._planned_store = planned_store
        self._member = member
        self._conversation = member.conversation
        self._repeated = repeated
        self._eraser = ContentEraser()
        self._state: ReplayState | None = None
        self._is_touched = shares_erased_now
        """Whether content before or in the present record goes, so that digests change."""
        self._shares_erased = False
        """Whether content before it has gone earlier."""
        self._is_fork = False

    def add_record(self, record: Record) -> None:
        """Take the next record, and make its stand-in where it needs one."""
        self.last = record
        event = record.event
        self._is_fork |= event["type"] == Forked.TYPE
        if self._chooses(record):
            event = self._eraser.erase_event(event)
        is_content = event != record.event
        self._shares_erased |= bool(record.digest) or self._forks_erased(record)
        self._is_touched |= is_content
        fields = self._derive_fields(record, event)
        if self._shares_erased and any(
            fields[key] != getattr(record, key) for key in fields if key in _FOLLOWING
        ):
            self._is_touched = True  # a fork that was begun while its parent was rewritten
        if not self._is_touched:
            self.needs_notice |= self._has_stale_checkpoint(record)
            return
        is_forced = fields.pop("is_forced", False)
        # A keyed digest of what was sent covers the content, and whoever has the key could confirm a guess.
        fields["asks"] = [replace(ask, sent="") for ask in fields["asks"]]
        new_record = replace(record, event=strike_digests(event), checkpoint="", **fields)
        if new_record != record or is_forced:
            self._add_stand_in(new_record, is_content)

    def _chooses(self, record: Record) -> bool:
        """Whether the content of a record goes."""
        member = self._member
        if member.choice.chooses(record):
            return True
        if not member.takes_repeats or not self._repeated or record.event["type"] in UNTOUCHED_TYPES:
            return False
        return record.turn in self._repeating_turns or _repeats_any(record, self._repeated)

    @cached_property
    def _repeating_turns(self) -> frozenset[int]:
        """Of a context: the turns with a record that repeats an erased text."""
        if not self._member.is_context:
            return frozenset()
        own = _read_all(self._store, self._conversation)
        return frozenset(
            record.turn for record in own if _repeats_any(record, self._repeated, is_context=True)
        )

    def _forks_erased(self, record: Record) -> bool:
        """Whether this is record 0 of a fork that shares records whose content is gone."""
        event = record.event
        if event["type"] != Forked.TYPE or record.seq:
            return False
        shared = _read_all(self._store, str(event["parent"]))
        return any(
            earlier.digest or self._forks_erased(earlier)
            for earlier in shared
            if earlier.seq <= int(event["seq"])
        )

    @cached_property
    def _checkpoints(self) -> Mapping[int, bytes]:
        return dict(self._store.read_checkpoints(self._conversation))

    def _has_stale_checkpoint(self, record: Record) -> bool:
        """Whether a record has a checkpoint that holds what its log does not have any more.

        So it is in a fork that an engine began from what it had read of the parent before that was rewritten.
        """
        if not (self._is_fork and self._shares_erased) or record.seq not in self._checkpoints:
            return False
        if self._state is None or not self.is_derivable:
            return True
        state, seq, name = self._state, record.seq, self._conversation
        stored = read_checkpoint(self._checkpoints[seq], seq, name)
        snapshot = state.snapshot
        mark = CheckpointMark(  # as if all messages stood in one before: their digest says enough
            seq=seq,
            digest="",
            message_count=len(snapshot.messages),
            turn=snapshot.turn,
            call_count=len(snapshot.tracked_calls),
        )
        data, _ = build_checkpoint(snapshot, name, seq, record.hash, replace(state.basis, newest=mark))
        derived = read_checkpoint(data, seq, name)
        if stored is None or derived is None:
            return True
        kept = ("context", "effects", "message_count", "message_digest", "shown")
        return any(getattr(stored, key) != getattr(derived, key) for key in kept)

    def _add_stand_in(self, record: Record, is_content: bool) -> None:
        fields = {name: getattr(record, name) for name in RecordLine.__struct_fields__}
        body = _encode_body(RecordLine(**{**fields, "salt": "", "digest": "", "hash": ""}))
        line = add_digest(body, record.hash)
        self.stand_ins[record.seq] = line
        named = ErasedRecord(seq=record.seq, digest=read_digest(line), is_content=is_content)
        self.named.append(named)

    def _derive_fields(self, record: Record, data: dict[str, Any]) -> dict[str, Any]:
        """The keys of the record that follow from what is left."""
        was_derivable, self.is_derivable = self.is_derivable, False
        try:
            new_step = self._derive(record, decode_event(data, record.at)) if was_derivable else None
        except (IllegalEvent, ReplayMismatch, SpecError):
            new_step = None
        if new_step is not None:
            fields = describe_step(record, new_step)
            asks = [(ask.id, ask.effect) for ask in fields["asks"]]
            if asks == [(ask.id, ask.effect) for ask in record.asks] and all(
                fields[key] == getattr(record, key) for key in _PATH_KEYS
            ):
                self.is_derivable = True
                return fields
        return _strike_fields(record, self._eraser)

    def _derive(self, record: Record, event: Event) -> Step:
        if isinstance(event, Forked) and not record.seq:
            self._state = load_parent_state(self._planned_store, event, self._conversation)
        state = enter_segment(record, event, self._state, self._conversation)
        new_step = step(state.machine, state.snapshot, event)
        self._state = replace(state, snapshot=new_step.snapshot)
        return new_step


def _strike_fields(record: Record, eraser: ContentEraser) -> dict[str, Any]:
    """The keys of a record that cannot be derived any more, without what depends on content."""
    asks = [
        replace(
            ask,
            digest="",
            sent="",
            own=(),
            content=ask.content and ERASED,
            arguments={"erased": True} if ask.arguments else {},
        )
        for ask in record.asks
    ]
    messages = [
        eraser.erase_fields(message) if isinstance(message, dict) and "role" in message else message
        for message in record.messages
    ]
    ended = record.ended
    if ended is not None and ended.error is not None:
        ended = replace(ended, error=replace(ended.error, message=ERASED))
    return {"asks": asks, "messages": messages, "ended": ended, "is_forced": True}


def _encode_body(line: RecordLine) -> bytes:
    """The JSON of a line without its hash."""
    try:
        data = _encode_json(line)
    except (UnicodeEncodeError, OverflowError):  # escaped lone surrogates, integers beyond 64 bits
        text = json.dumps(msgspec.to_builtins(line), separators=(",", ":"), allow_nan=False)
        data = text.encode()
    return data.removesuffix(b',"hash":""}') + b"}"
