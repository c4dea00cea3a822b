"""What `check` knows about an agent's data: which tools strangers speak through, and which can do harm.

It is read from the spec alone: no server is started and no tool is made. What the spec does not say has these
defaults, which are meant to be safe:

| tools | what they return | risk |
| --- | --- | --- |
| builtin, mock | trusted; those over files and documents untrusted | low; `run_shell` high, and asks |
| HTTP | untrusted | `GET`, `HEAD` and `OPTIONS` low, else high |
| Python, services of the program | untrusted until they say so: findings about them are `undeclared` | high |
| MCP, OpenAPI | untrusted | high, because a stranger says what each tool does |
| another package's | as its row in the table of tool sources says, else untrusted | high |

A call of high risk is covered where a person decides about each one: by `requires_approval`, a declared
`risk: high`, or a rule of `approval`, and no rule with `decision: always` comes first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from toolchart.specs.agent_costs import build_cost_finder, find_widest_limits
from toolchart.specs.charts import load_spec_chart
from toolchart.specs.child_agents import build_child_spec, describe_agent, is_called_agent
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.document_files import read_document
from toolchart.specs.models import AgentSpec, Handler, ToolEntry
from toolchart.specs.own_modules import load_own_reference
from toolchart.specs.turn_plan import needs_preparation, select_tools
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.yaml_document import Document, parse_key_path
from toolchart.states.effects import EffectDescriptor
from toolchart.states.errors import SpecError
from toolchart.states.flows.templates import list_template_variables
from toolchart.states.proofs.dataflow.agents import (
    FlowAgent,
    FlowHandler,
    FlowTool,
    Hop,
    Trail,
    UndeclaredSource,
)
from toolchart.tools.approval import Policy, Rule, parse_policy
from toolchart.tools.builtin import BUILTIN_FACTORIES, is_asking_builtin
from toolchart.tools.definition import Risk, Tool, Trust
from toolchart.tools.formats import make_portable_name
from toolchart.tools.sources.effect_functions import is_effect_function
from toolchart.tools.sources.entry_settings import get_type_settings
from toolchart.tools.sources.python import read_tool_options
from toolchart.tools.sources.registry_entries import INTERNAL_SERVICES
from toolchart.tools.sources.table import TOOL_SOURCES

_READING_METHODS = ("GET", "HEAD", "OPTIONS")

_DOCUMENT_TOOLS = (*BUILTIN_FACTORIES, *INTERNAL_SERVICES)
"""Builtins and services that return what stands in files."""


class _ToolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a spec says about a tool, or about all tools whose names begin alike."""

    name: str
    place: str
    trust: Trust
    risk: Risk
    needs_approval: bool
    """Whether its calls ask where no rule says otherwise."""
    undeclared_sources: tuple[UndeclaredSource, ...] = ()
    """The code of the program, itself or below it, of which nothing says who writes what it returns."""
    is_prefix: bool = False
    """Whether `name` begins the names of several tools."""

    @property
    def is_foreign(self) -> bool:
        """Whether strangers describe the tools: they come from an untrusted server or document."""
        return self.is_prefix and self.trust == "untrusted"


def describe_data_flow(
    spec: AgentSpec,
    chart: Chart,
    resolver: EffectResolver | None = None,
    *,
    functions: Sequence[Tool | Callable[..., Any]] = (),
) -> FlowAgent:
    """The agent of a spec as the analysis of its data flow needs it.

    Args:
        chart: the spec's own.
        functions: the tools that the program adds to those of the spec.

    Raises:
        SpecError: the approval rules cannot be used.
    """
    program_tools = [
        _describe_program_tool(function) for function in functions if not is_effect_function(function)
    ]
    resolver = resolver or EffectResolver(spec)
    agent = _describe_agent(spec, chart, spec.responses, resolver, FlowHandler(), program_tools)
    idle_globs = list(_list_idle_globs(spec, program_tools))
    return msgspec.structs.replace(
        agent,
        dead_rules=tuple(message for message, is_dead in idle_globs if is_dead),
        idle_rules=tuple(message for message, is_dead in idle_globs if not is_dead),
    )


