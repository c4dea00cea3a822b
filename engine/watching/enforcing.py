"""Decides which calls of a model reach a program: those that an agent's chart and tools allow.

The proxy asks three times (`Gate`): when a program asks its host, when the host has answered, and when the
exchange is over. Each answer of a host is recorded and judged (`following.py`) before the program gets it:

    every call runs          the program gets the answer as it is
    some are refused         it gets the others; the host learns of the refusals with its next request
    all are refused          the host is asked again, with the refusals as results; or, where the agent's
                             turn is over, the program gets a text in the place of the calls
    a person is asked        the answer waits until the decision is in the inbox of the conversation

From the first refusal on, host and program know different conversations. The log has the one of the host, and
the host is asked with the messages of the log.

It fails closed: what cannot be read, judged or written reaches no program.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.family import find_asking_hash
from toolchart.engine.mining.replaying import Replayer
from toolchart.engine.watching.exchanges import Exchange
from toolchart.engine.watching.held_families import HeldFamilies
from toolchart.engine.watching.recorder import PlacedCall, Recorder
from toolchart.engine.watching.seen_calls import SeenCall, add_answer, build_request_body, read_request
from toolchart.engine.watching.watched_conversation import WatchedConversation
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.effects import AskApproval, RunTools
from toolchart.states.errors import IllegalEvent, ProviderError, SpecError, ToolchartError
from toolchart.states.events import Cancelled, Decided, ToolFinished
from toolchart.states.messages import Reply, ToolCall
from toolchart.states.plugins import describe_failure
from toolchart.states.ports import Store
from toolchart.tools.execution.executor import ConversationExecutor

log = logging.getLogger("toolchart")

Result = TypeVar("Result")

_POLL_S = 0.25
"""How often decisions are looked for."""

_MOST_ASKS = 4
"""How often a host is asked again for one request of a program: a model may insist."""

NOT_GIVEN = "the reply did not reach the program"
PROGRAM_LEFT = "the program ended the exchange while a call waited for a decision"


class Refusal(Exception):
    """What a program gets in the place of an answer, in words."""


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of an answer."""

    again: bytes = b""
    """The body with which the host is asked once more; empty: the program gets `reply`."""
    reply: Reply | None = None
    """What the program gets. None: there was nothing to judge."""
    is_changed: bool = False
    """Whether that is another reply than the host's newest."""


class Gate(Protocol):
    """Says what passes between programs and hosts."""

    async def ask(self, exchange: Exchange) -> bytes | None:
        """The body to ask the host with; None: the one that the program sent.

        Args:
            exchange: without an answer.

        Raises:
            Refusal: the host is not asked.
        """
        ...

    async def judge(
        self, exchange: Exchange, *, has_calls: bool, unknown: str, earlier_text: str = ""
    ) -> Ruling:
        """What becomes of an answer that has come whole; waits where a person decides.

        Args:
            has_calls: whether it has calls, as far as its form tells.
            unknown: what in it may be a call and cannot be read; empty for nothing.
            earlier_text: what the program has got of earlier answers to this request.

        Raises:
            Refusal: it does not pass.
        """
        ...

    def note(self, exchange: Exchange) -> None:
        """Take note of the end of an exchange, before the program can have it where it failed."""
        ...


class _Pending(msgspec.Struct, kw_only=True):
    """A call that is under way."""

    placed: PlacedCall
    exchange: Exchange
    reply: Reply | None = None
    """The host's newest, once it is recorded."""
    earlier_text: str = ""
    """What the program has got of earlier replies to this request."""
    earlier_ids: tuple[str, ...] = ()
    """The ids of those replies: a program may know the one that it gets by the first of them."""
    asks: int = 0
    """How often the host was asked again."""


