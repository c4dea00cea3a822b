"""One conversation of another program: its records, made of what its model calls bring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.exchange.derived_records import DerivedRecords
from toolchart.engine.exchange.messages import UNBOUNDED, EventBuilder
from toolchart.engine.log.family import WATCHED
from toolchart.engine.log.record import FORMAT
from toolchart.engine.watching.seen_calls import PROVIDERS, SeenCall
from toolchart.engine.watching.watched_chart import load_watched_chart
from toolchart.states.effects import AskApproval, CallModel, RunTools
from toolchart.states.errors import ProviderError
from toolchart.states.events import (
    Configured,
    Decided,
    Event,
    Failed,
    Limits,
    ParentLink,
    Replied,
    Reviewed,
    Settings,
    ToolFinished,
    TurnStarted,
    Verdict,
)
from toolchart.states.messages import Message, Reply, Request, ToolCall, Usage
from toolchart.states.ports import Lease, RecordBatch, Store
from toolchart.states.snapshot import Snapshot

SERVICE = "model"
"""Name of the one `llms` entry of a watched conversation."""

_OTHER_PROMPT = "the program goes on with another prompt"


class ChildOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A child that a call has run, once the call has its result."""

    conversation: str
    item: int
    head: str
    usage: Usage | None


FindChild = Callable[[str, str], ChildOutcome | None]
"""Returns what a call has run, by its conversation and its id."""

FindLease = Callable[[str], Lease | None]
"""Returns the lease under which a conversation is held; None where it is not."""

Judge = Callable[[Replied], Sequence[Verdict]]
"""Returns what becomes of each call of a reply; nothing where each that can be read runs."""


