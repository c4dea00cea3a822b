"""Settings of an HTTP tool, and how the arguments of a call become one HTTP request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import SpecError, suggest_name
from toolchart.tools.definition import ToolFailure
from toolchart.tools.whole_definition import digest_text, name_place

ArgumentLocation = Literal["query", "path", "header", "body"]

_ARGUMENT_LOCATIONS = ("query", "path", "header", "body")

_SLOT = re.compile(r"(?<!\$)\{(\w+)\}")
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_BODY_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_BODYLESS_METHODS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class RetrySettings(BaseModel):
    """How often a request is repeated after a transient failure."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    attempts: int = Field(default=2, ge=1, le=6)
    """Tries in all."""
    backoff_s: float = Field(default=0.5, ge=0, le=30)
    """Seconds before the second try; doubled before each further one."""


class HttpSettings(BaseModel):
    """The `implementation` of a tool of type `http`."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    """HTTP method."""
    url: str
    """Address; `{name}` after the host stands for an argument."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers; `${VARIABLE}` is filled in when the request is sent and never logged."""
    idempotency_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
    """Header that carries the idempotency key of the call, `Idempotency-Key` for instance: the same for each
    try of the same call, also after a crash."""
    params_mapping: dict[str, str] = Field(default_factory=dict)
    """Where arguments go: `q`, `query:q`, `path:id`, `header:X-Id` or `body:filter.name`. What is not
    named goes to the path where the url has its slot, else to the query, or to the body of a request
    that has one."""
    body: Any = None
    """Template of the body: `{{name}}` stands for an argument, with its type where it is alone."""
    body_type: Literal["json", "form", "text"] = "json"
    """How the body is written."""
    response_path: str | None = None
    """JSONPath of what is wanted of a JSON answer."""
    retry: RetrySettings = Field(default_factory=RetrySettings)
    """Never on a 4xx but 408 and 429, and only where a second request does no harm."""
    max_bytes: int = Field(default=16_000_000, gt=0, le=50_000_000)
    """Size of the answer that is read at all."""
    content_types: list[str] = Field(
        default_factory=lambda: ["application/json", "application/*+json", "text/*", "*/xml"]
    )
    """Globs over the content types that are read."""
    allow_hosts: list[str] = Field(default_factory=list)
    """Hosts that may be private: names or globs, optionally with a port."""
    max_redirects: int = Field(default=5, ge=0, le=20)
    """Redirects that are followed."""


class OutgoingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request with `${VARIABLE}` still in it; the secrets are filled in when it is sent."""

    method: str
    url: str
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Headers made from arguments; the headers of the spec are added when the request is sent."""
    content: bytes | None = None
    content_type: str | None = None


def parse_http_settings(data: Mapping[str, Any], tool: str) -> HttpSettings:
    """Read and check the settings of an HTTP tool.

    Args:
        tool: name of the tool, for errors.

    Raises:
        SpecError: a key is unknown or a value is not allowed.
    """
    path = f"tool {tool!r}"
    try:
        settings = HttpSettings.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key_path = ".".join(map(str, first["loc"]))
        suggestion = suggest_name(str(first["loc"][-1]), HttpSettings.model_fields)
        hint = suggestion if first["type"] == "extra_forbidden" else None
        raise SpecError(f"{key_path}: {first['msg']}", path=path, hint=hint) from None
    _check_url(settings.url, path)
    for argument, target in settings.params_mapping.items():
        _parse_target(argument, target, path)
    return settings


