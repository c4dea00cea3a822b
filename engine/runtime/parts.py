"""Everything outside the core that a turn reaches, in one frozen value that is filled in on the way down.

`Parts` has what the program gave the engine and what each agent adds; `Dependencies` are these parts with
what one conversation and one turn add. Each name is declared once; whoever stands lower gets the whole value.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, runtime_checkable

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.family import MAX_OWNER_LENGTH, Heading
from toolchart.engine.runtime.answer_form import AnswerType, make_answer_type
from toolchart.engine.runtime.answer_stream import AnswerStream
from toolchart.engine.runtime.batch_calls import BatchCollector
from toolchart.engine.runtime.clock import Clock, SystemClock
from toolchart.engine.runtime.people import DecisionDesk
from toolchart.states.core.step import Step
from toolchart.states.effects import AskPerson, Effect, RunAgent, RunTools
from toolchart.states.errors import SpecError, describe_value
from toolchart.states.events import AgentAnswering, Answered, Answering, Decided, Event, ToolFinished
from toolchart.states.machine import Machine
from toolchart.states.messages import Delta, Message, Reply, Request, ToolCall
from toolchart.states.ports import Executor, Provider
from toolchart.states.snapshot import Snapshot
from toolchart.states.visible_text import make_visible_line
from toolchart.tools.questions import CallQuestion

if TYPE_CHECKING:
    from pydantic import BaseModel

    from toolchart.engine.runtime.allowed_effects import AllowedEffects
    from toolchart.engine.runtime.answer_form import AnswerForm
    from toolchart.engine.runtime.prompt_context import PromptFunction
    from toolchart.engine.telemetry.debug_files import DebugFiles
    from toolchart.engine.telemetry.live import Telemetry
    from toolchart.tools.approvers import Signer
    from toolchart.tools.definition import Tool
    from toolchart.tools.sources.attachments import Attachment
    from toolchart.tools.sources.effect_functions import EffectFunction
    from toolchart.tools.sources.registry_entries import Service


Approver = Callable[[ToolCall], Awaitable[Decided | bool | None] | Decided | bool | None]
"""Called for each tool call that needs approval; true and false are decisions without a reason, None leaves
the call undecided. One that waits for a person is async: it is cancelled where the call is decided otherwise,
or where the chart stops waiting, at a deadline for instance."""


@runtime_checkable
class QuestionApprover(Protocol):
    """An approver that shows what a call does. What it approves is the tool that the question describes."""

    async def decide_question(self, call: ToolCall, question: CallQuestion) -> Decided | None:
        """As an `Approver`, with what running the call does and what has changed since it was first asked."""
        ...


Asker = Callable[[AskPerson], Awaitable[Answered | None] | Answered | None]
"""Called for each question to a person (`ask_person`); None leaves the question open. Cancelled like an
`Approver`."""

Observer = Callable[[Event, Step], None]
"""Called with every event and its step after the record is noted; for display only."""


class TurnWatcher(Protocol):
    """Notes what the turns of an engine do, those of its sub-agents and of its `with_tools` too; it changes
    nothing. Whoever counts for an operator, where `Observer` is one turn's display."""

    def record_step(self, conversation: str, event: Event, step: Step) -> None:
        """Note a step whose record was made; it becomes durable before anything follows it."""
        ...

    def note_rest(self, conversation: str, *, waits: bool) -> None:
        """Note that work on a turn has stopped and the turn is still open.

        Args:
            waits: whether it waits for somebody outside; else it was stopped, or has failed.
        """
        ...


DeltaObserver = Callable[[Delta], None]
"""Called with each delta of a streamed reply; for display only."""

Pricer = Callable[[Reply, Request], Reply]
"""Returns the reply with its cost added, where the host did not report one."""


class ChildTask(msgspec.Struct, frozen=True, kw_only=True):
    """One item of an effect `run_agent`, for its child."""

    parent: str
    """Id of the conversation that asks."""
    effect: RunAgent
    item: int
    variables: Mapping[str, Any] = {}
    """Variables of the parent's turn."""
    dependencies: Dependencies | None = None
    """The parent's; None where only the child's id matters."""

    @property
    def conversation(self) -> str:
        """Id of the child: that of the parent, the effect and, for a list, the item, joined by points."""
        name = f"{self.parent}.{self.effect.id}"
        return f"{name}.{self.item}" if self.effect.is_list else name


