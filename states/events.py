"""Events: everything that can happen to a conversation, as frozen values with names in the past tense.

The driver creates them, the log stores them, and the core reduces them. Times come in with events (`at`),
because the core never reads a clock. Every event has a row in the table of events; the rows stand in
`states/core/reduce.py`, beside the functions that reduce events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import msgspec

from toolchart.states.content import ContentPart, Value
from toolchart.states.descriptors import Descriptor, find_text_gaps
from toolchart.states.messages import DecisionSignature, Message, RawAnswer, Reply, ToolDefinition, Usage

FAILURE_KINDS = (
    "auth",
    "not_found",
    "bad_request",
    "context_length",
    "rate_limited",
    "quota",
    "overloaded",
    "server",
    "timeout",
    "connection",
    "tools_unsupported",
    "content_filter",
    "bad_response",
    "malformed_call",
    "empty_reply",
    "cancelled",
    "effect",
    "bad_output",
    "interrupted",
)
"""Classes of a failure. `malformed_call`: the model wrote a call that its host could not read, or one that it
may not make now. `empty_reply`: a reply has neither text nor calls. `effect`: a function raised.
`bad_output`: a reply or a result breaks its schema. `interrupted`: the work began or was about to when the
process stopped, and it must not be repeated."""

UNUSABLE_KINDS = ("malformed_call", "empty_reply")
"""The classes of failures in which the model did reply, and its reply says nothing that can be used."""

Outcome = Literal["succeeded", "failed", "denied", "timed_out", "skipped", "interrupted", "expired"]
"""How one tool call ended. `skipped` never began, `interrupted` began or was about to and has no known
result, `expired` waited for a decision that did not come."""

Ruling = Literal["run", "denied", "invalid", "needs_approval"]
"""The result of the review of one call."""


class Limits(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers that bound a turn. They are part of `turn_started`, so a log is self-contained."""

    max_iterations: int = 5
    """Model replies with tool calls before the turn ends at its limit."""
    max_tool_only_streak: int | None = None
    """Replies in a row that call tools and have no text."""
    max_repeats: int = 2
    """Replies that may request the same tool with the same arguments."""
    max_attempts: int = 3
    """Tries of one model call."""
    first_wait_s: float = 0.5
    """Seconds before the second try; doubled with every further one, up to a quarter less by jitter."""
    max_wait_s: float = 60.0
    """Longest wait in seconds. If a host asks for a longer one, the call is not retried."""
    max_tokens: int | None = None
    """Tokens of all replies of the turn."""
    max_cost: float | None = None
    """Money, in the currency of the price table."""
    max_seconds: float | None = None
    """Wall clock of the turn."""
    max_tool_calls: int | None = None
    """Tool calls of the turn."""
    long_result_size: int = 8000
    """Characters above which the result of a tool counts as long."""
    max_steps: int = 100_000
    """Events of the turn. A backstop: a turn that reaches it ends in error, whatever its chart says."""
    max_calls_per_reply: int | msgspec.UnsetType = msgspec.UNSET
    """Calls of one reply that are carried out; those behind them are refused. Unset: `CALLS_PER_REPLY`."""


class Texts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The texts that the core writes. They are recorded with the conversation, so a release may change them.

    Words in braces are filled in: `limit`, `budget`, `reason`, `kind`.
    """

    at_limit: str = "I reached the maximum number of tool calls ({limit}) before I had a final answer."
    at_budget: str = "I reached the limit of this turn ({budget}: {limit}) before I had a final answer."
    failed: str = "I encountered an issue while answering: {reason}."
    skipped: str = "This call was not executed: {reason}"
    interrupted: str = (
        "This call was interrupted: {reason}. Its outcome is unknown: it may or may not have taken effect. "
        "Check before doing it again."
    )
    repair: str = "That does not fit the required form: {reason}. Answer again, with JSON of that form only."
    unusable: str = "Your last reply could not be used: {reason}. Answer again."
    expired: str = "This call was not executed: nobody decided about it in time."
    cleared: str = "The result of this call is not shown any more."


class Settings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Model, options, tools and limits of a turn, resolved from the agent spec."""

    service: str
    """Name of the `llms` entry."""
    provider: str
    """Adapter name: `openai`, `ollama`, `gemini`, `scripted`, ..."""
    model: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Sampling options, in the spelling of `Request.options`."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the turn offers; empty means a flow without tools."""
    limits: Limits = msgspec.field(default_factory=Limits)
    strict: bool = False
    """Whether a warning counts as an error (`policy: strict`): a fact."""
    context_limit: int = 0
    """Tokens of one request at most; 0: unknown."""


