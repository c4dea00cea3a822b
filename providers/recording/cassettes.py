"""Reading cassettes: recorded HTTP exchanges, in the spellings that VCR-style recorders use.

Five are read: vcrpy's `interactions` with text, with binary (often compressed) or with parsed bodies,
Ruby VCR's `http_interactions`, and a file with one `request` and one `response`. All come out as
`Exchange` values with the plain bytes of the body.

Source: the cassettes of pydantic-ai, ruby_llm, dd-trace-py and others; traps met there are named where
they are handled.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from toolchart.states.chart.source_positions import not_yaml
from toolchart.states.errors import SpecError

Endpoint = Literal["chat", "responses", "gemini", "ollama", "messages", "other"]
"""What an exchange asked for: chat completions, Responses, generateContent, `/api/chat`, Anthropic
messages; or something that is no model call."""

_ENDPOINTS: tuple[tuple[re.Pattern[str], Endpoint], ...] = (
    (re.compile(r"/chat/completions$"), "chat"),
    (re.compile(r"/responses$"), "responses"),
    (re.compile(r":(?:stream)?generateContent$", re.IGNORECASE), "gemini"),
    (re.compile(r"/api/chat$"), "ollama"),
    (re.compile(r"/messages$"), "messages"),
)

_PLACEHOLDER = re.compile(r"^(?:<[^>]*>|\$\{[^}]*\})")
"""Hosts may be written as `<OLLAMA_API_BASE>` or `${OLLAMA_HOST}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One recorded request and its answer."""

    method: str
    uri: str
    """As recorded; the host may be a placeholder."""
    endpoint: Endpoint
    asked: Any
    """The request body as JSON, or None where it is none."""
    status: int
    headers: Mapping[str, str]
    """Of the answer, names in lower case."""
    body: bytes
    """Of the answer, decoded."""
    streamed: bool
    """Whether the body is a stream: server-sent events, JSON lines, or an array of chunks."""


def read_cassette(path: Path) -> tuple[Exchange, ...]:
    """The exchanges of a cassette, in order.

    Raises:
        SpecError: no such file, or no cassette.
    """
    try:
        text = path.read_text("utf-8-sig")
        data = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_loader())
    except FileNotFoundError:
        raise SpecError(
            "there is no such cassette",
            file=str(path),
            hint="record one: `record: FILE` in an llms entry",
        ) from None
    except yaml.YAMLError as error:
        raise not_yaml(error, str(path)) from None
    except (OSError, ValueError) as error:
        raise SpecError(f"the cassette cannot be read: {error}", file=str(path)) from None
    try:
        return tuple(_exchange(one) for one in _interactions(data, path))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SpecError(
            f"an exchange of the cassette is damaged: {type(error).__name__}: {error}",
            file=str(path),
        ) from None


def _loader() -> Any:
    """The safe loader, which also takes Ruby's `!binary`."""
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("CassetteLoader", (base,), {})
    loader.add_constructor("!binary", lambda _, node: base64.b64decode(node.value))
    return loader


def _interactions(data: Any, path: Path) -> Iterator[Mapping[str, Any]]:
    if isinstance(data, Mapping):
        for key in ("interactions", "http_interactions"):
            if isinstance(data.get(key, 0), (list, type(None))):  # none yet: a recording that began
                yield from data[key] or ()
                return
        if "request" in data and "response" in data:
            yield data
            return
    raise SpecError(
        "this is no cassette",
        file=str(path),
        hint="a cassette has `interactions`, `http_interactions`, or a `request` and a `response`",
    )


def _exchange(recorded: Mapping[str, Any]) -> Exchange:
    request, response = recorded["request"], recorded["response"]
    uri = str(request.get("uri") or request.get("url") or "")
    headers = _headers(response)
    body = _body(response, headers)
    endpoint = endpoint_of(uri)
    return Exchange(
        method=str(request.get("method") or "POST").upper(),
        uri=uri,
        endpoint=endpoint,
        asked=_json(_body(request, _headers(request))),
        status=_status(response),
        headers=headers,
        body=body,
        streamed=_streamed(endpoint, headers, body),
    )


def endpoint_of(uri: str) -> Endpoint:
    """What a URI asks for.

    >>> endpoint_of("<API_BASE>/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse")
    'gemini'
    """
    path = urlsplit(_PLACEHOLDER.sub("http://host", uri)).path
    return next((name for pattern, name in _ENDPOINTS if pattern.search(path)), "other")


def _headers(side: Mapping[str, Any]) -> dict[str, str]:
    """Header names in lower case; of several values the first."""
    found: dict[str, str] = {}
    for name, value in (side.get("headers") or {}).items():
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, (str, int)):
            found.setdefault(str(name).lower(), str(first))
    return found


def _status(response: Mapping[str, Any]) -> int:
    status = response.get("status", response.get("status_code", 200))
    return int(status["code"] if isinstance(status, Mapping) else status)


def _body(side: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
    """The body's bytes, decompressed."""
    if "parsed_body" in side:  # the exact bytes are gone; the value is not
        parsed = side["parsed_body"]
        return parsed.encode() if isinstance(parsed, str) else _dumped(parsed)
    body = side.get("body")
    if isinstance(body, Mapping):
        if "base64_string" in body:
            body = base64.b64decode(body["base64_string"])
        else:
            body = body.get("string", body or None)
    if body is None:
        return b""
    if isinstance(body, (Mapping, list)):
        return _dumped(body)
    data = body.encode("utf-8", "surrogateescape") if isinstance(body, str) else bytes(body)
    return decompressed(data, headers.get("content-encoding", ""))


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str).encode()


def decompressed(data: bytes, coding: str) -> bytes:
    """The plain bytes of a body with that `content-encoding`.

    Some recorders decode and leave the header, so the bytes themselves are looked at.
    """
    packed = data[:2] == b"\x1f\x8b" or ("deflate" in coding and data[:1] == b"\x78")
    try:
        # An object, since a stream that was cut still tells what came; 47: gzip or zlib, by its head.
        return zlib.decompressobj(47).decompress(data) if packed else data
    except zlib.error:
        return data


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _streamed(endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> bool:
    """Judged by the body as well: a stream is sometimes recorded without its content type, and Gemini's
    without `alt=sse` is an array."""
    head = body.lstrip()[:6]
    if head.startswith((b"data:", b"event:", b":")):
        return True
    if "ndjson" in headers.get("content-type", ""):
        return True
    if endpoint == "ollama":
        return len(body.strip().splitlines()) > 1 and _json(body) is None
    return endpoint == "gemini" and head.startswith(b"[")
