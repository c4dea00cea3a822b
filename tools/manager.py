"""The tool manager: makes an agent's tools from the spec's `tools` section and from Python functions,
and executes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.specs.models import ToolsConfig
from toolchart.specs.secrets import remember_environment, remember_spec_secrets, resolve_environment
from toolchart.states.errors import SpecError, suggest_name
from toolchart.tools.approval import Policy, parse_policy
from toolchart.tools.definition import Tool
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.execution.results import UNLIMITED_OUTPUT, OutputLimits
from toolchart.tools.registry import Registry
from toolchart.tools.services import EmbedderFactory, Search
from toolchart.tools.sources.python import get_own_timeout_s, make_tool
from toolchart.tools.sources.registry_entries import LoadingContext, Service, load_entry, load_section
from toolchart.tools.sources.table import TOOL_SOURCES
from toolchart.tools.whole_definition import Definition, describe_changes, describe_definition

if TYPE_CHECKING:
    from toolchart.tools.sources.http.tool import SecretResolver


_Positive = Annotated[int, Field(gt=0)]


class OutputSettings(BaseModel):
    """The spec's `output` section: characters of tool output that a model sees; without it all of them."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    total: int = Field(default=6000, gt=0)
    """In one turn."""
    per_tool: int = Field(default=2000, gt=0)
    """From one call."""
    listing: int = Field(default=5000, gt=0)
    """From one call to a tool whose results are listings."""
    least: int = Field(default=300, gt=0)
    """From one call when the total is used up."""
    per_tool_after: dict[_Positive, _Positive] = Field(default_factory=dict)
    """Calls and characters: after so many calls of the turn, one call gets no more than that."""


class ToolManager(ToolExecutor):
    """The tools of one agent, and the executor that the engine runs them with.

    Attributes:
        warnings: what was left out and why, and what rules of approval cannot do, for people.
        search: fills `{{rag_context}}`, where the spec or the program has a search.
        functions: the tools that the program added to those of the spec, as it gave them.
        aliases: by tool name the spec's own name, for tools whose own name some provider would refuse.
    """

    def __init__(
        self,
        registry: Registry,
        warnings: tuple[str, ...] = (),
        *,
        policy: Policy | None = None,
        output: OutputLimits | None = None,
        parallel: int = 4,
        connections: ExitStack | None = None,
        search: Search | None = None,
        functions: Sequence[Tool | Callable[..., Any]] = (),
    ) -> None:
        _check_needs(registry)
        super().__init__(registry, policy=policy, output=output, parallel=parallel)
        self.names = registry.names
        self.loading_warnings = warnings
        """What was left out and why, without what rules of approval cannot do."""
        self.warnings = (*warnings, *self.policy.list_warnings(tuple(registry)))
        self.aliases = {tool.name: tool.alias for tool in registry if tool.alias}
        self.search = search
        self.functions = tuple(functions)
        self._connections = connections or ExitStack()

    @classmethod
    def from_config(
        cls,
        config: ToolsConfig,
        *,
        functions: Sequence[Tool | Callable[..., Any]] = (),
        services: Mapping[str, Service] | None = None,
        base_folder: Path | None = None,
        approval: Any = None,
        approvers: Any = None,
        output: Mapping[str, Any] | None = None,
        resolve_secrets: SecretResolver = resolve_environment,
        make_embedder: EmbedderFactory | None = None,
    ) -> ToolManager:
        """Make the tools of a spec, then those of its servers and documents, then the functions.

        An entry with an unknown handler is left out, with a warning that suggests a known one. A
        server that cannot be reached is left out too, with a warning.

        Args:
            services: internal services by handler name: a search, a function or a `Tool`.
            base_folder: folder that relative paths in the spec start from.
            approval, approvers: these sections of the spec.
            output: the spec's `output` section.
            resolve_secrets: replaces `${VARIABLE}` in settings.
            make_embedder: makes the embedder of an `llms` entry, for search by meaning.

        Raises:
            SpecError: two tools with one name, an invalid schema, or invalid settings.
        """
        remember_environment()
        remember_spec_secrets(config.model_dump(exclude_unset=True))
        registry, connections = Registry(), ExitStack()
        context = LoadingContext(
            base_folder=base_folder or Path(),
            services=services or {},
            resolve_secrets=resolve_secrets,
            make_embedder=make_embedder,
            connections=connections,
            default_timeout_s=config.default_timeout_ms / 1000,
        )
        policy = parse_policy(approval, approvers=approvers, base_folder=base_folder)
        limits = _parse_output_limits(output)
        try:
            warnings = _add_registry_tools(registry, config, context)
            warnings += _add_imported_tools(registry, config, context)
            for function in functions:
                registry.add(
                    function
                    if isinstance(function, Tool)
                    else make_program_tool(function, context.default_timeout_s)
                )
            return cls(
                registry,
                tuple(warnings),
                policy=policy,
                output=limits,
                parallel=config.parallel,
                connections=connections,
                search=_find_search(registry, context),
                functions=functions,
            )
        except BaseException:
            connections.close()
            raise

    def with_tools(self, tools: Sequence[Tool]) -> ToolManager:
        """These tools and further ones, under the same policy; the connections stay those of this manager.

        Raises:
            SpecError: a tool has the name of one that exists.
        """
        return ToolManager(
            Registry([*self.registry, *tools]),
            self.loading_warnings,
            policy=self.policy,
            output=self.output,
            parallel=self.parallel,
            search=self.search,
        )

    def close(self) -> None:
        """Close the connections to servers; safe to call twice."""
        self._connections.close()


