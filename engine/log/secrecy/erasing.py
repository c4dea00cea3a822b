"""Erasing: takes what somebody said out of a kept conversation; hash chain, seals and gaps stay visible.

Each record with erased content is replaced by a stand-in: the same record without the content, with the hash
of the record as it was first written (`stand_ins.py`). Later requests covered the content by their digests,
and checkpoints held it. So digests are derived again from what is left, and checkpoints are deleted. A record
`erased` at the end of the conversation names each stand-in by its digest, so nobody can change one later.

What the hash of an erased record covers cannot be guessed: the salt of the record is erased with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log import record as records
from toolchart.engine.log.continuation.step_comparison import describe_step
from toolchart.engine.log.family import ANSWERS, find_root, iterate_family
from toolchart.engine.log.reading.listing import read_ends
from toolchart.engine.log.record import Record, RecordLine
from toolchart.engine.log.replay import ReplayState, enter_segment, load_conversation, load_parent_state
from toolchart.engine.log.secrecy.content import ERASED, ContentEraser, strike_digests
from toolchart.engine.log.secrecy.salts import generate_salt
from toolchart.engine.log.secrecy.stand_ins import add_digest, read_digest
from toolchart.engine.log.sharing.workers import name_worker
from toolchart.specs.secrets import strike_secrets
from toolchart.states.core.configurations import Erased, ErasedRecord
from toolchart.states.core.encoding import decode_event, read_json
from toolchart.states.core.step import Step, step
from toolchart.states.errors import IllegalEvent, LogUnavailable, ReplayMismatch, SpecError
from toolchart.states.events import Event, Forked
from toolchart.states.ports import Lease, RecordBatch, RewritingStore, SharedStore, Store

_encode_json = msgspec.json.Encoder().encode

_LEASE_S = 300.0
"""Seconds of the lease under which a conversation is rewritten."""

_UNTOUCHED = frozenset(["configured", "migrated", "continued", "forked", "resumed", "elapsed", "erased"])
"""Events without content of a conversation. What the author wrote (chart, spec, tools) stays."""

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
    """Records that contain one of these texts, in any spelling of capitals."""
    everything: bool = False

    def chooses(self, record: Record) -> bool:
        """Whether the content of a record goes."""
        if record.event["type"] in _UNTOUCHED:
            return False
        if self.everything or record.turn in self.turns or record.seq in self.records:
            return True
        return bool(self.texts) and self._contains_text(record.event)

    def _contains_text(self, event: dict[str, Any]) -> bool:
        words = json.dumps(event, ensure_ascii=False).casefold()
        spellings = (json.dumps(text, ensure_ascii=False)[1:-1].casefold() for text in self.texts)
        return any(spelling in words for spelling in spellings)


class ErasedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What erasing did to one conversation."""

    conversation: str
    content: tuple[int, ...]
    """Numbers of the records whose content is gone."""
    digests: tuple[int, ...]
    """Numbers of those in which only digests were replaced, because they covered such content."""
    is_derivable: bool
    """Whether the conversation still replays and can go on: no erased value decides a step."""


def erase_content(
    store: Store, conversation: str, choice: ErasureChoice, *, at: str, by: str | None, reason: str | None
) -> list[ErasedConversation]:
    """Erase content of a conversation, and all of the agents that it ran in the chosen records.

    In forks the digests that cover the content are replaced, too; content that a fork itself has stays. When
    it was stopped half-way, call it again.

    Args:
        at: time of the records that say so: RFC 3339, UTC.
        by: who has it erased. Known secrets are struck from this and from the reason.

    Returns:
        What was changed, one entry a conversation; nothing where nothing was chosen.

    Raises:
        SpecError: there is no such conversation or record, or a turn of it is open.
        LeaseHeld: a worker has it.
        LogDamaged: it is not the one that was written.
        LogUnavailable: its store cannot replace lines.
    """
    if not isinstance(store, RewritingStore):
        raise LogUnavailable("the store of this log cannot replace lines, so nothing can be erased in it")
    if store.read_last_line(conversation) is None:
        raise SpecError(f"there is no conversation {conversation!r} in this log")
    erased: list[ErasedConversation] = []
    chosen = [(conversation, choice), *_list_chosen_children(store, conversation, choice)]
    chosen += _list_forks(store, [name for name, _ in chosen])
    for name, _ in chosen:
        _require_rest(store, name)
    safe_by, safe_reason = (text and strike_secrets(text) for text in (by, reason))
    notice = Erased(records=(), by=safe_by, reason=safe_reason)
    for name, own_choice in chosen:
        result = _erase_conversation(store, name, own_choice, notice, at)
        if result is not None:
            erased.append(result)
    return erased


def _list_chosen_children(
    store: Store, conversation: str, choice: ErasureChoice
) -> Iterator[tuple[str, ErasureChoice]]:
    """The agents that chosen records name, whole; of the others what holds a chosen text."""
    named = {
        str(record.event["conversation"])
        for record in _read_all(store, conversation)
        if record.event["type"] in ANSWERS and choice.chooses(record)
    }
    for depth, name in iterate_family(store, conversation):
        if depth:
            is_whole = choice.everything or any(name == top or name.startswith(f"{top}.") for top in named)
            yield name, ErasureChoice(texts=choice.texts, everything=is_whole)


class _HeaderEvent(msgspec.Struct):
    type: str = ""
    parent: Any = None


class _Header(msgspec.Struct):
    """What tells forks from other conversations, in record 0."""

    event: _HeaderEvent


_read_header = msgspec.json.Decoder(_Header).decode


