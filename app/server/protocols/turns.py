"""Turns as streams: begins one, or goes on with what a client has answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from types import CoroutineType
from typing import Any, TypeAlias, Unpack

import msgspec

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.answers import Refusal, make_not_found
from toolchart.app.server.conversations.live_turns import TurnStopped, require_rest
from toolchart.app.server.endpoints import require_role
from toolchart.app.server.protocols.client_tools import CallOutcome
from toolchart.app.server.protocols.waiting import Answer, ItemName, list_waiting_items, read_wire_id
from toolchart.app.server.repeated_requests import refuse_other_request
from toolchart.app.server.site import Site
from toolchart.engine.log.record import parse_record
from toolchart.engine.reading.waiting import read_waiting
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.parts import StreamOptions, TurnOptions
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.streaming import Piece, StepTaken, stream_turn
from toolchart.engine.runtime.turn_identity import TurnDifference
from toolchart.engine.turns.inbox import HANDED_OVER
from toolchart.engine.turns.once import SaidMessage
from toolchart.states.effects import CallModel, RunAgent
from toolchart.states.errors import LeaseHeld, LogConflict, TurnChanged
from toolchart.states.events import Decided
from toolchart.states.messages import Doubt, TextDelta, TextWithdrawn
from toolchart.states.snapshot import Snapshot

Pieces: TypeAlias = AsyncGenerator[Piece, None]
"""What a turn yields; its result is the last."""

_LOOK_S = 0.1
"""Seconds between two looks at a turn that somebody else runs."""


class AnsweredItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item that a turn waits for, and the answer of the client."""

    item: ItemName
    answer: Answer


def read_answers(site: Site, answers: Mapping[str, Any], access: Access) -> list[AnsweredItem]:
    """The answers of a request, by wire id.

    Raises:
        Refusal: 400; a wire id is unknown, an answer does not have its form, or they belong to several
            conversations. 403; the token may not give such an answer. 404; their conversation does not exist
            for it.
    """
    items = []
    for wire_id, data in answers.items():
        item = read_wire_id(wire_id)
        if item is None:
            raise Refusal(
                400,
                f"nothing waits for an answer to {wire_id!r}: a request that ends with results answers calls "
                "of this server. After the results of another one, a message of the user must come",
            )
        site.require_conversation(access, item.root)
        require_role(access, item.kind.role)
        items.append(AnsweredItem(item=item, answer=item.kind.read(item.id, data, access.name)))
    if len({answered.item.root for answered in items}) > 1:
        raise Refusal(400, "the answers belong to several conversations")
    return items


async def start_turn(
    site: Site,
    engine: Engine,
    access: Access,
    message: str,
    *,
    follows: int | None = None,
    **options: Unpack[StreamOptions],
) -> Pieces:
    """Begin a turn in a conversation of the access, or in a new one; closing the stream cancels it.

    Where the conversation has the message of this request already, as its key says, the turn that has it goes
    on, is waited for or is read; its result is then the only piece.

    Args:
        follows: the record right after which it begins, or not at all; None is any.

    Raises:
        LogConflict: the conversation has a later record.
        Refusal: 404; the conversation exists, and not for this access. 422; the key had another message.
            429; too many turns run. 503; the server stops.
        SpecError: the turn cannot begin; nothing was written.
    """
    conversation = options.get("conversation") or generate_conversation_id()
    options = {**options, **site.claim(access, conversation)}
    await find_said(engine, conversation, message, options)
    run_turn = partial(run_message, site, engine, message, follows=follows, **options)
    return await _start(_hold_slot(site, stream_turn(run_turn, options.get("output_type"))))


async def find_said(
    engine: Engine, conversation: str, message: str, options: StreamOptions
) -> SaidMessage | None:
    """Where a conversation has the message of a request already, as its key says; None where it has not.

    Raises:
        Refusal: 422; the key had another message with it.
    """
    try:
        return await engine.once.find_said(conversation, message, TurnOptions(**options))
    except TurnChanged:
        raise refuse_other_request() from None