def make_program_tool(function: Callable[..., Any], default_timeout_s: float | None = None) -> Tool:
    """The tool of a function of the program.

    Args:
        default_timeout_s: for a function without a timeout of its own; None: that of a spec without any.

    Raises:
        SpecError: a tool cannot be made of it.
    """
    tool = make_tool(function)
    default_timeout_s = default_timeout_s or ToolsConfig().default_timeout_ms / 1000
    return replace(tool, timeout_s=get_own_timeout_s(function) or default_timeout_s)


def _find_search(registry: Registry, context: LoadingContext) -> Search | None:
    """The program's own search, else the search of the first tool that has one."""
    own_search = context.services.get("search_documents")
    # A `Tool` has an attribute `search` too, which is no method.
    if not isinstance(own_search, Tool) and isinstance(own_search, Search):
        return own_search
    return next((tool.search for tool in registry if tool.search is not None), None)


def _parse_output_limits(data: Any) -> OutputLimits:
    if data is None:
        return UNLIMITED_OUTPUT
    if isinstance(data, BaseModel):
        data = data.model_dump(exclude_unset=True)
    settings = {key: value for key, value in (data or {}).items() if key != "comment"}
    try:
        limits = OutputSettings.model_validate(settings)
        steps = tuple(sorted(limits.per_tool_after.items()))
        return OutputLimits(**{**limits.model_dump(), "per_tool_after": steps})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        hint = None
        if first["type"] == "extra_forbidden":
            hint = suggest_name(str(first["loc"][-1]), OutputSettings.model_fields)
        path = ".".join(["output", *map(str, first["loc"])])
        raise SpecError(first["msg"], path=path, hint=hint) from None


def _add_registry_tools(registry: Registry, config: ToolsConfig, context: LoadingContext) -> list[str]:
    """Add the tools of the spec's own entries, and return warnings."""
    warnings: list[str] = []
    for index, entry in enumerate(config.registry):
        try:
            loaded_entry = load_entry(entry, config, context)
        except SpecError as error:
            path = error.path or f"tools.registry[{index}]"
            raise SpecError(
                error.message, file=error.file, line=error.line, path=path, hint=error.hint
            ) from error
        warnings += loaded_entry.warnings
        if loaded_entry.tool is not None:
            registry.add(loaded_entry.tool)
    return warnings


def _add_imported_tools(registry: Registry, config: ToolsConfig, context: LoadingContext) -> list[str]:
    """Add the tools of the sections of `tools` (OpenAPI documents, MCP servers, ...), and return warnings.

    A tool whose name is already in the registry is left out. Then the pins of all tools are checked.
    """
    imported_names: set[str] = set()
    imported_tools: list[Tool] = []
    warnings: list[str] = []
    own_sections = [row.name for row in TOOL_SOURCES.builtin_rows if row.place == "section"]
    for name in (*own_sections, *(config.model_extra or {})):
        section = getattr(config, name)
        if section and name in TOOL_SOURCES:
            source = TOOL_SOURCES.find(name, f"tools.{name}")
            if source.place == "section":
                tools, notes = load_section(source, section, context)
                imported_tools += tools
                warnings += notes
    for tool in imported_tools:
        try:
            registry.add(tool)
            imported_names.add(tool.name)
        except SpecError as error:
            warnings.append(f"tool {tool.name!r} left out: {error.message}")
    for tool in list(registry):
        checked_tool = _check_pin(tool, config.pins, is_imported=tool.name in imported_names)
        if checked_tool.pin_problem is not None:
            registry.change(checked_tool)
            hint = "its calls ask; after reading it: toolchart tools pin SPEC"
            warnings.append(f"{checked_tool.pin_problem} ({hint})")
    return warnings


def _check_needs(registry: Registry) -> None:
    """Refuse a tool that needs, or must not follow, one which is not there; and one that needs itself.

    Raises:
        SpecError: names both.
    """
    for tool in registry:
        for need in tool.needs:
            if registry.get(need) is None or need == tool.name:
                raise SpecError(
                    f"tool {tool.name!r} needs {need!r}, which is no other tool",
                    hint=registry.suggest_name(need),
                )
        for earlier in tool.not_after:
            if registry.get(earlier) is None:
                raise SpecError(
                    f"tool {tool.name!r} must not run after {earlier!r}, which is no tool",
                    hint=registry.suggest_name(earlier),
                )


def _check_pin(tool: Tool, pins: Mapping[str, Definition] | None, *, is_imported: bool) -> Tool:
    """The tool, which asks before each call where it differs from its pin.

    Args:
        is_imported: whether strangers say what it does, so that it asks without a pin too.
    """
    if pins is None or (tool.name not in pins and not is_imported):
        return tool
    if tool.name not in pins:
        return replace(tool, pin_problem=f"the tool {tool.name!r} is not pinned")
    changes = describe_changes(pins[tool.name], describe_definition(tool))
    if not changes:
        return tool
    return replace(tool, pin_problem=f"the tool {tool.name!r} has changed since it was pinned: {changes}")
