"""Makes the tool of one `tools.registry` entry: finds its source, loads the tool, applies the settings.

The loaders of the types mock, builtin, internal, http and python are here too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from toolchart.specs.models import ToolEntry, ToolsConfig
from toolchart.specs.own_modules import explain_own_fault, load_own_reference
from toolchart.specs.secrets import resolve_environment
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.descriptors import guard_row, load_row_reference
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.messages import ToolDefinition
from toolchart.states.starts import Start
from toolchart.tools.builtin import (
    BUILTIN_FACTORIES,
    BUILTIN_SETTINGS,
    BUILTINS,
    list_builtin_tool_starts,
    make_builtin,
)
from toolchart.tools.definition import ExecutionMode, Tool
from toolchart.tools.services import Embedder, EmbedderFactory, Search
from toolchart.tools.sources.entry_settings import (
    describe_unknown_settings,
    get_type_settings,
    parse_run_settings,
)
from toolchart.tools.sources.python import (
    choose_execution_mode,
    get_own_timeout_s,
    make_inline_timeout_error,
    make_tool,
)
from toolchart.tools.sources.table import TOOL_SOURCES, ToolSourceDescriptor
from toolchart.tools.whole_definition import describe_function

if TYPE_CHECKING:
    from toolchart.tools.sources.http.tool import SecretResolver

Service: TypeAlias = Search | Callable[..., Any] | Tool
"""An internal service: a search, a function (its schema comes from its signature), or a tool."""

ANY_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}
"""Parameters of a mock or HTTP tool whose entry declares none: any argument is allowed."""

INTERNAL_SERVICES = ("search_documents",)
"""Internal services that come with Toolchart."""

HANDLER_ALIASES = {"math_eval": "calculator", "rag_query": "search_documents"}
"""Handlers of existing configuration files, and ours that do the same."""

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
    connections: ExitStack = msgspec.field(default_factory=ExitStack)
    """Closed with the tool manager; a loader adds what it opens, such as a connection to a server."""
    default_timeout_s: float = 30.0
    """Seconds for one call where an entry sets no limit."""


class EntryLeftOut(Exception):
    """A loader cannot make the tool of an entry now; the text is the reason. The agent starts without it."""


class LoadedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The result of loading one entry."""

    tool: Tool | None
    """None if the entry was left out; a warning then gives the reason."""
    warnings: tuple[str, ...] = ()


def load_entry(entry: ToolEntry, config: ToolsConfig, context: LoadingContext) -> LoadedEntry:
    """Make the tool of an entry and apply the entry's settings to it.

    An entry with an unknown handler is left out, with a warning that names the most similar handler.

    Raises:
        SpecError: the type is unknown, its row is incomplete, or the settings of the entry are not allowed.
    """
    implementation = entry.kind
    path = f"tool {entry.name!r}"
    source = TOOL_SOURCES.find(implementation.type, f"{path}: implementation.type")
    _check_required_settings(source, entry)
    try:
        with guard_row(source, EntryLeftOut):
            tool = _load_function(source, source.load)(entry, context)
    except EntryLeftOut as reason:
        return LoadedEntry(tool=None, warnings=(f"{path} left out: {reason}",))
    if not isinstance(tool, Tool):
        raise SpecError(f"the tool source {source.name!r} gave {type(tool).__name__}, not a Tool")
    _require_action(source, tool)
    warnings: tuple[str, ...] = ()
    if not source.checks_settings:
        known_settings = source.settings
        if source.list_settings:
            handler = find_handler(entry)
            with guard_row(source):
                known_settings = tuple(_load_function(source, source.list_settings)(handler))
        warnings = describe_unknown_settings(entry.name, get_type_settings(entry), known_settings)
    if entry.status is not None:
        tool = replace(tool, status=_load_status(entry.status, entry.name, context.base_folder))
    return LoadedEntry(tool=_apply_entry_settings(tool, entry, config), warnings=warnings)


def _load_status(reference: str, tool: str, folder: Path) -> Callable[..., Any]:
    """The function that says what became of an interrupted call.

    Raises:
        SpecError: there is none.
    """
    hint = "status: package.module:function"
    try:
        function = load_own_reference(reference, folder)
    except Exception as error:  # the user's module may fail in any way
        reason, fault_hint = explain_own_fault(error, reference, folder)
        raise SpecError(f"tool {tool!r}: status: {reason}", hint=fault_hint or hint) from error
    if not callable(function):
        raise SpecError(f"tool {tool!r}: status: {reference!r} is no function", hint=hint)
    status: Callable[..., Any] = function
    return status


