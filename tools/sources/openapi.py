"""OpenAPI documents: each operation a tool that sends its request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.suggestions import nearest
from toolchart.tools.definition import Risk, Tool
from toolchart.tools.formats import portable_name
from toolchart.tools.sources.foreign_schemas import tamed
from toolchart.tools.sources.http.settings import parse_http
from toolchart.tools.sources.http.tool import HARMLESS, http_tool
from toolchart.tools.sources.registry_entries import Surroundings

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")

MOST_OPERATIONS = 500
MOST_BYTES = 10_000_000


class OpenApiSettings(BaseModel):
    """One entry of `tools.openapi`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

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
    timeout_ms: int = Field(default=30_000, gt=0)
    """For one call."""
    risk: Risk | None = None
    """Of all operations; without it reading is `low`, writing `medium`, deleting `high`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    id: str
    method: str
    path: str
    data: Mapping[str, Any]
    shared: tuple[Mapping[str, Any], ...]
    """Parameters of the path, which all its operations take."""


def openapi_tools(
    data: Mapping[str, Any], place: str, around: Surroundings
) -> tuple[list[Tool], list[str]]:
    """The tools of one document, and warnings about operations that were left out.

    Raises:
        SpecError: the document cannot be read or is no OpenAPI 3 document.
    """
    settings = _settings(data, place)
    document = _document(settings.document, place, around)
    base = _base(document, settings, place)
    tools: list[Tool] = []
    warnings: list[str] = []
    for operation in _chosen(document, settings):
        if len(tools) == MOST_OPERATIONS:
            warnings.append(f"{place}: more than {MOST_OPERATIONS} operations; the others left out")
            break
        try:
            tools.append(_tool(document, settings, operation, base, around, tools))
        except SpecError as error:
            warnings.append(f"{place}: operation {operation.id!r} left out: {error.message}")
    return tools, warnings


def _settings(data: Mapping[str, Any], place: str) -> OpenApiSettings:
    try:
        return OpenApiSettings.model_validate({k: v for k, v in data.items() if k != "comment"})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        hint = nearest(str(first["loc"][-1]), OpenApiSettings.model_fields)
        where = ".".join(map(str, first["loc"]))
        raise SpecError(first["msg"], path=f"{place}.{where}", hint=hint) from None


def _document(source: str | dict[str, Any], place: str, around: Surroundings) -> dict[str, Any]:
    if isinstance(source, str):
        path = around.beside / source
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"cannot be read: {error}", file=str(path), path=place) from None
        source = _parsed(text, path, place)
    if not isinstance(source, dict) or not str(source.get("openapi", "")).startswith("3."):
        raise SpecError(
            "this is no OpenAPI 3 document", path=place, hint="it begins with openapi: 3.1.0 or so"
        )
    return source


def _parsed(text: str, path: Path, place: str) -> Any:
    if len(text) > MOST_BYTES:
        raise SpecError(f"larger than {MOST_BYTES} bytes", file=str(path), path=place)
    try:
        return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SpecError(f"cannot be read: {reason}", file=str(path), path=place) from None


def _base(document: Mapping[str, Any], settings: OpenApiSettings, place: str) -> str:
    servers = document.get("servers") or [{}]
    url = settings.base_url or servers[0].get("url", "")
    for name, variable in (servers[0].get("variables") or {}).items():
        url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
    if not url.startswith(("http://", "https://", "${")):
        raise SpecError(
            f"the document's server {url!r} is no address", path=place, hint="add base_url"
        )
    return str(url).rstrip("/")


def _chosen(document: Mapping[str, Any], settings: OpenApiSettings) -> Iterator[_Operation]:
    for path, item in (document.get("paths") or {}).items():
        item = _resolved(document, item)
        for method in METHODS:
            data = item.get(method)
            if not isinstance(data, Mapping) or not str(path).startswith("/"):
                continue
            name = str(data.get("operationId") or f"{method}_{path}")
            wanted = any(fnmatchcase(name, glob) for glob in settings.include)
            if wanted and not any(fnmatchcase(name, glob) for glob in settings.exclude):
                shared = tuple(item.get("parameters") or ())
                yield _Operation(id=name, method=method, path=path, data=data, shared=shared)


def _tool(
    document: Mapping[str, Any],
    settings: OpenApiSettings,
    operation: _Operation,
    base: str,
    around: Surroundings,
    known: list[Tool],
) -> Tool:
    schema, mapping, body = _parameters(document, operation)
    schema, changes = tamed(schema)
    method = operation.method.upper()
    name = portable_name(settings.prefix + operation.id, [tool.name for tool in known])
    http = parse_http(
        {
            "method": method,
            "url": base + _slots(operation.path, mapping),
            "headers": settings.headers,
            "allow_hosts": settings.allow_hosts,
            "params_mapping": mapping,
            **({"body": body} if body is not None else {}),
        },
        name,
    )
    definition = ToolDefinition(name=name, description=_description(operation), parameters=schema)
    made = http_tool(definition, http, resolve=around.resolve, idempotent=method in HARMLESS)
    alias = settings.prefix + operation.id
    return replace(
        made,
        risk=settings.risk or _risk(method),
        timeout_s=settings.timeout_ms / 1000,
        alias=alias if alias != name else None,
        rewrites=changes,
    )


def _risk(method: str) -> Risk:
    if method in ("GET", "HEAD", "OPTIONS"):
        return "low"
    return "high" if method == "DELETE" else "medium"


def _description(operation: _Operation) -> str:
    said = [operation.data.get(key) for key in ("summary", "description")]
    text = "\n\n".join(dict.fromkeys(str(one).strip() for one in said if one))
    return (text or f"{operation.method.upper()} {operation.path}")[:1000]


def _slots(path: str, mapping: Mapping[str, str]) -> str:
    """The path with slots that are words: `{user-id}` becomes `{user_id}`."""
    return re.sub(r"\{([^}]*)\}", lambda match: "{" + _word(match.group(1)) + "}", path)


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _parameters(
    document: Mapping[str, Any], operation: _Operation
) -> tuple[dict[str, Any], dict[str, str], Any]:
    """One schema of everything that the operation takes, where each goes, and the body's template."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    mapping: dict[str, str] = {}
    for given in (*operation.shared, *(operation.data.get("parameters") or ())):
        one = _resolved(document, given)
        name, where = str(one.get("name", "")), one.get("in")
        if where not in ("query", "path", "header") or not name:
            continue  # a cookie is not for a model to set
        properties[name] = {"description": one.get("description", ""), **_schema(document, one)}
        mapping[name] = f"{where}:{_word(name) if where == 'path' else name}"
        if one.get("required") or where == "path":
            required.append(name)
    body = _body(document, operation, properties, required)
    schema = {"type": "object", "properties": properties, "required": list(dict.fromkeys(required))}
    return _with_definitions(document, schema), mapping, body