def _list_forks(store: Store, names: Sequence[str]) -> list[tuple[str, ErasureChoice]]:
    """The forks of conversations, and theirs, parents first; nothing of their own is chosen."""
    parents: dict[str, list[str]] = {}
    for name, first, _, _ in read_ends(store):
        event = _read_header(first).event  # large parts of the line are left out
        if event.type == Forked.TYPE:
            parents.setdefault(str(event.parent), []).append(name)
    forks, waiting = [], list(names)
    while waiting:
        children = parents.pop(waiting.pop(0), [])
        forks += [(name, ErasureChoice()) for name in children]
        waiting += children
    return forks


def _read_all(store: Store, conversation: str) -> Iterator[Record]:
    """All records, with the chain checked."""
    prev = records.GENESIS
    for seq, line in enumerate(store.read_lines(conversation)):
        record = records.read_record(line, seq, prev, conversation)
        prev = record.hash
        yield record


def _require_rest(store: Store, conversation: str) -> None:
    """Refuse to erase while a turn is open: its worker holds what was said.

    Raises:
        SpecError: a turn is open.
    """
    try:
        loaded = load_conversation(store, conversation)
    except ReplayMismatch:  # it cannot go on: nobody holds it
        return
    if loaded is not None and not loaded.snapshot.is_over:
        raise SpecError(
            f"a turn of conversation {conversation!r} is open",
            hint=f"finish it, or stop it first: toolchart cancel {conversation}",
        )


def _erase_conversation(
    store: Store, conversation: str, choice: ErasureChoice, notice: Erased, at: str
) -> ErasedConversation | None:
    """Erase in one conversation; None where nothing changes."""
    rewriting = _Rewriting(store, conversation, choice)
    for record in _read_all(store, conversation):
        rewriting.add_record(record)
    last = rewriting.last
    if last is None or not rewriting.stand_ins:
        return None
    event = replace(notice, records=tuple(rewriting.named))
    line = RecordLine(
        seq=last.seq + 1,
        at=at,
        turn=last.turn,
        iteration=last.iteration,
        event=read_json(records.encode_plain_event(event)[1]),
        source=last.target,
        target=last.target,
        salt=generate_salt(),
        prev=last.hash,
        hash="",
    )
    lease = _take_lease(store, conversation)
    batch = RecordBatch(conversation, line.seq, [records.seal_line(_encode_body(line))[0]], lease)
    assert isinstance(store, RewritingStore), "it was asked before"
    try:
        store.rewrite_lines(batch, rewriting.stand_ins)
    finally:
        if lease is not None and isinstance(store, SharedStore):
            store.release_lease(lease, is_open=False)
    return ErasedConversation(
        conversation=conversation,
        content=tuple(named.seq for named in rewriting.named if named.is_content),
        digests=tuple(named.seq for named in rewriting.named if not named.is_content),
        is_derivable=rewriting.is_derivable,
    )


def _take_lease(store: Store, conversation: str) -> Lease | None:
    if not isinstance(store, SharedStore):
        return None
    return store.acquire_lease(find_root(store, conversation), name_worker(), _LEASE_S)


class _Rewriting:
    """Makes the stand-ins of one conversation, record by record."""

    def __init__(self, store: Store, conversation: str, choice: ErasureChoice) -> None:
        self.stand_ins: dict[int, bytes] = {}
        """New lines by number."""
        self.named: list[ErasedRecord] = []
        """What the record `erased` says about them."""
        self.is_derivable = True
        self.last: Record | None = None
        self._store = store
        self._conversation = conversation
        self._choice = choice
        self._eraser = ContentEraser()
        self._state: ReplayState | None = None
        self._is_touched = False
        """Whether content before or in the present record goes, so that digests change."""
        self._shares_erased = False
        """Whether content before it has gone earlier."""

    def add_record(self, record: Record) -> None:
        """Take the next record, and make its stand-in where it needs one."""
        self.last = record
        event = record.event
        if self._choice.chooses(record):
            event = self._eraser.erase_event(event)
        is_content = event != record.event
        self._shares_erased |= bool(record.digest) or self._forks_erased(record)
        self._is_touched |= is_content
        fields = self._derive_fields(record, event)
        if self._shares_erased and any(
            fields[key] != getattr(record, key) for key in fields if key in _FOLLOWING
        ):
            self._is_touched = True  # as after a crash between a conversation and its fork
        if not self._is_touched:
            return
        is_forced = fields.pop("is_forced", False)
        new_record = replace(record, event=strike_digests(event), checkpoint="", **fields)
        if new_record != record or is_forced:
            self._add_stand_in(new_record, is_content)

    def _forks_erased(self, record: Record) -> bool:
        """Whether this is record 0 of a fork that shares records whose content is gone."""
        event = record.event
        if event["type"] != Forked.TYPE or record.seq:
            return False
        shared = _read_all(self._store, str(event["parent"]))
        return any(earlier.digest for earlier in shared if earlier.seq <= int(event["seq"]))

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
        return _strike_fields(record)

    def _derive(self, record: Record, event: Event) -> Step:
        if isinstance(event, Forked) and not record.seq:
            self._state = load_parent_state(self._store, event, self._conversation)
        state = enter_segment(record, event, self._state, self._conversation)
        new_step = step(state.machine, state.snapshot, event)
        self._state = replace(state, snapshot=new_step.snapshot)
        return new_step


def _strike_fields(record: Record) -> dict[str, Any]:
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
        {**message, "content": ERASED} if isinstance(message, dict) and "role" in message else message
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
