"""Makes HTTP tools from an OpenAPI 3 document, one for each operation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.specs.document_files import read_regular_file
from toolchart.specs.secrets import find_references
from toolchart.states.chart.yaml_document import YamlLimits, read_yaml
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.messages import ToolDefinition
from toolchart.states.reading_limits import READING, name_limit
from toolchart.states.starts import Start
from toolchart.tools.definition import Risk, Tool, Trust
from toolchart.tools.formats import make_portable_name
from toolchart.tools.schemas.checks import check_schema
from toolchart.tools.sources.foreign_schemas import add_definitions, sanitize_schema
from toolchart.tools.sources.http.settings import parse_http_settings
from toolchart.tools.sources.http.tool import IDEMPOTENT_METHODS, make_http_tool
from toolchart.tools.sources.registry_entries import LoadingContext
from toolchart.workers.pool import BoundExceeded, Work, WorkFailed, run_bounded

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")

PARSING_TIMEOUT_S = 20.0
MAX_SHORT_BYTES = 200_000
"""A document of this size is read within a second."""
DOCUMENT_LIMITS = YamlLimits(
    characters=READING.openapi_bytes,
    entries=READING.openapi_entries,
    depth=100,
    raised_by={"characters": "openapi_bytes", "entries": "openapi_entries"},
)
"""Limits of a YAML document, with its aliases written out."""


class OpenApiSettings(BaseModel):
    """One entry of `tools.openapi`."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    document: str | dict[str, Any]
    """Path of the document, or the document itself."""
    base_url: str | None = None
    """Address of the service; without it the document's first server."""
    prefix: str = ""
    """Put before every tool's name."""
    include: list[str] = Field(default_factory=lambda: ["*"])
    """Globs over operation ids."""
    exclude: list[str] = Field(default_factory=list)
    """Globs over operation ids that are left out."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of every request, with `${VARIABLE}`."""
    allow_hosts: list[str] = Field(default_factory=list)
    """Hosts that may be private."""
    timeout_ms: int | None = Field(default=None, gt=0)
    """For one call."""
    risk: Risk | None = None
    """Of all operations; without it reading is `low`, writing `medium`, deleting `high`."""
    trust: Trust = "untrusted"
    """Of what the operations return; only `check` reads it."""


class _Operation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    method: str
    path: str
    data: Mapping[str, Any]
    path_parameters: tuple[Mapping[str, Any], ...]
    """Parameters that the document declares for the path, so for all its operations."""


def load_openapi_section(
    section: list[dict[str, Any]], context: LoadingContext
) -> tuple[list[Tool], list[str]]:
    """Make the tools of all documents of `tools.openapi`; see `load_openapi_tools`."""
    tools: list[Tool] = []
    warnings: list[str] = []
    for index, data in enumerate(section):
        document_tools, notes = load_openapi_tools(data, f"tools.openapi[{index}]", context)
        tools += document_tools
        warnings += notes
    return tools, warnings


def list_openapi_starts(section: list[dict[str, Any]], base_folder: Path) -> Iterator[Start]:
    """The file of each document, and the address that its operations call; the document is read as data.

    Raises:
        SpecError: settings are not allowed; or only a long document names the address, which a bounded worker
            must read: then the entry says it by `base_url`.
    """
    for index, data in enumerate(section):
        spec_path = f"tools.openapi[{index}]"
        settings = _parse_settings(data, spec_path)
        if isinstance(settings.document, str):
            path = str(base_folder / settings.document)
            yield Start(kind="file", subject=path, purpose="is read: an OpenAPI document")
        address = settings.base_url
        if not address:
            document = settings.document
            if isinstance(document, str):
                document = _read_short_document(base_folder / document, spec_path)
            address = _get_base_url(document, settings, spec_path)
        purpose = "any operation of an OpenAPI document, as often as the model calls it"
        yield Start(kind="address", subject=address, purpose=purpose)
        for host in settings.allow_hosts:
            purpose = "an OpenAPI document may reach it, also where it is private"
            yield Start(kind="address", subject=host, purpose=purpose)