def _list_idle_globs(spec: AgentSpec, program_tools: Sequence[_ToolFacts]) -> Iterator[tuple[str, bool]]:
    """The globs of rules that match no tool, with their places, and whether a call may run unasked by it.

    Nothing is said where a server, a document or a package may have the tool: its names are not known here.
    """
    if spec.tools is not None and any(name in TOOL_SOURCES for name in spec.tools.model_extra or {}):
        return
    places = _Places(spec)
    tools = [*_list_tools(spec, places), *program_tools]
    names = dict.fromkeys(tool.name for tool in tools if not tool.is_prefix)
    prefixes = [tool.name for tool in tools if tool.is_prefix]
    portable_names = [make_portable_name(name) for name in names]

    def may_exist(glob: str) -> bool:
        is_portable_name = any(fnmatchcase(name, glob) for name in portable_names)
        return is_portable_name or any(_may_match_prefix(glob, prefix) for prefix in prefixes)

    rules_path = "approval.rules" if isinstance(spec.approval, Mapping) else "approval"
    for idle in parse_policy(spec.approval, approvers=spec.approvers).list_idle_globs(names, may_exist):
        place = f" ({places.find_key(f'{rules_path}[{idle.rule_index}]')})" if spec.source else ""
        yield f"{idle.message}{place}", idle.is_dead


def _describe_agent(
    spec: AgentSpec,
    chart: Chart,
    handlers: Sequence[Handler],
    resolver: EffectResolver,
    parent_values: FlowHandler,
    program_tools: Sequence[_ToolFacts],
) -> FlowAgent:
    """The agent of a spec.

    Args:
        parent_values: the values of a turn that the agent which runs this one hands on.
        program_tools: those that the program adds.
    """
    policy, places = parse_policy(spec.approval, approvers=spec.approvers), _Places(spec)
    tools = _derive_agent_facts(spec, [*_list_tools(spec, places), *program_tools])
    values = _describe_turn_values(spec, tools, places, parent_values)

    def find_child(row: EffectDescriptor) -> FlowAgent:
        child = build_child_spec(spec, describe_agent(row.parameters))
        child_resolver = resolver.copy_for(child)
        name = row.parameters.handler
        chosen = [handler for handler in child.responses if not name or handler.name == name]
        child_chart = load_spec_chart(child, child_resolver)
        return _describe_agent(child, child_chart, chosen, child_resolver, handed_on, program_tools)

    user = None
    if spec.message_trust == "untrusted":
        user = Hop("the user's message, which strangers write", places.find_key("message_trust"))
    described = [_describe_handler(spec, handler, tools, policy, values) for handler in handlers]
    handed_on = values
    if values.finds_topic:
        topic = Hop("the topic, which a model has found in the messages", places.find_key("topic"))
        handed_on = msgspec.structs.replace(values, finds_topic=False, topic=(topic,))
    return FlowAgent(
        chart=chart,
        handlers=tuple(dict.fromkeys(described)),
        find_place=partial(places.find_effect, chart),
        find_child=find_child,
        user=user,
    )


def _describe_handler(
    spec: AgentSpec, handler: Handler, tools: Sequence[_ToolFacts], policy: Policy, values: FlowHandler
) -> FlowHandler:
    offered_tools = [tool for tool in tools if _is_offered(spec, handler, tool)]
    return msgspec.structs.replace(
        values,
        tools=tuple(
            FlowTool(
                name=tool.name + ("*" if tool.is_prefix else ""),
                place=tool.place,
                is_untrusted=tool.trust == "untrusted",
                is_high_risk=tool.risk == "high",
                asks=_asks_always(policy, tool),
                undeclared_sources=tool.undeclared_sources,
            )
            for tool in offered_tools
        ),
        prompt_variables=list_template_variables(handler.prompt or ""),
        descriptions=next((_describe_foreign(tool) for tool in offered_tools if tool.is_foreign), None),
    )


