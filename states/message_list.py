"""The messages of a conversation: a list that only grows, its digest, and the part of it that requests show.

A snapshot holds every message of its conversation. Copying a tuple for each new message would make an
iteration more expensive as the conversation grows. So snapshots share one growing list, and each sees its
own prefix of it: a persistent list is a reference to the shared items and a length. An append to the newest
view extends the shared items. An append to an older view (a fork) copies them. The items of a view never
change.

A conversation only grows, so its list keeps a hash chain: the digest of a longer list is made of the digest
of the shorter one and the new message. A digest is made by the same operation that adds the message, so it
cannot differ from the content, and it costs the same at any length.

    digest(())              = ""
    digest((*rest, m))      = sha256(digest(rest) + JSON of m)

The digest of a request (`compute_request_digest`) is a function of the `Request` value alone. A list that was
made in any other way has its chain computed from its items.

A conversation keeps all of its messages. What a request shows of them is a *view*: some messages that are
always shown, a summary, and everything from an index on. A view is a small value, and what it shows is a
function of the view and the messages, so a checkpoint stores the view and no message twice.

Sizes are estimates: four bytes of text are about one token. They are corrected by what hosts count: the
`usage` of a reply says how long the conversation was, and only what was added since is estimated.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from operator import length_hint
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec.structs import replace

from toolchart.states.content import Note, TextPart, add_text
from toolchart.states.messages import Message, Request, Role, ToolDefinition, encode_arguments

Item = TypeVar("Item")

# One lock for all lists. It is held for two list operations, and creating a lock per list would cost more
# than waiting for this one.
_append_lock = threading.Lock()


class _SharedItems(Generic[Item]):
    """What all views of one list share. It only grows."""

    __slots__ = ("earlier", "findings", "items", "keys", "newest")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self.items: list[Item] = list(items)
        self.keys: list[str | None] = [None] * len(self.items)
        """The key of each item."""
        self.newest: dict[str, int] = {}
        """Index of the newest item of each key."""
        self.earlier: dict[int, int] = {}
        """Index of an item to the index of the previous item of the same key."""
        self.findings: dict[Any, Any] = {}
        """What somebody found of the first items; see `MessageList.findings`."""

    def copy(self, length: int) -> _SharedItems[Item]:
        """The first items with their keys."""
        shared = _SharedItems(self.items[:length])
        shared.keys = self.keys[:length]
        shared.newest = {key: index for index, key in enumerate(shared.keys) if key is not None}
        shared.earlier = {index: earlier for index, earlier in self.earlier.items() if index < length}
        return shared


class PersistentList(Sequence[Item], Generic[Item]):
    """A persistent list with O(1) append and O(1) lookup of the newest item of a key."""

    __slots__ = ("_shared", "length")

    length: int
    """How many items it has."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._shared = _SharedItems(items)
        self.length = len(self._shared.items)

    def append(self, item: Item, key: str | None = None) -> PersistentList[Item]:
        """A list with one more item, which `find_newest(key)` finds; this list does not change."""
        extended_list: PersistentList[Item] = PersistentList.__new__(PersistentList)
        shared, length = self._shared, self.length
        with _append_lock:
            if len(shared.items) != length:  # a newer view has appended
                shared = shared.copy(length)
            if key is not None:
                # `earlier` before `newest`: readers take no lock, and one of an older list that finds this
                # index goes back from it to its own.
                if key in shared.newest:
                    shared.earlier[length] = shared.newest[key]
                shared.newest[key] = length
            shared.keys.append(key)
            shared.items.append(item)
        extended_list._shared, extended_list.length = shared, length + 1
        return extended_list

    def find_newest(self, key: str) -> Item | None:
        """The last item of this list that was appended with `key`, or None."""
        shared = self._shared
        index = shared.newest.get(key)
        while index is not None and index >= self.length:  # appended by a newer view
            index = shared.earlier.get(index)
        return None if index is None else shared.items[index]

    def list_keyed_items(self, start: int = 0) -> list[tuple[str | None, Item]]:
        """The items from an index on, each with its key."""
        shared, end = self._shared, self.length
        return list(zip(shared.keys[start:end], shared.items[start:end], strict=True))

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Item]:
        return islice(self._shared.items, self.length)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self.length)
            items = self._shared.items
            return items[start:stop:step] if step > 0 else [items[i] for i in range(start, stop, step)]
        if index < 0:
            index += self.length
        if not 0 <= index < self.length:
            raise IndexError(index)
        return self._shared.items[index]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, PersistentList) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"PersistentList({list(self)!r})"


_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_deterministic(value: Any) -> bytes:
    """JSON of a value with sorted keys: equal values give equal bytes.

    Raises:
        TypeError: it holds something that JSON cannot hold.
    """
    try:
        return _encode(value)
    except (ValueError, OverflowError):  # lone surrogates, integers beyond 64 bits
        return json.dumps(msgspec.to_builtins(value), sort_keys=True, separators=(",", ":")).encode()