async def run_message(site: Site, engine: Engine, message: str, **options: Any) -> Turn:
    """Run a turn of a conversation, as `Engine.arun`; where somebody else runs the turn that has the message
    already, as its key says, wait for what they make of it.

    Raises:
        LogConflict: the conversation has a later record than the request follows.
        Refusal: 422; the key had another message with it.
    """
    conversation, key, follows = options["conversation"], options.get("key"), options.get("follows")
    while True:
        try:
            result = await engine.arun(message, **options)
            if not key or HANDED_OVER not in result.warnings:
                return result
            # Another worker holds the conversation. It runs the turn of this request; or, where what is over
            # is the turn before, it is about to begin or to take the message.
            if not (result.is_over or engine.once.find_message(conversation, key) is not None):
                return result
        except TurnChanged:
            raise refuse_other_request() from None
        except LogConflict as error:
            if not key:
                raise
            # Read before the message is looked for: the second look sees what is written between the two.
            newest = engine.store.read_last_line(conversation)
            if engine.once.find_message(conversation, key) is None:
                has_gone_on = follows is not None and (newest is None or newest[0] != follows)
                # Where it has not, another server may be about to write the turn of the same request.
                if has_gone_on or not isinstance(error, LeaseHeld):
                    raise
        if site.is_stopping:
            raise TurnStopped(conversation)
        await asyncio.sleep(_LOOK_S)


async def begin_once(
    site: Site, engine: Engine, access: Access, conversation: str, message: str, options: StreamOptions
) -> Pieces:
    """Begin the conversation of a request with a key, or find the turn that it has begun.

    That turn goes on where it is open, is waited for where it runs, is tried again where it ended in a
    failure that may pass, and is read otherwise: its result is then the only piece.

    Raises:
        Refusal: as `start_turn`. 422; another request has begun the conversation.
    """
    own_options: StreamOptions = {**options, **site.claim(access, conversation)}
    find_turn = await find_begun_turn(site, engine, conversation, message, own_options)
    return await _start(_hold_slot(site, stream_turn(find_turn)))


async def find_begun_turn(
    site: Site, engine: Engine, conversation: str, message: str, options: StreamOptions
) -> Callable[..., CoroutineType[Any, Any, Turn]]:
    """What gives the turn that a request with a key begins, or has begun before; see `begin_once`.

    A turn of this server that runs has ended when this returns.

    Raises:
        Refusal: 422; another request has begun the conversation.
    """
    difference = await compare_with_begun(engine, conversation, message, options)
    await site.live_turns.join(conversation)

    async def read_turn(**watchers: Any) -> Turn:
        if difference is None:
            return await engine.arun_once(message, **options, **watchers)
        # The agent is another one since. What was begun is this request's all the same.
        return await engine.conversation(conversation).aresume(**watchers)

    async def find_turn(**watchers: Any) -> Turn:
        while True:
            # Somebody else may run it: another server on the log that got the same request, or, where the end
            # of a process has cut it off, the watch of this server or a worker. This request waits for what
            # they make of the turn.
            if not engine.leases.is_claimed(conversation):
                with suppress(LogConflict):
                    return await read_turn(**watchers)
            if site.is_stopping:
                raise TurnStopped(conversation)
            await asyncio.sleep(_LOOK_S)

    return find_turn


async def compare_with_begun(
    engine: Engine, conversation: str, message: str, options: StreamOptions
) -> TurnDifference | None:
    """How the agent differs from the one with which a request with this key was begun; None where it does
    not, or nothing was begun.

    Raises:
        Refusal: 422; another request has begun the conversation.
    """
    difference = await engine.once.compare_request(conversation, message, TurnOptions(**options))
    if difference is not None and difference.is_input:
        raise refuse_other_request()
    return difference


