"""A typed agent, written in Python: `Agent` compiles to an agent spec and a chart, which the engine runs.

    class City(BaseModel):
        name: str
        country: str

    geographer = Agent("openai:gpt-5.1", output_type=City, prompt="You know every city.")
    turn = geographer.run("Where is the Louvre?")
    print(turn.output.country)

There is no second engine. `Agent.spec()` is the agent spec that a YAML file could hold, and a turn of the
agent writes the log that this file would give. The class adds types: of the dependencies, which tools
get by `ToolContext`, and of the answer (`Turn.output`).
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    overload,
)

from toolchart.engine.agent_options import (
    AgentOptions,
    check_imports,
    check_option_names,
    list_imported_globs,
    make_plain,
    merge_imports,
    select_options,
)
from toolchart.engine.runtime.agent_tools import ChartFunctions
from toolchart.engine.runtime.answer_form import AnswerType, is_type
from toolchart.engine.runtime.blocking_calls import refuse_running_loop
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.parts import read_list
from toolchart.engine.runtime.prompt_context import PromptFunction, check_prompt_function, is_prompt_context
from toolchart.engine.runtime.streaming import BlockingTurnStream, TurnStream
from toolchart.providers.hosts import find_host
from toolchart.specs.charts import load_spec_chart
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.loader import load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.diagram.renderers import draw
from toolchart.states.errors import SpecError, ToolchartError, describe_value
from toolchart.states.flows.parameters import RunAgentParameters
from toolchart.states.proofs.check import CheckReport, check
from toolchart.tools.data_flow import describe_agent_chart
from toolchart.tools.definition import Tool
from toolchart.tools.manager import make_program_tool
from toolchart.tools.option_marks import require_function
from toolchart.tools.sources.effect_functions import is_effect_function
from toolchart.tools.sources.python import ToolOptions, read_tool_options
from toolchart.tools.sources.python import tool as mark_tool
from toolchart.tools.tool_context import ToolContext, is_tool_context

if TYPE_CHECKING:
    from signal import Signals

    from toolchart.engine.runtime.clock import Clock
    from toolchart.engine.runtime.handle import Conversation
    from toolchart.engine.runtime.parts import Approver, Asker, Observer
    from toolchart.engine.runtime.result import Turn
    from toolchart.engine.runtime.streaming import Piece
    from toolchart.engine.telemetry.live import Telemetry
    from toolchart.specs.models import AgentSpec
    from toolchart.states.chart.document import Chart
    from toolchart.states.events import Decided
    from toolchart.states.messages import Message
    from toolchart.states.ports import Provider, Store
    from toolchart.tools.approvers import Signer
    from toolchart.tools.sources.attachments import Attachment
    from toolchart.tools.sources.registry_entries import Service

Deps = TypeVar("Deps")
"""The class of the dependencies that each run gives the tools of an agent."""

Output = TypeVar("Output")
"""The type of an agent's answer."""

TurnDeps = TypeVar("TurnDeps", contravariant=True)
"""What a turn of an open agent must be given as dependencies; with None among it, nothing."""

NewDeps = TypeVar("NewDeps")
NewOutput = TypeVar("NewOutput")

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Model: TypeAlias = "str | Mapping[str, Any] | Provider"
"""A model: `PROVIDER:MODEL`, an `llms` entry as a mapping, or a ready provider."""

DEFAULT_NAME = "agent"


class AgentTurnOptions(TypedDict, total=False):
    """The options of one turn of a typed agent; `TurnOptions` describes them."""

    conversation: str | None
    owner: str | None
    tags: Mapping[str, str] | None
    author: str | None
    key: str | None
    variables: Mapping[str, Any] | None
    history: Sequence[Message | Mapping[str, Any]]
    attachments: Sequence[Attachment]
    model: str | None


class ApprovalOptions(TypedDict, total=False):
    """What a person says about a call; `Conversation.aapprove` describes each."""

    approved: bool
    reason: str | None
    by: str | None
    arguments: Mapping[str, Any] | None


class OpenOptions(TypedDict, total=False):
    """What an open agent may be given beside its dependencies; `Engine` describes each."""

    log: Store | str | Path | None
    services: Mapping[str, Service] | None
    approver: Approver | None
    signer: Signer | None
    asker: Asker | None
    observer: Observer | None
    telemetry: Telemetry | None
    clock: Clock | None


class _RunOptions(AgentTurnOptions, OpenOptions, total=False):
    """Those of a turn, and those of the engine that runs it."""


_NO_DEPENDENCIES = type(None)


class _Unset:
    """Stands for dependencies that a call does not name."""

    def __repr__(self) -> str:
        return "nothing"


_UNSET: Any = _Unset()


class _MissingDependencies:
    """Stands for the dependencies of turns that nobody gave any: a worker went on with them, for instance."""

    def __init__(self, agent: str, title: str) -> None:
        self.__agent, self.__title = agent, title

    def __getattr__(self, name: str) -> Any:
        raise ToolchartError(
            f"the turn of the agent {self.__agent!r} goes on without dependencies\n"
            f"  give them to open(dependencies={self.__title}(...)), or to what goes on with the turn"
        )