class WatchedConversation:
    """A conversation that is written as its calls are seen.

    Args:
        parent: of a child: the call that runs it.
        find_lease: returns the lease under which its family is held now.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        owner: str = "",
        tags: dict[str, str],
        parent: ParentLink | None = None,
        find_lease: FindLease = lambda _: None,
    ) -> None:
        self._find_lease = find_lease
        self.id = name
        self.messages: list[Message] = []
        """All that was said, as the program knows it, without the prompt; a call has the id that the log has
        for it."""
        self.is_edited = False
        """Whether the host has said something that the program does not know: then the host is asked with the
        messages of the log."""
        self.is_asking = False
        """Whether a request has no answer yet."""
        self.on_event: Callable[[Event], None] = lambda _: None
        """Called with each event that was recorded."""
        self._store = store
        self._owner, self._tags, self._parent = owner, tags, parent
        self._records = DerivedRecords(load_watched_chart())
        self._events = EventBuilder(self._start_turn)
        self._lines: list[bytes] = []
        self._call: SeenCall | None = None
        self._configured: Any = None
        self._system: str | None = None
        self._marks: list[str] = []
        """What the next reply says about the call."""
        self._asked_head = ""
        """Hash of the record that asked for the open calls."""
        self._replied_at: datetime | None = None
        self._at = ""
        self._used_ids: set[str] = set()

    @property
    def head(self) -> str:
        """Hash of the newest record."""
        return self._records.head

    @property
    def snapshot(self) -> Snapshot:
        """Where it is."""
        return self._records.snapshot

    @property
    def asked_head(self) -> str:
        """Hash of the record that asked for the calls of the newest reply, and about those that wait."""
        return self._asked_head

    @property
    def usage(self) -> Usage:
        """What all its turns used."""
        return self._records.snapshot.usage

    def find_link(self, call_id: str) -> ParentLink | None:
        """The link for a child that a call runs; None where the call does not run."""
        snapshot = self._records.snapshot
        for effect in snapshot.open_effects:
            if isinstance(effect, RunTools):
                for item, open_call in enumerate(snapshot.calls):
                    if open_call.call.id == call_id and open_call.outcome is None:
                        return ParentLink(
                            conversation=self.id, effect=effect.id, item=item, head=self._asked_head
                        )
        return None

    # -- what is seen ------------------------------------------------------------------------------

    def ask(
        self,
        call: SeenCall,
        messages: Sequence[Message],
        known: int,
        marks: Iterable[str],
        find_child: FindChild,
    ) -> None:
        """Record what a request says that is new.

        Args:
            messages: those of the request.
            known: how many of them, at the beginning, the conversation has.
            marks: what is said about the call beside its reply.
            find_child: returns what a call has run, by the id of the call.

        Raises:
            IllegalEvent: a message does not fit.
        """
        self._call, self.is_asking = call, True
        self._marks += marks
        new_messages = self._use_own_ids(messages, known)
        asked_at = _parse_time(call.exchange.asked_at)
        if not known:
            # What was said before the newest message of the user was answered before anything was seen.
            newest = max((index for index, each in enumerate(new_messages) if each.role == "user"), default=0)
            self._events.add_history(new_messages[:newest])
            self._add_messages(new_messages[newest:], asked_at, find_child)
        else:
            self._add_messages(new_messages, asked_at, find_child)
        self._add(self._events.open_request(), asked_at, find_child)
        self.messages[known:] = new_messages

    def _add_messages(self, messages: Sequence[Message], asked_at: datetime, find_child: FindChild) -> None:
        """Record the messages of a request that are new."""
        call = self._call
        assert call is not None, "they are of a request"
        results = 0
        while results < len(messages) and messages[results].role == "tool":
            results += 1
        for message in messages[:results]:
            self._add(self._events.add_message(message, None), asked_at, find_child)
        if self._events.is_open and self._system is not None and call.system != self._system:
            self._add(self._events.end_turn(_OTHER_PROMPT), asked_at, find_child)
        rest = messages[results:]
        for index, message in enumerate(rest):
            follower = rest[index + 1].role if index + 1 < len(rest) else "assistant"
            self._add(self._events.add_message(message, follower), asked_at, find_child)

    def answer(self, call: SeenCall, judge: Judge | None = None) -> Reply | None:
        """Record what became of a request.

        Args:
            judge: asked about each reply before it is recorded.

        Returns:
            The reply, whose calls have the ids that the log has for them; None where the request failed.
        """
        ended_at = _parse_time(call.exchange.asked_at) + timedelta(milliseconds=call.exchange.duration_ms)
        self._replied_at, self.is_asking = ended_at, False
        if call.reply is None:
            assert call.failure is not None, "a call has a reply or failed"
            self._add([_build_failed(call, call.failure)], ended_at)
            return None
        reply = self._name_calls(call.reply, call.exchange.number)
        verdicts = judge(Replied(reply=reply)) if judge is not None else ()
        marks, self._marks = self._marks, []
        reply = replace(reply, warnings=(*reply.warnings, *dict.fromkeys(marks)))
        replied = Replied(reply=reply, answer_digest=call.answer_digest)
        self._add(self._events.add_reply(replied, verdicts), ended_at)
        return reply

    def add_shown(self, reply: Reply) -> Message:
        """Take note of the reply that the program gets; its message."""
        message = Message(
            role="assistant",
            content=reply.content,
            tool_calls=reply.tool_calls,
            provider_data=reply.provider_data,
            parts=reply.parts,
        )
        self.messages.append(message)
        return message

    def mark(self, words: str) -> None:
        """Say something about the call with its reply, or with the next one."""
        self._marks.append(words)

    # -- what is decided ---------------------------------------------------------------------------

    def decide(self, event: Decided, at: datetime) -> None:
        """Record what a person has decided about a call.

        Raises:
            IllegalEvent: it does not wait for that.
        """
        self._add([replace(event, at=event.at or _format_time(at))], at)

    def refuse_calls(self, outcomes: Iterable[ToolFinished]) -> None:
        """Take the outcomes of calls of the newest reply that the program does not get. They are recorded
        with those of its siblings, or with `ask_again`."""
        for outcome in outcomes:
            self._events.add_outcome(outcome)

    def ask_again(self, at: datetime) -> None:
        """Record that the host is asked once more, without the program."""
        self._add(self._events.open_request(), at)

    def get_request(self) -> Request:
        """The request that is open, as the log derives it."""
        return next(effect.request for effect in self.snapshot.open_effects if isinstance(effect, CallModel))

    def end(self, reason: str) -> None:
        """End an open turn: nobody goes on with it."""
        is_asked = any(isinstance(effect, AskApproval) for effect in self.snapshot.open_effects)
        ending = self._events.cancel_turn(reason) if is_asked else self._events.end_turn(reason)
        self._add(ending, self._replied_at or _parse_time(self._at))
        self.write()

    def write(self, taken: Sequence[str] = ()) -> None:
        """Append what is new to the log. Where that fails, it is still new, and the next write has it.

        Args:
            taken: keys of the entries of its inbox that are among it.

        Raises:
            LogUnavailable, LogConflict: the log cannot be written.
        """
        lines = self._lines
        if not lines:
            return
        lease = self._find_lease(self.id)
        batch = RecordBatch(self.id, self._records.count - len(lines), lines, lease, taken=taken)
        (fault,) = self._store.append_many([batch])
        if fault is not None:
            raise fault
        self._lines = []

    # -- events ------------------------------------------------------------------------------------

    def _add(self, events: Iterable[Event], at: datetime, find_child: FindChild = lambda *_: None) -> None:
        time = max(_format_time(at), self._at)  # two clocks: what ends first is noted first
        self._at = time
        for event in events:
            if isinstance(event, TurnStarted):
                self._configure(time)
            elif isinstance(event, ToolFinished):
                event = self._complete_outcome(event, at, find_child)
            self._lines.append(self._records.add(event, time))
            if isinstance(event, Reviewed):
                self._asked_head = self._records.head
            self.on_event(event)

    def _configure(self, time: str) -> None:
        """Record the host, the model and the tools where they are others than those before."""
        call = self._call
        assert call is not None, "a turn begins with a call"
        entry = {**PROVIDERS[call.wire], "model": call.model, "base_url": call.exchange.host}
        frame = (entry, call.tools)
        if frame == self._configured:
            return
        self._configured = frame
        event = Configured(
            format=FORMAT,
            conversation=self.id,
            chart=load_watched_chart().to_yaml(),
            spec={"name": WATCHED, "llms": {SERVICE: entry}, "responses": [{"llm": SERVICE}]},
            tools=call.tools,
            parent=self._parent,
            owner=self._owner,
            tags=self._tags,
        )
        self._lines.append(self._records.add(event, time))

    def _start_turn(self, message: Message) -> TurnStarted:
        call = self._call
        assert call is not None, "a turn begins with a call"
        self._system = call.system
        return TurnStarted(
            message=message.content or "",
            parts=message.parts,
            system=call.system or None,
            settings=Settings(
                service=SERVICE,
                provider=PROVIDERS[call.wire]["provider"],
                model=call.model,
                options=call.options,
                tools=tuple(tool.name for tool in call.tools),
                limits=Limits(max_iterations=UNBOUNDED, max_steps=UNBOUNDED),
            ),
        )

    def _complete_outcome(self, event: ToolFinished, at: datetime, find_child: FindChild) -> ToolFinished:
        """The outcome of a call with the time from the reply to the request that brings it, and its child."""
        if event.outcome != "interrupted" and self._replied_at is not None:
            duration_ms = round(max(0.0, (at - self._replied_at).total_seconds() * 1000), 3)
            event = replace(event, result={**event.result, "execution_time_ms": duration_ms})
        child = find_child(self.id, event.call_id)
        if child is None:
            return event
        return replace(
            event, conversation=child.conversation, item=child.item, head=child.head, usage=child.usage
        )

    # -- ids -----------------------------------------------------------------------------------------

    def _name_calls(self, reply: Reply, number: int) -> Reply:
        """The reply with an id of its own for each call, and a finish reason that says whether it has
        some."""
        calls = []
        for index, call in enumerate(reply.tool_calls):
            call_id = call.id or f"call_{number}_{index}"
            while call_id in self._used_ids:
                call_id = f"{call_id}+{number}"
            self._used_ids.add(call_id)
            calls.append(replace(call, id=call_id, native_id=call.native_id or call.id or None))
        reason = "tool_calls" if calls else reply.finish_reason
        if not calls and reason == "tool_calls":
            reason = "stop"
        return replace(reply, tool_calls=tuple(calls), finish_reason=reason)

    def _use_own_ids(self, messages: Sequence[Message], known: int) -> list[Message]:
        """The new messages; results name the calls as the log does."""
        names: dict[str, str] = {}
        for message, own in zip(messages[:known], self.messages, strict=False):
            names |= {
                sent.id: call.id for sent, call in zip(message.tool_calls, own.tool_calls, strict=False)
            }
        new_messages = []
        for message in messages[known:]:
            if message.tool_calls:
                calls = tuple(self._use_own_id(call, names) for call in message.tool_calls)
                message = replace(message, tool_calls=calls)
            if message.tool_call_id in names:
                message = replace(message, tool_call_id=names[message.tool_call_id])
            new_messages.append(message)
        return new_messages

    def _use_own_id(self, call: ToolCall, names: dict[str, str]) -> ToolCall:
        call_id = call.id
        while call_id in self._used_ids:
            call_id += "+"
        self._used_ids.add(call_id)
        names[call.id] = call_id
        return replace(call, id=call_id) if call_id != call.id else call


def _build_failed(call: SeenCall, error: ProviderError) -> Failed:
    return Failed(
        kind=error.kind,
        message=error.message,
        status=error.status,
        retryable=error.retryable,
        retry_after_s=error.retry_after_s,
        host=SERVICE,
        rate_limits=error.rate_limits,
        answer_digest=call.answer_digest,
    )


def _parse_time(at: str) -> datetime:
    return datetime.fromisoformat(at)


def _format_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
