"""Reads cassettes, files of recorded HTTP exchanges, and decodes their answers as the adapters do.

Five spellings are read: vcrpy's `interactions` with text bodies, with binary (often compressed) bodies or
with parsed bodies; Ruby VCR's `http_interactions`; and a file with one `request` and one `response`.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from toolchart.providers.registry import create_provider
from toolchart.providers.shared.failures import classify_http_error
from toolchart.specs.models import LLMConfig
from toolchart.states.messages import Reply

PATHS = {
    "chat": r"/chat/completions$",
    "responses": r"/responses$",
    "ollama": r"/api/chat$",
    "messages": r"/messages$",
    "gemini": r"(?i):(?:stream)?generateContent$",
    "converse": r"/model/[^/]+/converse(?:-stream)?$",
}
"""The end of an address of each wire format."""

_ENTRIES: dict[str, dict[str, Any]] = {
    "chat": {"provider": "openai", "api": "chat"},
    "responses": {"provider": "openai", "api": "responses"},
    "ollama": {"provider": "ollama"},
    "messages": {"provider": "anthropic"},
    "gemini": {"provider": "gemini"},
    "converse": {"provider": "bedrock"},
}

_PLACEHOLDER = re.compile(r"^(?:<[^>]*>|\$\{[^}]*\})")
"""Hosts may be written as `<OLLAMA_API_BASE>` or `${OLLAMA_HOST}`."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded request and its response."""

    method: str
    uri: str
    endpoint: str
    """The wire format of the URI that was called; `other` is not a model call."""
    request_body: Any
    """The request body as JSON; None where it is not JSON."""
    status: int
    headers: Mapping[str, str]
    """Headers of the response, names in lower case."""
    response_body: bytes
    """Body of the response, decompressed."""
    is_streamed: bool
    """Whether the response body is a stream: server-sent events, JSON lines, or an array of chunks."""


def find_endpoint(uri: str) -> str:
    """The name of the wire format that an address belongs to; `other` if there is none."""
    path = urlsplit(_PLACEHOLDER.sub("http://host", uri)).path
    return next((name for name, pattern in PATHS.items() if re.search(pattern, path)), "other")


# -- files -----------------------------------------------------------------------------------------


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, extended by Ruby's `!binary`."""


_Loader.add_constructor("!binary", lambda _, node: base64.b64decode(node.value))


def read_cassette(path: Path) -> tuple[Exchange, ...]:
    """The exchanges of a cassette, in order."""
    text = path.read_text("utf-8-sig")
    data = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_Loader)
    return tuple(map(_read_exchange, _iterate_interactions(data)))


def _iterate_interactions(data: Any) -> Iterator[Mapping[str, Any]]:
    for key in ("interactions", "http_interactions"):
        if key in data:
            yield from data[key] or ()
            return
    yield data


def _read_exchange(interaction: Mapping[str, Any]) -> Exchange:
    request, response = interaction["request"], interaction["response"]
    uri = str(request.get("uri") or request.get("url") or "")
    status = response.get("status", response.get("status_code", 200))
    headers, endpoint = _read_headers(response), find_endpoint(uri)
    body = _read_body(response, headers)
    return Exchange(
        method=str(request.get("method") or "POST").upper(),
        uri=uri,
        endpoint=endpoint,
        request_body=_parse_json(_read_body(request, _read_headers(request))),
        status=int(status["code"] if isinstance(status, Mapping) else status),
        headers=headers,
        response_body=body,
        is_streamed=_is_stream(endpoint, headers, body),
    )


def _read_headers(message: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request or response: names in lower case, of several values the first."""
    headers: dict[str, str] = {}
    for name, value in (message.get("headers") or {}).items():
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, (str, int)):
            headers.setdefault(str(name).lower(), str(first))
    return headers


def _read_body(message: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
    """The body of a request or response, decompressed."""
    body = message.get("parsed_body", message.get("body"))
    if isinstance(body, Mapping) and "base64_string" in body:
        body = base64.b64decode(body["base64_string"])
    elif isinstance(body, Mapping) and "parsed_body" not in message:
        body = body.get("string", body or None)
    if body is None:
        return b""
    if isinstance(body, (Mapping, list)):
        return json.dumps(body, ensure_ascii=False, default=str).encode()
    data = body.encode("utf-8", "surrogateescape") if isinstance(body, str) else bytes(body)
    # Some recorders decompress and leave the header as it was, so the first bytes decide.
    deflates = "deflate" in headers.get("content-encoding", "") and data[:1] == b"\x78"
    return zlib.decompressobj(47).decompress(data) if data[:2] == b"\x1f\x8b" or deflates else data


def _parse_json(body: bytes) -> Any:
    """The body as JSON; None where it is not JSON."""
    try:
        return json.loads(body)
    except ValueError:
        return None


def _is_stream(endpoint: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether a response body is a stream; some were recorded without their content type."""
    head, content_type = body.lstrip()[:6], headers.get("content-type", "")
    if (
        head.startswith((b"data:", b"event:", b":"))
        or "ndjson" in content_type
        or "eventstream" in content_type
    ):
        return True
    if endpoint == "ollama":
        return len(body.strip().splitlines()) > 1 and _parse_json(body) is None
    return endpoint == "gemini" and head.startswith(b"[")


# -- replies ---------------------------------------------------------------------------------------


@cache
def get_adapter(endpoint: str) -> Any:
    """An adapter that speaks a wire format."""
    entry = {"base_url": "http://127.0.0.1:9", "api_key": "k", "region": "eu-central-1"}
    keys = entry if endpoint == "converse" else {key: entry[key] for key in ("base_url", "api_key")}
    return create_provider(LLMConfig.model_validate({**keys, **_ENTRIES[endpoint]}), resolve=str)


def decode_stream(endpoint: str, body: bytes) -> Reply:
    """The reply of a stream. Raises `ProviderError` where it was cut, has an error or is not JSON."""
    reply: Reply = get_adapter(endpoint).decode_raw({}, body, is_streamed=True)
    return reply


def read_recorded_reply(exchange: Exchange) -> Reply:
    """The reply of an exchange, as its adapter reads it. Raises `ProviderError` for a recorded failure."""
    body = exchange.response_body
    if exchange.status >= 400:
        data = _parse_json(body)
        text = body.decode("utf-8", "replace")
        raise classify_http_error(exchange.status, text if data is None else data, exchange.headers)
    reply: Reply = get_adapter(exchange.endpoint).decode_raw({}, body, is_streamed=exchange.is_streamed)
    return reply