def list_children(snapshot: Snapshot, conversation: str) -> list[ChildTask]:
    """Every item of the open effects `run_agent` of a conversation, answered ones included; and every call of
    an open `run_tools`, for agents behind tools."""
    effects = [
        describe_calls(snapshot, effect) if isinstance(effect, RunTools) else effect
        for effect in snapshot.open_effects
    ]
    return [
        ChildTask(parent=conversation, effect=effect, item=item)
        for effect in effects
        if isinstance(effect, RunAgent)
        for item in range(len(effect.messages))
    ]


def describe_calls(snapshot: Snapshot, effect: RunTools, answered_id: str | None = None) -> RunAgent:
    """The calls of an effect as items of `run_agent`, those with an outcome answered. Only a tool that runs
    an agent makes a child of its item.

    Args:
        answered_id: the id of a call that is answered too.
    """
    return RunAgent(
        id=effect.id,
        name=effect.name,
        state=effect.state,
        result=effect.name,
        agent={},
        messages=("",) * len(snapshot.calls),
        is_list=True,
        answered=tuple(
            item
            for item, open_call in enumerate(snapshot.calls)
            if open_call.outcome is not None or open_call.call.id == answered_id
        ),
    )


def list_handoffs(snapshot: Snapshot, conversation: str) -> list[ChildTask]:
    """The children that have taken a conversation over: those whose result has no name."""
    children = list_children(snapshot, conversation)
    return [child for child in children if not child.effect.result and child.item == 0]


class ChildRunner(Protocol):
    """Runs child conversations."""

    async def run_child(self, task: ChildTask) -> AgentAnswering | None:
        """Run the turn that an item asks for, or go on with it; one that has ended is read from the log.

        The records of the parent must be committed.

        Returns:
            What the parent is told; None where the child waits for an event from outside.
        """
        ...

    async def cancel_child(self, task: ChildTask) -> AgentAnswering | None:
        """Record in a child that the parent has cancelled it.

        Returns:
            What it used and how it ended; None where there is no such child.
        """
        ...


class AgentCallRunner(Protocol):
    """Runs the agents behind the tools of one conversation."""

    async def add_to(self, outcome: ToolFinished) -> ToolFinished:
        """The outcome of a call with what its child has used, and its newest record, where it has one."""
        ...


class NoModel:
    """The provider of a driver that has no turn."""

    name = "none"

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """Not called: a turn has a provider of its own.

        Raises:
            AssertionError: always.
        """
        raise AssertionError("a driver asks a model only within a turn")

    async def complete(self, request: Request) -> Reply:
        """Not called, like `build_body`."""
        raise AssertionError("a driver asks a model only within a turn")

    async def aclose(self) -> None:
        """Nothing to close."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the program gave an engine, and what one of its agents makes of it."""

    # What the program gave: the engine's agent and all its children share it.
    clock: Clock = msgspec.field(default_factory=SystemClock)
    functions: Sequence[Callable[..., Any] | Tool] = ()
    services: Mapping[str, Service] | None = None
    dependencies: Any = None
    """Objects of the program that tools get by their `ToolContext`, where the turn brings no others."""
    prompt_variables: Mapping[str, PromptFunction[Any]] = {}
    """Functions that write variables of prompts, where the turn brings none of the name."""
    providers: Mapping[str, Provider] = {}
    outputs: Mapping[str, type[BaseModel]] | None = None
    approver: Approver | None = None
    """Decides calls that need approval; without one such a turn waits."""
    signer: Signer | None = None
    asker: Asker | None = None
    """Answers questions to people; without one such a turn waits."""
    observer: Observer | None = None
    telemetry: Telemetry | None = None
    """Makes spans of what happens; it changes nothing."""
    watchers: list[TurnWatcher] = msgspec.field(default_factory=list)
    """One list for the engine, its `with_tools` and all children, so that whoever comes later sees all."""
    longest_wait_s: float | None = None
    """Seconds that the turn waits for a timer where nothing else is open; a longer one leaves it at rest."""
    batches: BatchCollector = msgspec.field(default_factory=BatchCollector)
    """Has calls with `batch: true` answered, those of many conversations together."""
    answers: dict[str, tuple[Answering, str]] = msgspec.field(default_factory=dict)
    """Answers of people for child conversations, by their ids, each with the number of the inbox entry that
    it comes from (0 for none). Each is taken when its child is resumed."""

    # What an agent adds.
    decisions: DecisionDesk | None = None
    """Signs and checks what the approver decides; None takes it as it is, as recorded decisions are."""
    price: Pricer | None = None
    """Adds the cost to a reply."""
    allowed_effects: AllowedEffects | None = None
    """Refuses what the operator's own chart does not declare; None performs what the chart asks for."""
    get_function: Callable[[str], EffectFunction] | None = None
    """Returns a function that the operator's own chart names."""
    output_classes: Mapping[str, type[BaseModel]] = {}
    """Pydantic classes of results, by their names, where the user gave one."""
    get_provider: Callable[[str], Provider] | None = None
    """Returns the provider of an `llms` entry."""
    children: ChildRunner | None = None
    """Runs the children of `run_agent`."""
    calls_agents: bool = False
    """Whether tools of the agent run other agents."""
    agent_calls: AgentCallRunner | None = None
    """Runs the agents behind tools in one conversation."""
    debug_files: DebugFiles | None = None
    """Writes what the spec's section `debug` asks for."""
    keep_deltas: bool = False
    """Whether the log keeps the deltas of streamed replies."""
    keep_answers: bool = False
    """Whether the log keeps the raw answers of model hosts."""