def _read_short_document(path: Path, spec_path: str) -> dict[str, Any]:
    """The data of a document that is short enough to be read here.

    Raises:
        SpecError: it is long, or cannot be read.
    """
    try:
        size = path.stat().st_size if path.is_file() else None
        if size is not None and size <= MAX_SHORT_BYTES:
            document = read_yaml(
                read_regular_file(path).decode(), str(path), limits=DOCUMENT_LIMITS, misread_words="convert"
            ).data
            return document if isinstance(document, dict) else {}
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise SpecError(f"cannot be read: {error}", file=str(path), path=spec_path) from None
    raise SpecError(
        "the document is too long to say which server it names"
        if size
        else "the document is no file that can be read",
        file=str(path),
        path=spec_path,
        hint="add base_url",
    )


def load_openapi_tools(
    data: Mapping[str, Any], spec_path: str, context: LoadingContext
) -> tuple[list[Tool], list[str]]:
    """Make the tools of one document, with a warning for each operation that was left out.

    Args:
        data: one entry of `tools.openapi`.
        spec_path: path of that entry in the spec, for errors and warnings.

    Raises:
        SpecError: the document cannot be read, is not OpenAPI 3, or names no server address.
    """
    settings = _parse_settings(data, spec_path)
    document = _load_document(settings.document, spec_path, context)
    base_url = _get_base_url(document, settings, spec_path)
    tools: list[Tool] = []
    warnings: list[str] = []
    for operation in _list_operations(document, settings, spec_path):
        if len(tools) == READING.operations:
            problem = f"more than {READING.operations} operations; the others left out"
            warnings.append(f"{spec_path}: {problem} {name_limit('operations')}")
            break
        try:
            tools.append(_make_operation_tool(document, settings, operation, base_url, context, tools))
        except SpecError as error:
            warnings.append(f"{spec_path}: operation {operation.id!r} left out: {error.message}")
        except (TypeError, AttributeError, ValueError, KeyError, RecursionError) as error:
            problem = f"it is not OpenAPI ({type(error).__name__})"
            warnings.append(f"{spec_path}: operation {operation.id!r} left out: {problem}")
    return tools, warnings


def _parse_settings(data: Mapping[str, Any], spec_path: str) -> OpenApiSettings:
    try:
        return OpenApiSettings.model_validate({key: value for key, value in data.items() if key != "comment"})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        hint = suggest_name(str(first["loc"][-1]), OpenApiSettings.model_fields)
        key_path = ".".join(map(str, first["loc"]))
        raise SpecError(first["msg"], path=f"{spec_path}.{key_path}", hint=hint) from None


def _load_document(source: str | dict[str, Any], spec_path: str, context: LoadingContext) -> dict[str, Any]:
    if isinstance(source, str):
        path = context.base_folder / source
        try:
            text = read_regular_file(path).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"cannot be read: {error}", file=str(path), path=spec_path) from None
        source = _parse_document(text, path, spec_path)
    if not isinstance(source, dict) or not str(source.get("openapi", "")).startswith("3."):
        raise SpecError(
            "this is not an OpenAPI 3 document", path=spec_path, hint="it begins with openapi: 3.1.0 or so"
        )
    return source


def _parse_document(text: str, path: Path, spec_path: str) -> Any:
    if len(text) > READING.openapi_bytes:
        problem = f"larger than {READING.openapi_bytes} bytes {name_limit('openapi_bytes')}"
        raise SpecError(problem, file=str(path), path=spec_path)
    try:
        if path.suffix == ".json":
            return parse_foreign_json(text, "file_values")
        work = Work(module=__name__, function="parse_yaml", arguments={"text": text}, preload=(__name__,))
        return run_bounded(work, timeout_s=PARSING_TIMEOUT_S)
    except BoundExceeded:
        reason = f"it takes more than {PARSING_TIMEOUT_S:g} s or too much memory"
    except WorkFailed as failure:
        reason = failure.text
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise SpecError(f"cannot be read: {reason}", file=str(path), path=spec_path) from None


