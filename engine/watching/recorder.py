"""Writes what another program asks model hosts into a log, live: a conversation for each of its own.

In: exchanges (`exchanges.py`), noted by the proxy as they end. Each is read (`seen_calls.py`), placed in a
conversation (`grouping.py`), and becomes the events that would have led to it: messages, the reply, the
outcomes of the calls that the next request brings (`watched_conversation.py`). The core derives every step
from them, so a watched conversation is one like any other; its chart is `watched_chart.py`, which decides
nothing.

The work is done in a thread of its own, in the order in which exchanges end: it never slows a stream.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

import msgspec

from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.watching.exchanges import Exchange
from toolchart.engine.watching.grouping import Groups, KnownCall, Place
from toolchart.engine.watching.seen_calls import SeenCall, list_items, read_call
from toolchart.engine.watching.watched_conversation import ChildOutcome, WatchedConversation
from toolchart.providers.prices import PriceTable
from toolchart.states.errors import IllegalEvent, LogConflict, LogUnavailable, SpecError
from toolchart.states.messages import Message, Usage
from toolchart.states.plugins import describe_failure
from toolchart.states.ports import Store

log = logging.getLogger("toolchart")

TAG = "watch"
"""Name of the tag that all conversations of a watch have."""

CONTINUES = "continues"
"""Name of the tag with the conversation that one goes on from otherwise than message by message."""

NOT_CERTAIN = "which conversation this call belongs to is not certain: {others} would fit as well"
PROGRAM_ENDED = "nothing more was seen of it"
PARENT_WENT_ON = "the call that ran it has its result"
NO_BEGINNING = "it goes on from the response {previous}, which was not seen"
BRANCHES = "it goes on from an earlier part of {conversation}"
SHORTENED = "it goes on from {conversation} with a shorter or another list of messages"
SAME_REQUEST = "{others} began with the same request: which of them a call belongs to is told by what follows"


class WatchFigures(msgspec.Struct, kw_only=True):
    """What was recorded so far."""

    calls: int = 0
    """Model calls, those that failed included."""
    failed: int = 0
    conversations: list[str] = msgspec.field(default_factory=list)
    """Their ids, in the order in which they began."""
    children: int = 0
    retries: int = 0
    branches: int = 0
    shortened: int = 0
    uncertain: int = 0
    """Calls whose conversation is not certain; each is marked."""
    tools: Counter[str] = msgspec.field(default_factory=Counter)
    """Calls of tools, by name."""
    models: Counter[str] = msgspec.field(default_factory=Counter)
    usage: Usage = msgspec.field(default_factory=Usage)
    problems: Counter[str] = msgspec.field(default_factory=Counter)
    """Model calls that are in no conversation, by the reason."""


class Recorder:
    """Takes exchanges, and writes conversations into a store.

    Args:
        store: is written by this recorder's thread alone.
        tags: of all conversations.
        prices: adds what replies cost, where their host does not say it.
    """

    def __init__(
        self, store: Store, tags: Mapping[str, str], prices: PriceTable | None = None, owner: str = ""
    ) -> None:
        self.figures = WatchFigures()
        self._store = store
        self._tags = dict(tags)
        self._owner = owner
        self._prices = prices
        self._groups = Groups()
        self._conversations: dict[str, WatchedConversation] = {}
        self._children: dict[tuple[str, str], str] = {}
        """By conversation and call: the child that the call runs."""
        self._by_response: dict[str, tuple[str, int]] = {}
        """By the id of each response: whose it is, and how many messages there were with it."""
        self._items: dict[str, Any] = {}
        """By its id: each item of a response."""
        self._queue: SimpleQueue[Exchange | None] = SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="toolchart-watch", daemon=True)
        self._thread.start()

    def note(self, exchange: Exchange) -> None:
        """Take an exchange that has ended; see `ExchangeSink`."""
        self._queue.put(exchange)

    def close(self) -> WatchFigures:
        """Write what was noted, end what is open, and return the figures.

        Raises:
            LogUnavailable, LogConflict: the log could not be written.
        """
        self._queue.put(None)
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.figures

    def _run(self) -> None:
        while (exchange := self._queue.get()) is not None:
            if exchange.wire:
                self._guard(partial(self._record, exchange))
        for conversation in self._conversations.values():
            self._guard(partial(self._end, conversation, PROGRAM_ENDED))

    def _guard(self, write: Callable[[], None]) -> None:
        """Write something, unless the log could not be written before: that is said at the end, and the
        program goes on."""
        if self._failure is not None:
            return
        try:
            write()
        except BaseException as error:
            self._failure = error
            log.error("the watch is not recorded any more: %s", error)

    def _end(self, conversation: WatchedConversation, reason: str) -> None:
        """End what is open in a conversation, unless it could not be recorded to its newest call."""
        with suppress(IllegalEvent):
            conversation.end(reason)

    def _record(self, exchange: Exchange) -> None:
        try:
            self._place(read_call(exchange, self._prices, self._items))
        except (LogUnavailable, LogConflict):
            raise
        except SpecError as error:
            place = f"{error.path}: " if error.path else ""
            self._note_problem(exchange, f"{place}{error.message}")
        except Exception as error:  # what strangers send may be anything; the others are recorded
            log.debug("exchange %d", exchange.number, exc_info=True)
            self._note_problem(exchange, describe_failure(error))

    def _note_problem(self, exchange: Exchange, problem: str) -> None:
        self.figures.problems[problem] += 1
        log.warning("exchange %d is in no conversation: %s", exchange.number, problem)

    def _place(self, call: SeenCall) -> None:
        """Write a call into its conversation."""
        exchange, figures = call.exchange, self.figures
        asked_at = _parse_time(exchange.asked_at)
        previous, count = self._by_response.get(call.previous, ("", 0))
        before = self._conversations.get(previous)
        messages, warnings = call.read_messages(before.messages[:count] if before is not None else ())
        place = self._groups.find(
            messages,
            named=before.id if before is not None else "",
            session=exchange.session,
            connection=exchange.connection,
            asked_at=asked_at,
        )
        marks = list(warnings)
        conversation = self._conversations.get(place.conversation)
        if place.sign not in ("goes on", "asks again") or conversation is None:
            conversation, more = self._begin(call, place)
            marks += more
        if place.sign == "asks again":
            figures.retries += 1
        if place.others and place.sign != "new":
            marks.append(NOT_CERTAIN.format(others=", ".join(place.others)))
            figures.uncertain += 1
        figures.calls += 1
        figures.failed += call.reply is None
        figures.models[call.model] += 1
        known = place.known if place.sign in ("goes on", "asks again") else 0
        self._groups.note_request(
            conversation.id,
            messages,
            session=exchange.session,
            connection=exchange.connection,
            others=place.others,
        )
        try:
            conversation.ask(call, messages, known, marks, self._find_child)
            conversation.answer(call)
        except Exception:  # what was derived until then is kept, and nobody goes on with it
            self._groups.forget(conversation.id)
            conversation.write()
            raise
        if call.reply is None:
            # A program may ask again as soon as a refusal has begun.
            is_refused = exchange.status >= 400 and exchange.first_ms is not None
            known_ms = exchange.first_ms if is_refused else exchange.duration_ms
            self._groups.note_failure(conversation.id, asked_at + (known_ms or 0.0) / 1000)
            return
        reply = conversation.messages[-1]
        self._groups.note_reply(conversation.id, reply, _list_known_calls(reply))
        if call.reply.response_id:
            self._by_response[call.reply.response_id] = conversation.id, len(conversation.messages)
            self._items |= list_items(exchange)
        figures.tools.update(each.name for each in reply.tool_calls)
        figures.usage = figures.usage.plus(call.reply.usage)

    def _begin(self, call: SeenCall, place: Place) -> tuple[WatchedConversation, list[str]]:
        """A new conversation, and what is said about its beginning."""
        tags, marks, figures = dict(self._tags), list[str](), self.figures
        name, link = generate_conversation_id(), None
        if place.sign == "child":
            link = self._conversations[place.conversation].find_link(place.call_id)
            child = f"{link.conversation}.{link.effect}.{link.item}" if link is not None else ""
            if child and child not in self._conversations:
                name = child
                self._children[place.conversation, place.call_id] = child
                figures.children += 1
            else:  # the call has run one already
                link, tags[CONTINUES] = None, place.conversation
        elif place.sign in ("branches", "shortened"):
            tags[CONTINUES] = place.conversation
            words = BRANCHES if place.sign == "branches" else SHORTENED
            marks.append(words.format(conversation=place.conversation))
            figures.branches += place.sign == "branches"
            figures.shortened += place.sign == "shortened"
        elif place.others:
            marks.append(SAME_REQUEST.format(others=", ".join(place.others)))
        if call.previous and call.previous not in self._by_response:
            marks.append(NO_BEGINNING.format(previous=call.previous))
        conversation = WatchedConversation(self._store, name, owner=self._owner, tags=tags, parent=link)
        self._conversations[name] = conversation
        self._groups.begin(name, place)
        figures.conversations.append(name)
        return conversation, marks

    def _find_child(self, conversation: str, call_id: str) -> ChildOutcome | None:
        """What a call has run, which is ended: its parent has its result."""
        name = self._children.get((conversation, call_id))
        if name is None:
            return None
        child = self._conversations[name]
        self._end(child, PARENT_WENT_ON)
        item = int(name.rpartition(".")[2])
        return ChildOutcome(conversation=name, item=item, head=child.head, usage=child.usage)


def _list_known_calls(reply: Message) -> Iterable[KnownCall]:
    for call in reply.tool_calls:
        texts = tuple(value for value in (call.arguments or {}).values() if isinstance(value, str))
        yield KnownCall(id=call.id, texts=texts)


def _parse_time(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