def load_section(
    source: ToolSourceDescriptor, section: Any, context: LoadingContext
) -> tuple[list[Tool], list[str]]:
    """Make the tools of a section of `tools`, with a warning for each tool that was left out.

    Raises:
        SpecError: the section is not allowed, or something that it needs is not installed.
    """
    with guard_row(source):
        tools, warnings = _load_function(source, source.load)(section, context)
        tools, warnings = list(tools), list(warnings)
    for tool in tools:
        _require_action(source, tool)
    return tools, warnings


def _require_action(source: ToolSourceDescriptor, tool: Tool) -> None:
    """Refuse a tool that does not say what running it does: neither a pin nor an approval could hold it.

    Raises:
        SpecError: names the source.
    """
    if tool.action is None:
        raise SpecError(
            f"the tool source {source.name!r} does not say what running {tool.name!r} does",
            hint='give it to the tool: Tool(..., action={"file": "prices.csv"}); see docs/extending.md',
        )


def _load_function(source: ToolSourceDescriptor, reference: str) -> Callable[..., Any]:
    try:
        function: Callable[..., Any] = load_row_reference(source, reference)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"the tool source {source.name!r} cannot be loaded: {error}") from error
    return function


def _check_required_settings(source: ToolSourceDescriptor, entry: ToolEntry) -> None:
    implementation, settings = entry.kind, get_type_settings(entry)
    missing = [
        key
        for key in source.required
        if settings.get(key) is None and getattr(implementation, key, None) is None
    ]
    if missing:
        example = ", ".join(f"{key}: ..." for key in missing)
        raise SpecError(
            f"tool {entry.name!r}: the type {source.name!r} needs {' and '.join(missing)}",
            hint=f"implementation: {{type: {source.name}, {example}}}",
        )


def list_builtin_settings(handler: str) -> tuple[str, ...]:
    """Names of the settings of a builtin; none for an unknown one."""
    if handler in INTERNAL_SERVICES:
        return list_internal_settings(handler)
    return BUILTIN_SETTINGS.get(handler, ())


def list_internal_settings(handler: str) -> tuple[str, ...]:
    """Names of the settings of an internal service: those of a search."""
    from toolchart.tools.sources.documents import SEARCH_SETTINGS

    return SEARCH_SETTINGS


def _apply_entry_settings(tool: Tool, entry: ToolEntry, config: ToolsConfig) -> Tool:
    settings = parse_run_settings(entry)
    run_options = {
        "parallel": settings.parallel and tool.parallel,
        "repeatable": settings.repeatable or tool.repeatable,
        "needs": tuple(settings.needs) or tool.needs,
        "needs_in": settings.needs_in if settings.needs else tool.needs_in,
        "not_after": tuple(settings.not_after) or tool.not_after,
        "max_calls": settings.max_calls or tool.max_calls,
        "cacheable": settings.cacheable or settings.cache_ttl_s is not None,
        "cache_ttl_s": settings.cache_ttl_s,
        "memory_mb": settings.memory_mb,
        "environment": tuple(settings.environment) or tool.environment,
        "listing": tool.listing if settings.listing is None else settings.listing,
    }
    return replace(
        tool,
        execution_mode=_choose_entry_mode(tool, entry),
        timeout_s=_choose_timeout_s(tool, entry, config),
        idempotent=entry.idempotent or tool.idempotent,
        requires_approval=entry.requires_approval or tool.requires_approval,
        risk=entry.risk or tool.risk,
        max_result_size=entry.max_result_size or tool.max_result_size,
        action={**(tool.action or {}), "trust": entry.trust},
        **run_options,
    )


def _choose_timeout_s(tool: Tool, entry: ToolEntry, config: ToolsConfig) -> float:
    """The entry's own timeout, else that of the function's `@tool`, else the default of the spec; an agent
    has a default of its own."""
    if entry.timeout_ms is not None:
        return entry.timeout_ms / 1000
    if tool.agent is not None:
        return tool.timeout_s
    return get_own_timeout_s(tool.function) or config.default_timeout_ms / 1000


def _choose_entry_mode(tool: Tool, entry: ToolEntry) -> ExecutionMode:
    """Where the tool runs: as the entry demands, else as the tool itself.

    Raises:
        SpecError: the tool cannot run there, or it runs inline and the entry gives it a timeout.
    """
    if tool.function is None:
        _check_foreign_isolation(tool, entry)
        return tool.execution_mode
    mode = tool.execution_mode
    if entry.isolation is not None:
        mode = choose_execution_mode(tool.function, tool.name, entry.isolation)
    if mode == "inline" and entry.timeout_ms is not None:
        raise make_inline_timeout_error(entry.name, "timeout_ms")
    return mode