class Agent(Generic[Deps, Output]):
    """One agent: a model, a prompt, tools, the type of its answer and that of its dependencies.

        >>> from toolchart.testing import ScriptedModel, call_tool
        >>> def add(a: int, b: int) -> int:
        ...     '''Add two numbers.'''
        ...     return a + b
        >>> model = ScriptedModel(call_tool("add", a=2, b=3), '{"value": 5}')
        >>> adder = Agent(model, tools=[add], output_type=int)
        >>> adder.run("What is 2 + 3?", log="memory").output
        5

    Args:
        model: `PROVIDER:MODEL`, as `openai:gpt-5.1` or `ollama:qwen3:8b`; an `llms` entry as a mapping; or a
            ready provider, for instance `toolchart.testing.ScriptedModel`.
        output_type: the class of the answer; with `str`, the default, it is the text. Otherwise the host is
            asked for its JSON Schema, and each answer is checked. A union is a type too; a type checker takes
            it as `cast("type[A | B]", A | B)`, or in a field of a class.
        dependencies: the class of the objects that every run gives the tools; without it they get None.
        prompt: the system prompt, with `{{variables}}`; or a function that writes it for each turn, of a
            `PromptContext` with the dependencies. Its text is recorded.
        handoffs: agents to which this one hands a message over, where one of them suits better. They have the
            same answer, and the same dependencies or none. Its model chooses, before its `chart` begins; a
            chart that runs one of them itself (`run_agent`) says when.
        agents: agents that its model calls as tools, each with a message. What one answers is the result of
            the call: JSON data where it has an `output_type`. They have the same dependencies or none.

    `AgentOptions` describes the other options.

    Raises:
        SpecError: an option is wrong, a tool cannot be made, or it wants other dependencies.
    """

    @overload
    def __init__(
        self: Agent[None, str],
        model: Model,
        *,
        handoffs: Sequence[Agent[None, str]] = (),
        agents: Sequence[Agent[None, Any]] = (),
        prompt: str | PromptFunction[None] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[None, NewOutput],
        model: Model,
        *,
        output_type: type[NewOutput],
        handoffs: Sequence[Agent[None, NewOutput]] = (),
        agents: Sequence[Agent[None, Any]] = (),
        prompt: str | PromptFunction[None] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[NewDeps, str],
        model: Model,
        *,
        dependencies: type[NewDeps],
        handoffs: Sequence[Agent[NewDeps, str] | Agent[None, str]] = (),
        agents: Sequence[Agent[NewDeps, Any] | Agent[None, Any]] = (),
        prompt: str | PromptFunction[NewDeps] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[NewDeps, NewOutput],
        model: Model,
        *,
        output_type: type[NewOutput],
        dependencies: type[NewDeps],
        handoffs: Sequence[Agent[NewDeps, NewOutput] | Agent[None, NewOutput]] = (),
        agents: Sequence[Agent[NewDeps, Any] | Agent[None, Any]] = (),
        prompt: str | PromptFunction[NewDeps] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    def __init__(
        self,
        model: Model,
        *,
        output_type: Any = str,
        dependencies: Any = _NO_DEPENDENCIES,
        handoffs: Sequence[Agent[Any, Any]] = (),
        agents: Sequence[Agent[Any, Any]] = (),
        prompt: str | PromptFunction[Any] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        check_option_names("an agent", options, Agent.__init__, AgentOptions)
        self.name = _read_text("name", options.get("name"), DEFAULT_NAME)
        self.description = _read_text("description", options.get("description"), "")
        self._model = _check_model(model)
        self._dependencies = _check_dependencies(dependencies)
        self._form = AnswerType(str if output_type is None else output_type)
        self._prompt_function = prompt if callable(prompt) else None
        if callable(prompt):
            self._check_prompt(prompt)
            prompt = f"{{{{{self._name_prompt()}}}}}"
        elif prompt is not None and not isinstance(prompt, str):
            raise SpecError(f"the `prompt` of an agent is a text or a function, not {describe_value(prompt)}")
        self._handler_options = select_options({"prompt": prompt, **options}, "responses[]")
        self._model_options = select_options(options, "llms.*")
        self._import_options = select_options(options, "tools.*")
        self._tool_options = select_options(options, "tools")
        self._spec_options = select_options(options, "")
        self._chart = self._spec_options.pop("chart", None)
        self._max_iterations = options.get("max_iterations")
        self._handoffs = read_list("handoffs", handoffs, "agents")
        self._agents = read_list("agents", agents, "agents")
        self._beside = (*self._handoffs, *self._agents)
        """The agents of the same spec that this one runs."""
        for agent in self._beside:
            if not isinstance(agent, Agent):
                option = "handoffs" if agent in self._handoffs else "agents"
                raise SpecError(
                    f"`{option}` are agents, and {describe_value(agent)} is none",
                    hint="give the agent itself, not its name",
                )
            self._check_handoff(agent)
        self._tools: list[tuple[Tool | Callable[..., Any], Tool | Callable[..., Any]]] = []
        """What the program gave, each with its ready tool; an `@effect` function stands for itself."""
        self._loaded_spec: tuple[dict[str, Any], AgentSpec] | None = None
        """The newest document of this agent and what it was loaded to: only a change is loaded again."""
        self._runs_handoffs: bool | None = None
        """Whether its own chart runs its handoffs; None: not known yet."""
        self._override: ContextVar[Model | None] = ContextVar(f"model of {self.name}", default=None)
        tools: Any = options.get("tools")
        tools = [tools] if isinstance(tools, Agent) else tools  # what is wrong with it is said below
        for function in read_list("tools", tools, "functions, ready tools and mappings"):
            if isinstance(function, Agent):
                raise SpecError(
                    f"the agent {function.name!r} is no function", hint=f"write agents=[{function.name}, ...]"
                )
            if isinstance(function, Mapping):
                self._import_options.setdefault("registry", []).append(make_plain(function))
            else:
                self._add_tool(function)
        self.chart()  # what is wrong is said here, and not when the first message comes
        check_imports(self._import_options)

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    # -- tools -----------------------------------------------------------------------------------

    @overload
    def tool(
        self, function: Callable[Concatenate[ToolContext[Deps], Parameters], Result]
    ) -> Callable[Concatenate[ToolContext[Deps], Parameters], Result]: ...
    @overload
    def tool(
        self, **options: Unpack[ToolOptions]
    ) -> Callable[
        [Callable[Concatenate[ToolContext[Deps], Parameters], Result]],
        Callable[Concatenate[ToolContext[Deps], Parameters], Result],
    ]: ...
    def tool(self, function: Any = None, **options: Unpack[ToolOptions]) -> Any:
        """Add a function as a tool: a decorator. Its first parameter is a `ToolContext` of the agent's
        dependencies, which the model does not see.

        Args:
            options: those of `@tool(...)`, which may also stand below.

        Raises:
            SpecError: the function has no such parameter, or its context has other dependencies; an option is
                unknown, or options stand here and below.
        """
        if function is None:
            mark = mark_tool(**options)

            def add(function: Any) -> Any:
                if options and read_tool_options(function):
                    raise SpecError(
                        f"{_name_function(function)!r} has options of `@agent.tool(...)` and of `@tool(...)`",
                        hint="write them in one place",
                    )
                return self.tool(mark(function) if options else function)

            return add
        require_function("a tool", function)
        first = next(iter(inspect.signature(function).parameters), None)
        hints = _read_hints(function)
        if first is None or not is_tool_context(hints.get(first)):
            title = self._describe_dependencies()
            raise SpecError(
                f"the first parameter of {_name_function(function)!r} is no ToolContext",
                hint=f"write `context: ToolContext[{title}]`; a function without one stands in `tools=[...]`",
            )
        self._add_tool(function)
        self.spec()  # two tools with one name, a type without a schema
        return function

    def _add_tool(self, function: Callable[..., Any] | Tool) -> None:
        if not isinstance(function, Tool) and not is_effect_function(function):
            for parameter, hint in _read_hints(function).items():
                if parameter != "return" and is_tool_context(hint):
                    self._check_context(function, hint)
        self._tools.append((function, self._make_tool(function)))

    def _make_tool(self, function: Callable[..., Any] | Tool) -> Tool | Callable[..., Any]:
        """The ready tool of a function, with the spec's time for a call; an `@effect` function is itself."""
        if isinstance(function, Tool) or is_effect_function(function):
            return function
        timeout_ms = self._tool_options.get("default_timeout_ms")
        return make_program_tool(function, timeout_ms / 1000 if isinstance(timeout_ms, int) else None)

    def _check_handoff(self, agent: Agent[Any, Any]) -> None:
        """Refuse a handoff with options of a conversation that this agent does not have: they would not hold.

        Raises:
            SpecError: names the option.
        """
        own = {**self._tool_options, **self._spec_options}
        for name, value in {**agent._tool_options, **agent._spec_options}.items():
            if own.get(name) != value:
                raise SpecError(
                    f"`{name}` of the agent {agent.name!r} does not hold where {self.name!r} runs it: it "
                    "is of the whole conversation",
                    hint=f"give the same `{name}` to {self.name!r}",
                )

    def _check_context(self, function: Callable[..., Any], hint: Any) -> None:
        """Refuse a tool or a prompt whose context has other dependencies than the agent.

        Raises:
            SpecError: names both classes.
        """
        (annotation,) = get_args(hint) or (Any,)
        wanted: Any = get_origin(annotation) or annotation
        own: Any = get_origin(self._dependencies) or self._dependencies
        if isinstance(wanted, TypeVar) or not isinstance(wanted, type) or not isinstance(own, type):
            return
        if getattr(wanted, "_is_protocol", False) or issubclass(own, wanted):
            return
        own_title = self._describe_dependencies()
        what, context = ("tool", "ToolContext") if is_tool_context(hint) else ("prompt", "PromptContext")
        raise SpecError(
            f"the {what} {_name_function(function)!r} wants the dependencies {wanted.__name__}, and the "
            f"agent {self.name!r} has {own_title}",
            hint=f"write {context}[{own_title}], or Agent(..., dependencies={wanted.__name__})",
        )

    def _check_prompt(self, function: Callable[..., Any]) -> None:
        """Refuse a function that cannot write the prompt.

        Raises:
            SpecError: it takes something else, or other dependencies.
        """
        check_prompt_function(function, self._name_prompt())
        for parameter, hint in _read_hints(function).items():
            if parameter != "return" and is_prompt_context(hint):
                self._check_context(function, hint)

    def _name_prompt(self) -> str:
        """The variable of the spec that the function of the prompt writes."""
        return "prompt_of_" + re.sub(r"[^\w-]", "_", self.name)

    def _list_prompt_variables(self) -> dict[str, PromptFunction[Any]]:
        """The functions that write prompts, of this agent and its handoffs, by variable.

        Raises:
            SpecError: two names are alike.
        """
        functions: dict[str, PromptFunction[Any]] = {}
        if self._prompt_function is not None:
            functions[self._name_prompt()] = self._prompt_function
        for agent in self._beside:
            for name, function in agent._list_prompt_variables().items():
                if functions.setdefault(name, function) is not function:
                    raise _build_same_name_error(agent.name)
        return functions

    def _describe_dependencies(self) -> str:
        is_none = self._dependencies is _NO_DEPENDENCIES
        return "None" if is_none else str(getattr(self._dependencies, "__name__", self._dependencies))

    # -- what it compiles to ---------------------------------------------------------------------

    def spec(self) -> AgentSpec:
        """The agent spec that this agent is: the one that its YAML gives.

        Raises:
            SpecError: it cannot be used.
        """
        document = self.to_document()
        if self._loaded_spec is None or self._loaded_spec[0] != document:
            self._loaded_spec = document, load_spec(document)
        return self._loaded_spec[1]

    def to_document(self) -> dict[str, Any]:
        """The agent spec as plain data: written as YAML, it is the same agent without Python.

        Python functions are not part of it. `toolchart run` gets tools from `tools.registry` entries, and
        `Engine` by `functions=`; a function that writes the prompt stands as a variable there, which `Engine`
        gets by `prompt_variables=`.
        """
        models: dict[str, dict[str, Any]] = {}
        handlers: dict[str, dict[str, Any]] = {}
        imports: dict[str, Any] = {}
        self._collect_handlers(models, handlers, imports, {}, self._override.get())
        document: dict[str, Any] = {"name": self.name, "llms": models}
        section = {**self._tool_options, **imports}
        if section or self.list_functions():
            document["tools"] = {"enabled": True, **section}
        document["responses"] = list(handlers.values())
        chart = self._build_chart(document)  # after the handlers, which need names of their own
        if chart is not None:
            document["chart"] = chart
        return {**document, **self._spec_options}

    def _collect_handlers(
        self,
        models: dict[str, dict[str, Any]],
        handlers: dict[str, dict[str, Any]],
        imports: dict[str, Any],
        collected: dict[str, Agent[Any, Any]],
        override: Model | None,
    ) -> None:
        """Add the `llms` entry, the handler and the imported tools of this agent, and those of agents that
        it runs, once each.

        Args:
            collected: the agents that were added before, by name.

        Raises:
            SpecError: two different agents, servers or entries have one name.
        """
        if collected.setdefault(self.name, self) is not self:
            raise _build_same_name_error(self.name)
        if self.name in handlers:
            return
        override = override or self._override.get()
        is_replaced = override is not None and isinstance(override, (str, Mapping))
        model = override if is_replaced and override is not None else self._model
        models[self.name] = _build_model_entry(model, self._model_options, is_replaced=is_replaced)
        handler = self._form.add_to({"name": self.name, "llm": self.name, **self._handler_options})
        tools = self._list_tool_names()
        if tools:
            handler["tools"] = {"enabled": True, "allowed_tools": tools}
        if tools and self._max_iterations is not None:
            handler["tools"]["max_iterations"] = self._max_iterations
        handlers[self.name] = handler
        merge_imports(imports, self._import_options, self.name)
        for agent in self._beside:
            agent._collect_handlers(models, handlers, imports, collected, override)
        for agent in self._agents:
            chart = agent._build_chart({"name": self.name, "llms": models, "responses": [*handlers.values()]})
            merge_imports(imports, {"registry": [_build_agent_entry(agent, chart)]}, agent.name)
        if len(handlers) > 1 and "*" in tools:
            raise SpecError(
                f"nothing tells the tools that the agent {self.name!r} imports from those of other agents",
                hint="give each of its OpenAPI documents and MCP servers a `prefix`",
            )

    def _list_tool_names(self) -> list[str]:
        """Names and globs of the tools that the agent is offered."""
        names = [ready.name for _, ready in self._tools if isinstance(ready, Tool)]
        entries = self._import_options.get("registry", [])
        return [
            *names,
            *(str(entry.get("name")) for entry in entries),
            *(agent.name for agent in self._agents),
            *list_imported_globs(self._import_options),
        ]

    def list_functions(self) -> list[Tool | Callable[..., Any]]:
        """The tools and `@effect` functions of this agent and of its handoffs, each once."""
        return [ready for _, ready in self._list_given()]

    def _list_given(self) -> list[tuple[Tool | Callable[..., Any], Tool | Callable[..., Any]]]:
        given = list(self._tools)
        for agent in self._beside:
            known = [function for function, _ in given]
            added = [pair for pair in agent._list_given() if pair[0] not in known]
            if self._tool_options.get("default_timeout_ms") != agent._tool_options.get("default_timeout_ms"):
                added = [(function, self._make_tool(function)) for function, _ in added]
            given += added
        return given

    def _build_chart(self, document: Mapping[str, Any]) -> Any:
        """The chart of the spec; None for the default chart.

        A chart that runs one of the handoffs itself is the chart of the agent. Before any other one a model
        chooses who answers, and the chart is that of the agent's own answers.

        Args:
            document: the spec so far.

        Raises:
            SpecError: the chart cannot be used, or needs effects that would not reach it.
        """
        if not self._handoffs:
            return self._chart
        if self._runs_handoffs is None:
            self._runs_handoffs = self._chart is not None and self._find_own_handoffs(document)
        if self._runs_handoffs:
            return self._chart
        if "effects" in self._spec_options:
            raise SpecError(
                f"the `effects` of the agent {self.name!r} do not reach its chart, which runs no handoff",
                hint="declare them in the chart, or run a handoff there: `run_agent: {handler: "
                f"{self._handoffs[0].name}}}` (docs/flows.md)",
            )
        return _build_handoff_chart(self, document)

    def _find_own_handoffs(self, document: Mapping[str, Any]) -> bool:
        """Whether the chart that the agent was given runs one of its handoffs."""
        spec = load_spec({**document, "chart": self._chart, **self._spec_options})
        names = {agent.name for agent in self._handoffs}
        declared = load_spec_chart(spec, self._make_resolver(spec)).vocabulary.declared.values()
        runs = [row.parameters for row in declared]
        return any(isinstance(run, RunAgentParameters) and run.handler in names for run in runs)

    def chart(self) -> Chart:
        """The chart that the agent's turns run."""
        spec = self.spec()
        return load_agent_chart(spec, self._make_resolver(spec))

    def _make_resolver(self, spec: AgentSpec) -> EffectResolver:
        """Finds the `@effect` functions of the agent that its chart names."""
        return EffectResolver(spec, ChartFunctions(self.list_functions()).load_function)

    def check(self) -> CheckReport:
        """Prove what `toolchart check` proves of a spec: every turn ends, nothing runs unapproved, ..."""
        chart, options = self.describe_chart()
        return check(chart, **options)

    def describe_chart(self) -> tuple[Chart, dict[str, Any]]:
        """The chart that the agent's turns run, and the options of `check` that its limits and tools give."""
        spec = self.spec()
        return describe_agent_chart(spec, self.list_functions(), self._make_resolver(spec))

    def draw(self, format_name: str = "mermaid") -> str | bytes:
        """The chart as a diagram: `text`, `mermaid`, `dot`, `svg`, ... (docs/diagrams.md).

        Raises:
            SpecError: there is no such format.
        """
        return draw(self.chart(), format_name)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """What a notebook shows: the chart as a picture, and as text where none can be shown."""
        shown = {"text/plain": f"{self!r}\n\n{self.draw('text')}"}
        try:
            picture = self.draw("svg")
        except SpecError:  # the chart is too large
            return shown
        return {**shown, "image/svg+xml": picture.decode() if isinstance(picture, bytes) else picture}

    # -- running ---------------------------------------------------------------------------------

    @overload
    def open(self, **options: Unpack[OpenOptions]) -> OpenAgent[Deps, Output]: ...
    @overload
    def open(
        self, *, dependencies: Deps, **options: Unpack[OpenOptions]
    ) -> OpenAgent[Deps | None, Output]: ...
    def open(self, *, dependencies: Any = _UNSET, **options: Unpack[OpenOptions]) -> OpenAgent[Any, Output]:
        """The agent on a log, ready for many turns: `with agent.open(log="support.db") as support:`.

        Args:
            dependencies: what the tools get by `ToolContext.dependencies` in turns that are not given their
                own; without it every turn must be.
            options: `log`, `approver`, `asker`, `observer`, `telemetry`, ...; `OpenOptions` lists them.

        Raises:
            SpecError: the dependencies are not of the agent's class; nothing was recorded.
        """
        check_option_names("an open agent", options, Agent.open, OpenOptions)
        value: Any = None
        if dependencies is not _UNSET:
            value = self.check_dependencies(dependencies)
        elif self._dependencies is not _NO_DEPENDENCIES:
            value = _MissingDependencies(self.name, self._describe_dependencies())
        engine = Engine(**self.list_engine_options(), dependencies=value, **options)
        return OpenAgent(engine, self, needs_dependencies=isinstance(value, _MissingDependencies))

    def list_engine_options(self) -> dict[str, Any]:
        """What `Engine` takes to run this agent: `spec`, and what of it is Python (`functions`,
        `prompt_variables`, `providers`).

        For programs that need an option of `Engine` which `open` does not have. The turns of such an engine
        have no
        type: `Turn.data` is what the schema of the answer says.

        Raises:
            SpecError: the agent cannot be used.
        """
        override = self._override.get()
        return {
            "spec": self.spec(),
            "functions": self.list_functions(),
            "prompt_variables": self._list_prompt_variables(),
            "providers": {} if isinstance(override, (str, Mapping)) else self._list_providers(override),
        }

    def require_no_dependencies(self) -> None:
        """Refuse an agent whose tools need dependencies, for who has none to give.

        Raises:
            SpecError: they do.
        """
        if self._dependencies is not _NO_DEPENDENCIES:
            title = self._describe_dependencies()
            raise SpecError(
                f"the agent {self.name!r} takes dependencies ({title}), which only a program can give",
                hint=f"run it from Python: agent.run(message, dependencies={title}(...))",
            )

    def _list_providers(self, override: Provider | None) -> dict[str, Provider]:
        """The ready providers by the names of `llms` entries."""
        override = override or _find_provider(self._override.get())
        own = override or _find_provider(self._model)
        providers = {} if own is None else {self.name: own}
        for agent in self._beside:
            providers.update(agent._list_providers(override))
        return providers

    def check_dependencies(self, value: Any = _UNSET) -> Any:
        """The dependencies of a turn.

        Raises:
            SpecError: they are missing, or no instance of the agent's class.
        """
        title = self._describe_dependencies()
        if value is _UNSET:
            if self._dependencies is _NO_DEPENDENCIES:
                return None
            raise SpecError(
                f"the agent {self.name!r} needs dependencies of the class {title}",
                hint=f"write dependencies={title}(...)",
            )
        if any(_may_be(value, kind) for kind in _list_members(self._dependencies)):
            return value
        raise SpecError(
            f"the dependencies of the agent {self.name!r} are of the class {title}, not "
            f"{value.__name__ if isinstance(value, type) else type(value).__name__}",
            hint=f"give an instance of it: dependencies={title}(...)"
            if isinstance(value, type)
            else "write Agent(..., dependencies=CLASS)"
            if self._dependencies is _NO_DEPENDENCIES
            else None,
        )

    @overload
    def run(self: Agent[None, Output], message: str, **options: Unpack[_RunOptions]) -> Turn[Output]: ...
    @overload
    def run(self, message: str, *, dependencies: Deps, **options: Unpack[_RunOptions]) -> Turn[Output]: ...
    def run(
        self, message: str, *, dependencies: Any = _UNSET, **options: Unpack[_RunOptions]
    ) -> Turn[Output]:
        """Run one turn on a log, from a user message to an answer. For many turns, `open` the agent once.

        Args:
            dependencies: what the tools get by `ToolContext.dependencies`.
            options: those of `open` (`log`, `approver`, ...) and of a turn (`conversation`, `owner`, `tags`,
                `author`, `key`, `history`, `variables`, `attachments`, `model`).

        Raises:
            SpecError: an option is wrong; nothing was recorded.
            LogConflict, LogUnavailable: the log cannot be written.
            ToolchartError: an event loop is running here; use `arun` instead.
        """
        refuse_running_loop("await `arun(...)`")
        turn, opened = _split_options(options)
        with self._open(dependencies, opened) as agent:
            return agent.run(message, **turn)

    @overload
    async def arun(
        self: Agent[None, Output], message: str, **options: Unpack[_RunOptions]
    ) -> Turn[Output]: ...
    @overload
    async def arun(
        self, message: str, *, dependencies: Deps, **options: Unpack[_RunOptions]
    ) -> Turn[Output]: ...
    async def arun(
        self, message: str, *, dependencies: Any = _UNSET, **options: Unpack[_RunOptions]
    ) -> Turn[Output]:
        """The async form of `run`, with the same arguments and errors."""
        turn, opened = _split_options(options)
        async with self._open(dependencies, opened) as agent:
            return await agent.arun(message, **turn)

    @overload
    def stream(
        self: Agent[None, Output], message: str, **options: Unpack[_RunOptions]
    ) -> TurnStream[Output]: ...
    @overload
    def stream(
        self, message: str, *, dependencies: Deps, **options: Unpack[_RunOptions]
    ) -> TurnStream[Output]: ...
    def stream(
        self, message: str, *, dependencies: Any = _UNSET, **options: Unpack[_RunOptions]
    ) -> TurnStream[Output]:
        """As `arun`; yield deltas, partial answers and steps as they happen, and the result last."""
        turn, opened = _split_options(options)
        return TurnStream(self._stream(message, dependencies, turn, opened))

    async def _stream(
        self, message: str, dependencies: Any, turn: AgentTurnOptions, opened: OpenOptions
    ) -> AsyncGenerator[Piece[Output], None]:
        async with self._open(dependencies, opened) as agent, agent.stream(message, **turn) as pieces:
            async for piece in pieces:
                yield piece

    @overload
    def stream_blocking(
        self: Agent[None, Output], message: str, **options: Unpack[_RunOptions]
    ) -> BlockingTurnStream[Output]: ...
    @overload
    def stream_blocking(
        self, message: str, *, dependencies: Deps, **options: Unpack[_RunOptions]
    ) -> BlockingTurnStream[Output]: ...
    def stream_blocking(
        self, message: str, *, dependencies: Any = _UNSET, **options: Unpack[_RunOptions]
    ) -> BlockingTurnStream[Output]:
        """The blocking form of `stream`: for programs without an event loop."""
        refuse_running_loop("read `stream(...)` by `async for`")
        turn, opened = _split_options(options)
        return BlockingTurnStream(self._stream_blocking(message, dependencies, turn, opened))

    def _stream_blocking(
        self, message: str, dependencies: Any, turn: AgentTurnOptions, opened: OpenOptions
    ) -> Generator[Piece[Output], None, None]:
        with self._open(dependencies, opened) as agent:
            yield from agent.stream_blocking(message, **turn)

    def _open(self, dependencies: Any, options: OpenOptions) -> OpenAgent[None, Output]:
        value = self.check_dependencies(dependencies)
        return cast("Agent[None, Output]", self).open(dependencies=value, **options)

    @contextmanager
    def override(self, *, model: Model) -> Iterator[None]:
        """Replace the model of this agent and of its handoffs inside a `with` block, for tests.

        Agents that are opened inside the block use it, in this thread or task only. The spec in the log stays
        the agent's own where the model is a ready provider.

        Raises:
            SpecError: it is no model.
        """
        token = self._override.set(_check_model(model))
        try:
            yield
        finally:
            self._override.reset(token)


class OpenAgent(Generic[TurnDeps, Output]):
    """A typed agent on a log; made by `Agent.open`. Close it, or use it in a `with` block.

    Each turn may have its own `dependencies`, which only its tools get, and those of its children; it must
    have them where `open` was given none. `engine` is the engine that runs it, for everything that is not
    here.
    """

    def __init__(self, engine: Engine, agent: Agent[Any, Output], *, needs_dependencies: bool) -> None:
        self.engine = engine
        self._agent = agent
        self._needs_dependencies = needs_dependencies
        self._calls = engine._calls
        self._form = agent._form

    @overload
    async def arun(
        self: OpenAgent[None, Output], message: str, **options: Unpack[AgentTurnOptions]
    ) -> Turn[Output]: ...
    @overload
    async def arun(
        self, message: str, *, dependencies: TurnDeps, **options: Unpack[AgentTurnOptions]
    ) -> Turn[Output]: ...
    async def arun(
        self, message: str, *, dependencies: Any = None, **options: Unpack[AgentTurnOptions]
    ) -> Turn[Output]:
        """Run one turn; as `Engine.arun`.

        Args:
            dependencies: what the tools of this turn get by `ToolContext.dependencies`.

        Raises:
            SpecError: the dependencies are missing or not of the agent's class, or as for `Engine.arun`;
                nothing was recorded.
        """
        return await self.engine.arun(message, **self._build_options(dependencies, options))

    @overload
    def run(
        self: OpenAgent[None, Output], message: str, **options: Unpack[AgentTurnOptions]
    ) -> Turn[Output]: ...
    @overload
    def run(
        self, message: str, *, dependencies: TurnDeps, **options: Unpack[AgentTurnOptions]
    ) -> Turn[Output]: ...
    def run(
        self, message: str, *, dependencies: Any = None, **options: Unpack[AgentTurnOptions]
    ) -> Turn[Output]:
        """The blocking form of `arun`, with the same arguments and errors."""
        return self._calls.run(
            lambda: cast("OpenAgent[Any, Output]", self).arun(message, dependencies=dependencies, **options),
            instead="await `arun(...)`",
        )

    @overload
    def stream(
        self: OpenAgent[None, Output], message: str, **options: Unpack[AgentTurnOptions]
    ) -> TurnStream[Output]: ...
    @overload
    def stream(
        self, message: str, *, dependencies: TurnDeps, **options: Unpack[AgentTurnOptions]
    ) -> TurnStream[Output]: ...
    def stream(
        self, message: str, *, dependencies: Any = None, **options: Unpack[AgentTurnOptions]
    ) -> TurnStream[Output]:
        """Run one turn as `arun`, and yield what happens; its result last. Closing it early cancels it."""
        return self.engine.stream(message, **self._build_options(dependencies, options))

    @overload
    def stream_blocking(
        self: OpenAgent[None, Output], message: str, **options: Unpack[AgentTurnOptions]
    ) -> BlockingTurnStream[Output]: ...
    @overload
    def stream_blocking(
        self, message: str, *, dependencies: TurnDeps, **options: Unpack[AgentTurnOptions]
    ) -> BlockingTurnStream[Output]: ...
    def stream_blocking(
        self, message: str, *, dependencies: Any = None, **options: Unpack[AgentTurnOptions]
    ) -> BlockingTurnStream[Output]:
        """The blocking form of `stream`. The turn runs in a thread of its own, however slowly it is read."""
        return self.engine.stream_blocking(message, **self._build_options(dependencies, options))

    @overload
    async def arun_once(
        self: OpenAgent[None, Output],
        message: str,
        *,
        again: bool = False,
        **options: Unpack[AgentTurnOptions],
    ) -> Turn[Output]: ...
    @overload
    async def arun_once(
        self,
        message: str,
        *,
        again: bool = False,
        dependencies: TurnDeps,
        **options: Unpack[AgentTurnOptions],
    ) -> Turn[Output]: ...
    async def arun_once(
        self,
        message: str,
        *,
        again: bool = False,
        dependencies: Any = None,
        **options: Unpack[AgentTurnOptions],
    ) -> Turn[Output]:
        """Have one message answered in a conversation of its own, however often this is asked for.

        As `Engine.arun_once`; `conversation` must be there. The dependencies are not compared.
        """
        turn_options = self._build_options(dependencies, options, OpenAgent.arun_once)
        return await self.engine.arun_once(message, again=again, **turn_options)

    @overload
    def run_once(
        self: OpenAgent[None, Output],
        message: str,
        *,
        again: bool = False,
        cancel_on: Sequence[Signals] = (),
        **options: Unpack[AgentTurnOptions],
    ) -> Turn[Output]: ...
    @overload
    def run_once(
        self,
        message: str,
        *,
        again: bool = False,
        cancel_on: Sequence[Signals] = (),
        dependencies: TurnDeps,
        **options: Unpack[AgentTurnOptions],
    ) -> Turn[Output]: ...
    def run_once(
        self,
        message: str,
        *,
        again: bool = False,
        cancel_on: Sequence[Signals] = (),
        dependencies: Any = None,
        **options: Unpack[AgentTurnOptions],
    ) -> Turn[Output]:
        """The blocking form of `arun_once`, with the same arguments and errors.

        Args:
            cancel_on: signals that cancel the turn while it runs; as for `Engine.run_once`.
        """
        turn_options = self._build_options(dependencies, options, OpenAgent.run_once)
        return self.engine.run_once(message, again=again, cancel_on=cancel_on, **turn_options)

    @overload
    def conversation(
        self: OpenAgent[None, Output], conversation: str | None = None, *, owner: str | None = None
    ) -> Conversation[Output]: ...
    @overload
    def conversation(
        self, conversation: str | None = None, *, owner: str | None = None, dependencies: TurnDeps
    ) -> Conversation[Output]: ...
    def conversation(
        self, conversation: str | None = None, *, owner: str | None = None, dependencies: Any = None
    ) -> Conversation[Output]:
        """A handle of one conversation, whose turns are those of this agent; as `Engine.conversation`.

        Args:
            conversation: its id; None makes a new one.
            owner: for whom the handle is: each of its members raises `NotFound` for a conversation of anybody
                else. None reads and moves every conversation.
            dependencies: what the tools of its turns get, where a turn is not given its own.

        Raises:
            SpecError: the dependencies are missing or not of the agent's class, or the owner has no name.
        """
        return self._open_conversation(conversation, owner, dependencies)

    @overload
    async def aresume(
        self: OpenAgent[None, Output],
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
    ) -> Turn[Output]: ...
    @overload
    async def aresume(
        self,
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
        dependencies: TurnDeps,
    ) -> Turn[Output]: ...
    async def aresume(
        self,
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
        dependencies: Any = None,
    ) -> Turn[Output]:
        """Go on with a turn, with a decision of a person if there is one; as `Conversation.aresume`.

        Args:
            owner: for whom; as for `conversation`.
        """
        handle = self._open_conversation(conversation, owner, dependencies)
        return await handle.aresume(decision)

    @overload
    def resume(
        self: OpenAgent[None, Output],
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
    ) -> Turn[Output]: ...
    @overload
    def resume(
        self,
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
        dependencies: TurnDeps,
    ) -> Turn[Output]: ...
    def resume(
        self,
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
        dependencies: Any = None,
    ) -> Turn[Output]:
        """The blocking form of `aresume`, with the same arguments and errors."""
        return self._calls.run(
            lambda: cast("OpenAgent[Any, Output]", self).aresume(
                conversation, decision, owner=owner, dependencies=dependencies
            ),
            instead="await `aresume(...)`",
        )

    @overload
    def stream_resume(
        self: OpenAgent[None, Output],
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
    ) -> TurnStream[Output]: ...
    @overload
    def stream_resume(
        self,
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
        dependencies: TurnDeps,
    ) -> TurnStream[Output]: ...
    def stream_resume(
        self,
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
        dependencies: Any = None,
    ) -> TurnStream[Output]:
        """As `aresume`, and yield what happens; the result last."""
        return self._open_conversation(conversation, owner, dependencies).stream_resume(decision)

    @overload
    def stream_resume_blocking(
        self: OpenAgent[None, Output],
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
    ) -> BlockingTurnStream[Output]: ...
    @overload
    def stream_resume_blocking(
        self,
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
        dependencies: TurnDeps,
    ) -> BlockingTurnStream[Output]: ...
    def stream_resume_blocking(
        self,
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
        dependencies: Any = None,
    ) -> BlockingTurnStream[Output]:
        """The blocking form of `stream_resume`. The turn runs in a thread of its own."""
        handle = self._open_conversation(conversation, owner, dependencies)
        return handle.stream_resume_blocking(decision)

    @overload
    async def aapprove(
        self: OpenAgent[None, Output],
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        **options: Unpack[ApprovalOptions],
    ) -> Turn[Output]: ...
    @overload
    async def aapprove(
        self,
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        dependencies: TurnDeps,
        **options: Unpack[ApprovalOptions],
    ) -> Turn[Output]: ...
    async def aapprove(
        self,
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        dependencies: Any = None,
        **options: Unpack[ApprovalOptions],
    ) -> Turn[Output]:
        """Decide a call, and go on with the turn; as `Conversation.aapprove`.

        Args:
            call_id: None for the only call that waits.
            owner: for whom; as for `conversation`.
            options: `approved=False` rejects it; `by` says who decides.
        """
        check_option_names("an approval", options, OpenAgent.aapprove, ApprovalOptions)
        handle = self._open_conversation(conversation, owner, dependencies)
        return await handle.aapprove(call_id, **options)

    @overload
    def approve(
        self: OpenAgent[None, Output],
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        **options: Unpack[ApprovalOptions],
    ) -> Turn[Output]: ...
    @overload
    def approve(
        self,
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        dependencies: TurnDeps,
        **options: Unpack[ApprovalOptions],
    ) -> Turn[Output]: ...
    def approve(
        self,
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        dependencies: Any = None,
        **options: Unpack[ApprovalOptions],
    ) -> Turn[Output]:
        """The blocking form of `aapprove`, with the same arguments and errors."""
        return self._calls.run(
            lambda: cast("OpenAgent[Any, Output]", self).aapprove(
                conversation, call_id, owner=owner, dependencies=dependencies, **options
            ),
            instead="await `aapprove(...)`",
        )

    @overload
    def stream_approval(
        self: OpenAgent[None, Output],
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        **options: Unpack[ApprovalOptions],
    ) -> TurnStream[Output]: ...
    @overload
    def stream_approval(
        self,
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        dependencies: TurnDeps,
        **options: Unpack[ApprovalOptions],
    ) -> TurnStream[Output]: ...
    def stream_approval(
        self,
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        dependencies: Any = None,
        **options: Unpack[ApprovalOptions],
    ) -> TurnStream[Output]:
        """Decide a call as `aapprove`, and yield what happens then; the result last."""
        check_option_names("an approval", options, OpenAgent.stream_approval, ApprovalOptions)
        handle = self._open_conversation(conversation, owner, dependencies)
        return handle.stream_approval(call_id, **options)

    @overload
    def stream_approval_blocking(
        self: OpenAgent[None, Output],
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        **options: Unpack[ApprovalOptions],
    ) -> BlockingTurnStream[Output]: ...
    @overload
    def stream_approval_blocking(
        self,
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        dependencies: TurnDeps,
        **options: Unpack[ApprovalOptions],
    ) -> BlockingTurnStream[Output]: ...
    def stream_approval_blocking(
        self,
        conversation: str,
        call_id: str | None = None,
        *,
        owner: str | None = None,
        dependencies: Any = None,
        **options: Unpack[ApprovalOptions],
    ) -> BlockingTurnStream[Output]:
        """The blocking form of `stream_approval`. The turn runs in a thread of its own."""
        check_option_names("an approval", options, OpenAgent.stream_approval_blocking, ApprovalOptions)
        handle = self._open_conversation(conversation, owner, dependencies)
        return handle.stream_approval_blocking(call_id, **options)

    def close(self) -> None:
        """Close the engine, and the log where it was opened here."""
        self.engine.close()

    async def aclose(self) -> None:
        """The async form of `close`."""
        await self.engine.aclose()

    def __enter__(self) -> OpenAgent[TurnDeps, Output]:
        self.engine.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> OpenAgent[TurnDeps, Output]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _open_conversation(
        self, conversation: str | None, owner: str | None, dependencies: Any
    ) -> Conversation[Output]:
        from toolchart.engine.runtime.handle import Conversation

        name = conversation or generate_conversation_id()
        return Conversation(self.engine, name, owner, self._build_options(dependencies))

    def _build_options(
        self, dependencies: Any, options: AgentTurnOptions | None = None, method: Callable[..., Any] = run
    ) -> Any:
        """The options of a turn for the engine, with the agent's type.

        Args:
            method: what was called with the options.

        Raises:
            SpecError: the dependencies are missing, or not of the agent's class; there is no such option.
        """
        check_option_names("a turn", options or {}, method, AgentTurnOptions)
        if dependencies is not None:
            dependencies = self._agent.check_dependencies(dependencies)
        elif self._needs_dependencies:
            self._agent.check_dependencies()
        return {**(options or {}), "dependencies": dependencies, "output_type": self._form}


# -- from options to a document ---------------------------------------------------------------------


def _split_options(options: Mapping[str, Any]) -> tuple[AgentTurnOptions, OpenOptions]:
    """The options of a turn, and those of the engine.

    Raises:
        SpecError: there is no such option.
    """
    check_option_names("a turn", options, Agent.run, _RunOptions)
    names = AgentTurnOptions.__optional_keys__
    turn = {name: value for name, value in options.items() if name in names}
    opened = {name: value for name, value in options.items() if name not in names}
    return cast("AgentTurnOptions", turn), cast("OpenOptions", opened)


def _read_text(option: str, value: Any, default: str) -> str:
    """The text of an option; the default for None.

    Raises:
        SpecError: it is no text, or an empty one where the default is none.
    """
    if value is None:
        return default
    if not isinstance(value, str) or (default and not value):
        raise SpecError(
            f"the `{option}` of an agent is a text, not {describe_value(value)}",
            hint=f'for instance {option}="billing"',
        )
    return value


def _check_model(model: Any) -> Any:
    """The model.

    Raises:
        SpecError: it is neither the name or the entry of one, nor a provider.
    """
    is_provider = callable(getattr(model, "complete", None)) and not isinstance(model, type)
    if isinstance(model, str | Mapping) or is_provider:
        return model
    example = f"{model.__name__}(...)" if isinstance(model, type) else '"openai:gpt-5.1"'
    raise SpecError(
        f"a model is PROVIDER:MODEL, an `llms` entry or a provider, not {describe_value(model)}",
        hint=f"write {example}",
    )


def _check_dependencies(dependencies: Any) -> Any:
    """The class of dependencies; that of None for None.

    Raises:
        SpecError: it is no class.
    """
    if dependencies is None:
        return _NO_DEPENDENCIES
    if is_type(dependencies):
        return dependencies
    name = dependencies if isinstance(dependencies, str) else type(dependencies).__name__
    raise SpecError(
        f"`dependencies` is the class of what the tools get, not {describe_value(dependencies)}",
        hint=f"write dependencies={name}, and give a value of it to each run: "
        f"run(..., dependencies={name}(...))",
    )


def _list_members(kind: Any) -> tuple[Any, ...]:
    """The types of a union; a type that is none alone."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _may_be(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, as far as classes tell."""
    wanted = get_origin(kind) or kind
    return not isinstance(wanted, type) or getattr(wanted, "_is_protocol", False) or isinstance(value, wanted)


def _find_provider(model: Any) -> Provider | None:
    """The ready provider that a model is; None for the name or the entry of one."""
    return None if model is None or isinstance(model, (str, Mapping)) else cast("Provider", model)


def _build_model_entry(
    model: Model, options: Mapping[str, Any], *, is_replaced: bool = False
) -> dict[str, Any]:
    """The `llms` entry of a model.

    Args:
        options: keys of the entry that the agent was given.
        is_replaced: whether the model stands for that of the agent, so that its own keys go first.

    Raises:
        SpecError: it names no provider, or both say different things.
    """
    if isinstance(model, Mapping):
        entry: dict[str, Any] = make_plain(model)
        for key, value in options.items():
            if not is_replaced and entry.get(key, value) != value:
                raise SpecError(
                    f"the agent has {key}={value!r}, and its model {entry[key]!r}", hint=f"give {key} once"
                )
        return {**options, **entry}
    if isinstance(model, str):
        provider, has_model, name = model.partition(":")
        if not has_model or not provider or not name:
            raise SpecError(
                f"a model is named as PROVIDER:MODEL, not {model!r}", hint='for instance "openai:gpt-5.1"'
            )
        find_host(provider)  # an unknown name is refused here
        return {"provider": provider, "model": name, **options}
    return {"provider": "scripted", "model": model.name, **options}


def _build_same_name_error(name: str) -> SpecError:
    return SpecError(
        f"two agents have the name {name!r}", hint='give each its own: Agent(..., name="billing")'
    )


def _name_function(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _read_hints(function: Any) -> dict[str, Any]:
    """The types of a function's parameters; none where they cannot be resolved, which `make_tool` reports."""
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target)
    except (NameError, TypeError):
        return {}


# -- handoffs ----------------------------------------------------------------------------------------


def _build_handoff_chart(agent: Agent[Any, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The chart of an agent with handoffs: the model names who answers, and that agent runs as a child.

    Each choice is a row of the chart: `check` proves that every turn ends, and the log says who was chosen.
    """
    agents = {handoff.name: handoff for handoff in agent._handoffs}
    names = list(agents)
    states: dict[str, Any] = {
        "choosing": {
            "initial": True,
            "enter": "choose_agent",
            "transitions": [
                {"event": "replied failed", "target": "out_of_budget", "cond": "budget_spent"},
                *(
                    {"event": "replied", "target": f"with_{name}", "cond": f"chosen.agent == '{name}'"}
                    for name in names
                ),
                {"event": "replied", "target": "answering"},
                {"event": "failed", "target": "choosing", "cond": "chosen.failures < 2"},
                {"event": "failed cancelled", "target": "error"},
            ],
        }
    }
    ends = [
        {"event": "agent_finished", "target": "finished"},
        {"event": "agent_failed cancelled", "target": "error"},
    ]
    effects: dict[str, Any] = {
        "choose_agent": {
            "call_model": {
                "llm": agent.name,
                "as": "chosen",
                "history": "all",
                "prompt": _build_choice_prompt(agent),
                "schema": {
                    "type": "object",
                    "required": ["agent"],
                    "properties": {"agent": {"enum": [agent.name, *names]}},
                    "additionalProperties": False,
                },
            }
        }
    }
    states["answering"] = {"enter": f"run_{agent.name}", "transitions": ends}
    effects[f"run_{agent.name}"] = _build_agent_run(agent.name, agent._chart)
    for name, handoff in agents.items():
        states[f"with_{name}"] = {"enter": f"run_{name}", "transitions": ends}
        effects[f"run_{name}"] = _build_agent_run(name, handoff._build_chart(document))
    states["finished"] = {"final": True, "enter": "answer"}
    states["out_of_budget"] = {"final": True, "enter": "answer_at_limit"}
    states["error"] = {"final": True, "enter": "answer_with_error"}
    return {"name": f"{agent.name}_handoffs", "states": states, "effects": effects}


def _build_agent_entry(agent: Agent[Any, Any], chart: Any) -> dict[str, Any]:
    """The entry of `tools.registry` by which an agent is a tool; without a chart it runs the default one."""
    implementation = {"type": "agent", "handler": agent.name, **({} if chart is None else {"chart": chart})}
    entry = {"name": agent.name, "description": agent.description, "implementation": implementation}
    return {key: value for key, value in entry.items() if value}


def _build_agent_run(name: str, chart: Any) -> dict[str, Any]:
    """The effect that lets an agent answer; without a chart it runs the default one."""
    run = {"handler": name, "history": "all", **({} if chart is None else {"chart": chart})}
    return {"run_agent": run}


def _build_choice_prompt(agent: Agent[Any, Any]) -> str:
    """The question who should answer a message."""
    rows = [f"- {agent.name}: {agent.description or 'everything else'}"]
    rows += [f"- {handoff.name}: {handoff.description or handoff.name}" for handoff in agent._handoffs]
    return "Who should answer the user's last message? Name one of these:\n" + "\n".join(rows)
