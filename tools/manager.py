"""The manager: from the `tools` section of a spec, and Python functions, to tools that run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.specs.models import ToolsConfig
from toolchart.specs.secrets import resolve as resolve_environment
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest
from toolchart.tools.approval import parse_policy
from toolchart.tools.definition import Tool
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.execution.output_limits import OutputLimits
from toolchart.tools.registry import Registry
from toolchart.tools.sources.http.tool import Secret
from toolchart.tools.sources.python import tool_of
from toolchart.tools.sources.registry_entries import Surroundings, load_entry
from toolchart.tools.sources.services import EmbedderOf, Search, Service


class OutputSettings(BaseModel):
    """The spec's `output` section: characters of tool output that a model is shown."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    total: int = Field(default=6000, gt=0)
    """Of one turn."""
    per_tool: int = Field(default=2000, gt=0)
    """Of one call."""
    listing: int = Field(default=5000, gt=0)
    """Of one call to a tool whose results are listings."""
    least: int = Field(default=300, gt=0)
    """Of one call when the total is used up."""


class FurtherTools(BaseModel):
    """Keys of the `tools` section that concern the tools room alone."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    parallel: int = Field(default=4, ge=1, le=64)
    """Calls of one reply that run at the same time."""
    mcp: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """MCP servers by name."""
    openapi: list[dict[str, Any]] = Field(default_factory=list)
    """OpenAPI documents whose operations are tools."""


class ToolManager(ToolExecutor):
    """The tools of one agent. It is the executor that the engine works with.

    Attributes:
        warnings: what was left out and why, for people.
        search: what fills `{{rag_context}}`, where the spec or the program names a search.
    """

    def __init__(self, registry: Registry, warnings: tuple[str, ...] = (), **options: Any) -> None:
        self._further: FurtherTools = options.pop("further", None) or FurtherTools()
        self._closing: ExitStack = options.pop("closing", None) or ExitStack()
        self.search: Search | None = options.pop("search", None)
        super().__init__(registry, parallel=self._further.parallel, **options)
        self.warnings = warnings

    @classmethod
    def from_config(
        cls,
        config: ToolsConfig,
        *,
        functions: Sequence[Tool | Callable[..., Any]] = (),
        services: Mapping[str, Service] | None = None,
        beside: Path | None = None,
        approval: Any = None,
        output: Mapping[str, Any] | None = None,
        resolve: Secret = resolve_environment,
        embedder: EmbedderOf | None = None,
    ) -> ToolManager:
        """The tools of a spec, those of its servers and documents, then the Python functions.

        An entry that names nothing known is left out with a warning that names the nearest; so is a
        server that cannot be reached.

        Args:
            services: internal services by handler name: a search, a function or a `Tool`.
            beside: folder that the spec's relative paths start from.
            approval: the spec's `approval` section.
            output: the spec's `output` section.
            embedder: makes the embedder of an `llms` entry, for searches by meaning.

        Raises:
            SpecError: two tools of one name, a schema that is none, settings that cannot be.
        """
        around = Surroundings(
            beside=beside or Path(), services=services or {}, resolve=resolve, embedder=embedder
        )
        registry, closing = Registry(), ExitStack()
        warnings: list[str] = []
        further = _further(config)
        policy, limits = parse_policy(approval), _output(output)
        try:
            for entry in config.registry:
                loaded = load_entry(entry, config, around)
                warnings += loaded.warnings
                if loaded.tool is not None:
                    registry.add(loaded.tool)
            warnings += _add_foreign(registry, further, config, around, closing)
            for function in functions:
                registry.add(function if isinstance(function, Tool) else tool_of(function))
            return cls(
                registry,
                tuple(warnings),
                policy=policy,
                output=limits,
                further=further,
                closing=closing,
                search=_search_of(registry, around),
            )
        except BaseException:
            closing.close()
            raise

    def names(self) -> tuple[str, ...]:
        """Every tool's name, in order."""
        return self.registry.names()

    @property
    def aliases(self) -> dict[str, str]:
        """The spec's own names of tools whose name some provider would refuse."""
        return {tool.name: tool.alias for tool in self.registry if tool.alias}

    @property
    def risky(self) -> tuple[str, ...]:
        """Names of the tools that a person may have to decide about."""
        return tuple(
            tool.name
            for tool in self.registry
            if tool.requires_approval or tool.risk == "high" or self.policy.may_ask(tool)
        )

    def close(self) -> None:
        """Give back connections to servers; safe to call twice."""
        self._closing.close()


def _search_of(registry: Registry, around: Surroundings) -> Search | None:
    """The program's own search, else that of the first tool that is one."""
    own = around.services.get("search_documents")
    if isinstance(own, Search):
        return own
    return next((tool.search for tool in registry if tool.search is not None), None)


def _further(config: ToolsConfig) -> FurtherTools:
    said = {**(config.model_extra or {}), **config.model_dump(exclude_unset=True)}
    try:
        return FurtherTools.model_validate(said)
    except ValidationError as error:
        raise _told(error, "tools") from None


def _output(data: Any) -> OutputLimits:
    if isinstance(data, BaseModel):
        data = data.model_dump(exclude_unset=True)
    said = {key: value for key, value in (data or {}).items() if key != "comment"}
    try:
        return OutputLimits(**OutputSettings.model_validate(said).model_dump())
    except ValidationError as error:
        raise _told(error, "output") from None


def _told(error: ValidationError, section: str) -> SpecError:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join([section, *map(str, first["loc"])])
    known = nearest(str(first["loc"][-1]), OutputSettings.model_fields)
    return SpecError(
        first["msg"], path=place, hint=known if first["type"] == "extra_forbidden" else None
    )


def _add_foreign(
    registry: Registry,
    further: FurtherTools,
    config: ToolsConfig,
    around: Surroundings,
    closing: ExitStack,
) -> list[str]:
    """Add what documents and servers bring; a name that is taken stays with the first tool."""
    found: list[Tool] = []
    warnings: list[str] = []
    if further.openapi:
        from toolchart.tools.sources.openapi import openapi_tools

        for place, data in enumerate(further.openapi):
            tools, said = openapi_tools(data, f"tools.openapi[{place}]", around)
            found += tools
            warnings += said
    if further.mcp:
        from toolchart.tools.sources.mcp import connect

        tools, said = connect(further.mcp, around, closing, config.default_timeout_ms / 1000)
        found += tools
        warnings += said
    for tool in found:
        try:
            registry.add(tool)
        except SpecError as error:
            warnings.append(f"tool {tool.name!r} left out: {error.message}")
    return warnings