class Enforcer:
    """Enforces the rules of one agent; see `Gate`.

    Args:
        recorder: whose thread does the work, and which enforces the same agent.
        replayer: of the agent.
        options: those of `toolchart approve` for this agent and this log, as people are told them.
    """

    def __init__(self, recorder: Recorder, store: Store, replayer: Replayer, options: str = "") -> None:
        self._options = options
        self._recorder = recorder
        self._store = store
        self._replayer = replayer
        self._families = HeldFamilies(store)
        recorder.find_lease = self._families.find
        self._pending: dict[int, _Pending] = {}
        """By the number of the exchange."""

    async def ask(self, exchange: Exchange) -> bytes | None:
        """See `Gate`."""
        return await self._perform(partial(self._ask, exchange))

    async def judge(
        self, exchange: Exchange, *, has_calls: bool, unknown: str, earlier_text: str = ""
    ) -> Ruling:
        """See `Gate`."""
        if exchange.number in self._pending:
            self._pending[exchange.number].earlier_text = earlier_text
        ruling = await self._perform(partial(self._judge, exchange, has_calls, unknown))
        while ruling is None:
            await asyncio.sleep(_POLL_S)
            ruling = await self._perform(partial(self._take_decisions, exchange.number))
        return ruling

    def note(self, exchange: Exchange) -> None:
        """See `Gate`."""
        self._recorder.perform(partial(self._try_note, exchange))

    async def _perform(self, work: Callable[[], Result]) -> Result:
        """Have the recorder's thread do something.

        Raises:
            Refusal: it could not be done.
        """
        future: Future[Result] = Future()

        def perform() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if self._recorder.failure is not None:
                    raise Refusal(f"the log cannot be written: {self._recorder.failure}")
                future.set_result(work())
            except Refusal as refusal:
                future.set_exception(refusal)
            except BaseException as error:
                log.debug("the rules could not be enforced", exc_info=True)
                future.set_exception(Refusal(_describe(error)))

        self._recorder.perform(perform)
        return await asyncio.wrap_future(future)

    # -- what a program asks -----------------------------------------------------------------------

    def _ask(self, exchange: Exchange) -> bytes | None:
        try:
            call = read_request(exchange, self._recorder.items)
        except SpecError as error:
            place = f"{error.path}: " if error.path else ""
            raise Refusal(f"the request cannot be read: {place}{error.message}") from None
        problem = find_unjudged(call, self._replayer.offered_tools)
        if problem:
            raise Refusal(problem)
        placed = self._recorder.place(call)
        self._pending[exchange.number] = _Pending(placed=placed, exchange=exchange)
        conversation = placed.conversation
        return self._build_body(call, conversation) if conversation.is_edited else None

    def _build_body(self, call: SeenCall, conversation: WatchedConversation) -> bytes:
        return build_request_body(call, conversation.get_request())

    # -- what a host answers -----------------------------------------------------------------------

    def _judge(self, exchange: Exchange, has_calls: bool, unknown: str) -> Ruling | None:
        pending = self._pending[exchange.number]
        pending.exchange = exchange
        call = add_answer(pending.placed.call, exchange, self._recorder.prices)
        problem = f"it has {unknown}, of which nothing is known here" if unknown else ""
        if has_calls and call.failure is not None:
            problem = problem or call.failure.message
        elif has_calls and call.reply is not None and not call.reply.tool_calls:
            problem = problem or "it has a call that cannot be read"
        if problem:
            message = f"the answer cannot be judged: {problem}"
            failure = ProviderError(kind="bad_response", message=message, retryable=False)
            call = replace(call, reply=None, failure=failure)
        pending.placed = placed = replace(pending.placed, call=call)
        reply = pending.reply = self._recorder.answer(placed)
        if reply is None:
            del self._pending[exchange.number]
            if problem:
                raise Refusal(f"the answer cannot be judged: {problem}")
            return Ruling()
        conversation = placed.conversation
        if not reply.tool_calls:
            return self._show(pending, reply, is_changed=False)
        waiting = _find_approval(conversation)
        if waiting is None:
            return self._settle(pending)
        self._families.hold(conversation.id)  # before anybody can know of the question
        conversation.write()
        self._recorder.figures.held += len(waiting.calls)
        for held in waiting.calls:
            arguments = encode_canonical_text(held.arguments)
            self._recorder.say(
                f"{held.name} {arguments} waits for a decision:\n"
                f"  toolchart approve {conversation.id} {held.id}{self._options}   (or with --deny)"
            )
        return None

    def _settle(self, pending: _Pending) -> Ruling:
        """What becomes of a reply whose calls are all decided."""
        conversation, reply = pending.placed.conversation, pending.reply
        assert reply is not None, "its calls were decided"
        allowed, outcomes = self._part_calls(conversation)
        figures = self._recorder.figures
        figures.refused.update(outcome.result["tool_name"] for outcome in outcomes)
        conversation.refuse_calls(outcomes)
        if allowed:
            given = [(call.id, call.arguments) for call in allowed]
            is_changed = given != [(call.id, call.arguments) for call in reply.tool_calls]
            conversation.is_edited = conversation.is_edited or is_changed
            return self._show(pending, replace(reply, tool_calls=allowed), is_changed=is_changed)
        conversation.is_edited = True
        conversation.ask_again(_now())
        if self._recorder.get_follower(conversation).wants_model and pending.asks < _MOST_ASKS:
            pending.asks += 1
            pending.earlier_ids += (reply.response_id,) if reply.response_id else ()
            figures.asked_again += 1
            conversation.write()
            pending.reply = None
            return Ruling(again=self._build_body(pending.placed.call, conversation))
        words = " ".join(f"{_name_tool(outcome)}: {outcome.result['error']}." for outcome in outcomes)
        conversation.end(words)
        text = Reply(
            content=_add_words(reply.content, f"No call was made. {words}"),
            finish_reason="stop",
            usage=reply.usage,
            response_id=reply.response_id,
        )
        return self._show(pending, text, is_changed=True)

    def _part_calls(
        self, conversation: WatchedConversation
    ) -> tuple[tuple[ToolCall, ...], list[ToolFinished]]:
        """The calls that the program gets, and the outcomes of the others."""
        executor = self._bind(conversation)
        effect = next(
            (each for each in conversation.snapshot.open_effects if isinstance(each, RunTools)), None
        )
        if effect is None:
            raise Refusal("its calls were reviewed, and do not run")
        outcomes = [executor.refuse(each.call, each.outcome, each.reason) for each in effect.refused]
        allowed, offered = list[ToolCall](), self._replayer.offered_tools
        problem = self._recorder.get_follower(conversation).problem
        for call in effect.calls:
            denial = executor.find_denial(call, offered) if offered is not None else None
            denial = problem or denial or find_two_spellings(call.arguments)
            if not denial:
                allowed.append(call)
            else:
                outcomes.append(executor.refuse(call, "denied", denial))
        return tuple(allowed), outcomes

    def _bind(self, conversation: WatchedConversation) -> ConversationExecutor:
        return self._replayer.tools.bind(
            conversation.id,
            lambda: conversation.snapshot,
            find_asking_record=lambda effect: find_asking_hash(self._store, conversation.id, effect),
        )

    def _show(self, pending: _Pending, reply: Reply, *, is_changed: bool) -> Ruling:
        """The ruling that a program gets a reply, which is written first."""
        conversation = pending.placed.conversation
        conversation.write()
        text = f"{pending.earlier_text}{reply.content or ''}" or reply.content
        shown = replace(reply, content=text)
        self._recorder.note_shown(pending.placed, shown, pending.exchange, pending.earlier_ids)
        del self._pending[pending.exchange.number]
        return Ruling(reply=reply, is_changed=is_changed)

    # -- what people decide ------------------------------------------------------------------------

    def _take_decisions(self, number: int) -> Ruling | None:
        """What becomes of an answer that waits; None: a person has to decide still."""
        pending = self._pending[number]
        conversation = pending.placed.conversation
        self._families.renew()
        for item in self._families.read_items(conversation.id):
            try:
                match item.event:
                    case Decided():
                        conversation.decide(item.event, _now())
                    case Cancelled(reason=reason):
                        self._families.drop(item, conversation.id)
                        return self._cancel(pending, reason or "a person has cancelled the turn")
                    case _:
                        raise SpecError("a watched conversation takes decisions only")
            except (IllegalEvent, SpecError) as error:
                log.warning("conversation %s: %s", conversation.id, error)
                self._families.drop(item, conversation.id)
                continue
            conversation.write((item.entry,))
        if _find_approval(conversation) is not None:
            return None
        ruling = self._settle(pending)
        self._families.release(conversation.id)
        return ruling

    def _cancel(self, pending: _Pending, reason: str) -> Ruling:
        """A person has ended the turn."""
        conversation = pending.placed.conversation
        conversation.is_edited = True
        self._close(conversation, reason)
        said = pending.reply.content if pending.reply is not None else None
        text = Reply(content=_add_words(said, f"No call was made: {reason}."), finish_reason="stop")
        return self._show(pending, text, is_changed=True)

    def _close(self, conversation: WatchedConversation, reason: str) -> None:
        """End the turn of a conversation that is held."""
        conversation.end(reason)
        self._families.release(conversation.id)

    # -- the end of an exchange --------------------------------------------------------------------

    def _try_note(self, exchange: Exchange) -> None:
        try:
            self._note(exchange)
        except Exception as error:
            log.warning("exchange %d: %s", exchange.number, _describe(error))

    def _note(self, exchange: Exchange) -> None:
        pending = self._pending.pop(exchange.number, None)
        if pending is None:
            return
        conversation = pending.placed.conversation
        if pending.reply is not None:  # it is recorded, and nobody gets it
            reason = PROGRAM_LEFT if self._families.holds(conversation.id) else NOT_GIVEN
            self._close(conversation, reason)
            self._recorder.abandon(conversation)
            return
        call = add_answer(pending.placed.call, exchange, self._recorder.prices)
        if call.reply is not None:  # it was not judged: the program did not get it
            message = exchange.problem or "the answer did not reach the program"
            failure = ProviderError(kind="connection", message=message, retryable=True)
            call = replace(call, reply=None, failure=failure)
        self._recorder.answer(replace(pending.placed, call=call))


