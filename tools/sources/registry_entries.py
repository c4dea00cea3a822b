"""From an entry of the spec to a tool, by its type: builtin, mock, internal, HTTP, Python."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, assert_never

from toolchart.specs.models import ToolEntry, ToolsConfig
from toolchart.specs.secrets import resolve as resolve_environment
from toolchart.states.canonical_json import canonical_text
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.suggestions import nearest
from toolchart.tools.builtin import BUILTINS, SETTINGS, WITH_SETTINGS, make_builtin
from toolchart.tools.definition import Tool
from toolchart.tools.sources.entry_settings import (
    implementation_of,
    run_settings,
    settings_of,
    unknown_settings,
)
from toolchart.tools.sources.http.settings import parse_http
from toolchart.tools.sources.http.tool import Secret, http_tool
from toolchart.tools.sources.python import tool_of, way_of
from toolchart.tools.sources.services import Embedder, EmbedderOf, Search, Service

ANYTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}
"""Parameters of a mock or HTTP tool that declares none."""

INTERNAL = ("search_documents",)
"""Internal services that Toolchart brings along."""

_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What entries are loaded with."""

    beside: Path = field(default_factory=Path)
    """Folder that relative paths of the spec start from."""
    services: Mapping[str, Service] = field(default_factory=dict)
    """Internal services by handler name, before Toolchart's own."""
    resolve: Secret = resolve_environment
    """Fills in `${VARIABLE}`, as late as can be."""
    embedder: EmbedderOf | None = None
    """Makes the embedder of an `llms` entry; without it documents are searched by words alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What an entry came to."""

    tool: Tool | None
    """None where it was left out; a warning says why."""
    warnings: tuple[str, ...] = ()


def load_entry(entry: ToolEntry, config: ToolsConfig, around: Surroundings) -> Loaded:
    """The tool of an entry, with its settings.

    An entry that names nothing known is left out with a warning that names the nearest.

    Raises:
        SpecError: the entry's own settings cannot be.
    """
    does = implementation_of(entry)
    match does.type:
        case "mock":
            found: Tool | str = _mock(entry, does.mock_response)
        case "builtin":
            found = _builtin(entry, does.handler or entry.name, around)
        case "internal":
            found = _internal(entry, does.handler or entry.name, around)
        case "http":
            found = _http(entry, around)
        case "python":
            found = _python(entry, does.handler)
        case _:
            assert_never(does.type)
    if isinstance(found, str):
        return Loaded(tool=None, warnings=(f"tool {entry.name!r} left out: {found}",))
    known = _known_settings(does.type, does.handler or entry.name)
    warnings = unknown_settings(entry.name, settings_of(entry), known) if known is not None else ()
    return Loaded(tool=_with_settings(found, entry, config), warnings=warnings)


def _known_settings(kind: str, handler: str) -> tuple[str, ...] | None:
    """Settings of a type of tool; None where its own loader has checked them."""
    if kind == "http":
        return None
    if kind == "internal" or handler in INTERNAL:
        from toolchart.tools.sources.documents import SETTINGS as SEARCH_SETTINGS

        return SEARCH_SETTINGS
    return SETTINGS.get(handler, ())


def _with_settings(tool: Tool, entry: ToolEntry, config: ToolsConfig) -> Tool:
    run = run_settings(entry)
    said = {
        "parallel": run.parallel and tool.parallel,
        "repeatable": run.repeatable or tool.repeatable,
        "cacheable": run.cacheable or run.cache_ttl_s is not None,
        "cache_ttl_s": run.cache_ttl_s,
        "memory_mb": run.memory_mb,
        "listing": tool.listing if run.listing is None else run.listing,
    }
    way = way_of(tool.function, tool.name, entry.isolation) if _isolable(tool, entry) else tool.way
    return replace(
        tool,
        way=way,
        timeout_s=(entry.timeout_ms or config.default_timeout_ms) / 1000,
        idempotent=entry.idempotent or tool.idempotent,
        requires_approval=entry.requires_approval or tool.requires_approval,
        risk=entry.risk if "risk" in entry.model_fields_set else tool.risk,
        max_result_size=entry.max_result_size or tool.max_result_size,
        **said,  # type: ignore[arg-type]
    )