def _encode_value(value: Any) -> bytes:
    """As `encode_deterministic`; the nearest text stands for what JSON cannot hold."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError):  # integers beyond 64 bits, lone surrogates
        return json.dumps(msgspec.to_builtins(value), sort_keys=True, default=repr).encode()


class StoredMessages:
    """The first messages of a conversation, loaded from the log when somebody reads one of them.

    Args:
        length: how many they are.
        load: reads them; called at most once.
    """

    __slots__ = ("_items", "_keys", "_load", "length")

    def __init__(self, length: int, load: Callable[[], Iterable[Message]]) -> None:
        self.length = length
        self._load = load
        self._items: list[Message] | None = None
        self._keys: dict[str, Message] = {}

    @property
    def items(self) -> list[Message]:
        """The messages."""
        if self._items is None:
            self._items = list(self._load())
            assert len(self._items) == self.length, "the store has the messages that it counted"
            self._keys = {item.tool_call_id: item for item in self._items if item.tool_call_id}
        return self._items

    def find_newest(self, call_id: str) -> Message | None:
        """The newest tool message that answers this call."""
        return self._keys.get(call_id) if self.items else None


_BRANCH_LENGTH = 16
"""How many messages a branch has itself: as many as a step looks at, in most charts."""


class MessageList(Sequence[Message]):
    """The messages of a conversation without its system prompt. It never changes; `append` makes another."""

    __slots__ = ("_head", "_tail", "digest", "length")

    digest: str
    """Hash chain over the messages."""
    length: int
    """How many they are."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._head: StoredMessages | None = None
        self._tail: PersistentList[Message] = PersistentList()
        self.length = 0
        self.digest = ""
        for message in messages:
            longer = MessageList.append(self, message)
            self._tail, self.length, self.digest = longer._tail, longer.length, longer.digest

    @classmethod
    def from_store(cls, head: StoredMessages, digest: str) -> MessageList:
        """A list whose messages are loaded when one of them is read.

        Args:
            digest: hash chain over them, from a checkpoint.
        """
        messages = cls()
        messages._head, messages.length, messages.digest = head, head.length, digest
        return messages

    def copy_items(self, other: MessageList) -> None:
        """Make this new list equal to another one, whose items it shares."""
        self._head, self.length = other._head, other.length
        self._tail, self.digest = other._tail, other.digest

    def append(self, message: Message) -> MessageList:
        """A list with one more message; this list does not change. The cost does not depend on the length."""
        messages: MessageList = MessageList.__new__(MessageList)
        messages._head = self._head
        messages.length = self.length + 1
        messages._tail = self._tail.append(message, message.tool_call_id)
        try:
            data = _encode(message)
        except (TypeError, ValueError, OverflowError):
            data = _encode_value(message)
        # No separator is needed: the digest before has 64 characters, or none for the first message, whose
        # JSON begins with a brace.
        messages.digest = hashlib.sha256(self.digest.encode() + data).hexdigest()
        return messages

    def branch(self) -> MessageList:
        """An equal list, to which a step appends that nobody keeps.

        Appends to it leave this list the newest one. Else the next message of the conversation would copy all
        earlier ones. The newest messages stand in the branch; the others are read from here, if at all.
        """
        start = max(self.length - _BRANCH_LENGTH, 0)
        branch = MessageList.from_store(StoredMessages(start, lambda: self[:start]), self.digest)
        for message in self[start:]:
            branch._tail = branch._tail.append(message, message.tool_call_id)
        branch.length = self.length
        return branch

    @property
    def findings(self) -> dict[Any, Any]:
        """What somebody found of the first messages, by a key of theirs, so that a list that has grown is not
        searched from its beginning. Shorter lists have it too: it must say how many messages it is about."""
        return self._tail._shared.findings

    def find_newest(self, call_id: str) -> Message | None:
        """The newest tool message that answers this call."""
        tail, message = self._tail, None
        if call_id in tail._shared.newest:
            message = tail.find_newest(call_id)
        if message is None and self._head is not None:
            return self._head.find_newest(call_id)
        return message

    def list_last(self, role: Role) -> list[Message]:
        """The messages of this role at the end, in order."""
        items, end = self._tail._shared.items, self._tail.length
        start = end
        while start and items[start - 1].role == role:
            start -= 1
        last_messages = items[start:end]
        if not start and self._head is not None:
            for message in reversed(self._head.items):
                if message.role != role:
                    break
                last_messages.insert(0, message)
        return last_messages

    def find_nth_last(self, role: Role, count: int) -> int:
        """Index of the message of this role behind which `count - 1` others stand; 0 where there are fewer.

        For none it is the length.
        """
        items, index = self._tail._shared.items, self._tail.length
        while count and index:
            index -= 1
            count -= items[index].role == role
        if self._head is None:
            return index
        if not count:
            return index + self._head.length
        items, index = self._head.items, self._head.length
        while count and index:
            index -= 1
            count -= items[index].role == role
        return index

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Message]:
        return iter(self._tail) if self._head is None else chain(self._head.items, self._tail)

    def __reversed__(self) -> Iterator[Message]:
        if self._head is not None:
            return super().__reversed__()  # one by one: the head is loaded only where somebody reads so far
        backwards = reversed(self._tail._shared.items)
        return islice(backwards, length_hint(backwards) - self.length, None)  # not what newer views appended

    def __getitem__(self, index: Any) -> Any:
        length = self.length
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            if self._head is None and step > 0:
                return self._tail._shared.items[start:stop:step]
            return [self[position] for position in range(start, stop, step)]
        position = index + length if index < 0 else index
        if not 0 <= position < length:
            raise IndexError(index)
        if self._head is None:
            return self._tail._shared.items[position]
        head_length = self._head.length
        # What stands behind the head is read without the head: it may not have been loaded.
        items = self._head.items if position < head_length else self._tail._shared.items
        return items[position if position < head_length else position - head_length]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, MessageList) and self.digest == other.digest and len(self) == len(other)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"MessageList({len(self)} messages, {self.digest[:8]})"


