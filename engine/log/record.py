"""The log record, format 2, and the journal that numbers, chains and appends the records of a conversation.

In: a step, and its event as JSON (`Journal.add_record`). Out: its line, appended by `Journal.commit`.
Next: the store, by way of `group_commit.py`; in `stores/sql.py` the line becomes a row.

A record holds the event, the transition that the machine made, the guard values and what was asked for. It is
one line of JSON with the hash as its last key. The hash is SHA-256 over the line without the hash, and each
line holds the hash of the record before it. So the chain is checked on the stored bytes: verification never
encodes anything again, because two encoders of JSON may differ (in `1e16`, for instance).

Records that come together (for example a reply and its review) are appended in one commit; `commit`
returns when they are durable. The driver commits before it performs an effect outside the process, or the
performer does right before a call begins, so a record is durable before anything that it asks for can happen.

At the end of each turn, and every 1,000 records, a commit also has a checkpoint, where the store keeps them.
The next record holds its digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from toolchart.engine.log.continuation.checkpoint import CheckpointBasis, RecordPlace, build_checkpoint
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.turn_totals import CountedStep, build_totals
from toolchart.states.compiler import FiredTransition
from toolchart.states.core.encoding import decode_event, encode, read_json
from toolchart.states.core.step import Step
from toolchart.states.descriptors import require_rows
from toolchart.states.effects import (
    EFFECT_CLASSES,
    Answer,
    AskApproval,
    AskPerson,
    AwaitUser,
    CallFunction,
    CallModel,
    Compact,
    CountTokens,
    Effect,
    ReviewCalls,
    RunAgent,
    RunTools,
    Wait,
    compute_arguments_digest,
    compute_effect_digest,
    compute_shown_digest,
)
from toolchart.states.errors import LogDamaged, LogUnavailable, NewerLog
from toolchart.states.events import (
    CONFIGURATION_TYPES,
    AgentFinished,
    AgentRested,
    CallsStarted,
    Continued,
    Decided,
    Event,
    Returned,
    ToolFinished,
    TurnStarted,
)
from toolchart.states.flows.results import build_agent_message
from toolchart.states.messages import Message
from toolchart.states.snapshot import Snapshot, TurnError

FORMAT = 2
"""Version of the record format; record 0 holds it."""

GENESIS = "0" * 64
"""`prev` of record 0."""

_HASH_TAIL = len(b',"hash":""}') + 64

CHECKPOINT_EVERY = 1000
"""A checkpoint is written after at most so many records, and a few more where they share a commit."""


class TakenRow(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """A transition that fired: a row of a state of the recorded chart, which says where it leads."""

    source: str = ""
    """The state that has the row; empty where it is the record's `source`."""
    row: int
    """Index of the transition among those of its source state, in document order."""


class RecordedEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a turn ended."""

    by: str = ""
    """The effect that ended it, or the core's reason; empty where the chart terminated without an answer."""
    limit: str = ""
    """The limit that was reached."""
    error: TurnError | None = None
    """Why it ended in error."""