def _isolable(tool: Tool, entry: ToolEntry) -> bool:
    """Whether the entry changes where the tool runs.

    Raises:
        SpecError: it asks for a process, and the tool is not a Python function.
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


def _described(entry: ToolEntry, known: ToolDefinition) -> ToolDefinition:
    return ToolDefinition(
        name=entry.name,
        description=entry.description or known.description,
        parameters=entry.parameters or known.parameters,
    )


def _builtin(entry: ToolEntry, handler: str, around: Surroundings) -> Tool | str:
    settings = settings_of(entry)
    if isinstance(settings.get("root"), str):
        settings["root"] = str(around.beside / settings["root"])
    found = make_builtin(handler, settings, entry.name)
    if found is None and handler in INTERNAL:
        return _internal(entry, handler, around)
    if found is None:
        names = (*BUILTINS, *WITH_SETTINGS, *INTERNAL)
        close = get_close_matches(handler, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(names)
        return f"there is no builtin {handler!r}; {hint}"
    return replace(found, definition=_described(entry, found.definition))


def _internal(entry: ToolEntry, handler: str, around: Surroundings) -> Tool | str:
    from toolchart.tools.sources.documents import index_of, search_tool

    service: Service | None = around.services.get(handler)
    if service is None and handler == "search_documents":
        settings = settings_of(entry)
        embedder = _embedder(settings.get("embeddings"), entry.name, around)
        service = index_of(settings, entry.name, around.beside, embedder=embedder)
    if service is None:
        return f"there is no internal service {handler!r}; " + nearest(
            handler, (*INTERNAL, *around.services)
        )
    if isinstance(service, Tool):
        found = service
    elif isinstance(service, Search):
        found = search_tool(entry.name, service, limit=settings_of(entry).get("limit", 5))
    else:
        found = replace(tool_of(service), kind="internal")
    return replace(found, definition=_described(entry, found.definition))


def _embedder(setting: Any, name: str, around: Surroundings) -> Embedder | None:
    """The embedder that `embeddings: {llm, model}` names.

    Raises:
        SpecError: it names none, or nothing here could make it.
    """
    if setting is None:
        return None
    named = isinstance(setting, Mapping) and all(
        isinstance(setting.get(key), str) for key in ("llm", "model")
    )
    if not named or around.embedder is None:
        raise SpecError(
            f"tool {name!r}: embeddings name a host and its embedding model",
            path="embeddings",
            hint="embeddings: {llm: NAME of an llms entry, model: MODEL}",
        )
    return around.embedder(setting["llm"], setting["model"])


def _http(entry: ToolEntry, around: Surroundings) -> Tool:
    definition = ToolDefinition(
        name=entry.name,
        description=entry.description or entry.name,
        parameters=entry.parameters or ANYTHING,
    )
    settings = parse_http(settings_of(entry), entry.name)
    return http_tool(definition, settings, resolve=around.resolve, idempotent=entry.idempotent)


def _python(entry: ToolEntry, handler: str | None) -> Tool:
    """A function named as `package.module:function`."""
    module, _, name = (handler or "").partition(":")
    hint = "handler: package.module:function"
    if not module or not name:
        raise SpecError(f"tool {entry.name!r} names no Python function", hint=hint)
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"tool {entry.name!r}: {error}", hint=hint) from None
    found = tool_of(function)
    return replace(found, definition=_described(entry, found.definition))


def _mock(entry: ToolEntry, answer: Any) -> Tool:
    declared = entry.parameters is not None
    return Tool(
        definition=ToolDefinition(
            name=entry.name,
            description=entry.description or f"{entry.name} (mock)",
            parameters=entry.parameters if entry.parameters is not None else ANYTHING,
        ),
        run=_responder(answer, entry.parameters if declared else None),
        kind="mock",
    )


def _responder(answer: Any, parameters: Mapping[str, Any] | None) -> Callable[..., Any]:
    """Gives the answer as it is; `{{name}}` in it stands for an argument."""
    if "{{" not in canonical_text(answer):
        return lambda arguments: answer
    declared = set(parameters.get("properties", {})) if parameters is not None else None

    def respond(arguments: Mapping[str, Any]) -> Any:
        known = dict.fromkeys(declared or (), "") | dict(arguments)
        return _substituted(answer, known)

    return respond


def _substituted(value: Any, arguments: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _substituted(one, arguments) for key, one in value.items()}
    if isinstance(value, list):
        return [_substituted(one, arguments) for one in value]
    if not isinstance(value, str):
        return value

    def text(match: re.Match[str]) -> str:
        if match.group(1) not in arguments:
            return match.group(0)
        given = arguments[match.group(1)]
        return given if isinstance(given, str) else canonical_text(given)

    return _SLOT.sub(text, value)
