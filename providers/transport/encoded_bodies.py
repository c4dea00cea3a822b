"""Encodes request bodies, and keeps each message's part of them: a conversation is encoded once, as it grows.

A request repeats the whole conversation, so encoding it anew at every iteration takes quadratic time. But a
message never changes. Its part of the body (`EncodedObject`) is made once and kept as long as the message,
with its JSON in two forms: as it is sent, and canonical, for the digest.

    Message  --encode-->  EncodedObject (a dict)  --join-->  bytes of the body, digest of the body
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any
from weakref import ref

import orjson

from toolchart.states.canonical_json import encode_canonical
from toolchart.states.messages import Message


class EncodedObject(dict[str, Any]):
    """A JSON object that does not change any more, with its bytes."""

    __slots__ = ("canonical", "joined", "json")

    def __init__(self, value: Mapping[str, Any]) -> None:
        super().__init__(value)
        self.json: bytes = encode_json(value)
        """Its JSON, keys in their order."""
        self.canonical: bytes = encode_canonical(value)
        """Its canonical JSON."""
        self.joined: tuple[tuple[EncodedObject, ...], EncodedObject] | None = None
        """The objects with which `join_objects` joined it last, and the result."""


def join_roles(objects: Iterable[EncodedObject], key: str) -> list[EncodedObject]:
    """The objects, of which those of one `role` that follow each other are one; see `join_objects`."""
    groups: list[list[EncodedObject]] = []
    role = None
    for item in objects:
        if item["role"] == role:
            groups[-1].append(item)
        else:
            groups.append([item])
            role = item["role"]
    return join_groups(groups, key)


def join_groups(groups: Iterable[Sequence[EncodedObject]], key: str) -> list[EncodedObject]:
    """One object for each group; see `join_objects`."""
    return [group[0] if len(group) == 1 else join_objects(group, key) for group in groups]


def join_objects(group: Sequence[EncodedObject], key: str) -> EncodedObject:
    """One object for several that follow each other: their lists under a key as one list, and the other keys
    of the last one. It is kept with the first one, until that is joined with others."""
    first, *others = group
    last_join = first.joined
    if last_join is not None and len(last_join[0]) == len(others) and all(map(is_, last_join[0], others)):
        return last_join[1]
    joined = EncodedObject({**others[-1], key: [item for one in group for item in one[key]]})
    first.joined = (tuple(others), joined)
    return joined


Variant = Any
"""What the part of a message depends on besides the message itself; a hashable value."""

Encoder = Callable[[Message, Variant], Iterable[Mapping[str, Any]]]
"""Makes the parts of a message."""


class _MessageReference(ref[Message]):
    """A weak reference to a message that knows under which key its parts are kept."""

    __slots__ = ("key",)

    key: int


class MessageParts:
    """The parts of the messages in the requests to one host and model, each encoded once."""

    __slots__ = ("_forget", "_parts")

    def __init__(self) -> None:
        self._parts: dict[int, tuple[_MessageReference, Variant, tuple[EncodedObject, ...]]] = {}
        """By the identity of the message, which is faster than its value."""
        parts = self._parts

        def forget(reference: _MessageReference) -> None:
            parts.pop(reference.key, None)

        self._forget: Callable[[Any], None] = forget

    def collect_parts(
        self,
        messages: Iterable[Message],
        encode: Encoder,
        choose_variant: Callable[[Message], Variant] | None = None,
    ) -> list[tuple[EncodedObject, ...]]:
        """The parts of each message in turn: kept, or encoded now.

        Args:
            encode: makes them of message and variant, where they are not kept.
            choose_variant: kept parts of another variant do not count; without it the variant is None.
        """
        entries, collected = self._parts, []
        # Every request asks for all messages of its conversation, so a kept one costs no call here: this
        # loop is what a long conversation costs before anything is sent.
        for message in messages:
            variant = choose_variant(message) if choose_variant is not None else None
            entry = entries.get(id(message))
            # An identity is given again when its object has gone; the reference tells whether it is this
            # message.
            if entry is not None and entry[0]() is message and entry[1] == variant:
                collected.append(entry[2])
            else:
                collected.append(self._encode_message(message, encode, variant))
        return collected

    def _encode_message(
        self, message: Message, encode: Encoder, variant: Variant
    ) -> tuple[EncodedObject, ...]:
        key = id(message)
        parts = tuple(map(EncodedObject, encode(message, variant)))
        reference = _MessageReference(message, self._forget)
        reference.key = key
        self._parts[key] = (reference, variant, parts)
        return parts


_MAX_KEPT_WIRES = 256
_kept_parts: OrderedDict[Hashable, MessageParts] = OrderedDict()


def find_message_parts(*wire: Hashable) -> MessageParts:
    """The kept parts of a wire: everything that its encoding depends on besides the message."""
    parts = _kept_parts.get(wire)
    if parts is None:
        parts = _kept_parts[wire] = MessageParts()
        if len(_kept_parts) > _MAX_KEPT_WIRES:
            _kept_parts.popitem(last=False)
    return parts


def forget_message_parts() -> None:
    """Encode every message anew. For tests that change the code that encodes."""
    _kept_parts.clear()


def encode_json(value: Any) -> bytes:
    """The JSON of a value as it is sent: compact, UTF-8, keys in their order."""
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):  # integers beyond 64 bits, lone surrogates
        return json.dumps(value, separators=(",", ":")).encode()


def encode_body(body: Mapping[str, Any]) -> bytes:
    """The JSON of a body as it is sent."""
    return b"".join(_iterate_json(body))


def encode_canonical_body(body: Mapping[str, Any]) -> bytes:
    """The canonical JSON of a body, as `encode_canonical` writes it."""
    if not _has_parts(body):
        return encode_canonical(body)
    return b"".join(_iterate_canonical(body))


def _iterate_json(value: Any) -> Iterable[bytes]:
    """The JSON of a value in pieces; what is encoded already is not encoded again."""
    if type(value) is EncodedObject:
        yield value.json
    elif not _has_parts(value):
        yield encode_json(value)
    elif isinstance(value, list):
        yield from _join_list(value, _get_json, _iterate_json)
    else:
        start = b"{"
        for key, item in value.items():
            yield start + encode_json(key) + b":"
            yield from _iterate_json(item)
            start = b","
        yield b"}"


def _iterate_canonical(value: Any) -> Iterable[bytes]:
    if type(value) is EncodedObject:
        yield value.canonical
    elif not _has_parts(value):
        yield encode_canonical(value)
    elif isinstance(value, list):
        yield from _join_list(value, _get_canonical, _iterate_canonical)
    else:
        start = b"{"
        for key in sorted(value):
            yield start + encode_canonical(key) + b":"
            yield from _iterate_canonical(value[key])
            start = b","
        yield b"}"


_get_json = attrgetter("json")
_get_canonical = attrgetter("canonical")


def _join_list(
    items: list[Any], get_bytes: Callable[[Any], bytes], iterate_bytes: Callable[[Any], Iterable[bytes]]
) -> Iterable[bytes]:
    """A list in pieces.

    Args:
        get_bytes: gives the bytes of an encoded object; fails for others, which is the faster way to ask.
        iterate_bytes: gives those of any value.
    """
    try:
        yield b"[" + b",".join(map(get_bytes, items)) + b"]"
    except AttributeError:
        yield b"[" + b",".join(b"".join(iterate_bytes(item)) for item in items) + b"]"


def _has_parts(value: Any) -> bool:
    """Whether encoded objects stand in a value: in a list, or in the lists of its objects."""
    if isinstance(value, list):
        # The end of a list tells enough. It decides the cost alone: an encoded object is a dict, so encoding
        # it again gives the same bytes.
        return any(type(item) is EncodedObject or _has_parts(item) for item in value[-2:])
    return isinstance(value, dict) and any(
        isinstance(item, list) and _has_parts(item) for item in value.values()
    )
