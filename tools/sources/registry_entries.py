"""Makes the tool of one `tools.registry` entry, by its type: builtin, mock, internal, HTTP or Python."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from toolchart.specs.models import ToolEntry, ToolsConfig
from toolchart.specs.secrets import resolve_environment
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.messages import ToolDefinition
from toolchart.tools.builtin import BUILTIN_FACTORIES, BUILTIN_SETTINGS, BUILTINS, make_builtin
from toolchart.tools.definition import Tool
from toolchart.tools.sources.entry_settings import (
    describe_unknown_settings,
    get_implementation,
    get_type_settings,
    parse_run_settings,
)
from toolchart.tools.sources.http.settings import parse_http_settings
from toolchart.tools.sources.http.tool import SecretResolver, make_http_tool
from toolchart.tools.sources.python import choose_execution_mode, make_tool
from toolchart.tools.sources.services import Embedder, EmbedderFactory, Search

Service: TypeAlias = Search | Callable[..., Any] | Tool
"""An internal service: a search, a function (its schema comes from its signature), or a tool."""

ANY_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}
"""Parameters of a mock or HTTP tool whose entry declares none: any argument is allowed."""

INTERNAL_SERVICES = ("search_documents",)
"""Internal services that come with Toolchart."""

_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class LoadingContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a loader needs besides the entry itself."""

    base_folder: Path = msgspec.field(default_factory=Path)
    """The folder that relative paths in the spec start from."""
    services: Mapping[str, Service] = msgspec.field(default_factory=dict)
    """Internal services of the program by handler name; they go before Toolchart's own."""
    resolve_secrets: SecretResolver = resolve_environment
    """Replaces `${VARIABLE}`; it is called as late as possible, when a request is sent."""
    make_embedder: EmbedderFactory | None = None
    """Makes the embedder of an `llms` entry; None: documents are searched by words alone."""


class LoadedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The result of loading one entry."""

    tool: Tool | None
    """None if the entry was left out; a warning then gives the reason."""
    warnings: tuple[str, ...] = ()


def load_entry(entry: ToolEntry, config: ToolsConfig, context: LoadingContext) -> LoadedEntry:
    """Make the tool of an entry and apply the entry's settings to it.

    An entry with an unknown handler is left out, with a warning that names the most similar handler.

    Raises:
        SpecError: the settings of the entry are not allowed.
    """
    implementation = get_implementation(entry)
    match implementation.type:
        case "mock":
            tool_or_reason: Tool | str = _make_mock_tool(entry, implementation.mock_response)
        case "builtin":
            tool_or_reason = _load_builtin_tool(
                entry, implementation.handler or entry.name, context
            )
        case "internal":
            tool_or_reason = _load_internal_tool(
                entry, implementation.handler or entry.name, context
            )
        case "http":
            tool_or_reason = _load_http_tool(entry, context)
        case "python":
            tool_or_reason = _load_python_tool(entry, implementation.handler)
        case _:
            assert_never(implementation.type)
    if isinstance(tool_or_reason, str):
        return LoadedEntry(tool=None, warnings=(f"tool {entry.name!r} left out: {tool_or_reason}",))
    known_settings = _get_known_settings(implementation.type, implementation.handler or entry.name)
    warnings = (
        describe_unknown_settings(entry.name, get_type_settings(entry), known_settings)
        if known_settings is not None
        else ()
    )
    return LoadedEntry(tool=_apply_entry_settings(tool_or_reason, entry, config), warnings=warnings)


def _get_known_settings(kind: str, handler: str) -> tuple[str, ...] | None:
    """The settings that a type of tool has; None if the loader of that type has checked them already."""
    if kind == "http":
        return None
    if kind == "internal" or handler in INTERNAL_SERVICES:
        from toolchart.tools.sources.documents import SEARCH_SETTINGS as SEARCH_SETTINGS

        return SEARCH_SETTINGS
    return BUILTIN_SETTINGS.get(handler, ())


def _apply_entry_settings(tool: Tool, entry: ToolEntry, config: ToolsConfig) -> Tool:
    settings = parse_run_settings(entry)
    run_options = {
        "parallel": settings.parallel and tool.parallel,
        "repeatable": settings.repeatable or tool.repeatable,
        "cacheable": settings.cacheable or settings.cache_ttl_s is not None,
        "cache_ttl_s": settings.cache_ttl_s,
        "memory_mb": settings.memory_mb,
        "listing": tool.listing if settings.listing is None else settings.listing,
    }
    execution_mode = (
        choose_execution_mode(tool.function, tool.name, entry.isolation)
        if _changes_isolation(tool, entry)
        else tool.execution_mode
    )
    return replace(
        tool,
        execution_mode=execution_mode,
        timeout_s=(entry.timeout_ms or config.default_timeout_ms) / 1000,
        idempotent=entry.idempotent or tool.idempotent,
        requires_approval=entry.requires_approval or tool.requires_approval,
        risk=entry.risk if "risk" in entry.model_fields_set else tool.risk,
        max_result_size=entry.max_result_size or tool.max_result_size,
        **run_options,
    )


def _changes_isolation(tool: Tool, entry: ToolEntry) -> bool:
    """Whether the entry changes where the tool runs (thread or process).

    Raises:
        SpecError: the entry demands a process, and the tool is not a Python function.
    """
    if entry.isolation is None:
        return False
    if tool.kind != "python":
        if entry.isolation == "process":
            raise SpecError(
                f"tool {entry.name!r}: only Python tools run in a process of their own",
                hint="leave isolation out: this tool bounds its own input",
            )
        return False
    return True


def _merge_definition(entry: ToolEntry, default: ToolDefinition) -> ToolDefinition:
    return ToolDefinition(
        name=entry.name,
        description=entry.description or default.description,
        parameters=entry.parameters or default.parameters,
    )


def _load_builtin_tool(entry: ToolEntry, handler: str, context: LoadingContext) -> Tool | str:
    settings = get_type_settings(entry)
    if isinstance(settings.get("root"), str):
        settings["root"] = str(context.base_folder / settings["root"])
    tool = make_builtin(handler, settings, entry.name)
    if tool is None and handler in INTERNAL_SERVICES:
        return _load_internal_tool(entry, handler, context)
    if tool is None:
        names = (*BUILTINS, *BUILTIN_FACTORIES, *INTERNAL_SERVICES)
        close_names = get_close_matches(handler, names, n=1)
        hint = f"did you mean {close_names[0]!r}?" if close_names else "known: " + ", ".join(names)
        return f"there is no builtin {handler!r}; {hint}"
    return replace(tool, definition=_merge_definition(entry, tool.definition))


def _load_internal_tool(entry: ToolEntry, handler: str, context: LoadingContext) -> Tool | str:
    from toolchart.tools.sources.documents import make_index, make_search_tool

    service: Service | None = context.services.get(handler)
    if service is None and handler == "search_documents":
        settings = get_type_settings(entry)
        embedder = _make_embedder(settings.get("embeddings"), entry.name, context)
        service = make_index(settings, entry.name, context.base_folder, embedder=embedder)
    if service is None:
        return f"there is no internal service {handler!r}; " + suggest_name(
            handler, (*INTERNAL_SERVICES, *context.services)
        )
    if isinstance(service, Tool):
        tool = service
    elif isinstance(service, Search):
        tool = make_search_tool(entry.name, service, limit=get_type_settings(entry).get("limit", 5))
    else:
        tool = replace(make_tool(service), kind="internal")
    return replace(tool, definition=_merge_definition(entry, tool.definition))


def _make_embedder(setting: Any, name: str, context: LoadingContext) -> Embedder | None:
    """Make the embedder that `embeddings: {llm, model}` names; None without that setting.

    Raises:
        SpecError: `llm` or `model` is missing, or the program has no way to make embedders.
    """
    if setting is None:
        return None
    is_complete = isinstance(setting, Mapping) and all(
        isinstance(setting.get(key), str) for key in ("llm", "model")
    )
    if not is_complete or context.make_embedder is None:
        raise SpecError(
            f"tool {name!r}: embeddings name a host and its embedding model",
            path="embeddings",
            hint="embeddings: {llm: NAME of an llms entry, model: MODEL}",
        )
    return context.make_embedder(setting["llm"], setting["model"])


def _load_http_tool(entry: ToolEntry, context: LoadingContext) -> Tool:
    definition = ToolDefinition(
        name=entry.name,
        description=entry.description or entry.name,
        parameters=entry.parameters or ANY_ARGUMENTS,
    )
    settings = parse_http_settings(get_type_settings(entry), entry.name)
    return make_http_tool(
        definition, settings, resolve=context.resolve_secrets, idempotent=entry.idempotent
    )


def _load_python_tool(entry: ToolEntry, handler: str | None) -> Tool:
    """Make the tool of a Python function that the handler names as `package.module:function`."""
    module, _, name = (handler or "").partition(":")
    hint = "handler: package.module:function"
    if not module or not name:
        raise SpecError(f"tool {entry.name!r} names no Python function", hint=hint)
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"tool {entry.name!r}: {error}", hint=hint) from None
    tool = make_tool(function)
    return replace(tool, definition=_merge_definition(entry, tool.definition))


def _make_mock_tool(entry: ToolEntry, answer: Any) -> Tool:
    has_parameters = entry.parameters is not None
    return Tool(
        definition=ToolDefinition(
            name=entry.name,
            description=entry.description or f"{entry.name} (mock)",
            parameters=entry.parameters if entry.parameters is not None else ANY_ARGUMENTS,
        ),
        run=_make_responder(answer, entry.parameters if has_parameters else None),
        kind="mock",
    )


def _make_responder(answer: Any, parameters: Mapping[str, Any] | None) -> Callable[..., Any]:
    """A function that returns the mock's answer, with each `{{name}}` replaced by that argument."""
    if "{{" not in encode_canonical_text(answer):
        return lambda arguments: answer
    parameter_names = set(parameters.get("properties", {})) if parameters is not None else None

    def respond(arguments: Mapping[str, Any]) -> Any:
        """The mock's response for the arguments of one call."""
        values = dict.fromkeys(parameter_names or (), "") | dict(arguments)
        return _fill_slots(answer, values)

    return respond


def _fill_slots(value: Any, arguments: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill_slots(item, arguments) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill_slots(item, arguments) for item in value]
    if not isinstance(value, str):
        return value

    def format_argument(match: re.Match[str]) -> str:
        """The text that replaces one slot; an unknown slot stays as it is."""
        if match.group(1) not in arguments:
            return match.group(0)
        argument = arguments[match.group(1)]
        return argument if isinstance(argument, str) else encode_canonical_text(argument)

    return _SLOT.sub(format_argument, value)