def parse_yaml(text: str) -> Any:
    """The data of a YAML text within limits; runs in a bounded worker.

    Raises:
        SpecError: it is no YAML, or beyond the limits with its aliases written out.
    """
    return read_yaml(text, None, limits=DOCUMENT_LIMITS, misread_words="convert").data


def _get_base_url(document: Mapping[str, Any], settings: OpenApiSettings, spec_path: str) -> str:
    """The address that operations are appended to: the operator's, else the document's, as plain text.

    Raises:
        SpecError: there is none, or secrets would go to a host that the document chooses.
    """
    if settings.base_url:
        return settings.base_url.rstrip("/")
    if any(list(find_references(text)) for text in settings.headers.values()):
        raise SpecError(
            "the headers name variables, and the document chooses the host that gets them",
            path=spec_path,
            hint="add base_url",
        )
    servers = document.get("servers")
    server = servers[0] if isinstance(servers, list) and servers and isinstance(servers[0], Mapping) else {}
    url, variables = str(server.get("url", "")), server.get("variables")
    for name, variable in variables.items() if isinstance(variables, Mapping) else ():
        default = variable.get("default", "") if isinstance(variable, Mapping) else ""
        url = url.replace(f"{{{name}}}", str(default))
    if not url.startswith(("http://", "https://")):
        raise SpecError(
            f"the document's server {url!r} is not an address", path=spec_path, hint="add base_url"
        )
    return _make_literal(url).rstrip("/")


def _make_literal(text: str) -> str:
    """A part of an address in which nothing is a variable: only the operator's own text may name one."""
    return text.replace("$", "%24")


def _list_operations(
    document: Mapping[str, Any], settings: OpenApiSettings, spec_path: str
) -> list[_Operation]:
    """The chosen operations.

    Raises:
        SpecError: the document has another form.
    """
    try:
        return list(_select_operations(document, settings))
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        raise SpecError(f"this is not OpenAPI: {type(error).__name__}: {error}", path=spec_path) from None


def _select_operations(document: Mapping[str, Any], settings: OpenApiSettings) -> Iterator[_Operation]:
    for path, item in (document.get("paths") or {}).items():
        item = _resolve_reference(document, item)
        for method in METHODS:
            data = item.get(method)
            if not isinstance(data, Mapping) or not str(path).startswith("/"):
                continue
            name = str(data.get("operationId") or f"{method}_{path}")
            is_included = any(fnmatchcase(name, glob) for glob in settings.include)
            if is_included and not any(fnmatchcase(name, glob) for glob in settings.exclude):
                path_parameters = tuple(item.get("parameters") or ())
                yield _Operation(
                    id=name, method=method, path=path, data=data, path_parameters=path_parameters
                )


def _make_operation_tool(
    document: Mapping[str, Any],
    settings: OpenApiSettings,
    operation: _Operation,
    base: str,
    context: LoadingContext,
    earlier_tools: list[Tool],
) -> Tool:
    schema, mapping, body = _collect_parameters(document, operation)
    schema, changes = sanitize_schema(schema)
    check_schema(schema, operation.id)
    method = operation.method.upper()
    name = make_portable_name(settings.prefix + operation.id, [tool.name for tool in earlier_tools])
    http = parse_http_settings(
        {
            "method": method,
            "url": base + _rewrite_slots(_make_literal(operation.path), mapping),
            "headers": settings.headers,
            "allow_hosts": settings.allow_hosts,
            "params_mapping": mapping,
            **({"body": body} if body is not None else {}),
        },
        name,
    )
    definition = ToolDefinition(name=name, description=_describe_operation(operation), parameters=schema)
    operation_tool = make_http_tool(
        definition, http, resolve=context.resolve_secrets, idempotent=method in IDEMPOTENT_METHODS
    )
    alias = settings.prefix + operation.id
    return replace(
        operation_tool,
        risk=settings.risk or _rate_method_risk(method),
        timeout_s=settings.timeout_ms / 1000 if settings.timeout_ms else context.default_timeout_s,
        alias=alias if alias != name else None,
        rewrites=changes,
        action={**(operation_tool.action or {}), "trust": settings.trust},
    )