def _describe_foreign(tool: _ToolFacts) -> Trail:
    return (Hop(f"the descriptions of the tools {tool.name + '*'!r}, which strangers write", tool.place),)


def _describe_turn_values(
    spec: AgentSpec, tools: Sequence[_ToolFacts], places: _Places, parent_values: FlowHandler
) -> FlowHandler:
    """What `{{rag_context}}` and `{{topic}}` stand for, wherever they are shown.

    Documents are trusted where the one search of the spec is a tool with `trust: trusted`.
    """
    search = next((tool for tool in tools if tool.name in INTERNAL_SERVICES), None)
    documents = parent_values.documents
    if spec.rag_services or search is None or search.trust != "trusted":
        place = search.place if search is not None else spec.source or "the spec"
        if spec.rag_services:
            place = places.find_key("rag_services")
        documents = documents or (Hop("untrusted documents ({{rag_context}})", place),)
    return FlowHandler(documents=documents, topic=parent_values.topic, finds_topic=needs_preparation(spec))


# -- the tools of a spec ---------------------------------------------------------------------------


def _list_tools(spec: AgentSpec, places: _Places) -> Iterator[_ToolFacts]:
    if spec.tools is None:
        return
    folder = Path(spec.source).parent if spec.source else None
    for index, entry in enumerate(spec.tools.registry):
        yield _describe_entry(entry, places.find_key(f"tools.registry[{index}]"), folder)
    for name, server in spec.tools.mcp.items():
        prefix = f"{name}__" if server.get("prefix") is None else server["prefix"]
        yield _describe_server(str(prefix), server, places.find_key(f"tools.mcp.{name}"))
    for index, document in enumerate(spec.tools.openapi):
        place = places.find_key(f"tools.openapi[{index}]")
        risk = document.get("risk")
        yield _ToolFacts(
            name=str(document.get("prefix") or ""),
            place=place,
            trust=_read_trust(document),
            risk=risk or "high",
            needs_approval=risk == "high",
            is_prefix=True,
        )


def _derive_agent_facts(spec: AgentSpec, tools: list[_ToolFacts]) -> list[_ToolFacts]:
    """The tools, those that run agents as harmless and trusted as all others of the spec together: an agent
    does and says what its own tools do and say. What an entry says of itself stays."""
    entries = {
        entry.name: entry for entry in (spec.tools.registry if spec.tools else ()) if is_called_agent(entry)
    }
    if not entries:
        return tools
    others = [tool for tool in tools if tool.name not in entries]
    trust: Trust = "untrusted" if any(tool.trust == "untrusted" for tool in others) else "trusted"
    risk: Risk = "high" if any(tool.risk == "high" for tool in others) else "low"
    undeclared_sources = tuple(dict.fromkeys(source for tool in others for source in tool.undeclared_sources))
    return [
        msgspec.structs.replace(
            tool,
            trust=entries[tool.name].trust or trust,
            risk=entries[tool.name].risk or risk,
            undeclared_sources=() if entries[tool.name].trust else undeclared_sources,
        )
        if tool.name in entries
        else tool
        for tool in tools
    ]