async def continue_turn(
    site: Site, engine: Engine, answers: Sequence[AnsweredItem], by: str, output_type: Any = None
) -> Pieces:
    """Go on with an open turn; the last answer is streamed, closing the stream cancels the turn.

    Args:
        output_type: the type of the turn's answer, as for `Engine.arun`.

    Raises:
        Refusal: 400; something does not wait. 429; too many turns run. 503; the server stops.
        IllegalEvent, SpecError: an answer does not fit; those before it are applied.
    """
    return await _start(_hold_slot(site, _apply_answers(site, engine, answers, by, output_type)))


async def finish_turn(pieces: Pieces) -> Turn:
    """The result of a turn that nobody watches."""
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Turn):
                return piece
    raise AssertionError("a turn yields its result last")


async def _hold_slot(site: Site, pieces: Pieces) -> Pieces:
    with site.turns.hold():
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Turn):
                    require_rest(piece, site.engine, is_stopping=site.is_stopping)
                yield piece


async def _start(pieces: Pieces) -> Pieces:
    """The stream after its first piece is there, so that what prevents the turn is raised before an answer
    has begun."""
    first = await anext(pieces)
    return put_before(first, pieces)


async def put_before(first: Piece, pieces: Pieces) -> Pieces:
    """A stream with a piece that was taken from it."""
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece


async def _apply_answers(
    site: Site, engine: Engine, answers: Sequence[AnsweredItem], by: str, output_type: Any
) -> Pieces:
    root = answers[0].item.root
    _require_open_items(engine, answers)
    outcomes = {
        (answered.item.conversation, answered.item.id): answered.answer
        for answered in answers
        if isinstance(answered.answer, CallOutcome)
    }
    site.client_tools.add_outcomes(outcomes)
    others = [answered for answered in answers if not isinstance(answered.answer, CallOutcome)]
    try:
        if outcomes:
            async with aclosing(engine.conversation(root).stream_resume(output_type=output_type)) as pieces:
                async for piece in pieces:
                    if not (others and isinstance(piece, Turn)):
                        yield piece
        for index, answered in enumerate(others):
            is_last = index == len(others) - 1
            async with aclosing(_apply_answer(engine, answered, by, output_type)) as pieces:
                async for piece in pieces:
                    if is_last or not isinstance(piece, Turn):
                        yield piece
    finally:
        site.client_tools.drop_outcomes(list(outcomes))


def _require_open_items(engine: Engine, answers: Sequence[AnsweredItem]) -> None:
    """Refuse answers to what does not wait, before anything is written."""
    root = answers[0].item.root
    if engine.store.read_last_line(root) is None:
        raise make_not_found(root)
    items = list_waiting_items(read_waiting(engine.store, root), root)
    open_items = {(item.kind.letter, item.conversation, item.id) for item in items}
    for answered in answers:
        item = answered.item
        if (item.kind.letter, item.conversation, item.id) not in open_items:
            raise Refusal(409, f"nothing waits for an answer to {item.id!r} any more")


async def _apply_answer(engine: Engine, answered: AnsweredItem, by: str, output_type: Any) -> Pieces:
    item, answer = answered.item, answered.answer
    if isinstance(answer, Decided):
        async with aclosing(
            engine.conversation(item.conversation).stream_resume(answer, output_type=output_type)
        ) as pieces:
            async for piece in pieces:
                yield piece
        return
    assert isinstance(answer, dict), "outcomes of calls are kept apart"
    result = await engine.conversation(item.conversation).aanswer(answer, question=item.id, by=by)
    if result is None:
        raise Refusal(409, "the turn runs already; read its result from its own stream")
    yield result


def read_times(engine: Engine, conversation: str, start: int = 0) -> tuple[str, str]:
    """When the record of this number and the newest one were written.

    Raises:
        Refusal: 404; there is no such record.
    """
    store = engine.store
    first, newest = next(store.read_lines(conversation, start), None), store.read_last_line(conversation)
    if first is None or newest is None:
        raise Refusal(404, f"{conversation} has no record {start}")
    last_seq, last = newest
    first_at = parse_record(first, start, conversation).at
    return first_at, parse_record(last, last_seq, conversation).at


def count_seconds(at: str) -> int:
    """The time of a record in whole seconds since 1970, as OpenAI's APIs say it."""
    return int(datetime.fromisoformat(at).timestamp())


