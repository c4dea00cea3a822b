"""What would keep an agent from starting, found without a key, a network or a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from toolchart.engine.runtime.agent_tools import ChartFunctions, build_agent_tools
from toolchart.providers.hosts import find_host
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.models import AgentSpec
from toolchart.specs.turn_plan import require_handlers
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.descriptors import load_reference, load_row_reference
from toolchart.states.errors import SpecError


def find_start_problems(spec: AgentSpec) -> Iterator[SpecError]:
    """Each thing that keeps the agent from starting or loses one of its tools.

    Hosts are looked up and their adapters are imported; Python handlers are imported, and tools are made. MCP
    servers are not started and OpenAPI documents are not fetched; that their packages are there is checked.
    """
    try:
        require_handlers(spec)
    except SpecError as error:
        yield error
    for name, config in spec.llms.items():
        try:
            host = find_host(config.provider)
            load_row_reference(host, host.adapter)
        except SpecError as error:
            yield SpecError(error.message, file=spec.source, path=f"llms.{name}.provider", hint=error.hint)
        except ImportError as error:
            message = f"the adapter of {config.provider!r} cannot be imported: {error}"
            yield SpecError(message, file=spec.source, path=f"llms.{name}.provider")
    yield from _find_tool_problems(spec)
    folder = Path(spec.source).parent if spec.source else None
    try:
        functions = ChartFunctions((), folder)
        functions.list_sources(load_agent_chart(spec, EffectResolver(spec, functions.load_function, None)))
    except SpecError as error:
        yield error


def _find_tool_problems(spec: AgentSpec) -> Iterator[SpecError]:
    if spec.tools is None:
        return
    if spec.tools.mcp:
        try:
            load_reference("toolchart.tools.sources.mcp:require_library")()
        except SpecError as error:
            yield error
    local_tools = spec.tools.model_copy(update={"mcp": {}, "openapi": []})
    folder = Path(spec.source).parent if spec.source else None
    try:
        tools = build_agent_tools(spec.model_copy(update={"tools": local_tools}), (), None, folder)
    except SpecError as error:
        yield error
        return
    tools.close()
    for warning in tools.warnings:
        if "left out" in warning:
            yield SpecError(warning, file=spec.source, path="tools.registry")