class Event(
    Value,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
    gc=False,
):
    """The base of all events.

    The log leaves out a field that holds its default. So a default is always empty (None, an empty container,
    0, False): a later release cannot change what an old record says.
    """

    TYPE: ClassVar[str]
    at: str = ""
    """When it happened: RFC 3339, UTC, milliseconds. The record's `at`."""


class Answering(Event, frozen=True, kw_only=True):
    """The base of events that answer an effect."""

    effect: int = 0
    """Id of the effect that it answers."""


# What is "Reserved" below has a place in the log and no meaning yet: nothing writes it.


class FlowLabel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Reserved: where a value comes from, and who may read it."""

    trust: str = ""
    """How far its content is trusted."""
    readers: tuple[str, ...] | None = None
    """Who may read it; None for everybody."""
    sources: tuple[str, ...] = ()
    """A few of the places that it comes from, for people."""


class Adaptation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something of a request that its host was not sent as it stands there."""

    field: str
    """JSON pointer into the request."""
    change: str
    """What became of it: `dropped`, `added`, `renamed`, `rewritten`."""
    reason: str = ""
    """The rule of the host, for people."""


class Versions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What derived the records that follow: a later release compares it to name the cause of a difference."""

    toolchart: str = ""
    """Version of the release."""
    semantics: int = 0
    """Number of the core's semantics: it changes when equal events could give other steps."""
    tools: dict[str, str] = msgspec.field(default_factory=dict)
    """By tool: digest of its whole definition: what the model reads, what running it does, its risk."""
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    """By tool that is a Python function: digest of its source."""


class ParentLink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The effect `run_agent` that a child conversation works for."""

    conversation: str
    effect: int
    item: int = 0
    """Index of the item of a `for_each`."""
    head: str
    """Hash of the parent's record that asked for the effect."""


class Configured(Event, frozen=True, kw_only=True, tag="configured"):
    """Record 0 of a log; also recorded before a turn whose chart, spec or tools differ."""

    TYPE: ClassVar[str] = "configured"
    format: int
    """Version of the log format."""
    conversation: str
    chart: str
    """The resolved chart as YAML text, because the order of states in a chart has a meaning."""
    spec: dict[str, Any]
    """The agent spec, secrets as references."""
    tools: tuple[ToolDefinition, ...] = ()
    """Every tool that the spec defines, as it is described to a model."""
    texts: dict[str, str] = msgspec.field(default_factory=dict)
    """The texts that the core writes, by the fields of `Texts`; a missing one is this release's."""
    versions: Versions = msgspec.field(default_factory=Versions)
    effects: dict[str, Any] = msgspec.field(default_factory=dict)
    """The effects that the chart or the spec declares, by name: `{kind: parameters}`."""
    parent: ParentLink | None = None
    """For a child conversation: what asked for it."""
    owner: str = ""
    """Whose conversation it is, as its first message said; empty for nobody's."""
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    """What its first message attached to the conversation, by name."""


class Continued(Event, frozen=True, kw_only=True, tag="continued"):
    """The conversation goes on under another release, other tools or other semantics of the core."""

    TYPE: ClassVar[str] = "continued"
    versions: Versions


_LAST_NUMBER = 2**53 - 1
"""The greatest number of a record that every reader of JSON keeps."""


