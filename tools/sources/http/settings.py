"""What the spec says about an HTTP tool, and the request that a call's arguments make of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.states.canonical_json import canonical_text
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest
from toolchart.tools.definition import ToolFailure

Place = Literal["query", "path", "header", "body"]

_PLACES = ("query", "path", "header", "body")

_SLOT = re.compile(r"(?<!\$)\{(\w+)\}")
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_BODY_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_BODILESS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class RetrySettings(BaseModel):
    """Further tries of a request that failed in passing."""

    model_config = ConfigDict(extra="forbid")

    attempts: int = Field(default=2, ge=1, le=6)
    """Tries in all."""
    backoff_s: float = Field(default=0.5, ge=0, le=30)
    """Seconds before the second try; doubled before each further one."""


class HttpSettings(BaseModel):
    """The `implementation` of a tool of type `http`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    """HTTP method."""
    url: str
    """Address; `{name}` after the host stands for an argument."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers; `${VARIABLE}` is filled in when the request is sent and never logged."""
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
    max_bytes: int = Field(default=1_000_000, gt=0, le=50_000_000)
    """Size of the answer that is read at all."""
    content_types: list[str] = Field(
        default_factory=lambda: ["application/json", "application/*+json", "text/*", "*/xml"]
    )
    """Globs over the content types that are read."""
    allow_hosts: list[str] = Field(default_factory=list)
    """Hosts that may be private: names or globs, optionally with a port."""
    max_redirects: int = Field(default=5, ge=0, le=20)
    """Redirects that are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One request, before its secrets are filled in."""

    method: str
    url: str
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    """Headers from arguments; those of the spec come beside them."""
    content: bytes | None = None
    content_type: str | None = None


def parse_http(data: Mapping[str, Any], tool: str) -> HttpSettings:
    """The settings of an HTTP tool.

    Raises:
        SpecError: a key or a value that cannot be, named with what is allowed.
    """
    path = f"tool {tool!r}"
    try:
        settings = HttpSettings.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        known = nearest(str(first["loc"][-1]), HttpSettings.model_fields)
        hint = known if first["type"] == "extra_forbidden" else None
        raise SpecError(f"{place}: {first['msg']}", path=path, hint=hint) from None
    _check_url(settings.url, path)
    for argument, target in settings.params_mapping.items():
        _target(argument, target, path)
    return settings


def _check_url(url: str, path: str) -> None:
    if _REFERENCE.match(url):  # the whole beginning comes from the environment
        return
    bare = _REFERENCE.sub("x", url)
    parts = urlsplit(_SLOT.sub("x", bare))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SpecError(
            f"{url!r} is no http address", path=path, hint="for instance https://api.example.com/v1"
        )
    if _SLOT.search(re.split(r"[/?#]", bare.split("://", 1)[1])[0]):
        raise SpecError(
            "an argument cannot choose the host of an address",
            path=path,
            hint="write the host into the url; arguments fill what comes after it",
        )


def _target(argument: str, target: str, path: str) -> tuple[Place, str]:
    place, _, name = target.partition(":") if ":" in target else ("query", "", target)
    if place not in _PLACES or not name:
        raise SpecError(
            f"params_mapping.{argument}: {target!r} is no place for an argument",
            path=path,
            hint="q, query:q, path:id, header:X-Id or body:filter.name",
        )
    return place, name  # type: ignore[return-value]


def outgoing(settings: HttpSettings, arguments: Mapping[str, Any]) -> Outgoing:
    """The request that the arguments make.

    Raises:
        ToolFailure: an argument that its place in the request cannot hold.
    """
    slots = set(_SLOT.findall(settings.url))
    path: dict[str, str] = {}
    query: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    for argument, value in arguments.items():
        place, name = _placed(settings, argument, slots)
        if place == "path":
            path[name] = _segment(argument, value)
        elif place == "query":
            query += [(name, one) for one in _texts(value)]
        elif place == "header":
            headers[name] = _header(argument, value)
        else:
            _put(body, name, value)
    content, content_type = _content(settings, arguments, body)
    return Outgoing(
        method=settings.method,
        url=_filled(settings.url, path, slots),
        query=tuple(query),
        headers=headers,
        content=content,
        content_type=content_type,
    )


def _placed(settings: HttpSettings, argument: str, slots: set[str]) -> tuple[Place, str]:
    if argument in settings.params_mapping:
        return _target(argument, settings.params_mapping[argument], "")
    if argument in slots:
        return "path", argument
    return ("query" if settings.method in _BODILESS else "body"), argument


def _filled(url: str, values: Mapping[str, str], slots: set[str]) -> str:
    missing = sorted(slots - values.keys())
    if missing:
        raise ToolFailure(f"the address needs the parameter {missing[0]!r}")
    return _SLOT.sub(lambda match: values[match.group(1)], url)


def _segment(argument: str, value: Any) -> str:
    """One path segment; it cannot leave its place, whatever it contains."""
    text = _text(value)
    if text in ("", ".", ".."):
        raise ToolFailure(f"parameter {argument!r} cannot be {text!r} in an address")
    return quote(text, safe="")


def _header(argument: str, value: Any) -> str:
    text = _text(value)
    if not text.isascii() or not text.isprintable():
        raise ToolFailure(f"parameter {argument!r} has characters that a header cannot carry")
    return text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_text(value)


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    return [_text(one) for one in value] if isinstance(value, list) else [_text(value)]


def _put(body: dict[str, Any], path: str, value: Any) -> None:
    *outer, last = path.split(".")
    for part in outer:
        inner = body.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ToolFailure(f"two parameters want the same place {path!r} in the body")
        body = inner
    body[last] = value


def _content(
    settings: HttpSettings, arguments: Mapping[str, Any], body: dict[str, Any]
) -> tuple[bytes | None, str | None]:
    value = fill(settings.body, arguments) if settings.body is not None else (body or None)
    if value is None:
        return None, None
    if settings.body_type == "json":
        return json.dumps(value, ensure_ascii=False).encode(), "application/json"
    if settings.body_type == "form":
        if not isinstance(value, Mapping):
            raise ToolFailure("a form body must be an object")
        pairs = [(name, one) for name, item in value.items() for one in _texts(item)]
        text = "&".join(f"{quote(name, safe='')}={quote(one, safe='')}" for name, one in pairs)
        return text.encode(), "application/x-www-form-urlencoded"
    return _text(value).encode(), "text/plain; charset=utf-8"


def fill(template: Any, arguments: Mapping[str, Any]) -> Any:
    """A JSON template with `{{name}}` filled in; alone in its text it keeps the argument's type.

    Keys whose value is a lone slot without an argument are left out.
    """
    if isinstance(template, Mapping):
        kept = {key: one for key, one in template.items() if not _unfilled(one, arguments)}
        return {key: fill(one, arguments) for key, one in kept.items()}
    if isinstance(template, list):
        return [fill(one, arguments) for one in template if not _unfilled(one, arguments)]
    if not isinstance(template, str):
        return template
    alone = _BODY_SLOT.fullmatch(template)
    if alone:
        return arguments.get(alone.group(1))
    return _BODY_SLOT.sub(lambda match: _text(arguments.get(match.group(1), "")), template)


def _unfilled(template: Any, arguments: Mapping[str, Any]) -> bool:
    alone = _BODY_SLOT.fullmatch(template) if isinstance(template, str) else None
    return alone is not None and alone.group(1) not in arguments
