"""Tells which conversation a model call of another program belongs to, by what it sends alone.

The strongest sign counts (`Sign`): a response that the call names, else the longest list of messages that it
begins with. Ids of calls tell conversations apart whose words are equal. Nothing is guessed in silence: where
two conversations fit alike, the call is marked.

    goes on       it begins with all that was said so far, or names the newest response
    asks again    it is the request that failed
    branches      it begins with an earlier part: the program went back, or asks several times at once
    shortened     it has calls of a conversation, or its newest reply and what led to it, and begins
                  otherwise: the program trimmed or summed up
    child         its first words are the argument of a call that runs
    new           none of these
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal

import msgspec
import orjson

from toolchart.states.content import Media
from toolchart.states.messages import Message

Sign = Literal["goes on", "asks again", "branches", "shortened", "child", "new"]

_MOST_OF_ARGUMENT = 0.6
"""Share of the longer of two texts that the shorter one has at least, where one holds the other."""
_FEWEST_CHARACTERS = 8
"""Of a text that is found within another: shorter ones are words like a name."""

_TIMES_DIFFER_S = 0.002
"""How much earlier than a failure a request may seem to come that follows it: times of requests are whole
milliseconds, and a program sees a failure a little before its end is noted."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call belongs."""

    sign: Sign
    conversation: str = ""
    """The one that it goes on with, branches from or shortens; of a child, its parent. Empty for a new
    one."""
    known: int = 0
    """How many of its messages the conversation has already."""
    call_id: str = ""
    """Of a child: the call that runs it."""
    others: tuple[str, ...] = ()
    """Conversations that fit as well: which one it is, is not certain."""


class KnownCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a model that has no result yet."""

    id: str
    texts: tuple[str, ...]
    """The texts among its arguments."""


class _Known(msgspec.Struct, kw_only=True):
    """What is known of a conversation."""

    number: int
    digests: list[bytes]
    """Of the messages so far, each with all before it."""
    end: bytes = b""
    """The last of them, after a reply; empty while a request failed."""
    last: Message | None = None
    """The last message of the newest request."""
    tail: bytes = b""
    """The digest of that message and the reply; empty as `end` is."""
    call_ids: tuple[str, ...] = ()
    """Of the newest reply."""
    open_calls: tuple[KnownCall, ...] = ()
    failed: bytes = b""
    """Digest of the request that failed."""
    failed_at: float = 0.0
    rivals: tuple[str, ...] = ()
    """Conversations that were at the same point and went on with a call that may be of this one."""
    session: str = ""
    connection: int = 0


class Groups:
    """The conversations so far, and what tells them apart."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._by_end: defaultdict[bytes, list[str]] = defaultdict(list)
        self._by_part: dict[bytes, str] = {}
        """By the digest after each reply: whose it was."""
        self._by_request: defaultdict[bytes, list[str]] = defaultdict(list)
        """By the digest of each request that was made: whose it was."""
        self._by_tail: defaultdict[bytes, list[str]] = defaultdict(list)
        """By the digest of the newest reply and the message before it."""
        self._has_child: dict[tuple[str, str], bool] = {}
        """By conversation and call: whether the child that it runs may be of another call."""
        self._by_call: dict[bytes, str] = {}
        """By the calls that hosts made: whose they are."""

    def find(
        self,
        messages: Sequence[Message],
        *,
        named: str = "",
        session: str = "",
        connection: int = 0,
        asked_at: float = 0.0,
    ) -> Place:
        """Where a call with these messages belongs.

        Args:
            named: the conversation whose response the call goes on from; empty where it names none.
            session: what the program calls the conversation.
            asked_at: when it was asked, in seconds.
        """
        digests = compute_digests(messages)
        again = [
            name
            for name in self._by_request.get(digests[-1] if digests else b"", ())
            if self._known[name].failed == digests[-1]
            and self._known[name].failed_at <= asked_at + _TIMES_DIFFER_S
        ]
        if again:
            chosen, others = self._choose(again, named, session, connection)
            return Place(sign="asks again", conversation=chosen, known=len(messages), others=others)
        for count in range(len(messages), 0, -1):
            if messages[count - 1].role != "assistant":
                continue
            ids = _list_call_ids(messages[count - 1])
            names = [
                name
                for name in self._by_end.get(digests[count - 1], ())
                if _fits(self._known[name].call_ids, ids)
            ]
            if names:
                chosen, others = self._choose(names, named, session, connection)
                return Place(sign="goes on", conversation=chosen, known=count, others=others)
            earlier = self._by_part.get(digests[count - 1])
            if earlier is not None:
                return Place(sign="branches", conversation=earlier)
        for message in reversed(messages):
            for key in _list_call_keys(message):
                if key in self._by_call:
                    return Place(sign="shortened", conversation=self._by_call[key])
        shortened = self._find_tail(messages)
        if shortened:
            chosen, others = self._choose(shortened, named, session, connection)
            return Place(sign="shortened", conversation=chosen, others=others)
        child, is_first = self._find_parent(messages)
        same = self._by_request.get(digests[-1] if digests else b"", ())
        if same and not is_first:  # two runs of one program, or one that asks twice at once
            return Place(sign="new", others=tuple(same[-1:]))
        return child or Place(sign="new")

    def _choose(
        self, names: Sequence[str], named: str, session: str, connection: int
    ) -> tuple[str, tuple[str, ...]]:
        """The one of several conversations that a call belongs to, and the others that fit as well.

        A connection makes one more likely and no more: clients lend it to whoever asks next.
        """
        if named in names:
            return named, ()
        fits = [name for name in names if session and self._known[name].session == session]
        if len(fits) == 1:
            return fits[0], ()
        names = fits or names
        chosen = min(
            names, key=lambda name: (self._known[name].connection != connection, self._known[name].number)
        )
        others = [*(name for name in names if name != chosen), *self._known[chosen].rivals]
        return chosen, tuple(dict.fromkeys(others))

    def _find_tail(self, messages: Sequence[Message]) -> list[str]:
        """The conversations that end with the newest reply of some messages and the message before it."""
        index = next(
            (index for index in range(len(messages) - 1, 0, -1) if messages[index].role == "assistant"), 0
        )
        if not index:
            return []
        ids = _list_call_ids(messages[index])
        tail = compute_digests(messages[index - 1 : index + 1])[-1]
        return [name for name in self._by_tail.get(tail, ()) if _fits(self._known[name].call_ids, ids)]

    def _find_parent(self, messages: Sequence[Message]) -> tuple[Place | None, bool]:
        """The call whose argument the first words of a conversation are, and whether it has run none yet."""
        first = next(
            (message.content for message in messages if message.role == "user" and message.content), ""
        )
        found = [
            (name, call.id, max(_measure_likeness(first, text) for text in call.texts))
            for name, known in self._known.items()
            for call in known.open_calls
            if call.texts
        ]
        best = max((likeness for *_, likeness in found), default=0)
        if not best:
            return None, False
        found.sort(key=lambda each: -self._known[each[0]].number)  # the newest first
        fits = [(name, call_id) for name, call_id, likeness in found if likeness == best]
        free = [place for place in fits if place not in self._has_child]
        parent, call_id = (free or fits)[0]
        # Another call that runs a child runs that one, unless this was not certain either.
        others = [name for name, other in fits if self._has_child.get((name, other), True) and name != parent]
        place = Place(sign="child", conversation=parent, call_id=call_id, others=tuple(dict.fromkeys(others)))
        return place, bool(free)

    # -- what happened -----------------------------------------------------------------------------

    def begin(self, name: str, place: Place) -> None:
        """Take note of a new conversation, and of where it belongs."""
        self._known[name] = _Known(number=len(self._known), digests=[])
        if place.sign == "child":
            self._has_child.setdefault((place.conversation, place.call_id), bool(place.others))

    def note_request(
        self,
        name: str,
        messages: Sequence[Message],
        *,
        session: str,
        connection: int,
        others: Iterable[str] = (),
    ) -> None:
        """Take note of the messages of a request of a conversation.

        Args:
            others: conversations that it would fit as well. A request that fits one of them later may be of
                this one.
        """
        known = self._known[name]
        for other in map(self._known.__getitem__, others):
            if known.digests and other.digests == known.digests:
                other.rivals = (*other.rivals, name)
        known.rivals = ()
        self._forget_end(name)
        known.digests = compute_digests(messages)
        known.last = messages[-1] if messages else None
        known.failed = b""
        known.session, known.connection = session or known.session, connection
        if known.digests and name not in self._by_request[known.digests[-1]]:
            self._by_request[known.digests[-1]].append(name)

    def note_reply(self, name: str, reply: Message, open_calls: Iterable[KnownCall]) -> None:
        """Take note of the reply to the newest request."""
        known = self._known[name]
        known.digests.append(compute_digests([reply], known.digests[-1] if known.digests else b"")[0])
        known.end, known.call_ids = known.digests[-1], _list_call_ids(reply)
        known.open_calls = tuple(open_calls)
        self._by_end[known.end].append(name)
        known.tail = compute_digests([known.last, reply])[-1] if known.last is not None else b""
        self._by_tail[known.tail].append(name)
        self._by_part.setdefault(known.end, name)
        for key in _list_call_keys(reply):
            self._by_call[key] = name

    def note_failure(self, name: str, at: float) -> None:
        """Take note that the newest request failed.

        Args:
            at: when, in seconds.
        """
        known = self._known[name]
        known.failed, known.failed_at = (known.digests[-1] if known.digests else b""), at

    def forget(self, name: str) -> None:
        """Take note that nobody goes on with a conversation: what would, begins another one."""
        self._forget_end(name)
        self._known[name].failed = b""

    def _forget_end(self, name: str) -> None:
        known = self._known[name]
        if known.end:
            self._by_end[known.end].remove(name)
            self._by_tail[known.tail].remove(name)
        known.end, known.call_ids, known.open_calls = b"", (), ()