class Forked(Event, frozen=True, kw_only=True, tag="forked"):
    """Record 0 of a conversation that continues another one from one of its records.

    Chart, spec, tools and messages are those of the parent at that record, unless this event changes them.
    """

    TYPE: ClassVar[str] = "forked"
    format: int
    """Version of the log format."""
    conversation: str
    parent: str
    """Id of the parent conversation."""
    seq: int
    """The newest record that both share."""
    head: str
    """Hash of that record, so that a change of the shared part is detected."""
    semantics: int = 0
    """Number of the core's semantics that the fork follows; 0 for those of the parent."""
    settings: Settings | None = None
    """Settings of the open turn, if they were changed."""
    system: str | None = None
    """System prompt, if it was changed."""
    owner: str = ""
    """Reserved: whose conversation it is, where that is not the parent's owner."""
    author: str = ""
    """Who forked it; empty where nobody said so."""
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    """Reserved: what users attached to the fork, by name; without them it has the parent's."""

    def __post_init__(self) -> None:
        # Readers count lines up to this number, and a log with right hashes may have any number here. The
        # form of the record stays that of format 2, which knows integers alone.
        if not 0 <= self.seq <= _LAST_NUMBER:
            raise ValueError(f"no record has the number {self.seq}")


class TurnStarted(Event, frozen=True, kw_only=True, tag="turn_started"):
    """A user message opens a turn. The chart starts in its initial state."""

    TYPE: ClassVar[str] = "turn_started"
    message: str
    """The user's message."""
    system: str | None = None
    """The system prompt with its variables filled in; None keeps the previous one."""
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    """Variables of the caller that templates of declared effects name, as JSON data."""
    history: tuple[Message, ...] = ()
    """Earlier messages from elsewhere, to be put before the user's message."""
    settings: Settings
    handler: str = ""
    """Name of the handler in the agent spec; empty where it has none."""
    warnings: tuple[str, ...] = ()
    parts: tuple[ContentPart, ...] = ()
    """The whole content of the message in order, where it is more than one text."""
    author: str = ""
    """Who sent the message; empty where nobody said so."""
    key: str = ""
    """Idempotency key of the message: it is said once in the conversation; empty for none."""
    labels: dict[str, FlowLabel] = msgspec.field(default_factory=dict)
    """Reserved: the labels of what it brings, by JSON pointers: `/message`, `/history/0`."""


class Resumed(Event, frozen=True, kw_only=True, tag="resumed"):
    """A worker goes on with an open turn after the one before it stopped."""

    TYPE: ClassVar[str] = "resumed"
    repeatable: tuple[str, ...] = ()
    """Ids of the open calls that may be run a second time, because their tools are idempotent."""
    parked: str = ""
    """Reserved: why nobody goes on with the conversation until an operator says so."""


class CallsStarted(Event, frozen=True, kw_only=True, tag="calls_started"):
    """Calls that are not idempotent begin. It is durable before the first of them does, so from now on they
    may have taken effect."""

    TYPE: ClassVar[str] = "calls_started"
    effect: int
    """Id of the effect that asked for them: `run_tools`, or `call_function`."""
    calls: tuple[str, ...] = ()
    """Ids of the calls, in the order in which they begin; empty for `call_function`."""


class CallSubmitted(Event, frozen=True, kw_only=True, tag="call_submitted"):
    """A model call goes to its host in a batch job. It is durable before the job is created, so a worker that
    goes on looks for the job before it asks again; a second one has the host's id of the job."""

    TYPE: ClassVar[str] = "call_submitted"
    effect: int
    """Id of the model call, which stays open."""
    key: str
    """Our name of the job."""
    calls: int
    """How many calls the job has."""
    job: str = ""
    """The host's id of the job; empty before it is created."""