class Dependencies(Parts, frozen=True, kw_only=True):
    """The parts of one turn: everything outside the core that its driver calls."""

    provider: Provider
    """Answers model calls."""
    executor: Executor
    """Reviews and runs tool calls."""
    answer_stream: AnswerStream | None = None
    """Shows the text of the turn to whoever watches. Where it is set and the provider can stream, replies are
    streamed."""
    answer_form: AnswerForm | None = None
    """The type that the program demands of the answer of this turn."""
    asks_first: bool = False
    """Whether tools of children that are not idempotent need an approval: the conversation is a fork."""


def describe_request(request: Request, host: str = "") -> str:
    """One line about a request: model, number of messages, names of tools, tool choice; never a text."""
    names = ", ".join(tool.name for tool in request.tools) or "none"
    choice = request.options.get("tool_choice", "not set")
    options = ", ".join(sorted(set(request.options) - {"tool_choice"})) or "none"
    place = f" of {host}" if host else ""
    return (
        f"request (turn {request.turn}, iteration {request.iteration}) to {request.model}{place}: "
        f"{len(request.messages)} messages; tools: {names}; tool_choice: {choice}; options: {options}"
    )


_NAME_LENGTH = 64
"""Characters of the name of a tool in a line: a model may write any."""


def describe_reply(request: Request, reply: Reply) -> str:
    """One line about the reply to a request: number of calls, names of their tools, finish reason."""
    names = ", ".join(make_visible_line(call.name)[:_NAME_LENGTH] for call in reply.tool_calls) or "none"
    return (
        f"reply (turn {request.turn}, iteration {request.iteration}): {len(reply.tool_calls)} calls; "
        f"tools: {names}; finish reason: {reply.finish_reason}"
    )


# --------------------------------------------------------------------------------------------------
# The options of a turn: what `Engine.run` takes beside the message, and what its driver gets of them.


class StreamOptions(TypedDict, total=False):
    """The options of a streamed turn."""

    conversation: str | None
    """Id of the conversation to continue, with its history, or to begin; None begins one with a new id."""
    handler: str | None
    """Name of the handler; None selects one by `match` and the variables."""
    variables: Mapping[str, Any] | None
    """Values for the prompt and for `match`."""
    history: Sequence[Message | Mapping[str, Any]]
    """Earlier messages from elsewhere, for a new conversation: `Message` values, or dicts of OpenAI's form or
    `{type, text}`. What is not as a model takes it is put right, which a warning of the turn says, or refused
    with its place (`docs/howto/conversations.md`)."""
    attachments: Sequence[Attachment]
    """Pictures, files, sounds: parts, bytes, paths, or public addresses to fetch."""
    owner: str | None
    """Whose conversation it is. It is recorded when the conversation begins; for another
    owner it does not exist (`NotFound`), so a program that always names its user lets nobody into the
    conversation of somebody else."""
    tags: Mapping[str, str] | None
    """What the program attaches to a conversation that begins, by name, to find it again. A later message may
    repeat them."""
    author: str | None
    """Who sends the message; recorded with it."""
    key: str | None
    """Idempotency key of the message: a message that comes again with it, after a restart too, is not said
    again. Its sender gets the result of the turn that has it. A turn that ended in an error is no answer:
    then it is said again."""
    dependencies: Any
    """Objects of the program that the tools of this turn, and those of its children, get by `ToolContext`.
    None: those of the engine. They are not recorded: whoever goes on with the turn gives its own."""
    llm: str | None
    """Name of an `llms` entry, instead of the handler's."""
    model: str | None
    """Name of a model, instead of that entry's."""
    output_type: Any
    """The type of the answer: a pydantic model, a dataclass, a TypedDict, `list[str]`, ... The host is asked
    for its JSON Schema, and `Turn.data` is the value. An answer that breaks it is `failed` of the kind
    `bad_output`; charts with retries ask again, and say what was wrong. With `str` nothing is demanded: it is
    the text."""