def compute_digests(messages: Sequence[Message], before: bytes = b"") -> list[bytes]:
    """The digest of each message with all before it.

    What clients change when they send a message back counts for nothing: ids, blanks at the ends, the
    spelling of arguments, thinking.
    """
    digests = []
    for message in messages:
        before = sha256(before + _describe(message)).digest()
        digests.append(before)
    return digests


def _describe(message: Message) -> bytes:
    media = [
        part.url or sha256(part.data.encode()).hexdigest()
        for part in message.parts
        if isinstance(part, Media)
    ]
    calls = [
        [call.name, call.arguments if call.arguments is not None else call.raw] for call in message.tool_calls
    ]
    text = " ".join((message.content or "").split())
    return orjson.dumps([message.role, text, media, calls], option=orjson.OPT_SORT_KEYS)


def _list_call_ids(message: Message) -> tuple[str, ...]:
    """The ids that the host gave to the calls of a message; empty for a host that gives none."""
    return tuple(call.native_id for call in message.tool_calls if call.native_id)


def _list_call_keys(message: Message) -> list[bytes]:
    """The calls of a message that have an id, each with its words: some hosts begin with the same ids
    again."""
    return [
        orjson.dumps([call_id, call.name, call.arguments], option=orjson.OPT_SORT_KEYS)
        for call in message.tool_calls
        if (call_id := call.native_id)
    ]


def _fits(known_ids: Sequence[str], ids: Sequence[str]) -> bool:
    """Whether the calls of two messages with the same words may be the same ones."""
    return not known_ids or not ids or list(known_ids) == list(ids)


def _measure_likeness(text: str, argument: str) -> int:
    """How alike two texts are: 2 for the same words, 1 where one is most of the other, else 0."""
    text, argument = " ".join(text.split()), " ".join(argument.split())
    shorter, longer = sorted((text, argument), key=len)
    if text == argument:
        return 2 if text else 0
    is_long = len(shorter) >= max(_FEWEST_CHARACTERS, _MOST_OF_ARGUMENT * len(longer))
    return 1 if is_long and shorter in longer else 0