class Replied(Answering, frozen=True, kw_only=True, tag="replied"):
    """The model answered, and its reply is complete."""

    TYPE: ClassVar[str] = "replied"
    reply: Reply
    output: dict[str, Any] | None = None
    """What the reply says under the output schema of its effect; None for an effect without a schema."""
    deltas: tuple[dict[str, Any], ...] = ()
    """The stream deltas, each with its kind, if the agent spec asks to record them."""
    answer_digest: str | None = None
    """Digest of the raw answer: of the bytes that the host sent, before decoding. None where no host
    answered: a script, an answer from a log."""
    raw_answer: RawAnswer | None = None
    """The raw answer itself, if the agent spec asks to keep it (`log_answers`)."""
    adaptations: tuple[Adaptation, ...] = ()
    """What of the request the host was not sent as it stands there: its model or itself refuses it."""
    changed_calls: tuple[str, ...] = ()
    """The calls whose arguments a fork gave, by id. The rest is what the model said in the conversation that
    was forked, where it was paid; the host was not asked again."""

    @property
    def paid_usage(self) -> Usage | None:
        """What the host counted for the call."""
        return self.reply.usage


class Failed(Answering, frozen=True, kw_only=True, tag="failed"):
    """The model call or the work of an effect failed."""

    TYPE: ClassVar[str] = "failed"
    kind: str
    """One of `FAILURE_KINDS`."""
    message: str
    status: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None
    jitter: float = 0.0
    """A random number in [0, 1) for the back-off: the core draws none."""
    host: str | None = None
    """Name of the `llms` entry that was asked."""
    content: str | None = None
    """Text that was streamed before the failure."""
    wire_digest: str | None = None
    """Digest of the body that was sent, where one was."""
    rate_limits: dict[str, dict[str, float]] | None = None
    reply: Reply | None = None
    """The reply that broke its schema, is empty or has a call that cannot be read; its usage counts."""
    usage: Usage | None = None
    """What the host had counted when it broke its answer off, where there is no reply: it may be paid."""
    answer_digest: str | None = None
    """Digest of the raw answer, as far as it was read; None where no host answered."""
    raw_answer: RawAnswer | None = None
    """The raw answer itself, if the agent spec asks to keep it (`log_answers`)."""
    adaptations: tuple[Adaptation, ...] = ()
    """As in `replied`."""

    @property
    def paid_usage(self) -> Usage | None:
        """What the host counted for the call, as far as it said so."""
        return self.usage if self.reply is None else self.reply.usage


