"""The messages of a conversation and of a request, and the tools of a request, with digests of their content.

A conversation only grows, so its list keeps a hash chain: the digest of a longer list is made of the digest
of the shorter one and the new message. A digest is made by the same operation that adds the message, so it
cannot differ from the content, and it costs the same at any length.

    digest(())              = ""
    digest((*rest, m))      = sha256(digest(rest) + JSON of m)

The digest of a request (`compute_request_digest`) is a function of the `Request` value alone. A list that was
made in any other way has its chain computed from its items.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

from toolchart.states.core.persistent_list import PersistentList
from toolchart.states.messages import Message, Request, ToolDefinition

_encode = msgspec.json.Encoder(order="deterministic").encode


def _encode_value(value: Any) -> bytes:
    """JSON of a value with sorted keys: equal values give equal bytes."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError):  # integers beyond 64 bits, lone surrogates
        return json.dumps(msgspec.to_builtins(value), sort_keys=True, default=repr).encode()


def _extend_digest(digest: str, message: Message) -> str:
    return hashlib.sha256(digest.encode() + _encode_value(message)).hexdigest()


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


class MessageList(Sequence[Message]):
    """The messages of a conversation without its system prompt. It never changes; `append` makes another."""

    __slots__ = ("_head", "_length", "_tail", "digest")

    digest: str
    """Hash chain over the messages."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._head: StoredMessages | None = None
        self._tail: PersistentList[Message] = PersistentList()
        self._length = 0
        self.digest = ""
        for message in messages:
            self._tail = self._tail.append(message, message.tool_call_id)
            self._length += 1
            self.digest = _extend_digest(self.digest, message)

    @classmethod
    def from_store(cls, head: StoredMessages, digest: str) -> MessageList:
        """A list whose messages are loaded when one of them is read.

        Args:
            digest: hash chain over them, from a checkpoint.
        """
        messages = cls()
        messages._head, messages._length, messages.digest = head, head.length, digest
        return messages

    def copy_items(self, other: MessageList) -> None:
        """Make this new list equal to another one, whose items it shares."""
        self._head, self._length = other._head, other._length
        self._tail, self.digest = other._tail, other.digest

    def append(self, message: Message) -> MessageList:
        """A list with one more message; this list does not change. The cost does not depend on the length."""
        messages: MessageList = MessageList.__new__(MessageList)
        messages._head = self._head
        messages._length = self._length + 1
        messages._tail = self._tail.append(message, message.tool_call_id)
        messages.digest = _extend_digest(self.digest, message)
        return messages

    def find_newest(self, call_id: str) -> Message | None:
        """The newest tool message that answers this call."""
        message = self._tail.find_newest(call_id)
        if message is None and self._head is not None:
            return self._head.find_newest(call_id)
        return message

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        return iter(self._tail) if self._head is None else chain(self._head.items, self._tail)

    def __getitem__(self, index: Any) -> Any:
        if self._head is None:
            return self._tail[index]
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        head_length = self._head.length
        return self._tail[position - head_length] if position >= head_length else self._head.items[position]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, MessageList) and self.digest == other.digest and len(self) == len(other)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"MessageList({len(self)} messages, {self.digest[:8]})"


class RequestMessages(Sequence[Message]):
    """The messages of a request: the system message in front of the conversation, which is not copied."""

    __slots__ = ("_digest", "messages", "system")

    def __init__(self, system: str | None, messages: MessageList) -> None:
        self.system = system
        self.messages = messages
        self._digest = ""

    @property
    def digest(self) -> str:
        """Digest of the system message and all other messages; computed once, since neither ever changes."""
        if not self._digest:
            self._digest = self._compute_digest()
        return self._digest

    def _compute_digest(self) -> str:
        if self.system is None:
            return self.messages.digest
        # The prefix keeps a system message in front apart from one that stands last in the list.
        data = b"system " + self.messages.digest.encode() + _encode_value(self.system)
        return hashlib.sha256(data).hexdigest()

    def __len__(self) -> int:
        return len(self.messages) + (self.system is not None)

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

    _digest: str = ""

    @property
    def digest(self) -> str:
        """Digest of the definitions, in order."""
        if not self._digest:
            self._digest = _digest_tools(self)
        return self._digest


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


def compute_request_digest(request: Request) -> str:
    """The digest of everything that a request says: 32 hexadecimal digits, a function of this value alone.

    For the lists that the core makes it costs the same at any length; other lists are hashed item by item.
    """
    messages: Any = request.messages
    split_messages = messages if type(messages) is RequestMessages else _split_system(messages)
    tools = request.tools
    tool_digest = tools.digest if type(tools) is OfferedTools else _digest_tools(tools)
    parts = (request.model, request.options, request.writes_tools_as_text, tool_digest, split_messages.digest)
    return hashlib.sha256(_encode_value(parts)).hexdigest()[:32]