def find_unjudged(call: SeenCall, offered: tuple[str, ...] | None) -> str:
    """Why nobody could judge what a host does with a request, in words; empty: what it does is seen.

    Args:
        offered: the tools of the agent; None where nothing is known of them.
    """
    body = call.body
    config: Any = body.get("generationConfig")
    several = [body.get("n"), body.get("candidateCount")]
    several.append(config.get("candidateCount") if isinstance(config, dict) else None)
    if any(isinstance(number, int) and number > 1 for number in several):
        return "it asks for several answers at once, of which one can be judged"
    if call.wire == "chat" and (body.get("functions") or body.get("function_call")):
        return "it offers `functions`, which are read nowhere any more: offer `tools`"
    if call.wire == "responses":
        names = [name for name in ("background", "conversation", "prompt") if body.get(name)]
        if names:
            return f"`{names[0]}` lets the host act on what is not seen here"
    unknown = [name for name in call.host_tools if offered is not None and name not in offered]
    if unknown:
        return f"the host would run {unknown[0]!r} itself, which the agent does not offer"
    return ""


def find_two_spellings(value: Any) -> str:
    """Keys of one object, anywhere in arguments, that differ in case alone, in words; empty for none.

    A schema and a rule look at one of them, and programs in Go may take the other.
    """
    if isinstance(value, list):
        return next(filter(None, map(find_two_spellings, value)), "")
    if not isinstance(value, dict):
        return ""
    known: dict[str, str] = {}
    for key in value:
        other = known.setdefault(key.casefold(), key)
        if other != key:
            return f"its arguments have {other!r} and {key!r}, which some programs take for the same"
    return next(filter(None, map(find_two_spellings, value.values())), "")


def _find_approval(conversation: WatchedConversation) -> AskApproval | None:
    """What people are asked in a conversation."""
    effects = conversation.snapshot.open_effects
    return next((each for each in effects if isinstance(each, AskApproval)), None)


def _name_tool(outcome: ToolFinished) -> str:
    return str(outcome.result["tool_name"])


def _add_words(text: str | None, words: str) -> str:
    """A text that may have passed already, and words after it."""
    between = " " if text and not text[-1].isspace() else ""
    return f"{text or ''}{between}{words}"


def _describe(error: BaseException) -> str:
    return (
        error.message
        if isinstance(error, (SpecError, ProviderError))
        else (str(error) if isinstance(error, ToolchartError) else describe_failure(error))
    )


def _now() -> datetime:
    return datetime.now(UTC)