def _describe_entry(entry: ToolEntry, place: str, folder: Path | None) -> _ToolFacts:
    implementation = entry.kind
    source = TOOL_SOURCES.find(implementation.type)
    handler = implementation.handler or entry.name
    options = _read_function_options(handler, folder) if source.name == "python" else {}
    trust, writes = source.trust, source.writes
    if handler in _DOCUMENT_TOOLS and source.name in ("builtin", "internal"):
        trust, writes = "untrusted", False
    if source.name == "http":
        writes = str(get_type_settings(entry).get("method") or "GET").upper() not in _READING_METHODS
    declared_trust = entry.trust or options.get("trust")
    declared_risk = entry.risk or options.get("risk") or ("high" if is_asking_builtin(handler) else None)
    return _ToolFacts(
        name=entry.name,
        place=place,
        trust=declared_trust or trust,
        undeclared_sources=_list_undeclared(
            entry.name, place, bool(declared_trust) or not source.is_own_code or trust == "untrusted"
        ),
        risk=declared_risk or ("high" if writes else "low"),
        needs_approval=entry.requires_approval
        or bool(options.get("requires_approval"))
        or declared_risk == "high",
    )


def _describe_program_tool(function: Tool | Callable[..., Any]) -> _ToolFacts:
    """A tool that the program gave to the engine. A ready `Tool` of a function says what `@tool` says of that
    function; one without a function has its own risk."""
    options: dict[str, Any] = read_tool_options(function.function if isinstance(function, Tool) else function)
    if isinstance(function, Tool):
        name = function.name
        if function.function is None:
            options["risk"] = function.risk
        options["requires_approval"] = function.requires_approval
    else:
        name = str(options.get("name") or getattr(function, "__name__", type(function).__name__))
    place = _find_code_place(function.function if isinstance(function, Tool) else function)
    return _ToolFacts(
        name=name,
        place=place,
        trust=options.get("trust") or "trusted",
        undeclared_sources=_list_undeclared(name, place, "trust" in options),
        risk=options.get("risk") or "high",
        needs_approval=bool(options.get("requires_approval")) or options.get("risk") == "high",
    )


def _find_code_place(function: Callable[..., Any] | None) -> str:
    """File and line of a function of the program, as far as they are known."""
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "a function of the program"


def _list_undeclared(name: str, place: str, is_declared: bool) -> tuple[UndeclaredSource, ...]:
    return () if is_declared else (UndeclaredSource(name=f"the tool {name!r}", place=place),)


def _read_function_options(reference: str, folder: Path | None) -> dict[str, Any]:
    """The options that `@tool` has stored with a function; none where it cannot be imported here.

    Args:
        folder: that of the spec, beside which the function's module may lie.
    """
    try:
        return read_tool_options(load_own_reference(reference, folder))
    except Exception:  # the user's module may fail in any way, and says so where the tool is made
        return {}


def _describe_server(prefix: str, server: dict[str, Any], place: str) -> _ToolFacts:
    """All tools of an MCP server. Without a `risk` in the spec each one of high risk asks; the hints of a
    trusted server say which tools have a lower one."""
    risk = server.get("risk")
    return _ToolFacts(
        name=prefix,
        place=place,
        trust=_read_trust(server),
        risk=risk or "high",
        needs_approval=risk in (None, "high"),
        is_prefix=True,
    )


def _read_trust(section: Mapping[str, Any]) -> Trust:
    return "trusted" if section.get("trust") == "trusted" else "untrusted"


# -- what a handler offers, and what asks ------------------------------------------------------------


def _is_offered(spec: AgentSpec, handler: Handler, tool: _ToolFacts) -> bool:
    if not tool.is_prefix:
        return bool(select_tools(spec, handler, {tool.name: tool.name})[0])
    if not select_tools(spec, handler.model_copy(update={"tools": _open_section(handler)}), {"x": "x"})[0]:
        return False
    globs = handler.tools.allowed_tools if handler.tools else []
    return not globs or any(_may_match_prefix(glob, tool.name) for glob in globs)


def _open_section(handler: Handler) -> Any:
    """The handler's tools without its list of names."""
    return handler.tools.model_copy(update={"allowed_tools": []}) if handler.tools else None


def _may_match_prefix(glob: str, prefix: str) -> bool:
    """Whether a glob may match a name that begins so."""
    text = glob.split("*")[0].split("?")[0].split("[")[0]
    return text.startswith(prefix) or (prefix.startswith(text) and text != glob)


