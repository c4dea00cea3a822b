"""The snapshot: the state of one conversation as an immutable value.

It is a configuration (the active states of the chart) and a context (messages, calls, counters). Only the
core makes new snapshots. What grows with the conversation is stored in persistent lists, so a step costs
the same at any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import astuple, force_setattr, replace

from toolchart.states.content import ContentPart
from toolchart.states.effects import Effect
from toolchart.states.events import Failed, Limits, Outcome, Ruling, Settings, Texts
from toolchart.states.message_list import MessageList, OfferedTools, PersistentList, ShownMessages
from toolchart.states.messages import DecisionSignature, Message, Reply, ToolCall, ToolDefinition, Usage


class Configuration(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The active states of a chart and all else, besides the facts, that decides its next step.

    Every step looks up its configuration, so the hash is computed once.
    """

    states: tuple[str, ...]
    """Every active state, ancestors included, in the machine's order. The order has a meaning."""
    history: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What the history states remember."""
    terminated: bool = False
    """Whether a top-level final state was reached. Then every event is illegal."""
    label: str = ""
    """The active leaves, joined by `+`: the name of the state in records and output."""


class OpenCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of the latest reply, from request to outcome."""

    call: ToolCall
    key: str = ""
    """Tool and arguments as the model sent them; equal keys are the same call."""
    repeat: int = 1
    """Replies of this turn that requested this tool with these arguments, the latest one included."""
    may_repeat: bool = False
    """Whether its tool is made for identical calls; known from the review on."""
    ruling: Ruling | None = None
    reason: str | None = None
    decided_at: str = ""
    """Time of the decision of a person or a policy; empty if none was needed."""
    decided_by: str = ""
    """Who decided, where the decision says so."""
    decided_effect: int = 0
    """The effect that the decision answered."""
    signature: DecisionSignature | None = None
    """The signature of the decision, if it has one."""
    definition: dict[str, str] | None = None
    """The whole definition of its tool: as people are asked about it, and from an approval on as it was
    approved."""
    idempotent: bool = False
    """Whether its tool is idempotent; known from the review on."""
    began_under: int = 0
    """The effect under which it began, or may have: an idempotent call from the moment `run_tools` asks for
    it, any other one from `calls_started` on; 0 before. In a fork it may be an effect of the parent."""
    outcome: Outcome | None = None
    result: dict[str, Any] | None = None
    shown: str | None = None
    parts: tuple[ContentPart, ...] = ()
    """What the tool returned beside its result."""

    @property
    def has_begun(self) -> bool:
        """Whether it may have begun."""
        return self.began_under > 0


_CHUNK = 64
"""Calls that are copied together when one of them changes."""


