"""Effects: everything that the core can ask the driver to do, as frozen values with imperative names.

A chart names effects (`enter: call_model`). The core turns each name into a value with all that is needed to
perform it, and gives it an id. The driver performs it and answers with events that name this id. An effect
belongs to the state that asked for it and ends with that state: leaving the state cancels it.

Every effect has a row in the table of effects: which events answer the effect, how its value is built and
what kind of work it is. The rows stand beside the functions that build the values: in
`states/core/requests.py`, and those of kinds that specs declare in `states/core/kinds.py`.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from toolchart.states.content import Value
from toolchart.states.descriptors import Descriptor, find_text_gaps
from toolchart.states.message_list import (
    ContextView,
    compute_messages_digest,
    compute_tools_digest,
    encode_deterministic,
)
from toolchart.states.messages import Message, Request, ToolCall
from toolchart.states.starts import Start


class Effect(Value, frozen=True, kw_only=True, tag_field="type", gc=False):
    """The base of all effects. Subclasses add what performing the effect needs."""

    id: int
    """Number of the effect in its conversation, from 1; the event that answers it names this number."""
    name: str
    """The name in the chart."""
    state: str
    """The state that asked for it and that it belongs to."""
    kind: str = ""
    """For an effect that the chart or the spec declares: its kind. Empty where that is
    `name`."""
    result: str = ""
    """The name under which its result is kept; empty where none is."""

    is_timer: ClassVar[bool] = False
    """Whether it only lets time pass."""
    waits_for_user: ClassVar[bool] = False
    """Whether only the user's next message, or time, continues it: the turn may end beside it."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The batch job in which a model call waits for its answer."""

    key: str
    """Our name of the job; a worker that goes on finds the job by it."""
    job: str = ""
    """The host's id of the job; empty until the host has said it."""
    calls: int = 0
    """How many calls the job has."""
    at: str = ""
    """When the job was about to be created: RFC 3339, UTC."""
    jobs: int = 0
    """How many jobs the host has taken with this call so far."""


class CallModel(Effect, frozen=True, kw_only=True, tag="call_model"):
    """Call the model; `replied` or `failed` answers."""

    request: Request
    host: str = ""
    """The `llms` entry to ask; empty for that of the turn."""
    schema: dict[str, Any] | None = None
    """JSON Schema of an object that the reply's text must be, as JSON; None for free text. The request asks
    for it by `response_format`; the reply is checked in any case."""
    own_messages: int = 0
    """How many messages at the end of the request are its own: all before them are the first messages of the
    conversation."""
    summarises: str = ""
    """The call whose result the reply stands for in later requests; empty for none."""
    submission: Submission | UnsetType = UNSET
    """The batch job that has the call (`call_submitted`). Unset for a call that none has had: JSON leaves it
    out then, so the digest of the work is the same whether the call may go by batch or not."""


class RunAgent(Effect, frozen=True, kw_only=True, tag="run_agent"):
    """Run a turn of another agent for each item; `agent_finished` or `agent_failed` answers for each.

    `agent_rested` says that a child waits for the user's next message, which it gets when the next turn
    begins.
    """

    agent: dict[str, Any]
    """Which agent: `handler`, `spec` or `chart`, as declared."""
    messages: tuple[str, ...]
    """The user message of each child."""
    history: tuple[Message, ...] = ()
    """Messages that each child knows before."""
    parallel: int = 1
    """Children that may run at the same time."""
    schema: dict[str, Any] | None = None
    """JSON Schema of each child's answer."""
    limits: dict[str, Any] = msgspec.field(default_factory=dict)
    """What is left of the parent's budgets for each child, by the names of `Limits`."""
    is_list: bool = False
    """Whether its result is a list: it was declared with `for_each`."""
    answered: tuple[int, ...] = ()
    """Items that are answered."""
    resting: tuple[int, ...] = ()
    """Items whose children wait for the user's next message."""
    rests: tuple[int, ...] = ()
    """The item of each rest so far, so that the turns of every child can be counted."""

    @property
    def waits_for_user(self) -> bool:  # type: ignore[override]  # it depends on its children
        """Whether every child that is not done waits for the user."""
        return len(self.answered) + len(self.resting) == len(self.messages) and bool(self.resting)


class CallFunction(Effect, frozen=True, kw_only=True, tag="call_function"):
    """Call a Python function; `returned` or `failed` answers."""

    function: str
    """Name of a function that the engine was given, or `module:function`."""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    """Its arguments by name."""
    schema: dict[str, Any] | None = None
    """JSON Schema of what it returns."""
    idempotent: bool = False
    """Whether it may be called again after a crash."""
    has_begun: bool = False
    """Whether `calls_started` said that it begins: performed again, it ends as `interrupted`."""


class AskPerson(Effect, frozen=True, kw_only=True, tag="ask_person"):
    """Ask a person; `answered` answers."""

    question: str
    form: dict[str, Any]
    """JSON Schema of the answer: an object with the fields of a form."""


