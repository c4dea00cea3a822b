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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

import msgspec

from toolchart.engine.log.family import WATCH_TAG
from toolchart.engine.mining.replaying import Replayer
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.watching.exchanges import Exchange
from toolchart.engine.watching.following import Departure, Follower
from toolchart.engine.watching.grouping import Groups, KnownCall, Place
from toolchart.engine.watching.seen_calls import SeenCall, list_items, read_call
from toolchart.engine.watching.watched_conversation import ChildOutcome, FindLease, WatchedConversation
from toolchart.providers.prices import PriceTable
from toolchart.states.errors import IllegalEvent, LogConflict, LogUnavailable, SpecError
from toolchart.states.events import Event, TurnStarted
from toolchart.states.messages import Message, Reply, Usage
from toolchart.states.plugins import describe_failure
from toolchart.states.ports import Lease, Store

log = logging.getLogger("toolchart")

TAG = WATCH_TAG

CONTINUES = "continues"
"""Name of the tag with the conversation that one goes on from otherwise than message by message."""

NOT_CERTAIN = "which conversation this call belongs to is not certain: {others} would fit as well"
PROGRAM_ENDED = "nothing more was seen of it"
PARENT_WENT_ON = "the call that ran it has its result"
NO_BEGINNING = "it goes on from the response {previous}, which was not seen"
BRANCHES = "it goes on from an earlier part of {conversation}"
SHORTENED = "it goes on from {conversation} with a shorter or another list of messages"
LEAVES = "it leaves the chart in {state}: {reason}"
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
    turns: int = 0
    """Turns that were held against a chart."""
    departures: list[Departure] = msgspec.field(default_factory=list)
    """Where they leave it, at most once each."""
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    """Calls that the program did not get, by tool."""
    held: int = 0
    """Calls that a person was asked about."""
    asked_again: int = 0
    """How often the host was asked once more, in the place of the program."""


class PlacedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model call that is asked, in its conversation."""

    call: SeenCall
    conversation: WatchedConversation
    asked_at: float
    """In seconds."""


class Recorder:
    """Takes exchanges, and writes conversations into a store.

    Args:
        store: is written by this recorder's thread alone.
        tags: of all conversations.
        prices: adds what replies cost, where their host does not say it.
        say: told at once what whoever watches should know.
        replayer: of the agent that conversations are held against.
        is_enforced: whether calls that this agent refuses do not run.
    """

    def __init__(
        self,
        store: Store,
        tags: Mapping[str, str],
        prices: PriceTable | None = None,
        owner: str = "",
        *,
        say: Callable[[str], None] = log.warning,
        replayer: Replayer | None = None,
        is_enforced: bool = False,
    ) -> None:
        self.figures = WatchFigures()
        self.say = say
        self.find_lease: FindLease = lambda _: None
        """Returns the lease under which a conversation is held; None where none is."""
        self._replayer = replayer
        self._is_enforced = is_enforced
        self._followers: dict[str, Follower] = {}
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
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="toolchart-watch", daemon=True)
        self._thread.start()

    def note(self, exchange: Exchange) -> None:
        """Take an exchange that has ended; see `ExchangeSink`."""
        if exchange.wire:
            self._queue.put(partial(self._guard, partial(self._record, exchange)))

    def perform(self, work: Callable[[], None]) -> None:
        """Have the recorder's thread do something after all that came before; it must not raise."""
        self._queue.put(work)

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
        while (work := self._queue.get()) is not None:
            work()
        for conversation in self._conversations.values():
            self._guard(partial(self._end, conversation, PROGRAM_ENDED))

    @property
    def failure(self) -> BaseException | None:
        """Why nothing is written any more; None while the log can be written."""
        return self._failure

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
            placed = self.place(read_call(exchange, self._prices, self._items))
            reply = self.answer(placed)
            if reply is not None:
                self.note_shown(placed, reply, exchange)
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

    @property
    def items(self) -> Mapping[str, Any]:
        """By its id: each item of a response."""
        return self._items

    @property
    def prices(self) -> PriceTable | None:
        """What replies cost, where their host does not say it."""
        return self._prices

    def get_follower(self, conversation: WatchedConversation) -> Follower:
        """What holds a conversation against the agent."""
        return self._followers[conversation.id]

    def place(self, call: SeenCall) -> PlacedCall:
        """Find the conversation of a call, and record what was asked; nothing is written yet.

        Raises:
            SpecError, IllegalEvent: its messages cannot be read, or do not fit.
        """
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
            conversation, more = self._begin(call, place, messages)
            marks += more
        # The host keeps another response than the program knows: it gets all messages.
        conversation.is_edited = conversation.is_edited or (before is not None and before.is_edited)
        if place.sign == "asks again":
            figures.retries += 1
        if place.others and place.sign != "new":
            marks.append(NOT_CERTAIN.format(others=", ".join(place.others)))
            figures.uncertain += 1
        known = place.known if place.sign in ("goes on", "asks again") else 0
        self._groups.note_request(
            conversation.id,
            messages,
            session=exchange.session,
            connection=exchange.connection,
            others=place.others,
        )
        placed = PlacedCall(call=call, conversation=conversation, asked_at=asked_at)
        with self._keep_rest(conversation):
            conversation.ask(call, messages, known, marks, self._find_child)
        if self._replayer is not None:
            self._followers[conversation.id].end_repetition()
        return placed

    @contextmanager
    def _keep_rest(self, conversation: WatchedConversation) -> Iterator[None]:
        """Where the block fails, keep what was derived until then; nobody goes on with the conversation."""
        try:
            yield
        except Exception:
            self.abandon(conversation)
            raise

    def abandon(self, conversation: WatchedConversation) -> None:
        """Write what is known of a conversation; what would go on with it, begins another one.

        Raises:
            LogUnavailable, LogConflict: the log cannot be written.
        """
        self._groups.forget(conversation.id)
        conversation.write()

    def answer(self, placed: PlacedCall) -> Reply | None:
        """Record what became of a call. What was refused or waits for a person, its conversation says.

        Returns:
            The reply, whose calls have the ids that the log has for them; None where the call failed.

        Raises:
            IllegalEvent: it does not fit.
            LogUnavailable, LogConflict: the log cannot be written.
        """
        call, conversation, figures = placed.call, placed.conversation, self.figures
        follower = self._followers.get(conversation.id)
        figures.calls += 1
        figures.models[call.model] += 1
        figures.failed += call.reply is None
        with self._keep_rest(conversation):
            reply = conversation.answer(call, follower.judge if follower is not None else None)
        if not self._is_enforced or reply is None:
            conversation.write()
        if reply is None:
            # A program may ask again as soon as a refusal has begun.
            exchange = call.exchange
            is_refused = exchange.status >= 400 and exchange.first_ms is not None
            known_ms = exchange.first_ms if is_refused else exchange.duration_ms
            self._groups.note_failure(conversation.id, placed.asked_at + (known_ms or 0.0) / 1000)
            return None
        figures.tools.update(each.name for each in reply.tool_calls)
        figures.usage = figures.usage.plus(reply.usage)
        return reply

    def note_shown(
        self, placed: PlacedCall, reply: Reply, exchange: Exchange, earlier_ids: Iterable[str] = ()
    ) -> None:
        """Take note of the reply that the program gets: with it, it goes on.

        Args:
            exchange: with what the host has answered.
            earlier_ids: other ids that the program may know it by.
        """
        conversation = placed.conversation
        message = conversation.add_shown(reply)
        self._groups.note_reply(conversation.id, message, _list_known_calls(message))
        for name in (*earlier_ids, reply.response_id):
            if name:
                self._by_response[name] = conversation.id, len(conversation.messages)
        if reply.response_id:
            self._items |= list_items(exchange)

    def _find_lease(self, conversation: str) -> Lease | None:
        return self.find_lease(conversation)

    def _note_departure(self, conversation: WatchedConversation, departure: Departure) -> None:
        self.figures.departures.append(departure)
        words = LEAVES.format(state=departure.state, reason=departure.reason)
        conversation.mark(words)
        self.say(f"conversation {departure.conversation}, turn {departure.turn}: {words}")

    def _follow(self, conversation: WatchedConversation, place: Place, messages: Sequence[Message]) -> None:
        """Hold a new conversation against the agent; one that goes on from another, from where that is."""
        assert self._replayer is not None, "the caller has looked"
        follower = Follower(
            self._replayer,
            conversation.id,
            partial(self._note_departure, conversation),
            is_enforced=self._is_enforced,
        )
        earlier = self._followers.get(place.conversation)
        if earlier is not None and place.sign in ("branches", "shortened"):
            is_same_turn = place.sign == "shortened" and messages[-1].role == "tool"
            follower.take_over(earlier, is_same_turn=is_same_turn)
        self._followers[conversation.id] = follower

        def follow(event: Event) -> None:
            self.figures.turns += isinstance(event, TurnStarted)
            follower.follow(event)

        conversation.on_event = follow

    def _begin(
        self, call: SeenCall, place: Place, messages: Sequence[Message]
    ) -> tuple[WatchedConversation, list[str]]:
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
        conversation = WatchedConversation(
            self._store, name, owner=self._owner, tags=tags, parent=link, find_lease=self._find_lease
        )
        self._conversations[name] = conversation
        if self._replayer is not None:
            self._follow(conversation, place, messages)
        self._groups.begin(name, place)
        figures.conversations.append(name)
        return conversation, marks

    def _find_child(self, conversation: str, call_id: str) -> ChildOutcome | None:
        """What a call has run, which is ended: its parent has its result."""
        name = self._children.get((conversation, call_id))
        if name is None:
            return None
        child = self._conversations[name]
        if not child.is_asking:  # else it is another call that runs it, which was not certain
            self._end(child, PARENT_WENT_ON)
        item = int(name.rpartition(".")[2])
        return ChildOutcome(conversation=name, item=item, head=child.head, usage=child.usage)


def _list_known_calls(reply: Message) -> Iterable[KnownCall]:
    for call in reply.tool_calls:
        texts = tuple(value for value in (call.arguments or {}).values() if isinstance(value, str))
        yield KnownCall(id=call.id, texts=texts)


def _parse_time(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
