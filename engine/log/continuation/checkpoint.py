"""Checkpoints: the state of a conversation after one record, so that going on need not derive the records
before.

A checkpoint is one JSON object with its own digest as the last key. It holds the snapshot without its
messages, the open effects with what performing them needs, the number and the digest of the messages, and the
messages that were added since the checkpoint before (a segment). So all messages can be loaded without
deriving, and each is written once. What does not change in a conversation is not repeated: tools, texts and
versions are those of the records that the checkpoint names.

A checkpoint is bound in both directions: it holds the hash of its record, and the record after it holds its
digest. It is never needed: without it, an older one serves, or the whole log is derived again.

An open effect is written with everything that performing it needs, as it was when it was asked for. Only the
request of a model call is shortened: its messages are those of the conversation, and its tools those of the
configuration, by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from toolchart.states.core.encoding import encode_struct_json, read_json
from toolchart.states.core.reduce import select_tools
from toolchart.states.effects import CallModel, Effect, Submission
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Configured, Texts
from toolchart.states.message_list import (
    ContextView,
    MessageList,
    OfferedTools,
    PersistentList,
    RequestMessages,
    ShownMessages,
    StoredMessages,
)
from toolchart.states.messages import Message, Request, ToolDefinition
from toolchart.states.snapshot import OpenCall, OpenCalls, Snapshot, SnapshotFields, TrackedCall

CHECKPOINT_FORMAT = 2
"""Version of the form of checkpoints. A checkpoint of another version is not used."""

_STORED_APART = ("tools", "texts", "messages", "shown", "open_effects", "offered_tools", "tracked_calls")
"""Fields of a snapshot that a checkpoint holds in another form, or that other records hold."""

_PLAIN_FIELDS = [field for field in msgspec.structs.fields(SnapshotFields) if field.name not in _STORED_APART]

_read_plain_fields = attrgetter(
    *["calls.items" if field.type is OpenCalls else field.name for field in _PLAIN_FIELDS]
)

if TYPE_CHECKING:
    StoredContext = Snapshot
else:
    StoredContext = msgspec.defstruct(
        "StoredContext",
        [(field.name, list[OpenCall] if field.type is OpenCalls else field.type) for field in _PLAIN_FIELDS],
        forbid_unknown_fields=True,
    )
"""The other fields of a snapshot, as they are."""


class RecordPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record by conversation, number and hash."""

    conversation: str
    seq: int
    hash: str


class TrackedCallEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of the newest turn that has its outcome, with the key that counts its repeats."""

    key: str | None
    call: TrackedCall


class StoredShownMessages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The messages that requests contain, where a `compact` left some out: how to make them again."""

    view: ContextView
    count: int
    digest: str
    """Hash chain over them."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of a conversation after one record."""

    format: int
    """`CHECKPOINT_FORMAT`."""
    conversation: str
    seq: int
    """Number of the record."""
    record: str
    """Hash of the record."""
    configured: RecordPlace
    """The `configured` record in force; in a fork it may be one of the parent."""
    versions: RecordPlace
    """The record that holds the versions in force: `configured` or `continued`."""
    context: StoredContext
    """The snapshot, but for what the other fields and records hold."""
    effects: list[dict[str, Any]]
    """The open effects."""
    message_count: int
    message_digest: str
    """Hash chain over all messages."""
    first_message: int
    """Index of the first message in `messages`; all before it stand in earlier checkpoints."""
    messages: list[Message]
    call_count: int
    """Calls of the newest turn that have their outcome. The result of an ended turn names them too."""
    first_call: int
    """Index of the first call in `calls`."""
    calls: list[TrackedCallEntry]
    previous: str
    """Digest of the checkpoint before, which holds the messages before `first_message`; empty if none
    does."""
    shown: StoredShownMessages | None = None
    """What requests contain, where that is not all messages."""
    digest: str = ""
    """SHA-256 of the JSON without this key."""


class CheckpointMark(msgspec.Struct, frozen=True, kw_only=True):
    """What the next record and the next checkpoint need to know about a checkpoint."""

    seq: int
    digest: str
    message_count: int
    turn: int
    call_count: int


class CheckpointBasis(msgspec.Struct, frozen=True, kw_only=True):
    """Where the records stand that checkpoints of a conversation refer to."""

    configured: RecordPlace | None = None
    versions: RecordPlace | None = None
    newest: CheckpointMark | None = None
    """The newest checkpoint of the conversation."""

    def without_checkpoint(self) -> CheckpointBasis:
        """The same for a fork, which has no checkpoint of its own yet."""
        return msgspec.structs.replace(self, newest=None)