def _check_foreign_isolation(tool: Tool, entry: ToolEntry) -> None:
    """Check the isolation of a tool that is not a Python function; such a tool runs where it can.

    Raises:
        SpecError: the entry demands a process, or the event loop for a tool that waits.
    """
    if entry.isolation == "process":
        raise SpecError(
            f"tool {entry.name!r}: only Python tools run in a process of their own",
            hint="leave isolation out: this tool bounds its own input",
        )
    if entry.isolation == "inline" and tool.execution_mode != "inline":
        raise SpecError(
            f"tool {entry.name!r}: only a Python function can be made to run inline",
            hint="leave isolation out",
        )


def _merge_definition(entry: ToolEntry, default: ToolDefinition) -> ToolDefinition:
    return ToolDefinition(
        name=entry.name,
        description=entry.description or default.description,
        parameters=entry.parameters or default.parameters,
    )


def find_handler(entry: ToolEntry) -> str:
    """The handler of an entry by our own name; the tool's name where it gives none."""
    handler = entry.kind.handler or entry.name
    return HANDLER_ALIASES.get(handler, handler)


def load_builtin_tool(entry: ToolEntry, context: LoadingContext) -> Tool:
    """Make the builtin that the entry names.

    Raises:
        EntryLeftOut: there is no such builtin.
        SpecError: a setting is missing.
    """
    if (entry.kind.handler or entry.name) in context.services:
        return load_internal_tool(entry, context)
    handler = find_handler(entry)
    settings = get_type_settings(entry)
    # As the spec writes them: a decision holds on every machine that runs this spec.
    known_settings = list_builtin_settings(handler)
    action = {"handler": handler, **{key: settings[key] for key in known_settings if key in settings}}
    if isinstance(settings.get("root"), str):
        settings["root"] = str(context.base_folder / settings["root"])
    tool = make_builtin(handler, settings, entry.name)
    if tool is None and handler in INTERNAL_SERVICES:
        return load_internal_tool(entry, context)
    if tool is None:
        names = (*BUILTINS, *BUILTIN_FACTORIES, *INTERNAL_SERVICES)
        close_names = get_close_matches(handler, names, n=1)
        hint = f"did you mean {close_names[0]!r}?" if close_names else "known: " + ", ".join(names)
        raise EntryLeftOut(f"there is no builtin {handler!r}; {hint}")
    return replace(tool, definition=_merge_definition(entry, tool.definition), action=action)


def load_internal_tool(entry: ToolEntry, context: LoadingContext) -> Tool:
    """Make the tool of an internal service: one of the program, or the search over documents.

    Raises:
        EntryLeftOut: there is no such service.
        SpecError: the settings of the search are not allowed.
    """
    from toolchart.tools.sources.documents import make_index, make_search_tool

    handler = find_handler(entry)
    own_handler = entry.kind.handler or entry.name
    service: Service | None = context.services.get(own_handler) or context.services.get(handler)
    if service is None and handler == "search_documents":
        settings = get_type_settings(entry)
        embedder = _make_embedder(settings.get("embeddings"), entry.name, context)
        service = make_index(settings, entry.name, context.base_folder, embedder=embedder)
    if service is None:
        suggestion = suggest_name(handler, (*INTERNAL_SERVICES, *context.services))
        raise EntryLeftOut(f"there is no internal service {handler!r}; {suggestion}")
    action: dict[str, Any] = {"handler": handler}
    if isinstance(service, Tool):
        tool = service
        action |= describe_function(tool.function or tool.run) if tool.action is None else tool.action
    elif isinstance(service, Search):
        if inspect.iscoroutinefunction(service.search):
            raise SpecError(
                f"the search {type(service).__name__} of {entry.name!r} is async, and is called in a thread",
                hint="write `def search(...)`, which may block",
            )
        settings = get_type_settings(entry)
        tool = make_search_tool(entry.name, service, limit=settings.get("limit", 5))
        action |= {key: settings[key] for key in list_internal_settings(handler) if key in settings}
        action |= {"search": describe_function(type(service))["function"]}
    else:
        tool = replace(make_tool(service), kind="internal")
        action |= tool.action or {}
    return replace(tool, definition=_merge_definition(entry, tool.definition), action=action)


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


def load_http_tool(entry: ToolEntry, context: LoadingContext) -> Tool:
    """Make the tool that sends one HTTP request per call.

    Raises:
        SpecError: a setting is not allowed.
    """
    from toolchart.tools.sources.http.settings import parse_http_settings
    from toolchart.tools.sources.http.tool import make_http_tool

    definition = ToolDefinition(
        name=entry.name,
        description=entry.description or entry.name,
        parameters=entry.parameters or ANY_ARGUMENTS,
    )
    settings = parse_http_settings(get_type_settings(entry), entry.name)
    return make_http_tool(definition, settings, resolve=context.resolve_secrets, idempotent=entry.idempotent)


