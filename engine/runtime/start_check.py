"""What would keep an agent from starting, found without a key, a network or a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from toolchart.engine.log.redaction import Redactor
from toolchart.engine.runtime.agent_tools import ChartFunctions, build_agent_tools
from toolchart.engine.runtime.model_hosts import create_model_provider
from toolchart.providers.hosts import find_host
from toolchart.providers.prices import load_price_table
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.document_files import locate_errors
from toolchart.specs.models import AgentSpec
from toolchart.specs.turn_plan import require_handlers
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.descriptors import load_reference, load_row_reference
from toolchart.states.errors import SpecError
from toolchart.tools.definition import Tool
from toolchart.tools.manager import ToolManager

LEFT_OUT = "left out"
"""Stands in each warning about a tool without which the agent starts."""


def find_start_problems(
    spec: AgentSpec, functions: Sequence[Tool | Callable[..., Any]] = ()
) -> Iterator[SpecError]:
    """Each thing that keeps the agent from starting or loses one of its tools.

    Hosts are looked up and their adapters are imported; scripts of models are read. Python handlers are
    imported, and tools are made. MCP servers are not started and OpenAPI documents are not fetched; that
    their packages are there is checked.

    Args:
        functions: the tools that the program adds to those of the spec.
    """
    try:
        require_handlers(spec)
    except SpecError as error:
        yield error
    folder = Path(spec.source).parent if spec.source else None
    for name, config in spec.llms.items():
        try:
            host = find_host(config.provider)
            load_row_reference(host, host.adapter)
        except SpecError as error:
            yield SpecError(error.message, file=spec.source, path=f"llms.{name}.provider", hint=error.hint)
        except ImportError as error:
            message = f"the adapter of {config.provider!r} cannot be imported: {error}"
            yield SpecError(message, file=spec.source, path=f"llms.{name}.provider")
        else:
            yield from _find_entry_problems(spec, name, folder)
    yield from _find_tool_problems(spec, functions)
    for section, read in (
        ("prices", lambda: load_price_table(spec.prices, folder)),
        ("redact", lambda: _make_redactor(spec)),
    ):
        try:
            with locate_errors(spec):
                read()
        except SpecError as error:
            path = error.path or section
            yield SpecError(error.message, file=error.file, line=error.line, path=path, hint=error.hint)
    try:
        known = ChartFunctions(functions, folder)
        known.list_sources(load_agent_chart(spec, EffectResolver(spec, known.load_function, None)))
    except SpecError as error:
        yield error


def _find_entry_problems(spec: AgentSpec, name: str, folder: Path | None) -> Iterator[SpecError]:
    """What is wrong in an entry whose host is this process itself and starts nothing: its script is read."""
    config = spec.llms[name]
    host = find_host(config.provider)
    if host.needs_network or list(
        load_row_reference(host, host.list_starts)(host, name, config, folder or Path())
    ):
        return
    try:
        with locate_errors(spec):
            create_model_provider(config, f"llms.{name}", beside=folder)
    except SpecError as error:
        yield error


def _make_redactor(spec: AgentSpec) -> Redactor | None:
    return Redactor(spec.redact.keys, spec.redact.patterns) if spec.redact else None


def list_tool_warnings(
    spec: AgentSpec, functions: Sequence[Tool | Callable[..., Any]] = ()
) -> tuple[str, ...]:
    """What an agent that starts says about its tools and its rules of approval, beside what it leaves out.

    Rules that name no tool are not among it: `check` itself finds them.
    Nothing is said of an agent with MCP servers or OpenAPI documents, since their tools are not known here,
    or of one whose tools cannot be made (`find_start_problems` says why).

    Args:
        functions: the tools that the program adds to those of the spec.
    """
    if spec.tools is not None and (spec.tools.mcp or spec.tools.openapi):
        return ()
    try:
        tools = _build_local_tools(spec, functions)
    except SpecError:
        return ()
    tools.close()
    warnings = (*tools.loading_warnings, *tools.policy.list_type_warnings(tuple(tools.registry)))
    return tuple(warning for warning in warnings if LEFT_OUT not in warning)


def _build_local_tools(spec: AgentSpec, functions: Sequence[Tool | Callable[..., Any]]) -> ToolManager:
    """The tools that need no server."""
    section = spec.tools.model_copy(update={"mcp": {}, "openapi": []}) if spec.tools else None
    folder = Path(spec.source).parent if spec.source else None
    return build_agent_tools(spec.model_copy(update={"tools": section}), functions, None, folder)


def _find_tool_problems(
    spec: AgentSpec, functions: Sequence[Tool | Callable[..., Any]]
) -> Iterator[SpecError]:
    if spec.tools is None:
        return
    if spec.tools.mcp:
        try:
            load_reference("toolchart.tools.sources.mcp:require_library")()
        except SpecError as error:
            yield error
    try:
        tools = _build_local_tools(spec, functions)
    except SpecError as error:
        yield error
        return
    tools.close()
    for warning in tools.warnings:
        if LEFT_OUT in warning:
            yield SpecError(warning, file=spec.source, path="tools.registry")