def _check_url(url: str, path: str) -> None:
    if _REFERENCE.match(url):  # scheme and host come from the environment
        return
    plain_url = _REFERENCE.sub("x", url)
    parts = urlsplit(_SLOT.sub("x", plain_url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SpecError(
            f"{url!r} is not an http address", path=path, hint="for instance https://api.example.com/v1"
        )
    if _SLOT.search(re.split(r"[/?#]", plain_url.split("://", 1)[1])[0]):
        raise SpecError(
            "an argument cannot choose the host of an address",
            path=path,
            hint="write the host into the url; arguments fill what comes after it",
        )


def _parse_target(argument: str, target: str, path: str) -> tuple[ArgumentLocation, str]:
    location, _, name = target.partition(":") if ":" in target else ("query", "", target)
    if location not in _ARGUMENT_LOCATIONS or not name:
        raise SpecError(
            f"params_mapping.{argument}: {target!r} is not a location for an argument",
            path=path,
            hint="q, query:q, path:id, header:X-Id or body:filter.name",
        )
    return location, name  # type: ignore[return-value]


def build_request(settings: HttpSettings, arguments: Mapping[str, Any]) -> OutgoingRequest:
    """Put the arguments of a call into a request: path, query, headers and body.

    Raises:
        ToolFailure: an argument cannot be written at its location in the request.
    """
    slots = set(_SLOT.findall(settings.url))
    path: dict[str, str] = {}
    query: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    for argument, value in arguments.items():
        location, name = _locate_argument(settings, argument, slots)
        if location == "path":
            path[name] = _encode_segment(argument, value)
        elif location == "query":
            query += [(name, text) for text in _format_values(value)]
        elif location == "header":
            headers[name] = _encode_header(argument, value)
        else:
            _set_body_field(body, name, value)
    content, content_type = _encode_body(settings, arguments, body)
    return OutgoingRequest(
        method=settings.method,
        url=_fill_url(settings.url, path, slots),
        query=tuple(query),
        headers=headers,
        content=content,
        content_type=content_type,
    )


def describe_http_action(settings: HttpSettings, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What a call of an HTTP tool does, as `Tool.action` holds it.

    The values of headers are digests of what the spec says: an operator may have written a key there.

    Args:
        parameters: JSON Schema of the arguments.
    """
    slots = set(_SLOT.findall(settings.url))
    properties: Mapping[str, Any] = parameters.get("properties") or {}
    arguments: dict[str, None] = dict.fromkeys((*properties, *settings.params_mapping))
    places = {name: _locate_argument(settings, name, slots) for name in arguments}
    return {
        "method": settings.method,
        "address": settings.url,
        **{name_place(name): f"{location}: {target}" for name, (location, target) in places.items()},
        **{f"header {name!r}": digest_text(value) for name, value in settings.headers.items()},
        "idempotency header": settings.idempotency_header,
        "body": settings.body,
        "body form": settings.body_type,
        "response path": settings.response_path,
        "content types": settings.content_types,
        "size limit": settings.max_bytes,
        "attempts": settings.retry.attempts,
        "redirects": settings.max_redirects,
        "allowed hosts": settings.allow_hosts,
    }


def _locate_argument(settings: HttpSettings, argument: str, slots: set[str]) -> tuple[ArgumentLocation, str]:
    if argument in settings.params_mapping:
        return _parse_target(argument, settings.params_mapping[argument], "")
    if argument in slots:
        return "path", argument
    return ("query" if settings.method in _BODYLESS_METHODS else "body"), argument


def _fill_url(url: str, values: Mapping[str, str], slots: set[str]) -> str:
    missing = sorted(slots - values.keys())
    if missing:
        raise ToolFailure(f"the address needs the parameter {missing[0]!r}")
    return _SLOT.sub(lambda match: values[match.group(1)], url)


def _encode_segment(argument: str, value: Any) -> str:
    """Encode a value as one path segment, so that it cannot change the rest of the path."""
    text = _format_value(value)
    if text in ("", ".", ".."):
        raise ToolFailure(f"parameter {argument!r} cannot be {text!r} in an address")
    return quote(text, safe="")


def _encode_header(argument: str, value: Any) -> str:
    text = _format_value(value)
    if not text.isascii() or not text.isprintable():
        raise ToolFailure(f"parameter {argument!r} has characters that a header cannot carry")
    return text


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else encode_canonical_text(value)


def _format_values(value: Any) -> list[str]:
    if value is None:
        return []
    return [_format_value(item) for item in value] if isinstance(value, list) else [_format_value(value)]


def _set_body_field(body: dict[str, Any], path: str, value: Any) -> None:
    *outer, last = path.split(".")
    for part in outer:
        inner = body.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ToolFailure(f"two parameters want the same place {path!r} in the body")
        body = inner
    body[last] = value


def _encode_body(
    settings: HttpSettings, arguments: Mapping[str, Any], body: dict[str, Any]
) -> tuple[bytes | None, str | None]:
    value = fill_template(settings.body, arguments) if settings.body is not None else (body or None)
    if value is None:
        return None, None
    if settings.body_type == "json":
        return json.dumps(value, ensure_ascii=False).encode(), "application/json"
    if settings.body_type == "form":
        if not isinstance(value, Mapping):
            raise ToolFailure("a form body must be an object")
        pairs = [(name, item) for name, field_value in value.items() for item in _format_values(field_value)]
        text = "&".join(f"{quote(name, safe='')}={quote(item, safe='')}" for name, item in pairs)
        return text.encode(), "application/x-www-form-urlencoded"
    return _format_value(value).encode(), "text/plain; charset=utf-8"


def fill_template(template: Any, arguments: Mapping[str, Any]) -> Any:
    """Replace each `{{name}}` in a JSON template by that argument.

    A text that is nothing but one slot becomes the argument itself, with its type. Keys and items whose
    value is such a slot are left out if the call has no such argument.
    """
    if isinstance(template, Mapping):
        filled_fields = {key: item for key, item in template.items() if not _is_missing_slot(item, arguments)}
        return {key: fill_template(item, arguments) for key, item in filled_fields.items()}
    if isinstance(template, list):
        return [fill_template(item, arguments) for item in template if not _is_missing_slot(item, arguments)]
    if not isinstance(template, str):
        return template
    slot = _BODY_SLOT.fullmatch(template)
    if slot:
        return arguments.get(slot.group(1))
    return _BODY_SLOT.sub(lambda match: _format_value(arguments.get(match.group(1), "")), template)


def _is_missing_slot(template: Any, arguments: Mapping[str, Any]) -> bool:
    slot = _BODY_SLOT.fullmatch(template) if isinstance(template, str) else None
    return slot is not None and slot.group(1) not in arguments