_decoder = msgspec.json.Decoder(Checkpoint)
Link = TypeVar("Link", bound="_CheckpointLink")
_DIGEST_TAIL = len(b',"digest":""}') + 64


# -- writing -------------------------------------------------------------------------------------


def build_checkpoint(
    snapshot: Snapshot, conversation: str, seq: int, record: str, basis: CheckpointBasis
) -> tuple[bytes, CheckpointMark]:
    """The checkpoint after a record, as JSON, and its mark.

    Args:
        snapshot: the one after the record.
        record: hash of the record.
        basis: names the `configured` record in force, and the checkpoint before.
    """
    assert basis.configured is not None, "a conversation begins with its configuration"
    assert basis.versions is not None, "`configured` names the versions"
    before = basis.newest
    first_message = before.message_count if before is not None else 0
    call_count, excerpt = len(snapshot.tracked_calls), snapshot.shown
    is_same_turn = before is not None and before.turn == snapshot.turn
    first_call = before.call_count if before is not None and is_same_turn and call_count else 0
    calls = snapshot.tracked_calls.list_keyed_items(first_call) if call_count else ()
    checkpoint = Checkpoint(
        format=CHECKPOINT_FORMAT,
        conversation=conversation,
        seq=seq,
        record=record,
        configured=basis.configured,
        versions=basis.versions,
        context=StoredContext(*_read_plain_fields(snapshot)),
        effects=list(map(store_effect, snapshot.open_effects)),
        message_count=len(snapshot.messages),
        message_digest=snapshot.messages.digest,
        first_message=first_message,
        messages=snapshot.messages[first_message:],
        call_count=call_count,
        first_call=first_call,
        calls=[TrackedCallEntry(key=key, call=call) for key, call in calls],
        previous=before.digest if before is not None else "",
        shown=None
        if excerpt is None
        else StoredShownMessages(view=excerpt.view, count=len(excerpt), digest=excerpt.digest),
    )
    data, digest = _seal_checkpoint(checkpoint)
    return data, CheckpointMark(
        seq=seq,
        digest=digest,
        message_count=checkpoint.message_count,
        turn=snapshot.turn,
        call_count=call_count,
    )


def _seal_checkpoint(checkpoint: Checkpoint) -> tuple[bytes, str]:
    """The JSON of a checkpoint with its digest as the last key; and the digest."""
    data = encode_struct_json(checkpoint)
    # One copy and one pass over the bytes: a checkpoint has the messages of its turn, which may be large.
    body = memoryview(data)[: -len(b',"digest":""}')]
    digest = _compute_digest(body)
    return b"".join((body, b',"digest":"', digest.encode(), b'"}')), digest


def _compute_digest(body: memoryview) -> str:
    """SHA-256 of a JSON object whose last brace is missing."""
    digest = hashlib.sha256(body)
    digest.update(b"}")
    return digest.hexdigest()


# -- reading -------------------------------------------------------------------------------------


class _CheckpointLink(msgspec.Struct, frozen=True):
    """The fields of a checkpoint of any version by which it belongs to a record."""

    conversation: str
    seq: int
    record: str
    digest: str


class CheckpointSegment(_CheckpointLink, frozen=True):
    """The messages and calls that a checkpoint adds to those of the checkpoint before."""

    first_message: int
    messages: list[Message]
    first_call: int
    calls: list[TrackedCallEntry]
    previous: str


_link_decoder = msgspec.json.Decoder(_CheckpointLink)
_segment_decoder = msgspec.json.Decoder(CheckpointSegment)


def read_checkpoint_link(data: bytes, seq: int, conversation: str) -> tuple[str, str]:
    """The hash of a checkpoint's record, and its digest, after checking them.

    Raises:
        LogDamaged: it is not the one that was written, or belongs to another record.
    """
    try:
        link = _link_decoder.decode(data)
    except (ValueError, RecursionError):  # damage, or an escaped lone surrogate
        link = _convert_json(data, _CheckpointLink, seq, conversation)
    _check_digest(data, link, seq, conversation)
    return link.record, link.digest