# -- text ------------------------------------------------------------------------------------------


class RootSteps:
    """Tells the steps of a conversation from those of its children, which are streamed with it."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        """The newest snapshot of the conversation itself."""
        self.first_at, self.newest_at = "", ""
        """When the first and the newest step were taken, as their records say; empty before the first."""

    def take(self, piece: StepTaken) -> bool:
        """Whether a step is the conversation's own."""
        before, current = piece.step.before, self.snapshot
        has_children = current is not None and _find(current, RunAgent)
        if current is None or before is current or (before is None and not has_children):
            self.snapshot, self.newest_at = piece.step.snapshot, piece.event.at
            self.first_at = self.first_at or piece.event.at
            return True
        return False

    def is_own_reply(self) -> bool:
        """Whether the model speaks in the conversation's own thread now, and nobody else does."""
        snapshot = self.snapshot
        if snapshot is None or _find(snapshot, RunAgent):
            return False
        calls = [effect for effect in snapshot.open_effects if isinstance(effect, CallModel)]
        return bool(calls) and not any(call.result for call in calls)


def _find(snapshot: Snapshot, kind: type) -> bool:
    return any(isinstance(effect, kind) for effect in snapshot.open_effects)


HELD: Collection[Doubt] = ("form", "agent")
"""Doubts under which a text waits also where it could be withdrawn: half of a form is of no use, and what an
agent says that a conversation was handed to stands in a log of its own."""


class TextChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a client reads next."""

    is_withdrawn: bool = False
    """Whether all text that it has read is no part of the answer."""
    reason: str = ""
    """Why it is none: a `WithdrawalReason`."""
    text: str = ""
    """The text that follows; may be empty."""


_NO_CHANGE = TextChange()


class AnswerText:
    """The text of a turn as a client of one protocol reads it: in the end it is the answer of the result.

    Args:
        held: the doubts under which a text waits until it is certain.
        can_withdraw: whether the protocol can say that a text is no part of the answer.
    """

    def __init__(self, held: Collection[Doubt], *, can_withdraw: bool) -> None:
        self.steps = RootSteps()
        self._held = held
        self._can_withdraw = can_withdraw
        self._said: list[str] = []
        """What has been said, as far as it was not withdrawn."""
        self._read: list[str] = []
        """What the client has read of it."""
        self._is_level = True
        """Whether that is the same."""
        self.is_contradicted = False
        """Whether the client has read a text that the answer does not begin with, and cannot be told so."""

    def take(self, piece: Piece) -> TextChange:
        """What a piece changes."""
        match piece:
            case TextDelta():
                self._said.append(piece.text)
                if piece.doubt not in self._held:
                    return self._pass_on(piece.text)
                self._is_level = False
            case TextWithdrawn():
                self._said.clear()
                self._is_level = not self._read
                is_affected = not piece.kept.startswith("".join(self._read))
                if is_affected and self._can_withdraw:
                    return self._withdraw(piece.reason)
            case StepTaken():
                self.steps.take(piece)
            case Turn() if piece.is_over and piece.error is None:
                self._said, self._is_level = [piece.content], False
                change = self._pass_on("")
                self.is_contradicted = not self._is_level
                return change
        return _NO_CHANGE

    def _pass_on(self, text: str) -> TextChange:
        """Let the client read what has been said; where that contradicts what it has read, it waits."""
        if self._is_level:
            self._read.append(text)
            return TextChange(text=text)
        said, read = "".join(self._said), "".join(self._read)
        is_withdrawn = not said.startswith(read) and self._can_withdraw
        if is_withdrawn:
            read = ""
        elif not said.startswith(read):
            return _NO_CHANGE
        self._said, self._read, self._is_level = [said], [said], True
        return TextChange(is_withdrawn=is_withdrawn, reason="chart", text=said[len(read) :])

    def _withdraw(self, reason: str) -> TextChange:
        self._read.clear()
        self._is_level = True
        return TextChange(is_withdrawn=True, reason=reason)
