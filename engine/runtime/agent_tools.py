"""The tools of one agent: built from its spec, and those of them that may run a second time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolchart.engine.runtime.model_hosts import build_embedder_factory
from toolchart.specs.error_positions import locate_errors
from toolchart.specs.models import AgentSpec, ToolsConfig
from toolchart.states.snapshot import Snapshot
from toolchart.tools.definition import Tool
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.registry_entries import Service


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
        return ToolManager.from_config(
            spec.tools or ToolsConfig(),
            functions=functions,
            services=services,
            base_folder=spec_folder,
            approval=spec.approval,
            output=spec.output,
            make_embedder=build_embedder_factory(spec),
        )


def find_repeatable_calls(snapshot: Snapshot, tools: ToolManager) -> tuple[str, ...]:
    """Ids of the open calls that may run twice, because their tools are idempotent."""
    return tuple(
        open_call.call.id
        for open_call in snapshot.calls
        if open_call.outcome is None
        and (tool := tools.registry.get(open_call.call.name)) is not None
        and tool.idempotent
    )