def read_segment(data: bytes, seq: int, conversation: str) -> CheckpointSegment:
    """The messages and calls in a checkpoint, after checking its digest.

    Raises:
        LogDamaged: it is not the one that was written, or belongs to another record.
    """
    try:
        segment = _segment_decoder.decode(data)
    except (ValueError, RecursionError):  # damage, or an escaped lone surrogate
        segment = _convert_json(data, CheckpointSegment, seq, conversation)
    _check_digest(data, segment, seq, conversation)
    return segment


def _convert_json(data: bytes, kind: type[Link], seq: int, conversation: str) -> Link:
    try:
        return msgspec.convert(read_json(data), kind)
    except (ValueError, RecursionError):
        raise LogDamaged("its checkpoint is damaged", conversation=conversation, seq=seq) from None


def _check_digest(data: bytes, link: _CheckpointLink, seq: int, conversation: str) -> None:
    digest = _compute_digest(memoryview(data)[:-_DIGEST_TAIL])
    if data[-_DIGEST_TAIL:] != b',"digest":"%b"}' % digest.encode():
        raise LogDamaged("its checkpoint is damaged", conversation=conversation, seq=seq)
    if (link.conversation, link.seq, link.digest) != (conversation, seq, digest):
        raise LogDamaged("its checkpoint belongs to another record", conversation=conversation, seq=seq)


def read_checkpoint(data: bytes, seq: int, conversation: str) -> Checkpoint | None:
    """The checkpoint; None where it was written in a form that this release does not read.

    Raises:
        LogDamaged: it is not the one that was written.
    """
    read_checkpoint_link(data, seq, conversation)
    checkpoint = _decode_checkpoint(data)
    return checkpoint if checkpoint is not None and checkpoint.format == CHECKPOINT_FORMAT else None


def _decode_checkpoint(data: bytes) -> Checkpoint | None:
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:  # an escaped lone surrogate
        try:
            return msgspec.convert(read_json(data), Checkpoint)
        except (ValueError, RecursionError):
            return None


def describe_mark(checkpoint: Checkpoint) -> CheckpointMark:
    """The mark of a checkpoint that was read."""
    return CheckpointMark(
        seq=checkpoint.seq,
        digest=checkpoint.digest,
        message_count=checkpoint.message_count,
        turn=checkpoint.context.turn,
        call_count=checkpoint.call_count,
    )


def restore_snapshot(
    checkpoint: Checkpoint,
    configured: Configured,
    calls: Iterable[TrackedCallEntry],
    load_messages: Callable[[], Iterable[Message]],
) -> Snapshot:
    """The snapshot of a checkpoint.

    Args:
        configured: the event that the checkpoint names.
        calls: all calls of the newest turn that have their outcome.
        load_messages: reads all messages; called when the first of them is read.

    Raises:
        ValueError: it holds an effect that this release does not know.
    """
    context = checkpoint.context
    messages = MessageList.from_store(
        StoredMessages(checkpoint.message_count, load_messages), checkpoint.message_digest
    )
    tracked_calls: PersistentList[TrackedCall] = PersistentList()
    for entry in calls:
        tracked_calls = tracked_calls.append(entry.call, entry.key)
    effects = [restore_effect(data, messages, configured.tools) for data in checkpoint.effects]
    excerpt = checkpoint.shown
    shown_view = None
    if excerpt is not None:
        shown_view = ShownMessages.from_conversation(excerpt.view, excerpt.count, excerpt.digest, messages)
    snapshot = Snapshot(
        **{field.name: getattr(context, field.name) for field in _PLAIN_FIELDS},
        tools=configured.tools,
        texts=Texts(**configured.texts),
        messages=messages,
        shown=shown_view,
        open_effects=tuple(effects),
        tracked_calls=tracked_calls,
    )
    if snapshot.settings is None:
        return snapshot
    return msgspec.structs.replace(snapshot, offered_tools=select_tools(snapshot, snapshot.settings))


# -- open effects --------------------------------------------------------------------------------


class StoredModelCall(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="call_model"
):
    """A `call_model` whose messages and tools stand elsewhere."""

    id: int
    name: str
    state: str
    model: str
    system: str | None
    message_count: int
    """Messages of the request, without the system message."""
    message_digest: str
    """Hash chain over them."""
    own: list[Message]
    """The last of them, where they are not those of the conversation."""
    kind: str
    result: str
    host: str
    schema: dict[str, Any] | None
    tools: tuple[str, ...]
    """Names of the offered tools."""
    options: dict[str, Any]
    writes_tools_as_text: bool
    turn: int
    iteration: int
    view: ContextView | None = None
    """What the request shows of the conversation, where that is not its first messages."""
    summarises: str = ""
    submission: Submission | UnsetType = UNSET