class TurnOptions(StreamOptions, total=False):
    """The options of a turn."""

    observer: Observer | None
    """Called with this turn's steps, instead of the engine's observer."""
    on_delta: DeltaObserver | None
    """Called with each delta; where it is set and the provider can stream, replies are streamed."""


class ResumeOptions(TypedDict, total=False):
    """The options of a turn that goes on."""

    output_type: Any
    dependencies: Any
    observer: Observer | None
    on_delta: DeltaObserver | None


def read_heading_options(options: TurnOptions) -> Heading | None:
    """The heading that the options of a turn ask for; None where they ask for none.

    Raises:
        SpecError: the owner is empty or too long, or something is no text.
    """
    owner, tags = options.get("owner"), options.get("tags")
    if owner is None and tags is None:
        return None
    texts = (owner or "", *(text for pair in (tags or {}).items() for text in pair))
    if not all(isinstance(text, str) for text in texts):
        raise SpecError("an owner, and the names and values of tags, are texts")
    if owner is not None and not owner.strip():
        raise SpecError("owner is empty", hint="leave it out for a conversation of nobody")
    if len(owner or "") > MAX_OWNER_LENGTH:
        raise SpecError(
            f"owner has more than {MAX_OWNER_LENGTH} characters", hint="give an id, not a document"
        )
    return Heading(owner=owner or "", tags=dict(tags or {}))


class TurnHooks(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn adds to the dependencies of its driver."""

    observer: Observer | None = None
    answer_stream: AnswerStream | None = None
    answer_form: AnswerType | None = None
    dependencies: Any = None
    """What its tools get; None: what the engine was given."""

    def add_to(self, dependencies: Dependencies, parts: Parts) -> Dependencies:
        """The dependencies with what this turn adds.

        Args:
            parts: the engine's, for what the turn does not have.
        """
        form, own = self.answer_form, self.dependencies
        return replace(
            dependencies,
            dependencies=parts.dependencies if own is None else own,
            observer=self.observer or parts.observer,
            answer_stream=self.answer_stream,
            answer_form=None if form is None or form.is_text else form,
        )


NO_HOOKS = TurnHooks()


def read_list(option: str, value: Any, items: str) -> tuple[Any, ...]:
    """The items of an option that is a list; none for None.

    Args:
        items: what the list is of.

    Raises:
        SpecError: it is no list: one item alone, a text, a mapping.
    """
    if value is None:
        return ()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return tuple(value)
    name = value if isinstance(value, str) else getattr(value, "__name__", getattr(value, "name", "..."))
    raise SpecError(
        f"`{option}` is a list of {items}, not {describe_value(value)}", hint=f"write {option}=[{name}]"
    )


def refuse_async_function(name: str, function: Any) -> None:
    """Refuse an async function where nobody awaits it.

    Raises:
        SpecError: it is one.
    """
    if function is not None and inspect.iscoroutinefunction(function):
        raise SpecError(
            f"{name} is an async function, and nothing would await it",
            hint="give a plain function, which may put what it gets into a queue, or start a task",
        )


def build_hooks(options: TurnOptions | ResumeOptions) -> TurnHooks:
    """The hooks that the options of a turn ask for.

    Raises:
        SpecError: `output_type` has no JSON Schema, or a callback is async.
    """
    output_type, on_delta = options.get("output_type"), options.get("on_delta")
    observer, dependencies = options.get("observer"), options.get("dependencies")
    if observer is None and on_delta is None and output_type is None and dependencies is None:
        return NO_HOOKS
    refuse_async_function("observer", observer)
    refuse_async_function("on_delta", on_delta)
    return TurnHooks(
        observer=observer,
        answer_stream=None if on_delta is None else AnswerStream(on_delta),
        answer_form=None if output_type is None else make_answer_type(output_type),
        dependencies=dependencies,
    )


# --------------------------------------------------------------------------------------------------
# The driver, as performers see it.


class DriverPort(Protocol):
    """What a performer needs of the driver."""

    snapshot: Snapshot
    dependencies: Dependencies
    machine: Machine

    conversation: str

    def apply_event(self, event: Event) -> Step:
        """Step the core with an event."""
        ...

    def is_open(self, effect: Effect) -> bool:
        """Whether an effect waits for an answer."""
        ...

    def wait_for_outside(self, effect: Effect) -> None:
        """Leave an effect open until an event from outside answers it."""
        ...

    async def commit(self) -> None:
        """Make every record durable that was added so far."""
        ...