class RequestMessages(Sequence[Message]):
    """The messages of a request: the system message in front of the conversation, which is not copied."""

    __slots__ = ("digest", "length", "messages", "system")

    digest: str
    """Digest of the system message and all other messages."""
    length: int
    """How many they are."""

    def __init__(self, system: str | None, messages: MessageList) -> None:
        self.system = system
        self.messages = messages
        self.length = messages.length + (system is not None)
        # Computed at once: every request that the core builds is recorded with it.
        self.digest = messages.digest
        if system is not None:
            # The prefix keeps a system message in front apart from one that stands last in the list.
            data = b"system " + messages.digest.encode() + _encode_value(system)
            self.digest = hashlib.sha256(data).hexdigest()

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Message]:
        if self.system is not None:
            yield Message(role="system", content=self.system)
        yield from self.messages

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if self.system is None:
            return self.messages[index]
        position = index + len(self) if index < 0 else index
        if position == 0:
            return Message(role="system", content=self.system)
        if not 0 < position < len(self):
            raise IndexError(index)
        return self.messages[position - 1]

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, RequestMessages):
            return NotImplemented
        return self.system == other.system and self.messages == other.messages

    def __hash__(self) -> int:
        return hash((self.system, self.messages))


class OfferedTools(tuple[ToolDefinition, ...]):
    """The tools of a request with a digest of their definitions, computed once."""

    @cached_property
    def digest(self) -> str:
        """Digest of the definitions, in order."""
        return _digest_tools(self)


def compute_tools_digest(tools: Iterable[ToolDefinition]) -> str:
    """The digest of definitions of tools, in order; the empty text for none."""
    if type(tools) is OfferedTools:
        return tools.digest
    return _digest_tools(tools)


def _digest_tools(tools: Iterable[ToolDefinition]) -> str:
    definitions = list(tools)
    return hashlib.sha256(_encode_value(definitions)).hexdigest() if definitions else ""


def _split_system(messages: Sequence[Message]) -> RequestMessages:
    """The messages as the core holds them: a plain system message in front is kept apart."""
    text = messages[0].content if messages and messages[0].role == "system" else None
    is_system_first = text is not None and messages[0] == Message(role="system", content=text)
    return (
        RequestMessages(text, MessageList(messages[1:]))
        if is_system_first
        else RequestMessages(None, MessageList(messages))
    )


def compute_messages_digest(messages: Sequence[Message]) -> str:
    """The digest of the messages of a request.

    For the lists that the core makes it costs the same at any length; other lists are hashed item by item.
    """
    return messages.digest if type(messages) is RequestMessages else _split_system(messages).digest


def compute_request_digest(request: Request) -> str:
    """The digest of everything that a request says: 32 hexadecimal digits, a function of this value alone."""
    tool_digest = compute_tools_digest(request.tools)
    messages_digest = compute_messages_digest(request.messages)
    parts = (request.model, request.options, request.writes_tools_as_text, tool_digest, messages_digest)
    try:
        data = _encode(parts)
    except (TypeError, ValueError, OverflowError):
        data = _encode_value(parts)
    return hashlib.sha256(data).hexdigest()[:32]


# -- views ---------------------------------------------------------------------------------------