def store_effect(effect: Effect) -> dict[str, Any]:
    """The JSON data of an open effect, with its `type`."""
    if not isinstance(effect, CallModel):
        data: dict[str, Any] = msgspec.to_builtins(effect)
        return data
    request = effect.request
    messages = request.messages
    assert isinstance(messages, RequestMessages), "the core builds requests"
    call = StoredModelCall(
        id=effect.id,
        name=effect.name,
        state=effect.state,
        model=request.model,
        system=messages.system,
        message_count=len(messages.messages),
        message_digest=messages.messages.digest,
        own=list(messages.messages[-effect.own_messages :]) if effect.own_messages else [],
        kind=effect.kind,
        result=effect.result,
        host=effect.host,
        schema=effect.schema,
        tools=tuple(tool.name for tool in request.tools),
        options=dict(request.options),
        writes_tools_as_text=request.writes_tools_as_text,
        turn=request.turn,
        iteration=request.iteration,
        view=messages.messages.view if isinstance(messages.messages, ShownMessages) else None,
        summarises=effect.summarises,
        submission=effect.submission,
    )
    effect_data: dict[str, Any] = msgspec.to_builtins(call)
    return effect_data


def restore_effect(data: dict[str, Any], messages: MessageList, tools: tuple[ToolDefinition, ...]) -> Effect:
    """The effect that was stored.

    Args:
        messages: those of the conversation when the checkpoint was written.
        tools: those of the configuration.

    Raises:
        ValueError: it is not an effect of this release.
    """
    kind = str(data.get("type"))
    if kind != CallModel.__struct_config__.tag:
        return msgspec.convert(data, _find_effect_class(kind))
    call = msgspec.convert(data, StoredModelCall)
    by_name = {tool.name: tool for tool in tools}
    if not set(call.tools) <= set(by_name):
        raise ValueError("an open model call offers a tool that the configuration does not have")
    request = Request(
        model=call.model,
        messages=RequestMessages(call.system, _cut_messages(messages, call)),
        tools=OfferedTools([by_name[name] for name in call.tools]),
        options=call.options,
        writes_tools_as_text=call.writes_tools_as_text,
        turn=call.turn,
        iteration=call.iteration,
    )
    return CallModel(
        id=call.id,
        name=call.name,
        state=call.state,
        kind=call.kind,
        result=call.result,
        request=request,
        host=call.host,
        schema=call.schema,
        own_messages=len(call.own),
        summarises=call.summarises,
        submission=call.submission,
    )


def _cut_messages(messages: MessageList, call: StoredModelCall) -> MessageList:
    """The messages of the call: the first ones that it shows of the conversation, and its own.

    Raises:
        ValueError: they are not those that the call had.
    """
    if call.view is not None:
        return _cut_shown_messages(messages, call, call.view)
    if call.own:
        first_messages = messages[: call.message_count - len(call.own)]
        call_messages = MessageList([*first_messages, *call.own])
        if call_messages.digest != call.message_digest:
            raise ValueError("an open model call has other messages than the conversation")
        return call_messages
    if len(messages) == call.message_count:
        return messages
    count = call.message_count
    return MessageList.from_store(
        StoredMessages(count, lambda: [messages[index] for index in range(count)]), call.message_digest
    )


def _cut_shown_messages(messages: MessageList, call: StoredModelCall, view: ContextView) -> MessageList:
    if not call.own:
        return ShownMessages.from_conversation(view, call.message_count, call.message_digest, messages)
    first_messages = list(view.iterate_shown(messages))[: call.message_count - len(call.own)]
    call_messages = ShownMessages.from_messages(view, [*first_messages, *call.own])
    if call_messages.digest != call.message_digest:
        raise ValueError("an open model call has other messages than the conversation")
    return call_messages


def _find_effect_class(tag: str) -> type[Effect]:
    """The class of effects with this tag."""
    classes = [Effect]
    for kind in classes:
        if kind.__struct_config__.tag == tag:
            return kind
        classes += kind.__subclasses__()
    raise ValueError(f"no effect of this release has the type {tag!r}")