class OpenCalls(Sequence[OpenCall]):
    """The calls of the latest reply, in its order. It never changes; `replace_call` makes another.

    A model may ask for thousands of calls at once, and each ends in a step of its own. So a call is found by
    its id, what guards ask about all calls is counted as calls change, and a change copies one chunk of them:
    a step costs about the same for any number of calls.
    """

    __slots__ = ("_chunks", "length", "pending", "positions", "undecided")

    length: int
    """How many they are."""
    positions: Mapping[str, int]
    """The position of each call by its id."""
    pending: int
    """Calls without an outcome."""
    undecided: int
    """Calls that need a decision and have neither it nor an outcome."""

    def __init__(self, calls: Iterable[OpenCall] = ()) -> None:
        positions: dict[str, int] = {}
        all_calls = list(calls)
        self.length = len(all_calls)
        self.pending = self.undecided = 0
        for position, open_call in enumerate(all_calls):
            positions[open_call.call.id] = position
            if open_call.outcome is None:
                self.pending += 1
                self.undecided += open_call.ruling == "needs_approval"
        self.positions = positions
        self._chunks = [all_calls]
        if self.length > _CHUNK:
            self._chunks = [all_calls[i : i + _CHUNK] for i in range(0, self.length, _CHUNK)]

    def replace_call(self, new_call: OpenCall) -> OpenCalls:
        """The calls with this one in place of the one with its id."""
        changed = OpenCalls.__new__(OpenCalls)
        chunks, (number, place) = self._chunks.copy(), divmod(self.positions[new_call.call.id], _CHUNK)
        chunks[number] = chunk = chunks[number].copy()
        old_call, chunk[place] = chunk[place], new_call
        pending, undecided = self.pending, self.undecided
        if old_call.outcome is None:
            pending -= 1
            undecided -= old_call.ruling == "needs_approval"
        if new_call.outcome is None:
            pending += 1
            undecided += new_call.ruling == "needs_approval"
        changed._chunks, changed.length, changed.positions = chunks, self.length, self.positions
        changed.pending, changed.undecided = pending, undecided
        return changed

    def find(self, call_id: str) -> OpenCall | None:
        """The call of this id, if there is one."""
        position = self.positions.get(call_id)
        return None if position is None else self._chunks[position // _CHUNK][position % _CHUNK]

    @property
    def items(self) -> list[OpenCall]:
        """All calls."""
        return [*chain.from_iterable(self._chunks)]

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[OpenCall]:
        return chain.from_iterable(self._chunks)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(self)[index]
        position = index + self.length if index < 0 else index
        if not 0 <= position < self.length:
            raise IndexError(index)
        return self._chunks[position // _CHUNK][position % _CHUNK]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, OpenCalls) and self._chunks == other._chunks

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"OpenCalls({list(self)!r})"


NO_CALLS = OpenCalls()

MessageSource = str | dict[str, str] | Message
"""Where the text of an added message stands: the word of the event that brought it (`reply`, `message`,
`history`, `inbox`, `agent`), `{"result": CALL_ID}` for the result of a call, or the message itself where the
core wrote it. Records hold these."""


class TurnError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a turn ended in error."""

    kind: str
    """One of `FAILURE_KINDS`, the name of a budget, or one of `stuck` (no event could arrive any more),
    `endless` (transitions without an event follow each other), `too_many_steps`, `strict_policy`,
    `cancelled` and `finish_reason`."""
    message: str
    status: int | None = None
    """HTTP status, if there was one."""
    host: str | None = None
    """Name of the `llms` entry that was asked."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What the effects under one result name (`as`) have brought since the run of the chart began."""

    value: dict[str, Any] | None = None
    """The newest value, as JSON data; None until there is one. A text is `{content: text}`."""
    count: int = 0
    """Answers with a value."""
    failures: int = 0
    """Answers without one."""
    attempt: int = 0
    """Failures since the newest value."""
    finish_reason: str = "unknown"
    """Why the newest reply ended."""
    error_kind: str = "none"
    """Class of the newest failure; `none` after a value."""
    error: str = ""
    """Message of the newest failure; empty after a value."""
    rejected: str = ""
    """Text of the newest reply where it broke its output schema."""
    items: dict[str, Any] = {}
    """Of a `for_each` that is open: what was answered so far, by the index of the item."""
    left_out: int = 0
    """Entries and sums that the bounds of its reducers have cut."""


class TrackedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of the turn that has its outcome."""

    tool: str
    params: dict[str, Any] | None
    """The arguments, or None if they could not be parsed."""
    result: dict[str, Any]
    iteration: int
    execution_time_ms: float
    outcome: Outcome
    repeat: int


_NO_LIMITS = Limits()

ENDED_BY_CORE = ("stuck", "too_many_steps", "endless")
"""Ends that no state of the chart asked for."""


class SnapshotFields(msgspec.Struct, gc=False):
    """The fields that a snapshot and its builder share.

    Not keyword-only, unlike the other values: a step copies all fields twice, and by position a copy costs an
    eighth of what it costs by keyword. Everything else names the fields.
    """

    configuration: Configuration | None = None
    """None before the first turn."""
    tools: tuple[ToolDefinition, ...] = ()
    """Every tool that the agent spec defines."""
    texts: Texts = msgspec.field(default_factory=Texts)
    """The texts that the core writes."""
    messages: MessageList = msgspec.field(default_factory=MessageList)
    """The conversation without its system prompt. Tool messages can be found by call id."""
    shown: ShownMessages | None = None
    """The messages that requests contain, since a `compact`; None where they are all messages."""
    measured_tokens: int = 0
    """How many tokens the conversation took in a request, when it was measured last."""
    measured_messages: int = 0
    """How many messages it had then; 0 where it was never measured."""
    next_effect: int = 1
    """Id of the next effect."""
    open_effects: tuple[Effect, ...] = ()
    """Effects that were asked for, not answered and not cancelled; the oldest first."""
    inbox: tuple[str | Message, ...] = ()
    """Messages of the user that no request contains yet: a text, or a message with parts."""
    writes_tools_as_text: bool = False
    """Whether model calls describe tools in the prompt; set by the effect `describe_tools_in_text`."""

    results: dict[str, Result] = msgspec.field(default_factory=dict)
    """The results of declared effects by name, since the chart was started. Never changed in place."""

    system: str | None = None
    turn: int = 0
    settings: Settings | None = None
    offered_tools: OfferedTools = msgspec.field(default_factory=OfferedTools)
    """The tools that this turn offers."""
    user_message: str = ""
    """The user's newest message of the turn."""
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    """Variables of the caller that templates name."""
    started_at: str = ""
    now: str = ""
    """`at` of the newest event."""
    steps: int = 0
    """Events of the turn."""

    iteration: int = 0
    reply: Reply | None = None
    """The latest reply of the turn."""
    replies: int = 0
    """Replies of the turn."""
    calls: OpenCalls = NO_CALLS
    """The calls of the latest reply, in its order; empty once they are closed."""
    tracked_calls: PersistentList[TrackedCall] = msgspec.field(default_factory=PersistentList[TrackedCall])
    """The calls of the turn that have their outcome, in order."""
    failure: Failed | None = None
    """The latest failure, until a reply arrives."""
    streamed_text: str | None = None
    """What the latest failed or cancelled model call had streamed, until a reply arrives."""
    attempt: int = 0
    """Model calls that failed since the latest reply."""
    unusable_replies: int = 0
    """The latest of them in a row whose reply was empty, or had a call that cannot be read."""
    tools_sent: bool = False
    """Whether the latest model call offered tools."""
    asked_host: str = ""
    """The `llms` entry that the newest model call of the conversation names; empty for that of the turn."""
    asked_model: str = ""
    """The model that it names; empty for that of the turn."""
    fallbacks: int = 0
    """Model calls of the turn that asked another host or model after a failure."""
    tool_only_streak: int = 0
    approved: int = 0
    denied: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    cancelled: bool = False
    error: TurnError | None = None
    """Why the turn ended in error."""
    limit_reached: str | None = None
    """The limit at which the turn ended: `max_iterations` or the name of a budget."""
    ended_by: str | None = None
    """The effect that ended the turn, `answer` for instance, or one of `ENDED_BY_CORE`."""
    warnings: tuple[str, ...] = ()
    answer: str | None = None
    """The text that ended the turn."""
    added_data: dict[str, Any] = msgspec.field(default_factory=dict)
    """Reserved: empty."""

    @property
    def limits(self) -> Limits:
        """The limits of the turn; the defaults before the first turn."""
        return _NO_LIMITS if self.settings is None else self.settings.limits

    @property
    def request_messages(self) -> MessageList:
        """The messages that the next request contains, without the system prompt."""
        return self.messages if self.shown is None else self.shown


class Snapshot(SnapshotFields, frozen=True):  # type: ignore[misc]  # msgspec allows it; the builder is not frozen
    """The state of one conversation between two events. It never changes: a step makes a new one.

    The last fields say where the conversation stands. They follow from the others, and are asked for many
    times a step. So they are computed once, whoever makes the snapshot. No checkpoint holds them.
    """

    state: str = ""
    """Label of the current state; empty before the first turn."""
    has_ended: bool = False
    """Whether the chart is not running: never started, terminated, or ended by the core."""
    awaits_user: bool = False
    """Whether the chart runs and only waits for the user's next message, timers aside."""
    is_over: bool = False
    """Whether a new turn may start: the chart is not running, or waits for the user's next message."""

    def __post_init__(self) -> None:
        configuration = self.configuration
        if configuration is not None:
            force_setattr(self, "state", configuration.label)
        has_ended = configuration is None or configuration.terminated or self.ended_by in ENDED_BY_CORE
        awaits_user = False
        for effect in self.open_effects:
            if not effect.waits_for_user:
                awaits_user = False
                break
            awaits_user = awaits_user or not effect.is_timer
        awaits_user = awaits_user and not has_ended
        # In most steps the chart runs on, and nothing is set. A copy may have the values of another snapshot.
        if (self.has_ended, self.awaits_user) != (has_ended, awaits_user):
            force_setattr(self, "has_ended", has_ended)
            force_setattr(self, "awaits_user", awaits_user)
            force_setattr(self, "is_over", has_ended or awaits_user)
        # A checkpoint brings them as a list.
        if type(self.calls) is not OpenCalls:
            force_setattr(self, "calls", OpenCalls(self.calls))


def rename_parts(snapshot: Snapshot, states: Mapping[str, str], effects: Mapping[str, str]) -> Snapshot:
    """The snapshot with other names; the digest of an effect does not depend on them.

    Args:
        states: by name of a state or a history: its new name. What is missing keeps its name.
        effects: the same of effects.
    """
    if not states and not effects:
        return snapshot
    configuration = snapshot.configuration
    if configuration is not None:
        names = tuple(states.get(name, name) for name in configuration.states)
        history = tuple(
            (states.get(name, name), tuple(states.get(inner, inner) for inner in remembered))
            for name, remembered in configuration.history
        )
        label = "+".join(states.get(name, name) for name in configuration.label.split("+"))
        configuration = replace(configuration, states=names, history=history, label=label)
    open_effects = tuple(
        replace(
            effect, state=states.get(effect.state, effect.state), name=effects.get(effect.name, effect.name)
        )
        for effect in snapshot.open_effects
    )
    return replace(snapshot, configuration=configuration, open_effects=open_effects)


class SnapshotBuilder(SnapshotFields):
    """The working copy of a snapshot during one step.

    The core changes its fields in place, so that a step costs one copy and not one per change. Nothing
    outside the core sees a builder.
    """

    added: list[MessageSource] = msgspec.field(default_factory=list)
    """Where the text of each message stands that this step has added."""
    given_call_ids: tuple[str, ...] = ()
    """The ids of the calls of this step's reply, where the core has given other ones."""
    reducers: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The `Reducers` of the chart, by the names of results."""
    closed_call_ids: set[str] = msgspec.field(default_factory=set)
    """Calls that the core, and no event, has given their outcome in this step."""

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> SnapshotBuilder:
        """A working copy; the snapshot does not change."""
        return cls(*astuple(snapshot)[:_SHARED_FIELDS])

    @property
    def state(self) -> str:
        """Label of the current state; empty before the first turn."""
        return self.configuration.label if self.configuration else ""

    def append_message(self, message: Message, source: MessageSource | None = None) -> None:
        """Append a message to the conversation; the cost does not depend on its length.

        Args:
            source: where its text stands in the log; None where the core wrote it in this step.
        """
        self.messages = self.messages.append(message)
        if self.shown is not None:
            self.shown = self.shown.append(message)
        self.added.append(message if source is None else source)

    def find_open_effect(self, effect_id: int) -> Effect:
        """The open effect that an event names; the step has checked that it is open."""
        for effect in self.open_effects:
            if effect.id == effect_id:
                return effect
        raise AssertionError("the step finds the effect before it reduces the event")

    def build(self) -> Snapshot:
        """The finished snapshot. Later changes of the builder do not reach it."""
        return Snapshot(*astuple(self)[:_SHARED_FIELDS])


_SHARED_FIELDS = len(SnapshotFields.__struct_fields__)