def _schema(document: Mapping[str, Any], parameter: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(parameter.get("schema"), Mapping):
        return dict(parameter["schema"])
    for content in (parameter.get("content") or {}).values():
        return dict(content.get("schema") or {})
    return {}


def _body(
    document: Mapping[str, Any],
    operation: _Operation,
    properties: dict[str, Any],
    required: list[str],
) -> Any:
    """Add the parameter `body` for a JSON body; its template, or None without one.

    Raises:
        SpecError: the operation needs a body that is not JSON.
    """
    given = _resolved(document, operation.data.get("requestBody") or {})
    content = given.get("content") or {}
    if not content:
        return None
    kind = next((one for one in content if "json" in one), None)
    if kind is None:
        if given.get("required"):
            raise SpecError(f"its body is {', '.join(content)}, not JSON")
        return None
    name = "body" if "body" not in properties else "request_body"
    properties[name] = {"description": "The body.", **(content[kind].get("schema") or {})}
    if given.get("required"):
        required.append(name)
    return "{{" + name + "}}"


def _resolved(document: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """What a local reference names; at most a few steps, since documents may refer in circles."""
    for _ in range(10):
        target = value.get("$ref") if isinstance(value, Mapping) else None
        if not isinstance(target, str) or not target.startswith("#/"):
            break
        here: Any = document
        for part in target.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            here = here.get(name) if isinstance(here, Mapping) else None
        value = here
    return value if isinstance(value, Mapping) else {}


_COMPONENT = "#/components/schemas/"


def _with_definitions(document: Mapping[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the components that it names, and no others, as its own `$defs`."""
    components = (document.get("components") or {}).get("schemas") or {}
    wanted, found = _named(schema), {}
    while wanted:
        name = wanted.pop()
        if name not in found and name in components:
            found[name] = _moved(components[name])
            wanted |= _named(components[name])
    moved: dict[str, Any] = _moved(schema)
    return {**moved, "$defs": found} if found else moved


def _named(value: Any) -> set[str]:
    """Components that a schema names."""
    if isinstance(value, list):
        return {name for one in value for name in _named(one)}
    if not isinstance(value, Mapping):
        return set()
    target = value.get("$ref")
    own = {str(target).removeprefix(_COMPONENT)} if _is_component(target) else set()
    return own | {name for one in value.values() for name in _named(one)}


def _is_component(target: Any) -> bool:
    return isinstance(target, str) and target.startswith(_COMPONENT)


def _moved(value: Any) -> Any:
    if isinstance(value, list):
        return [_moved(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: f"#/$defs/{str(one).removeprefix(_COMPONENT)}"
        if key == "$ref" and _is_component(one)
        else _moved(one)
        for key, one in value.items()
    }