def _asks_always(policy: Policy, tool: _ToolFacts) -> bool:
    """Whether every call of a tool is denied or decided by a person."""
    for rule in policy.rules:
        if not any(_names(glob, tool) for glob in rule.tools):
            continue
        if rule.decision == "always":
            return False
        if not rule.conditions and _covers(rule, tool):
            return True
    return tool.needs_approval if policy.default is None else True


def _names(glob: str, tool: _ToolFacts) -> bool:
    return _may_match_prefix(glob, tool.name) if tool.is_prefix else fnmatchcase(tool.name, glob)


def _covers(rule: Rule, tool: _ToolFacts) -> bool:
    """Whether a rule names every tool that is meant."""
    if not tool.is_prefix:
        return True
    plain_globs = [glob[:-1] for glob in rule.tools if glob.endswith("*") and not set(glob[:-1]) & set("*?[")]
    return any(tool.name.startswith(text) for text in plain_globs)


# -- places ------------------------------------------------------------------------------------------


class _Places:
    """File and line of the parts of one spec. The file is read once, where a place is asked for."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec
        self._name = spec.source or (f"{spec.name}.yaml" if spec.name else "the spec")

    @cached_property
    def _document(self) -> Document | None:
        try:
            return read_document(Path(self._spec.source)) if self._spec.source else None
        except SpecError:
            return None

    def find_key(self, path: str) -> str:
        """The place of a key path of the spec."""
        line = self._document.find_line(parse_key_path(path)) if self._document is not None else None
        return f"{self._name}:{line}" if line else f"{self._name}, {path}"

    def find_effect(self, chart: Chart, effect: str, state: str) -> str:
        """The line that declares an effect, or of the state that asks for one that is built in."""
        if self._spec.effects and effect in self._spec.effects:
            return self.find_key(f"effects.{effect}")
        position: Any = ("effects", effect)
        if effect not in chart.effects:
            position = next((place for name, _, place in walk_states(chart) if name == state), position)
        line = chart.find_line(position)
        source = chart.source or chart.name
        return f"{source}:{line}" if line else source


def may_ask(spec: AgentSpec, chart: Chart, functions: Sequence[Tool | Callable[..., Any]]) -> bool:
    """Whether a call of the agent may need a person's decision; true where that is not known.

    What a function says of itself (`@tool(requires_approval=True)`) counts as what the spec says of it.

    Args:
        functions: the tools that the program adds to those of the spec.
    """
    policy = parse_policy(spec.approval, approvers=spec.approvers)
    asks_by_itself = (
        any(tool.needs_approval for tool in _list_tools(spec, _Places(spec)))
        or any(
            _describe_program_tool(function).needs_approval
            for function in functions
            if not is_effect_function(function)
        )
        # A call that was written as text may be quoted, and a tool may have changed since it was pinned.
        or any(llm.tool_format != "native" for llm in spec.llms.values())
        or "describe_tools_in_text" in str(chart.document)
        or bool(spec.tools and spec.tools.pins)
    )
    return policy.may_ask(asks_by_itself)


def describe_agent_chart(
    spec: AgentSpec,
    functions: Sequence[Tool | Callable[..., Any]] = (),
    resolver: EffectResolver | None = None,
) -> tuple[Chart, dict[str, Any]]:
    """The chart of an agent, and the options of `check` that the agent's limits and tools give.

    Args:
        functions: the tools that the program adds to those of the spec.
        resolver: finds the functions that the chart calls, where the program has them.

    Raises:
        SpecError: the chart cannot be loaded.
    """
    chart = load_agent_chart(spec, resolver)
    return chart, {
        "risky": may_ask(spec, chart, functions),
        "limits": find_widest_limits(spec),
        "unbounded": spec.limits.unbounded,
        "find_agent_cost": build_cost_finder(spec),
        "flow_agent": describe_data_flow(spec, chart, functions=functions),
    }
