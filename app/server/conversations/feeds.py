"""Feeds: what happens in conversations, for any number of readers; each record is read from the log once.

A reader gets every record in order, from the number that it asks for, and between them what is provisional:
deltas of a streamed reply, and the result of a turn that runs here. Records have their number as id, so a
reader that lost its connection goes on where it stopped. A reader that is too slow is let go; it comes back
by the same way. Whoever comes while a turn runs, or misses deltas, gets the whole text so far (`text`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import msgspec

from toolchart.app.server.server_events import Events, ServerEvent, encode_event
from toolchart.states.errors import ToolchartError
from toolchart.states.messages import Delta, TextDelta, TextWithdrawn
from toolchart.states.ports import Store

log = logging.getLogger("toolchart.server")

_PAGE_SIZE = 200
"""Records that are read from the store at once, in a thread."""

_AT_ONCE = 16
"""Readers that get an event, and stored records that one reader gets, before the event loop does something
else: each costs it about 50 microseconds."""


class _Reader:
    """One reader: what it has not taken yet."""

    def __init__(self, first_seq: int, size: int) -> None:
        self.first_seq = first_seq
        """Number of the first record that comes through the queue; those before it are in the log."""
        self.queue: asyncio.Queue[ServerEvent | None] = asyncio.Queue(size)
        self.is_left_behind = False
        self.misses_text = False
        """Whether deltas did not reach it, so that later ones would join to another text."""

    def put(self, event: ServerEvent, text: ServerEvent | None = None) -> None:
        """Add an event; a reader that is full misses deltas, and is left behind by anything else.

        Args:
            text: the whole text with a delta, for a reader that has missed others.
        """
        is_delta = event.event == "delta"
        if self.queue.full():
            self.misses_text |= is_delta
            self.is_left_behind |= not is_delta
        elif not is_delta or not self.misses_text:
            self.queue.put_nowait(event)
        elif text is not None:
            self.queue.put_nowait(text)
            self.misses_text = False


class _Feed:
    """One conversation that somebody follows."""

    def __init__(self, store: Store, conversation: str) -> None:
        self._store = store
        self._conversation = conversation
        newest = store.read_last_line(conversation)
        self._next_seq = newest[0] + 1 if newest is not None else 0
        self._waiting: deque[tuple[ServerEvent, ServerEvent | None, tuple[_Reader, ...]]] = deque()
        self._giving: asyncio.Task[None] | None = None
        self.readers: set[_Reader] = set()

    def add_reader(self, size: int) -> _Reader:
        """A new reader, which gets what comes from now on."""
        reader = _Reader(self._next_seq, size)
        self.readers.add(reader)
        return reader

    def read_new_records(self) -> None:
        """Give the records that are new to every reader."""
        for line in self._store.read_lines(self._conversation, self._next_seq):
            self.publish(make_record_event(self._next_seq, line))
            self._next_seq += 1

    def publish(self, event: ServerEvent, words: Sequence[str] = ()) -> None:
        """Give an event to every reader: at once to a few, by and by to many.

        Args:
            words: with a delta: the whole text so far, in pieces.
        """
        if len(self.readers) > 1:
            event = msgspec.structs.replace(event, encoded=encode_event(event))
        is_missed = event.event == "delta" and any(reader.misses_text for reader in self.readers)
        text = _make_text_event(words) if is_missed else None
        if len(self.readers) <= _AT_ONCE and not self._waiting:
            for reader in self.readers:
                reader.put(event, text)
            return
        self._waiting.append((event, text, tuple(self.readers)))
        if self._giving is None or self._giving.done():
            self._giving = asyncio.ensure_future(self._give_to_many())

    async def _give_to_many(self) -> None:
        """Give what waits, in its order, to some readers after the others."""
        while self._waiting:
            event, text, readers = self._waiting[0]
            for start in range(0, len(readers), _AT_ONCE):
                for reader in readers[start : start + _AT_ONCE]:
                    reader.put(event, text)
                await asyncio.sleep(0)
            self._waiting.popleft()  # only now: what comes meanwhile waits behind it


class Feeds:
    """The feeds of one site.

    Args:
        queue_size: events that may wait for one reader.
        poll_s: seconds within which records are seen that another process has written.
    """

    def __init__(self, store: Store, queue_size: int, poll_s: float) -> None:
        self._store = store
        self._queue_size = queue_size
        self._poll_s = poll_s
        self._feeds: dict[str, _Feed] = {}
        self._words: dict[str, list[str]] = {}
        """By conversation whose turn runs here: what the answer says so far, in pieces."""

    def note_records(self, conversation: str) -> None:
        """Take notice of new records of a conversation; called after each commit."""
        feed = self._feeds.get(conversation)
        if feed is None:
            return
        try:
            feed.read_new_records()
        except ToolchartError as error:  # it may pass; the next look reads on from the same record
            log.warning("the records of conversation %s cannot be read: %s", conversation, error)

    def begin_text(self, conversation: str) -> None:
        """Note that a turn begins to run here."""
        self._words[conversation] = []

    def end_text(self, conversation: str) -> None:
        """Note that it does not run any more."""
        self._words.pop(conversation, None)

    def publish_delta(self, conversation: str, delta: Delta) -> None:
        """Give a delta of a running turn to those who follow it."""
        words = self._words.get(conversation, [])
        if isinstance(delta, TextWithdrawn):
            words.clear()
        elif isinstance(delta, TextDelta):
            words.append(delta.text)
        feed = self._feeds.get(conversation)
        if feed is not None:
            feed.publish(ServerEvent(event="delta", data=delta.to_dict()), words)

    def publish_result(self, conversation: str, result: dict[str, Any]) -> None:
        """Give the result of a turn to those who follow it."""
        self._publish(conversation, ServerEvent(event="result", data=result))

    def publish_fault(self, conversation: str, message: str) -> None:
        """Tell those who follow a turn that it has stopped with an error."""
        self._publish(conversation, ServerEvent(event="fault", data={"error": message}))

    def _publish(self, conversation: str, event: ServerEvent) -> None:
        feed = self._feeds.get(conversation)
        if feed is not None:
            feed.publish(event)

    async def follow(self, conversation: str, start: int) -> Events:
        """The events of a conversation from record `start` on; ends only where the reader is too slow."""
        feed = self._feeds.setdefault(conversation, _Feed(self._store, conversation))
        reader = feed.add_reader(self._queue_size)
        words = self._words.get(conversation)
        if words is not None:
            reader.put(_make_text_event(words))
        try:
            async for event in self._read_stored(conversation, start, reader.first_seq):
                yield event
            while not reader.is_left_behind:
                event_or_end = await reader.queue.get()
                if event_or_end is None:
                    return
                if not event_or_end.id or int(event_or_end.id) >= start:
                    yield event_or_end
        finally:
            feed.readers.discard(reader)
            if not feed.readers and self._feeds.get(conversation) is feed:
                del self._feeds[conversation]

    async def _read_stored(
        self, conversation: str, start: int, end: int
    ) -> AsyncGenerator[ServerEvent, None]:
        """The records from `start` to before `end`, read in a thread, page by page."""
        while start < end:
            count = min(_PAGE_SIZE, end - start)
            lines = await asyncio.to_thread(
                lambda first, size: list(islice(self._store.read_lines(conversation, first), size)),
                start,
                count,
            )
            if not lines:
                return
            for line in lines:
                yield make_record_event(start, line)
                start += 1
                if not start % _AT_ONCE:
                    await asyncio.sleep(0)

    @asynccontextmanager
    async def poll(self) -> AsyncIterator[None]:
        """Within the block, look for records that other processes write."""
        task = asyncio.create_task(self._poll_for_ever())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _poll_for_ever(self) -> None:
        while True:
            names = list(self._feeds)
            for name in names:  # one after the other, so that the event loop is never held up
                self.note_records(name)
                await asyncio.sleep(self._poll_s / len(names))
            if not names:
                await asyncio.sleep(self._poll_s)


def _make_text_event(words: Sequence[str]) -> ServerEvent:
    """The whole text so far; it stands in place of all that a reader has read of it."""
    return ServerEvent(event="text", data={"text": "".join(words)})


def make_record_event(seq: int, line: bytes) -> ServerEvent:
    """The event of a record: its stored bytes, with its number as id."""
    return ServerEvent(event="record", id=str(seq), data=line.decode("utf-8", "replace"))