class AwaitUser(Effect, frozen=True, kw_only=True, tag="await_user"):
    """Let the turn end and wait for the user's next message; `user_said` answers."""

    content: str = ""
    """What the user is told."""
    waits_for_user: ClassVar[bool] = True


class ReviewCalls(Effect, frozen=True, kw_only=True, tag="review_calls"):
    """Review the calls; `reviewed` answers, and then one `decided` for each call that needs approval."""

    calls: tuple[ToolCall, ...]
    allowed: tuple[str, ...]
    """Names of the tools that this turn may run."""


class AskApproval(Effect, frozen=True, kw_only=True, tag="ask_approval"):
    """Let a person decide each of these calls; one `decided` for each answers."""

    calls: tuple[ToolCall, ...]
    to: tuple[str, ...] = ()
    """Names of the approvers who may decide; empty for anybody."""


class RefusedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is answered without running."""

    call: ToolCall
    outcome: str
    reason: str
    """Text for the model."""


class RunTools(Effect, frozen=True, kw_only=True, tag="run_tools"):
    """Run the calls; one `tool_finished` for each answers, in any order."""

    calls: tuple[ToolCall, ...]
    """Calls that may run."""
    refused: tuple[RefusedCall, ...] = ()
    """Calls that may not run."""
    allowed: tuple[str, ...] = ()


class Wait(Effect, frozen=True, kw_only=True, tag="wait"):
    """Wait; `elapsed` answers."""

    seconds: float
    due: str = ""
    """When it runs out: RFC 3339, UTC; empty where the core was not told the time."""
    is_timer: ClassVar[bool] = True
    waits_for_user: ClassVar[bool] = True


class Compact(Effect, frozen=True, kw_only=True, tag="compact"):
    """Show less of the conversation in requests from now on; no event answers."""

    view: ContextView
    """What requests show of the conversation from now on."""
    tokens_before: int
    """About how many tokens the conversation took."""
    tokens_after: int
    """About how many it takes now."""


class CountTokens(Effect, frozen=True, kw_only=True, tag="count_tokens"):
    """Count the tokens of the conversation as the next request shows it; `counted` answers."""


class Answer(Effect, frozen=True, kw_only=True, tag="answer"):
    """Give the user this text as the result of the turn; no event answers."""

    content: str
    """The text for the user."""


EFFECT_CLASSES: tuple[type[Effect], ...] = tuple(Effect.__subclasses__())
"""Every class of effects: those above. The tag of each is the name of its row in the table of effects. Tables
by class are compared with this where they are made (`require_rows`)."""


# -- digests ---------------------------------------------------------------------------------------


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def encode_digest(digest: bytes) -> str:
    """The first 192 bits of a digest in base64url: 32 characters."""
    return b2a_base64(digest[:24], newline=False).translate(_URL_SAFE).decode()


def compute_arguments_digest(arguments: Mapping[str, Any] | None) -> str:
    """The digest of arguments of a call, whatever the order of their names."""
    return encode_digest(hashlib.sha256(encode_deterministic(arguments or {})).digest())


def compute_shown_digest(call: ToolCall, reason: str, definition: Mapping[str, str] | None) -> str:
    """The digest of what a person is shown who decides about a call.

    Args:
        reason: why they are asked; may be empty.
        definition: the whole definition of the tool, part by part.
    """
    view = {"name": call.name, "arguments": call.arguments, "reason": reason, "definition": definition or {}}
    return compute_arguments_digest(view)


def compute_effect_digest(effect: Effect) -> str:
    """The digest of everything that an effect hands to whoever performs it: 32 characters.

    It covers every field of every effect, because the whole value is encoded. Left empty is only what an ask
    shows in plain text (`id`, `name`, `state`, `result`) and what its record shows (the turn and the
    iteration of a request): so equal work has equal digests.

    For the messages and the tools of a request stand their digests, which the lists of the core have already:
    it costs the same at any length of the conversation.

    Raises:
        TypeError: a field holds something that JSON cannot hold.
    """
    work: msgspec.Struct = replace(effect, id=0, name="", state="", result="")
    if isinstance(effect, CallModel):
        messages = compute_messages_digest(effect.request.messages)
        tools = compute_tools_digest(effect.request.tools)
        request = replace(effect.request, messages=messages, tools=tools, turn=0, iteration=0)
        work = replace(work, request=request)
    return encode_digest(hashlib.sha256(encode_deterministic(work)).digest())


# -- the rows --------------------------------------------------------------------------------------

BuildEffect = Callable[[Any, str, int, str], Effect]
"""Builds the value of an effect from the context (a `SnapshotBuilder`), its name, its id and its state. It
may change the context."""


DeclareEffect = Callable[[str, Any], "EffectDescriptor"]
"""Makes the row of a declared effect from its name and its parameters.

Raises:
    DeclarationProblem: the parameters are wrong.
