"""The tools of one agent: built from its spec, and those of them that may run a second time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolchart.engine.runtime.model_hosts import build_embedder_factory
from toolchart.providers.shared.requests import parse_tool_choice
from toolchart.specs.document_files import locate_errors
from toolchart.specs.models import AgentSpec, Handler, HandlerTools, ToolsConfig
from toolchart.specs.turn_plan import apply_tool_cap, select_tools
from toolchart.states.chart.document import Chart
from toolchart.states.errors import ProviderError, SpecError, suggest_name
from toolchart.states.events import Versions
from toolchart.states.flows.parameters import FunctionParameters
from toolchart.states.flows.templates import list_template_variables
from toolchart.states.snapshot import Snapshot
from toolchart.tools.definition import Tool
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.effect_functions import (
    EffectFunction,
    is_effect_function,
    load_effect_function,
    name_effect_function,
)
from toolchart.tools.sources.registry_entries import Service
from toolchart.tools.whole_definition import describe_changes, digest_definition

log = logging.getLogger("toolchart.engine")


def offer_functions(spec: AgentSpec, functions: Sequence[Callable[..., Any] | Tool]) -> AgentSpec:
    """The spec with a `tools` section that offers the program's functions, where it has none of its own.

    Without such a section no handler says which tools it offers, and the functions would never be offered.
    """
    if spec.tools is not None or not functions:
        return spec
    return spec.model_copy(update={"tools": ToolsConfig(apply_globally=True)})


def offer_further_tools(spec: AgentSpec, names: Sequence[str]) -> AgentSpec:
    """The spec whose handlers each offer these tools beside their own."""
    section = spec.tools or ToolsConfig()
    handlers = [
        handler.model_copy(update={"tools": _add_names(section, handler.tools, names)})
        for handler in spec.responses
    ]
    section = section.model_copy(update={"enabled": True})
    return spec.model_copy(update={"tools": section, "responses": handlers})


def _add_names(section: ToolsConfig, own: HandlerTools | None, names: Sequence[str]) -> HandlerTools | None:
    """The `tools` of a handler that offers these too."""
    if section.enabled and own is None and section.apply_globally:
        return None
    if section.enabled and own is not None and own.enabled:
        globs = [*own.allowed_tools, *names] if own.allowed_tools else []
    else:
        globs = list(names)
    return (own or HandlerTools()).model_copy(update={"enabled": True, "allowed_tools": globs})


def build_agent_tools(
    spec: AgentSpec,
    functions: Sequence[Callable[..., Any] | Tool],
    services: Mapping[str, Service] | None,
    spec_folder: Path | None,
) -> ToolManager:
    """The tools of a spec.

    Args:
        functions: tools that the caller adds to those of the spec.
        services: internal services by handler name.
        spec_folder: where relative paths of the spec begin; None is the working directory.

    Raises:
        SpecError: a tool cannot be made; the error names its place in the spec.
    """
    with locate_errors(spec):
        tools = ToolManager.from_config(
            spec.tools or ToolsConfig(),
            functions=functions,
            services=_add_search_service(spec, services),
            base_folder=spec_folder,
            approval=spec.approval,
            approvers=spec.approvers,
            output=spec.output,
            make_embedder=build_embedder_factory(spec),
        )
        for index, handler in enumerate(spec.responses):
            _check_tool_choice(spec, handler, f"responses[{index}].tool_choice", tools)
        return tools


def _add_search_service(spec: AgentSpec, services: Mapping[str, Service] | None) -> dict[str, Service]:
    """The program's services, and the search of `rag_services` behind the handler `rag_query`."""
    from toolchart.tools.retrieval.services import ServiceSearch

    search: dict[str, Service] = {"rag_query": ServiceSearch(spec.rag_services)} if spec.rag_services else {}
    return {**search, **(services or {})}