def load_python_tool(entry: ToolEntry, context: LoadingContext) -> Tool:
    """Make the tool of a Python function that the handler names as `package.module:function`.

    Raises:
        SpecError: there is no such function, or its signature cannot be described.
    """
    module, _, name = (entry.kind.handler or "").partition(":")
    hint = "handler: package.module:function"
    if not module or not name:
        raise SpecError(f"tool {entry.name!r} names no Python function", hint=hint)
    try:
        function = load_own_reference(f"{module}:{name}", context.base_folder)
    except Exception as error:  # the user's module may fail in any way
        reason, fault_hint = explain_own_fault(error, f"{module}:{name}", context.base_folder)
        raise SpecError(f"tool {entry.name!r}: {reason}", hint=fault_hint or hint) from error
    tool = make_tool(function)
    action = {"handler": f"{module}:{name}"}
    return replace(tool, definition=_merge_definition(entry, tool.definition), action=action)


def load_mock_tool(entry: ToolEntry, context: LoadingContext) -> Tool:
    """Make a tool that returns the entry's `mock_response`."""
    answer = entry.kind.mock_response
    has_parameters = entry.parameters is not None
    return Tool(
        definition=ToolDefinition(
            name=entry.name,
            description=entry.description or f"{entry.name} (mock)",
            parameters=entry.parameters if entry.parameters is not None else ANY_ARGUMENTS,
        ),
        run=_make_responder(answer, entry.parameters if has_parameters else None),
        kind="mock",
        action={"fixed answer": answer},
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


# -- starts: what each type can start, load, call, send or read ----------------------------------------


def list_entry_starts(entry: ToolEntry, base_folder: Path) -> Iterator[Start]:
    """What an entry can start, load, call, send or read: what its source says, and its environment.

    Nothing is loaded but the row of its source.

    Raises:
        SpecError: the type is unknown, its row is incomplete, or a setting is not allowed.
    """
    source = TOOL_SOURCES.find(entry.kind.type, f"tool {entry.name!r}: implementation.type")
    _check_required_settings(source, entry)
    yield from _load_function(source, source.list_starts)(entry, base_folder)
    if entry.status is not None:
        purpose = f"tool {entry.name}: is imported at once, and says what became of an interrupted call"
        yield Start(kind="function", subject=entry.status, purpose=purpose)
    for variable in parse_run_settings(entry).environment:
        yield Start(kind="variable", subject=variable, purpose=f"is given to the process of {entry.name}")


def list_section_starts(source: ToolSourceDescriptor, section: Any, base_folder: Path) -> Iterable[Start]:
    """What a section of `tools` can start, load, call, send or read."""
    starts: Iterable[Start] = _load_function(source, source.list_starts)(section, base_folder)
    return starts


def list_builtin_starts(entry: ToolEntry, base_folder: Path) -> Iterator[Start]:
    """What a builtin can start or read; a name of an internal service is one."""
    handler = find_handler(entry)
    if handler in INTERNAL_SERVICES:
        yield from list_internal_starts(entry, base_folder)
    else:
        yield from list_builtin_tool_starts(handler, get_type_settings(entry), base_folder)


def list_internal_starts(entry: ToolEntry, base_folder: Path) -> Iterator[Start]:
    """The folders that a search reads and the index that it writes. Other services are the program's."""
    settings = get_type_settings(entry)
    if find_handler(entry) != "search_documents" or not (settings.get("folder") or settings.get("folders")):
        return
    folders = settings.get("folders") or {"": settings.get("folder")}
    for folder in folders.values() if isinstance(folders, Mapping) else ():
        path = str(base_folder / str(folder))
        yield Start(kind="file", subject=path, purpose=f"folder whose files {entry.name} reads")
    index = str(base_folder / str(settings.get("index") or f".toolchart/{entry.name}.db"))
    yield Start(kind="file", subject=index, purpose=f"is written: the index of {entry.name}")


def list_http_starts(entry: ToolEntry, base_folder: Path) -> Iterator[Start]:
    """The address, and the private hosts that it may lead to.

    Raises:
        SpecError: a setting is not allowed.
    """
    from toolchart.tools.sources.http.settings import parse_http_settings

    settings = parse_http_settings(get_type_settings(entry), entry.name)
    purpose = f"{settings.method} of {entry.name}, as often as the model calls it"
    yield Start(kind="address", subject=settings.url, purpose=purpose)
    for host in settings.allow_hosts:
        purpose = f"{entry.name} may reach it, also where it is private"
        yield Start(kind="address", subject=host, purpose=purpose)


def list_python_starts(entry: ToolEntry, base_folder: Path) -> Iterator[Start]:
    """The function, whose module is imported when the agent is loaded."""
    purpose = f"tool {entry.name}: is imported at once, and called with arguments of the model"
    yield Start(kind="function", subject=entry.kind.handler or "", purpose=purpose)