class ContextView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which messages of a conversation requests contain. All indexes count its messages from 0."""

    start: int = 0
    """The first message of the part that is shown whole."""
    kept: tuple[int, ...] = ()
    """Messages before `start` that are shown all the same."""
    summary: str = ""
    """A text in place of what is left out: a message of the user after `kept`; empty for none."""
    cleared: int = 0
    """Results of tools before this index are replaced by `cleared_text`, where that is shorter."""
    cleared_text: str = ""
    summaries: tuple[tuple[str, str], ...] = ()
    """Call id and text: what is shown in place of the result of a call."""

    @property
    def first_count(self) -> int:
        """How many messages are shown in front of the one at `start`."""
        return len(self.kept) + bool(self.summary)

    def iterate_shown(self, messages: Sequence[Message]) -> Iterator[Message]:
        """What is shown of these messages, in order."""
        for index in self.kept:
            yield messages[index]
        if self.summary:
            yield Message(role="user", content=self.summary)
        summaries = dict(self.summaries)
        for index in range(self.start, len(messages)):
            message = messages[index]
            if summaries and message.role == "tool" and message.tool_call_id in summaries:
                message = _replace_text(message, summaries[message.tool_call_id])
            yield self._clear_result(message) if index < self.cleared else message

    def _clear_result(self, message: Message) -> Message:
        """The message without its content, if it is a result that is longer than what would replace it."""
        is_long = bool(message.parts) or len(message.content or "") > len(self.cleared_text)
        if message.role != "tool" or not is_long:
            return message
        return replace(message, content=self.cleared_text, parts=())


def _replace_text(message: Message, text: str) -> Message:
    """The message with another text; pictures, files and sounds stay."""
    others = [part for part in message.parts if not isinstance(part, TextPart | Note)]
    return replace(message, content=text, parts=add_text(text, others))


class ShownMessages(MessageList):
    """The messages that requests contain under a view. It grows with the conversation."""

    __slots__ = ("view",)

    view: ContextView

    @classmethod
    def from_view(cls, view: ContextView, messages: Sequence[Message]) -> ShownMessages:
        """What a view shows of a conversation."""
        return cls.from_messages(view, view.iterate_shown(messages))

    @classmethod
    def from_messages(cls, view: ContextView, messages: Iterable[Message]) -> ShownMessages:
        """A list of messages that are shown under this view."""
        shown_messages = cls(messages)
        shown_messages.view = view
        return shown_messages

    @classmethod
    def from_conversation(
        cls, view: ContextView, count: int, digest: str, messages: Sequence[Message]
    ) -> ShownMessages:
        """The first messages that a view shows of a conversation, made when one of them is read.

        Args:
            count: how many.
            digest: hash chain over them, from a checkpoint.
        """

        def load_shown() -> list[Message]:
            return [message for message, _ in zip(view.iterate_shown(messages), range(count), strict=False)]

        shown_messages: ShownMessages = cls.__new__(cls)
        stored_messages = MessageList.from_store(StoredMessages(count, load_shown), digest)
        shown_messages.copy_items(stored_messages)
        shown_messages.view = view
        return shown_messages

    def append(self, message: Message) -> ShownMessages:
        """A list with one more message; this list does not change."""
        return self._show(super().append(message))

    def branch(self) -> ShownMessages:
        """An equal list, to which a step appends that nobody keeps."""
        return self._show(super().branch())

    def _show(self, messages: MessageList) -> ShownMessages:
        """A list under the same view."""
        shown_messages: ShownMessages = ShownMessages.__new__(ShownMessages)
        shown_messages.copy_items(messages)
        shown_messages.view = self.view
        return shown_messages


# -- sizes ---------------------------------------------------------------------------------------

_BYTES_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 4
_TOKENS_PER_MEDIA = 1000


def _measure_text(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimate_message(message: Message) -> int:
    """About how many tokens a message takes in a request; a picture, a sound or a file counts as 1,000."""
    text, media = message.content or "", 0
    size = len(text) if text.isascii() else _measure_text(text)
    for call in message.tool_calls:
        size += len(call.name) + _measure_text(encode_arguments(call))
    for part in message.parts:
        media += not isinstance(part, TextPart | Note)
    return _TOKENS_PER_MESSAGE + media * _TOKENS_PER_MEDIA + size // _BYTES_PER_TOKEN


def estimate_messages(messages: Iterable[Message]) -> int:
    """About how many tokens these messages take in a request."""
    return sum(map(estimate_message, messages))


def estimate_request(request: Request) -> int:
    """About how many tokens a request takes, its tools included."""
    return estimate_messages(request.messages) + estimate_prefix(None, request.tools)


def estimate_prefix(system: str | None, tools: Iterable[ToolDefinition]) -> int:
    """About how many tokens the system prompt and the definitions of the tools take."""
    size = _measure_text(system or "") + sum(len(msgspec.json.encode(tool)) for tool in tools)
    return size // _BYTES_PER_TOKEN