class Verdict(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the review says about one call."""

    call_id: str
    ruling: Ruling
    reason: str | None = None
    """Why a call is not run, as text for the model."""
    arguments: dict[str, Any] | None = None
    """The arguments to run with, if the review repaired them."""
    notes: tuple[str, ...] = ()
    """The repairs, one by one."""
    is_repaired: bool = False
    """Whether the arguments broke the schema; a null that stood for an absent value did not."""
    may_repeat: bool = False
    """Whether its tool is made for identical calls, as in polling: then they are no repetition."""
    idempotent: bool = False
    """Of a call that may run: whether its tool is idempotent, so that it begins without `calls_started`."""
    definition: dict[str, str] | None = None
    """Of a call that needs an approval: the whole definition of its tool, part by part, as people are asked
    about it."""


class Reviewed(Answering, frozen=True, kw_only=True, tag="reviewed"):
    """Every call of the reply was reviewed: one verdict each, in the order of the reply."""

    TYPE: ClassVar[str] = "reviewed"
    verdicts: tuple[Verdict, ...]


class Decided(Answering, frozen=True, kw_only=True, tag="decided"):
    """A person or a policy approved or rejected one call."""

    TYPE: ClassVar[str] = "decided"
    call_id: str
    """The call; empty where no call was left to decide."""
    approved: bool
    reason: str | None = None
    """Text for the model when the call is rejected."""
    arguments: dict[str, Any] | None = None
    """New arguments, if the approval changed them."""
    by: str | None = None
    """Who decided."""
    signature: DecisionSignature | None = None
    """What proves it; without one the decision is unsigned."""
    definition: dict[str, str] | None = None
    """Of an approval: the whole definition of the tool that may run, part by part. An approval without it,
    or with another one, lets nothing run."""
    shown_digest: str = ""
    """Digest of what the person was shown: tool, arguments, definition, and why they are asked."""


class ToolFinished(Answering, frozen=True, kw_only=True, tag="tool_finished"):
    """One call ended; exactly one such event per requested call."""

    TYPE: ClassVar[str] = "tool_finished"
    call_id: str
    """The call; empty where `run_tools` had no call to answer."""
    outcome: Outcome
    result: dict[str, Any]
    """The complete result: `{success, result | error, tool_name, execution_time_ms}`."""
    shown: str | None = None
    """The text for the model, if it differs from the result as JSON (for instance a shortened output)."""
    notes: tuple[str, ...] = ()
    """Changes to the call or its output, for instance a repair, a cached result or a cut."""
    parts: tuple[ContentPart, ...] = ()
    """Pictures, files and sounds that the tool returned beside its result."""
    raised: bool = False
    """Whether the code of the tool raised an exception; not where the tool itself said that it failed."""
    arguments_digest: str = ""
    """Digest of the arguments that the tool got, as the executor handed them over after repairs; empty where
    it got none. Another one than that of the asked arguments comes with notes."""
    labels: dict[str, FlowLabel] = msgspec.field(default_factory=dict)
    """Reserved: the labels of the result, by JSON pointers: `/result/result`, `/parts/0`."""
    conversation: str = ""
    """The child conversation, where the call ran an agent."""
    item: int = 0
    """The place of the call in its reply, by which the child is named."""
    head: str = ""
    """Hash of the newest record of the child."""
    usage: Usage | None = None
    """What the child used."""


class Elapsed(Answering, frozen=True, kw_only=True, tag="elapsed"):
    """A timer ran out."""

    TYPE: ClassVar[str] = "elapsed"


class Cancelled(Event, frozen=True, kw_only=True, tag="cancelled"):
    """Somebody stopped the turn."""

    TYPE: ClassVar[str] = "cancelled"
    reason: str | None = None
    content: str | None = None
    """Text of the model call that was stopped, as far as it had been streamed."""
    author: str = ""
    """Who stopped it; empty where nobody said so."""


class UserSaid(Event, frozen=True, kw_only=True, tag="user_said"):
    """The user sent a message while a turn was open."""

    TYPE: ClassVar[str] = "user_said"
    message: str
    parts: tuple[ContentPart, ...] = ()
    """The whole content of the message in order, where it is more than one text."""
    author: str = ""
    """Who sent the message; empty where nobody said so."""
    key: str = ""
    """Idempotency key of the message: it is said once in the conversation; empty for none."""
    labels: dict[str, FlowLabel] = msgspec.field(default_factory=dict)
    """Reserved: as in `turn_started`."""


Reduce = Callable[[Any, Any], None]
"""Changes the context of a `SnapshotBuilder` by an event; raises `IllegalEvent` where it does not fit."""


class EventDescriptor(Descriptor, frozen=True, kw_only=True):
    """Describes one event."""

    meaning: str = ""
    """What happened, as one sentence without a full stop."""
    type: type[Event] = Event
    """Class of its values."""
    reduce: Reduce | None = None
    """Adds it to the context; None for events that act on the whole conversation, which no chart names."""
    reduce_late: Reduce | None = None
    """For an event that answers an effect: what counts of it where the effect is not open any more."""
    is_external: bool = False
    """Whether it may arrive at any time during a turn, without an effect that asks for it."""

    @property
    def is_answer(self) -> bool:
        """Whether it answers an effect."""
        return issubclass(self.type, Answering)

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each; empty if it is complete."""
        gaps = [*super().find_gaps(), *find_text_gaps(meaning=self.meaning)]
        if getattr(self.type, "TYPE", None) != self.name:
            gaps.append(f"`type` is a class whose `TYPE` is not {self.name!r}")
        elif self.type.__struct_config__.tag != self.name:
            gaps.append(f"`type` is a class whose tag is not {self.name!r}")
        if self.reduce_late is not None and not self.is_answer:
            gaps.append("`reduce_late` is for events that answer an effect")
        if self.reduce is not None and self.is_answer == self.is_external:
            gaps.append("it must either answer an effect (derive it from `Answering`) or be external")
        return gaps


class Migrated(Configured, frozen=True, kw_only=True, tag="migrated"):
    """An open conversation goes on with another chart; the proof that it may was made before.

    The chart takes over the configuration, the open effects, the results and the counters as they are, under
    other names where it calls states or timers otherwise.
    """

    TYPE: ClassVar[str] = "migrated"
    renamed_states: dict[str, str] = msgspec.field(default_factory=dict)
    """By name of a state or a history in the old chart: its name in this one."""
    renamed_effects: dict[str, str] = msgspec.field(default_factory=dict)
    """The same of the timers that stand for `after` in such states."""


CONFIGURATION_TYPES = (Configured.TYPE, Migrated.TYPE)
"""The events that bring a chart, a spec and tools."""


class Returned(Answering, frozen=True, kw_only=True, tag="returned"):
    """A function returned."""

    TYPE: ClassVar[str] = "returned"
    value: Any = None
    """What it returned, as JSON data."""
    arguments_digest: str = ""
    """Digest of the arguments that the function got: those of its effect."""
    labels: dict[str, FlowLabel] = msgspec.field(default_factory=dict)
    """Reserved: the labels of the value, by JSON pointers: `/value`."""


class Answered(Answering, frozen=True, kw_only=True, tag="answered"):
    """A person answered a question."""

    TYPE: ClassVar[str] = "answered"
    content: dict[str, Any]
    """The fields of the form; they fit its schema."""
    by: str | None = None
    """Who answered."""
    labels: dict[str, FlowLabel] = msgspec.field(default_factory=dict)
    """Reserved: the labels of the answer, by JSON pointers: `/content`."""


class Counted(Answering, frozen=True, kw_only=True, tag="counted"):
    """The tokens of the conversation were counted."""

    TYPE: ClassVar[str] = "counted"
    tokens: int
    """What the next request takes, without messages that are added after it."""
    messages: int
    """How many messages of the conversation were counted, from the first one on."""
    source: str
    """Who counted: `host` or `estimate`."""
    problem: str = ""
    """Why the host did not count, where it was asked."""


class AgentAnswering(Answering, frozen=True, kw_only=True):
    """The base of events that tell how a child conversation went."""

    item: int = 0
    """Index of the item that the child works on; 0 where there is one child."""
    conversation: str
    """Id of the child conversation."""
    head: str
    """Hash of the newest record of the child, so that a change of its log is detected."""
    usage: Usage | None = None
    """What the child used, its own children included, since the event before."""
    labels: dict[str, FlowLabel] = msgspec.field(default_factory=dict)
    """Reserved: the labels of the child's answer, by JSON pointers: `/content`, `/output`."""


class AgentFinished(AgentAnswering, frozen=True, kw_only=True, tag="agent_finished"):
    """The turn of a child conversation ended with an answer."""

    TYPE: ClassVar[str] = "agent_finished"
    content: str = ""
    """The child's answer."""
    output: dict[str, Any] | None = None
    """What the answer says under the output schema of the effect."""
    limit_reached: str | None = None
    """The limit that ended the child's turn."""


class AgentFailed(AgentAnswering, frozen=True, kw_only=True, tag="agent_failed"):
    """The turn of a child conversation ended in error, or could not begin."""

    TYPE: ClassVar[str] = "agent_failed"
    head: str = ""
    """Hash of the newest record of the child; empty where it has none."""
    kind: str
    """One of `FAILURE_KINDS`, or another kind of `TurnError`."""
    message: str


class AgentRested(AgentAnswering, frozen=True, kw_only=True, tag="agent_rested"):
    """A child conversation waits for the next message of the user."""

    TYPE: ClassVar[str] = "agent_rested"
    content: str = ""
    """What the child said to the user."""