def _check_tool_choice(spec: AgentSpec, handler: Handler, path: str, tools: ToolManager) -> None:
    """Refuse a handler's tool choice that has no known form, or names a tool that it does not offer.

    Raises:
        SpecError: with the nearest name.
    """
    try:
        choice = parse_tool_choice(handler.tool_choice)
    except ProviderError as error:
        raise SpecError(error.message, path=path) from None
    if not choice.names:
        return
    spec_names = {name: tools.aliases.get(name, name) for name in tools.names()}
    selected, _ = select_tools(spec, handler, spec_names)
    offered, _ = apply_tool_cap(
        {name: spec_names[name] for name in selected}, spec.llms[handler.llm], spec.tools
    )
    for name in choice.names:
        if name not in spec_names:
            raise SpecError(f"there is no tool {name!r}", path=path, hint=suggest_name(name, spec_names))
        if name not in offered:
            raise SpecError(
                f"the handler does not offer {name!r}",
                path=path,
                hint=f"it offers: {', '.join(offered) or 'no tools'}; see `tools` of the handler",
            )


def find_repeatable_calls(snapshot: Snapshot, tools: ToolManager, began_with: Versions) -> tuple[str, ...]:
    """Ids of the open calls that may run twice, because their tools are idempotent.

    A tool that has changed since the call may have begun is none of them: a second run would do something
    else, and the first may not have been idempotent.

    Args:
        began_with: the versions under which the calls may have begun. Those of a log without versions say
            nothing about tools, and nothing is held against it.
    """
    repeatable_ids = []
    for open_call in snapshot.calls:
        name = open_call.call.name
        if open_call.outcome is not None or not is_idempotent(tools, name):
            continue
        now = tools.describe_tool(name) or {}
        if not began_with.tools or began_with.tools.get(now.get("name", name)) == digest_definition(now):
            repeatable_ids.append(open_call.call.id)
            continue
        changes = describe_changes(open_call.definition, now) if open_call.definition is not None else ""
        detail = f": {changes}" if changes else ""
        text = "call %s does not run again: the tool %r has changed since it may have begun%s"
        log.warning(text, open_call.call.id, name, detail)
    return tuple(repeatable_ids)


def is_idempotent(tools: ToolManager, name: str) -> bool:
    """Whether a tool exists and may run a second time without harm."""
    tool = tools.registry.get(name)
    return tool is not None and tool.idempotent


# --------------------------------------------------------------------------------------------------
# The Python functions and the output classes that the chart of an agent names.


class ChartFunctions:
    """The functions that the operator's own chart names, each imported once, when the chart is loaded.

    While conversations run, nothing is imported: a name that stands in a log finds what is here, or nothing.

    Args:
        functions: what the engine was given; those that `@effect` marks are called by their names.
        folder: the folder of the spec, for modules beside it.
    """

    def __init__(self, functions: Sequence[Callable[..., Any] | Any], folder: Path | None = None) -> None:
        self._folder = folder
        self._functions = {
            name_effect_function(function): function for function in functions if is_effect_function(function)
        }
        self._ready_functions: dict[str, EffectFunction] = {}

    def get_function(self, reference: str) -> EffectFunction:
        """A function that the operator's own chart names.

        Raises:
            SpecError: that chart does not name it.
        """
        function = self._ready_functions.get(reference)
        if function is None:
            raise SpecError(f"the chart of the agent names no function {reference!r}")
        return function

    def load_function(self, reference: str) -> EffectFunction:
        """The function that the operator's own chart names; its module is imported now.

        Raises:
            SpecError: there is none, or it cannot be called by a chart.
        """
        if reference not in self._ready_functions:
            self._ready_functions[reference] = load_effect_function(reference, self._functions, self._folder)
        return self._ready_functions[reference]

    def list_sources(self, chart: Chart) -> dict[str, str]:
        """The digest of the source of each function that a chart calls, by its reference."""
        return {
            row.parameters.function: self.load_function(row.parameters.function).source_digest
            for row in chart.vocabulary.declared.values()
            if isinstance(row.parameters, FunctionParameters)
        }


def select_tool_functions(functions: Sequence[Callable[..., Any] | Any]) -> list[Any]:
    """What the engine was given, without the functions that only charts call."""
    return [function for function in functions if not is_effect_function(function)]


def list_chart_variables(chart: Chart) -> frozenset[str]:
    """The variables of the caller that templates of a chart name."""
    return frozenset(
        slot.partition(".")[0]
        for row in chart.vocabulary.declared.values()
        for template in row.templates
        for slot in list_template_variables(template)
    ) - {"user_message"}


def select_variables(names: frozenset[str], variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables with these names, as JSON data; they are recorded."""
    chosen = {name: variables[name] for name in variables if name in names} if names else {}
    data: dict[str, Any] = msgspec.to_builtins(chosen, enc_hook=str)
    return data