"""


ListEffectStarts = Callable[[Mapping[str, Any]], Iterable[Start]]
"""Lists what an effect can start, load, call, send or read, from its parameters as they are declared; `{}`
where a chart names the effect without a declaration. It loads nothing itself."""


class EffectDescriptor(Descriptor, frozen=True, kw_only=True):
    """Describes one effect that a chart may name.

    An effect without closing events is done when it is asked for: nothing answers it. Any other effect is
    open from the step that asks for it until one of its closing events arrives or its state is left.
    """

    meaning: str = ""
    """What it asks for, as one imperative sentence without a full stop."""
    build: BuildEffect | None = None
    """Builds its value. It is called only where the effect outlives the step that asks for it."""
    closing: tuple[str, ...] = ()
    """Events that answer it and close it."""
    progress: tuple[str, ...] = ()
    """Events that answer a part of it and leave it open. An event that is in both groups closes it where it
    answers the last item."""
    has_open_items: Callable[[Any, Effect], bool] | None = None
    """For an effect with items (calls, for instance): whether one of them is still unanswered in a snapshot.
    The effect closes when none is."""
    cancel: Callable[[Any, Any], None] | None = None
    """What cancelling it while it is open does to the context; None where nothing but the effect goes."""
    start: Callable[[Any, Any, tuple[str, ...]], Effect] | None = None
    """The effect after its calls with these ids have begun (`calls_started`); None where nothing that it asks
    for needs a start mark."""
    resume: Callable[[Any, Any, tuple[str, ...]], Effect] | None = None
    """The effect as a worker performs it that takes over an open turn, given the ids of the calls that may be
    run again; None where it is performed again as it is."""
    calls_model: bool = False
    """Whether it asks for one model call."""
    uses_messages: bool = False
    """Whether it works on the conversation's messages and calls. A conversation has one thread of messages,
    so only one of several parallel regions may ask for such effects."""
    uses_calls: bool = False
    """Whether it is answered call by call: an answer of the turn, which closes all calls, cancels it."""
    is_timer: bool = False
    """Whether it only waits. Timers stand beside the effect that a state waits for, and are allowed on
    compound states."""
    waits_for_user: bool = False
    """Whether it waits for the user's next message: the turn may end beside it."""
    is_pure: bool = False
    """Whether performing it calls nothing outside the process, so that its record needs no commit first."""
    ends_turn: bool = False
    """Whether it gives the turn its answer."""
    reads_limits: tuple[str, ...] = ()
    """The `limits` of a turn that its value depends on."""
    declare: DeclareEffect | None = None
    """For a kind of effect that charts and specs declare under `effects`: makes the row of one that is
    declared. Such a row has its own `name` and `build`, and `kind` says which row made it."""
    kind: str = ""
    """For a declared effect: the name of the row that made it."""
    parameters: Any = None
    """For a declared effect: its parameters."""
    result: str = ""
    """For a declared effect: the name under which its result is kept; empty where none is."""
    result_facts: tuple[Any, ...] = ()
    """For a declared effect with a result: the facts of the result, each a `Fact` with a dotted name."""
    reducers: Any = None
    """For a declared effect whose values over several rounds become one: its `Reducers`."""
    templates: tuple[str, ...] = ()
    """For a declared effect: every template among its parameters."""
    list_source: str = ""
    """For a declared effect that is performed once for each item of a list: the path of the list."""
    counts_as: str = ""
    """The number of the worst case that asking for it adds to, where the other fields do not say it."""
    list_starts: ListEffectStarts | None = None
    """What performing it can start, call, send or read: what a person is asked to
    trust. `list_no_starts` where it stays inside the process."""

    @property
    def is_awaited(self) -> bool:
        """Whether the chart waits for an answer: it has closing events and is not a timer."""
        return bool(self.closing) and not self.is_timer

    @property
    def asks_main_model(self) -> bool:
        """Whether it asks for a reply of the conversation's own model, which becomes one of its messages."""
        return self.calls_model and "replied" in self.closing and not self.result

    @property
    def cost(self) -> str:
        """The number of the worst case that asking for it adds to; empty for none."""
        if self.is_timer:
            return "waits"
        if "tool_finished" in self.closing:
            return "tool_rounds"
        return self.counts_as or ("model_calls" if self.calls_model else "")

    @property
    def closes_calls(self) -> bool:
        """Whether asking for it closes the open calls: the model is asked again, or the turn ends."""
        return self.asks_main_model or self.ends_turn or self.waits_for_user

    @property
    def answers(self) -> tuple[str, ...]:
        """Every event that may answer it."""
        return tuple(dict.fromkeys((*self.closing, *self.progress)))

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each; empty if it is complete."""
        gaps = [*super().find_gaps(), *find_text_gaps(meaning=self.meaning)]
        if self.build is None and self.declare is None:
            gaps.append("`build` is missing: the function that builds the effect's value")
        if self.list_starts is None and not self.kind:  # a declared effect has the row of its kind
            gaps.append("`list_starts` is missing: the function that lists what it starts")
        if set(self.progress) & set(self.closing) and self.has_open_items is None:
            gaps.append("`has_open_items` is missing: `progress` events answer items")
        return gaps