class RecordedAsk(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """An effect that a step asked for, as a record shows it.

    What performing it needs is derived, or stands in a checkpoint: `digest` covers it. The other fields say
    what readers want to see without deriving.
    """

    id: int
    """Number of the effect in the conversation; the event that answers it names this number."""
    effect: str
    """Its name in the chart."""
    state: str = ""
    """The state that it belongs to; empty where it is the record's `target`."""
    digest: str
    """Digest of everything that the effect hands to its performer (`compute_effect_digest`)."""
    messages: int | None = None
    """`call_model`: how many messages the request has, the system message included."""
    sent: str = ""
    """In a redacted log, where another effect is performed: the keyed digest (HMAC) of its digest."""
    calls: tuple[str, ...] = ()
    """`run_tools`: ids of the calls to run. `ask_approval`: ids of the calls to decide."""
    refused: tuple[str, ...] = ()
    """`run_tools`: ids of the calls that are answered without running."""
    seconds: float | None = None
    """`wait`: how long."""
    content: str | None = None
    """An answer to the user, where it differs from the text of the reply."""
    result: str = ""
    """The name under which its result is kept."""
    host: str = ""
    """`call_model`: the `llms` entry to ask, where it is not that of the turn."""
    own: tuple[Message, ...] = ()
    """`call_model`: the messages at the end of the request that are not those of the conversation."""
    due: str = ""
    """`wait`: when it runs out."""
    arguments: dict[str, Any] = {}
    """What an agent, a function or a person needs."""


class RecordLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The keys of one line of the log, in their order. Empty lists and objects are left out."""

    seq: int
    """Number in the conversation, from 0."""
    at: str
    """RFC 3339, UTC."""
    turn: int
    """Number of the turn, from 1; 0 before the first one."""
    iteration: int
    """Iteration of the turn after the event, from 0."""
    event: dict[str, Any]
    """What happened: its `type`, the id of the `effect` that it answers, and the fields of its type."""
    source: str
    """State before the event; empty before the first turn."""
    target: str
    """State after it."""
    fired: list[TakenRow] = []
    """The transitions that fired, in order."""
    guards: dict[str, bool] = {}
    """The guards that were evaluated, each with its truth."""
    asks: list[RecordedAsk] = []
    """The effects that were asked for, in order."""
    cancels: list[int] = []
    """Ids of the effects that were cancelled."""
    late: bool = False
    """Whether the event answers an effect that was not open any more."""
    untaken: bool = False
    """Whether no transition fired on the event."""
    calls: list[str] = []
    """Ids of the calls of a reply in its order, where the core gave one of them."""
    messages: list[Any] = []
    """References to the messages that the step added to the conversation."""
    ended: RecordedEnd | None = None
    """How the turn ended, in the record that ended it."""
    checkpoint: str = ""
    """Digest of the newest checkpoint; only in the record right after it was written."""
    salt: str = ""
    """Random, so that nobody can guess content from the hash."""
    prev: str
    """Hash of the record before; zeros in record 0."""
    hash: str
    """SHA-256 of the line without this key."""


class Record(RecordLine, frozen=True, kw_only=True):
    """One line of the log, decoded."""

    line: bytes
    """The stored bytes."""

    def decode_event(self) -> Event:
        """The event as a value.

        Raises:
            LogDamaged: it is not an event of this log format.
        """
        try:
            return decode_event(self.event, self.at)
        except (ValueError, TypeError) as error:
            raise LogDamaged(str(error), seq=self.seq) from None


_line_decoder = msgspec.json.Decoder(RecordLine)
_encode_json = msgspec.json.Encoder().encode


# -- writing -------------------------------------------------------------------------------------


def describe_turn_end(new_step: Step) -> RecordedEnd | None:
    """How the turn ended in this step; None where it did not."""
    if not new_step.ends_turn:
        return None
    after = new_step.snapshot
    return RecordedEnd(by=after.ended_by or "", limit=after.limit_reached or "", error=after.error)


@lru_cache(maxsize=1024)  # the machine remembers its answers too, so a chart has few of these
def list_taken_rows(fired: tuple[FiredTransition, ...], source: str) -> tuple[TakenRow, ...]:
    """The transitions that fired in a step, as its record names them.

    Args:
        source: label of the state before the step.
    """
    return tuple(
        [
            TakenRow(source="" if transition.source == source else transition.source, row=transition.row)
            for transition in fired
        ]
    )


def list_message_references(new_step: Step) -> list[Any]:
    """References to the messages that a step added, in order; what the core wrote stands there in full.

    With them a reader needs no core: it knows what the model heard and said, whatever rules were in force.
    The text of a message stands once, in the event that brought it, and the step says which event that is.
    `engine/reading/messages.py` reads the references back, and lists their forms.
    """
    references = []
    for source in new_step.messages:
        if type(source) is Message:
            source = _refer_to_words(source, new_step.event)
        references.append(source)
    return references


def _refer_to_words(message: Message, event: Event | None) -> Any:
    """A message of the core in full; by its event where a chart answers with what an agent has just said."""
    if isinstance(event, AgentFinished | AgentRested) and message == build_agent_message(event.content):
        return "agent"
    return encode(message)


def encode_record(
    seq: int,
    at: str,
    event: bytes,
    step: Step,
    prev: str,
    *,
    checkpoint: str = "",
    sent: Mapping[int, str] | None = None,
    salt: str = "",
) -> tuple[bytes, str]:
    """The line of a step's record, and its hash.

    The event goes in as the bytes that it was made of: what is recorded, what the core acted on and what is
    hashed are one encoding. Keys stand in the order of `RecordLine`, so equal steps give equal bytes.

    Args:
        event: JSON of the event.
        prev: hash of the record before.
        checkpoint: digest of the checkpoint that was written after the record before, if one was.
        sent: keyed digests of requests by effect id, where the log is redacted.
        salt: random, so that nobody can guess content from the hash.
    """
    snapshot = step.snapshot
    asks = []
    for effect in step.effects:
        asks.append(describe_ask(effect, snapshot, sent))
    body = _LineBody(
        seq,
        at,
        snapshot.turn,
        snapshot.iteration,
        msgspec.Raw(event),
        step.source,
        step.target,
        list_taken_rows(step.fired, step.source),
        step.guards,
        asks,
        step.cancels,
        step.is_late,
        step.is_untaken,
        step.given_call_ids,
        list_message_references(step) if step.messages else [],
        describe_turn_end(step) if step.ends_turn else None,
        checkpoint,
        salt,
        prev,
    )
    try:
        data = _encode_json(body)
    except UnicodeEncodeError:  # a lone surrogate in an answer: escaped
        data = _escape_surrogates(body, event)
    return seal_line(data)


class _LineBody(msgspec.Struct, omit_defaults=True, gc=False):
    """What `encode_record` writes, as one value: the encoder takes a third of the time of joining pieces.

    Not keyword-only, because a step makes one and by position it costs a third.
    """

    seq: int
    at: str
    turn: int
    iteration: int
    event: msgspec.Raw
    source: str
    target: str
    fired: tuple[TakenRow, ...] = ()
    guards: dict[str, bool] = {}
    asks: list[RecordedAsk] = []
    cancels: tuple[int, ...] = ()
    late: bool = False
    untaken: bool = False
    calls: tuple[str, ...] = ()
    messages: list[Any] = []
    ended: RecordedEnd | None = None
    checkpoint: str = ""
    salt: str = ""
    prev: str = ""


def _escape_surrogates(body: _LineBody, event: bytes) -> bytes:
    """The JSON of a body; characters beyond ASCII are escaped outside the event."""
    mark = '"(the event)"'
    data = to_builtins(replace(body, event=mark[1:-1]))  # it takes no bytes of JSON
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    before, _, after = text.partition(mark)
    return before.encode() + event + after.encode()


def seal_line(body: bytes) -> tuple[bytes, str]:
    """A JSON object with its hash as the last key; and the hash."""
    digest = hashlib.sha256(body).hexdigest()
    # One copy: the body may have a result of a megabyte, and `body[:-1]` would be another one.
    return b"".join((memoryview(body)[:-1], b',"hash":"', digest.encode(), b'"}')), digest


# -- asks -----------------------------------------------------------------------------------------

_get_id, _get_refused_id = attrgetter("id"), attrgetter("call.id")


def describe_ask(effect: Effect, snapshot: Snapshot, sent: Mapping[int, str] | None = None) -> RecordedAsk:
    """An effect as a record shows it.

    Messages are logged once, in the event that brought them. So a request appears as the number of its
    messages, and an answer has its text only where it differs from the model's reply.

    Args:
        snapshot: the one after the step.
        sent: keyed digests of effects by their ids, where the log is redacted.
    """
    ask = RecordedAsk(
        id=effect.id,
        effect=effect.name,
        state="" if effect.state == snapshot.state else effect.state,
        digest=compute_effect_digest(effect),
        sent=sent.get(effect.id, "") if sent else "",
        result=effect.result,
    )
    add_details = _ASK_DETAILS[type(effect)]
    return ask if add_details is None else add_details(ask, effect, snapshot)


def _add_request(ask: RecordedAsk, effect: CallModel, snapshot: Snapshot) -> RecordedAsk:
    messages, own_count = effect.request.messages, effect.own_messages
    own = tuple(messages[-own_count:]) if own_count else ()
    return replace(ask, messages=len(messages), host=effect.host, own=own)


def _add_calls(ask: RecordedAsk, effect: RunTools, snapshot: Snapshot) -> RecordedAsk:
    refused = tuple(map(_get_refused_id, effect.refused))
    return replace(ask, calls=tuple(map(_get_id, effect.calls)), refused=refused)


def _add_approvers(ask: RecordedAsk, effect: AskApproval, snapshot: Snapshot) -> RecordedAsk:
    to = {"to": list(effect.to)} if effect.to else {}
    return replace(ask, calls=tuple(map(_get_id, effect.calls)), arguments=to)


def _add_due_time(ask: RecordedAsk, effect: Wait, snapshot: Snapshot) -> RecordedAsk:
    return replace(ask, seconds=effect.seconds, due=effect.due)


def _add_text(ask: RecordedAsk, effect: Answer, snapshot: Snapshot) -> RecordedAsk:
    is_reply_text = snapshot.reply is not None and effect.content == (snapshot.reply.content or "")
    return ask if is_reply_text else replace(ask, content=effect.content)


_IDENTITY = ("type", "id", "name", "state", "kind", "result")


def _add_own_fields(ask: RecordedAsk, effect: Effect, snapshot: Snapshot) -> RecordedAsk:
    """With the own fields of an effect of a flow that are not empty."""
    plain_data = _replace_tuples(to_builtins(effect))
    arguments = {key: item for key, item in plain_data.items() if key not in _IDENTITY and item}
    return replace(ask, arguments=arguments)


def _replace_tuples(value: Any) -> Any:
    """JSON data with lists in place of tuples."""
    if isinstance(value, dict):
        return {key: _replace_tuples(item) for key, item in value.items()}
    return [_replace_tuples(item) for item in value] if isinstance(value, list | tuple) else value


# What performers got.

HANDED_DIGESTS = ("arguments_digest", "shown_digest")
"""Fields of events with the digest of what a tool, a function or a person got."""


def compute_expected_digest(event: Event, snapshot: Snapshot) -> tuple[str, str]:
    """The name of the digest in an answer that follows from what was asked, and its value; empty for none.

    Args:
        snapshot: the one before the event.
    """
    match event:
        case ToolFinished(arguments_digest=digest) if digest:
            open_call = snapshot.calls.find(event.call_id)
            if open_call is not None:
                return "arguments_digest", compute_arguments_digest(open_call.call.arguments)
        case Returned(arguments_digest=digest) if digest:
            for effect in snapshot.open_effects:
                if effect.id == event.effect and isinstance(effect, CallFunction):
                    return "arguments_digest", compute_arguments_digest(effect.arguments)
        case Decided(shown_digest=digest, approved=True) if digest:
            open_call = snapshot.calls.find(event.call_id)
            if open_call is not None:
                reason = open_call.reason or ""
                return "shown_digest", compute_shown_digest(open_call.call, reason, event.definition)
    return "", ""


_ASK_DETAILS: dict[type[Effect], Callable[[RecordedAsk, Any, Snapshot], RecordedAsk] | None] = {
    CallModel: _add_request,
    RunTools: _add_calls,
    AskApproval: _add_approvers,
    Wait: _add_due_time,
    Answer: _add_text,
    **dict.fromkeys((RunAgent, CallFunction, AskPerson, AwaitUser, Compact), _add_own_fields),
    **dict.fromkeys((Effect, ReviewCalls, CountTokens)),
}
"""Adds to an ask what readers want beside its digest, by the class of the effect; None: nothing."""


def check_ask_details(details: Iterable[type], classes: Iterable[type[Effect]] = EFFECT_CLASSES) -> None:
    """Check that it is said of each class of effects what its record shows.

    Raises:
        SpecError: a class is missing.
    """
    require_rows("_ASK_DETAILS in engine/log/record.py", details, (Effect, *classes))


check_ask_details(_ASK_DETAILS)


# -- the journal ---------------------------------------------------------------------------------

_WITH_VERSIONS = (*CONFIGURATION_TYPES, Continued.TYPE)


def _goes_on(step: Step) -> bool:
    """Whether an ended turn went on in a step: it is open again, or ended once more."""
    return step.ends_turn or not step.snapshot.is_over


class Journal:
    """Appends records to one conversation; each driver has its own.

    Args:
        seq: number of the next record.
        prev: hash of the record before it.
        basis: what checkpoints refer to, from `ReplayedConversation.basis`. Without it, checkpoints begin
            with the next `configured` record.
    """

    def __init__(
        self,
        log: GroupCommit,
        conversation: str,
        *,
        seq: int = 0,
        prev: str = GENESIS,
        basis: CheckpointBasis | None = None,
    ) -> None:
        self.conversation = conversation
        self._log = log
        self._seq = seq
        self._prev = prev
        self._pending_lines: list[bytes] = []
        self._taken: list[str] = []
        """Numbers of inbox entries that became pending records."""
        self._basis = basis or CheckpointBasis()
        newest = self._basis.newest
        self._unnamed_digest = newest.digest if newest is not None and newest.seq == seq - 1 else ""
        """Digest of a checkpoint that no record names yet."""
        self.checkpoint_seq = newest.seq if newest is not None else seq - 1
        """Number of the record of the newest checkpoint."""
        self._newest: Snapshot | None = None
        """The snapshot after the newest record that is not committed."""
        self._turn_steps: list[CountedStep] | None = None
        """The steps of the open turn; None where not all of them are known."""
        self._totals: list[tuple[int, bytes]] = []
        """Totals of turns whose last record is pending."""
        self._failure: Exception | None = None
        """Why a commit failed: what was added is ahead of the log from then on."""

    @property
    def next_seq(self) -> int:
        """Number of the next record."""
        return self._seq + len(self._pending_lines)

    @property
    def head(self) -> str:
        """Hash of the newest record."""
        return self._prev

    def add_record(self, data: bytes, step: Step, sent: Mapping[int, str] | None = None) -> bytes:
        """Add the record of a step; it is appended by the next `commit`. Returns its line.

        Args:
            data: JSON of the event.
            sent: keyed digests of the requests that are sent, by effect id, where the log is redacted.
        """
        seq = self._seq + len(self._pending_lines)
        event = step.event
        kind = type(event)
        if kind is TurnStarted:
            self._turn_steps = []
        elif step.is_late:  # what it answers may have been asked in an earlier turn: statistics read records
            self._turn_steps = None
            self._totals.append((seq, b""))
        if self._turn_steps is not None:
            asked_ids = []
            for effect in step.effects:
                if isinstance(effect, CallModel):
                    asked_ids.append(effect.id)
            self._turn_steps.append((event.at, event, asked_ids, step.given_call_ids))
            if step.ends_turn:
                self._totals.append((seq, build_totals(self._turn_steps, step.snapshot)))
                self._turn_steps = None
        elif (before := step.before) is not None and before.is_over and _goes_on(step):
            # A timer ended the rest of a turn that perhaps has totals: they are too few from now on.
            self._totals.append((seq, b""))
        line, digest = encode_record(
            seq,
            event.at,
            data,
            step,
            self._prev,
            checkpoint=self._unnamed_digest,
            sent=sent,
            # A start mark has no content, and so nothing that a salt would hide.
            salt="" if kind is CallsStarted else generate_salt(),
        )
        self._prev, self._unnamed_digest, self._newest = digest, "", step.snapshot
        self._pending_lines.append(line)
        # Checkpoints name the record that configured the conversation, and the one that named versions last.
        if kind.TYPE in _WITH_VERSIONS:
            place = RecordPlace(conversation=self.conversation, seq=seq, hash=digest)
            is_configured = kind.TYPE in CONFIGURATION_TYPES
            configured_place = place if is_configured else self._basis.configured
            self._basis = replace(self._basis, configured=configured_place, versions=place)
        return line

    async def commit(self) -> None:
        """Append the added records; they are durable on return.

        After a commit that failed each one fails with its error: no effect may begin whose record is missing.

        Raises:
            LogConflict: another writer was first; nothing was appended.
            LogUnavailable: the store cannot be written; nothing was appended.
        """
        if self._failure is not None:
            raise self._failure
        lines, first, snapshot = self._pending_lines, self._seq, self._newest
        if not lines:
            # Another task of the conversation may be appending the record that asks for this work.
            await self._log.wait_until_written(self.conversation)
            return
        assert snapshot is not None, "it came with the lines"
        # Cleared before the await: a commit after a cancelled one must not append the lines again.
        seq = first + len(lines)
        self._pending_lines, self._seq, self._newest = [], seq, None
        taken, self._taken = self._taken, []
        totals, self._totals = self._totals, []
        # At the end of a turn, because going on begins there most often; and within a long turn, so that
        # going on never derives many records.
        is_due = seq - 1 - self.checkpoint_seq >= CHECKPOINT_EVERY or (snapshot.turn > 0 and snapshot.is_over)
        checkpoint = self._build_checkpoint(snapshot, seq - 1) if is_due else None
        try:
            await self._log.append(
                self.conversation, first, lines, checkpoint=checkpoint, taken=taken, totals=totals
            )
        except Exception as error:
            # The journal is ahead of the log now: a record that came next would leave a gap before it.
            self._failure = error
            raise

    def check_failure(self) -> None:
        """Return where every commit so far has succeeded.

        Raises:
            LogConflict, LogUnavailable: the error of the commit that failed.
        """
        if self._failure is not None:
            raise self._failure

    def add_taken_entry(self, key: str) -> None:
        """Mark an entry of the inbox as taken, together with the records of the next commit."""
        self._taken.append(key)

    def _build_checkpoint(self, snapshot: Snapshot, seq: int) -> tuple[int, bytes] | None:
        """Number and data of a checkpoint of the newest record; None where none can be kept."""
        if self._basis.configured is None:
            return None
        data, mark = build_checkpoint(snapshot, self.conversation, seq, self._prev, self._basis)
        self._basis = replace(self._basis, newest=mark)
        self._unnamed_digest, self.checkpoint_seq = mark.digest, seq
        return seq, data


# -- salts ---------------------------------------------------------------------------------------
#
# Hashes go where the log does not, into seals for instance. Whoever has only a hash could check a guess of
# the content against it. The salt is a part of what the hash covers, so a guess would need 132 random bits.

SALT_CHARACTERS = 22
"""132 random bits."""

_DRAWN_AT_ONCE = 64

_split_salts = re.compile(f".{{{SALT_CHARACTERS}}}").findall

_ready_salts: list[str] = []
"""Salts that no record has yet. One `pop` takes each, which is atomic: no two threads get the same."""


def generate_salt() -> str:
    """A random text of 22 characters that nothing else has had."""
    try:
        return _ready_salts.pop()
    except IndexError:
        # Many at once: to ask the system for each record would cost a twentieth of an iteration.
        data = urlsafe_b64encode(os.urandom(_DRAWN_AT_ONCE * SALT_CHARACTERS * 3 // 4)).decode()
        salt, *others = _split_salts(data)
        _ready_salts.extend(others)
        return salt


if hasattr(os, "register_at_fork"):
    # A forked child would give its records the salts of its parent's, which its reader may know.
    os.register_at_fork(after_in_child=_ready_salts.clear)


# -- reading -------------------------------------------------------------------------------------


def compute_line_hash(line: bytes) -> str:
    """The hash of a stored line, computed from its content."""
    return hashlib.sha256(line[:-_HASH_TAIL] + b"}").hexdigest()


def read_hash(line: bytes) -> str:
    """The hash at the end of a line."""
    return line[-66:-2].decode("ascii", "replace")


def has_hash_tail(line: bytes) -> bool:
    """Whether a line ends as every line of the log does: with its hash as the last key."""
    tail = line[-_HASH_TAIL:]
    return tail.startswith(b',"hash":"') and tail.endswith(b'"}')


def read_record(line: bytes, seq: int, prev: str | None, conversation: str | None = None) -> Record:
    """Decode a stored line and check its hash, its number and its link to the record before.

    Args:
        seq: the number that it must have.
        prev: hash of the record before; None where it is not known.

    Raises:
        LogDamaged: the line is not the one that was written.
    """
    record = parse_record(line, seq, conversation)
    if record.hash != compute_line_hash(line):
        raise LogDamaged("its hash does not match its content", conversation=conversation, seq=seq)
    if record.seq != seq:
        raise LogDamaged(f"it says that it is number {record.seq}", conversation=conversation, seq=seq)
    if prev is not None and record.prev != prev:
        raise LogDamaged("it does not follow the record before it", conversation=conversation, seq=seq)
    return record


def parse_record(line: bytes, seq: int, conversation: str | None = None) -> Record:
    """Decode a stored line without checking its hash.

    Raises:
        LogDamaged: the line is not a record.
        LogUnavailable: another release wrote it, in another format; `NewerLog` where that is a later one.
    """
    if not has_hash_tail(line):
        raise LogDamaged("it does not end with a hash", conversation=conversation, seq=seq)
    if not seq:
        _refuse_other_format(line, conversation)
    try:
        keys = _decode_line(line)
    except (ValueError, RecursionError):
        raise LogDamaged("it is not a record", conversation=conversation, seq=seq) from None
    return Record(**{name: getattr(keys, name) for name in _LINE_FIELDS}, line=bytes(line))


_LINE_FIELDS = RecordLine.__struct_fields__


class _FormatOfEvent(msgspec.Struct):
    format: int = FORMAT


class _FormatOfLine(msgspec.Struct):
    """As much of record 0 as every format has."""

    event: _FormatOfEvent = msgspec.field(default_factory=_FormatOfEvent)


_format_decoder = msgspec.json.Decoder(_FormatOfLine)


def _refuse_other_format(line: bytes, conversation: str | None) -> None:
    """Raise where record 0 is undamaged and names a format that this release does not read.

    Records of another format may have any keys, so this comes before the keys are read. The hash comes first:
    a damaged line must not pass for one of another release.
    """
    try:
        version = _format_decoder.decode(line).event.format
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    if version == FORMAT or not line.endswith(b'"%b"}' % compute_line_hash(line).encode()):
        return
    which, kind = ("a later", NewerLog) if version > FORMAT else ("an older", LogUnavailable)
    raise kind(
        f"conversation {conversation}: it has format {version}; this Toolchart reads format {FORMAT}\n"
        f"  {which} release wrote it: read it with that one"
    )


def _decode_line(line: bytes) -> RecordLine:
    """The keys of a line.

    Raises:
        ValueError: they are not those of a record.
    """
    try:
        return _line_decoder.decode(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # it may have an escaped lone surrogate, which only Python's own reader takes
        return msgspec.convert(read_json(line), RecordLine)