def _rate_method_risk(method: str) -> Risk:
    if method in ("GET", "HEAD", "OPTIONS"):
        return "low"
    return "high" if method == "DELETE" else "medium"


def _describe_operation(operation: _Operation) -> str:
    texts = [operation.data.get(key) for key in ("summary", "description")]
    text = "\n\n".join(dict.fromkeys(str(part).strip() for part in texts if part))
    return (text or f"{operation.method.upper()} {operation.path}")[:1000]


def _rewrite_slots(path: str, mapping: Mapping[str, str]) -> str:
    """The path with slot names that are identifiers: `{user-id}` becomes `{user_id}`."""
    return re.sub(r"\{([^}]*)\}", lambda match: "{" + _make_identifier(match.group(1)) + "}", path)


def _make_identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _collect_parameters(
    document: Mapping[str, Any], operation: _Operation
) -> tuple[dict[str, Any], dict[str, str], Any]:
    """All parameters of an operation, its body included.

    Returns:
        One JSON Schema of all parameters, the `params_mapping` of the HTTP tool, and its body template.
    """
    properties: dict[str, Any] = {}
    required: list[str] = []
    mapping: dict[str, str] = {}
    for reference in (*operation.path_parameters, *(operation.data.get("parameters") or ())):
        parameter = _resolve_reference(document, reference)
        name, location = str(parameter.get("name", "")), parameter.get("in")
        if location not in ("query", "path", "header") or not name:
            continue  # a cookie is not for a model to set
        properties[name] = {
            "description": parameter.get("description", ""),
            **_get_parameter_schema(document, parameter),
        }
        mapping[name] = f"{location}:{_make_identifier(name) if location == 'path' else name}"
        if parameter.get("required") or location == "path":
            required.append(name)
    body = _add_body_parameter(document, operation, properties, required)
    schema = {"type": "object", "properties": properties, "required": list(dict.fromkeys(required))}
    return add_definitions(document, schema), mapping, body


def _get_parameter_schema(document: Mapping[str, Any], parameter: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(parameter.get("schema"), Mapping):
        return dict(parameter["schema"])
    for content in (parameter.get("content") or {}).values():
        return dict(content.get("schema") or {})
    return {}


def _add_body_parameter(
    document: Mapping[str, Any], operation: _Operation, properties: dict[str, Any], required: list[str]
) -> Any:
    """Add a parameter for the JSON body and return the body template, or None without a body.

    Raises:
        SpecError: the operation requires a body that is not JSON.
    """
    request_body = _resolve_reference(document, operation.data.get("requestBody") or {})
    content = request_body.get("content") or {}
    if not content:
        return None
    content_type = next((media_type for media_type in content if "json" in media_type), None)
    if content_type is None:
        if request_body.get("required"):
            raise SpecError(f"its body is {', '.join(content)}, not JSON")
        return None
    name = "body" if "body" not in properties else "request_body"
    properties[name] = {"description": "The body.", **(content[content_type].get("schema") or {})}
    if request_body.get("required"):
        required.append(name)
    return "{{" + name + "}}"


def _resolve_reference(document: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """Follow local references, at most ten in a row, because references may form a circle."""
    for _ in range(10):
        target = value.get("$ref") if isinstance(value, Mapping) else None
        if not isinstance(target, str) or not target.startswith("#/"):
            break
        node: Any = document
        for step in target.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            node = node.get(name) if isinstance(node, Mapping) else None
        value = node
    return value if isinstance(value, Mapping) else {}
