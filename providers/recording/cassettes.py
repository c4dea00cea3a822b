"""Reads cassettes: files of recorded HTTP exchanges, in the formats that VCR-style recorders write.

Five formats are read: vcrpy's `interactions` with text bodies, with binary (often compressed) bodies, or
with parsed bodies; Ruby VCR's `http_interactions`; and a file with one `request` and one `response`. All
become `Exchange` values with the plain bytes of the body.

Source: the cassettes of pydantic-ai, ruby_llm, dd-trace-py and others. Their peculiarities are named where
the code handles them.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from toolchart.providers.hosts import find_wire_format, iterate_wire_formats
from toolchart.providers.shared.failures import build_bad_response_error
from toolchart.providers.transport.stream_frames import EventFrameReader, FrameReader, LineFrameReader
from toolchart.states.chart.source_positions import convert_yaml_error
from toolchart.states.errors import SpecError

MAX_CASSETTE_CHARACTERS = 64 * 2**20
"""Most bytes of a file, and most characters of what it describes, with aliases written out and bodies
decompressed."""

_MAX_DEPTH = 200
"""Mappings and lists inside one another; those of a wire format are a tenth of it."""

_PLACEHOLDER = re.compile(r"^(?:<[^>]*>|\$\{[^}]*\})")
"""Hosts may be written as `<OLLAMA_API_BASE>` or `${OLLAMA_HOST}`."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded request and its response."""

    method: str
    uri: str
    """As recorded; the host may be a placeholder."""
    endpoint: str
    """Name of the wire format of the URI that was called; `other` is not a model call."""
    request_body: Any
    """The request body as JSON; None where it is not JSON."""
    status: int
    headers: Mapping[str, str]
    """Headers of the response, names in lower case."""
    response_body: bytes
    """Body of the response, decompressed."""
    is_streamed: bool
    """Whether the response body is a stream: server-sent events, JSON lines, or an array of chunks."""


def read_cassette(path: Path) -> tuple[Exchange, ...]:
    """The exchanges of a cassette, in order.

    Raises:
        SpecError: the file does not exist, is not a cassette, or describes more than a cassette may hold.
    """
    try:
        text = _read_bounded_text(path)
        data = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_make_loader())
    except FileNotFoundError:
        raise SpecError(
            "there is no such cassette", file=str(path), hint="record one: `record: FILE` in an llms entry"
        ) from None
    except yaml.YAMLError as error:
        raise convert_yaml_error(error, str(path)) from None
    except RecursionError:
        raise _build_depth_error(path) from None
    except (OSError, ValueError) as error:
        raise SpecError(f"the cassette cannot be read: {error}", file=str(path)) from None
    _CassetteMeasure(path).measure_value(data, 0)
    body_bytes = 0
    exchanges = []
    try:
        for item in _iterate_interactions(data, path):
            exchanges.append(_read_exchange(item))
            body_bytes += len(exchanges[-1].response_body)
            if body_bytes > MAX_CASSETTE_CHARACTERS:
                raise _build_size_error(path)
        return tuple(exchanges)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SpecError(
            f"an exchange of the cassette is damaged: {type(error).__name__}: {error}", file=str(path)
        ) from None


def _read_bounded_text(path: Path) -> str:
    with open(path, "rb") as file:
        data = file.read(MAX_CASSETTE_CHARACTERS + 1)
    if len(data) > MAX_CASSETTE_CHARACTERS:
        raise _build_size_error(path)
    return data.decode("utf-8-sig")


def _build_size_error(path: Path) -> SpecError:
    return SpecError(
        f"the cassette describes more than {MAX_CASSETTE_CHARACTERS // 2**20} MiB",
        file=str(path),
        hint="divide it into several cassettes",
    )


def _build_depth_error(path: Path) -> SpecError:
    return SpecError(f"nested too deeply: more than {_MAX_DEPTH} levels", file=str(path))


class _CassetteMeasure:
    """Counts the characters of a document with its aliases written out, before anything is made of it.

    An alias is the same object in several places, so each object is measured once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sizes: dict[int, int] = {}

    def measure_value(self, value: Any, depth: int) -> int:
        """The number of characters of a value.

        Raises:
            SpecError: more than the limit, or nested too deeply, as a value is that contains itself.
        """
        if not isinstance(value, Mapping | list):
            return len(value) if isinstance(value, str | bytes) else 1
        if depth > _MAX_DEPTH:
            raise _build_depth_error(self._path)
        if id(value) not in self._sizes:
            parts = [*value, *value.values()] if isinstance(value, Mapping) else value
            self._sizes[id(value)] = 1 + sum(self.measure_value(part, depth + 1) for part in parts)
        size = self._sizes[id(value)]
        if size > MAX_CASSETTE_CHARACTERS:
            raise _build_size_error(self._path)
        return size


def _make_loader() -> Any:
    """The safe YAML loader, extended by Ruby's `!binary`."""
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("CassetteLoader", (base,), {})
    loader.add_constructor("!binary", lambda _, node: base64.b64decode(node.value))
    return loader


def _iterate_interactions(data: Any, path: Path) -> Iterator[Mapping[str, Any]]:
    if isinstance(data, Mapping):
        for key in ("interactions", "http_interactions"):
            # Null: a recording that has only begun.
            if isinstance(data.get(key, 0), (list, type(None))):
                yield from data[key] or ()
                return
        if "request" in data and "response" in data:
            yield data
            return
    raise SpecError(
        "this is not a cassette",
        file=str(path),
        hint="a cassette has `interactions`, `http_interactions`, or a `request` and a `response`",
    )


def _read_exchange(interaction: Mapping[str, Any]) -> Exchange:
    request, response = interaction["request"], interaction["response"]
    uri = str(request.get("uri") or request.get("url") or "")
    headers = _read_headers(response)
    response_body = _read_body(response, headers)
    endpoint = find_endpoint(uri)
    return Exchange(
        method=str(request.get("method") or "POST").upper(),
        uri=uri,
        endpoint=endpoint,
        request_body=_parse_json_body(_read_body(request, _read_headers(request))),
        status=_read_status(response),
        headers=headers,
        response_body=response_body,
        is_streamed=_is_stream(endpoint, headers, response_body),
    )


def find_endpoint(uri: str) -> str:
    """The name of the wire format that a URI belongs to; `other` if there is none.

    >>> find_endpoint("<API_BASE>/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse")
    'gemini'
    """
    path = urlsplit(_PLACEHOLDER.sub("http://host", uri)).path
    names = (row.name for row in iterate_wire_formats() if re.search(row.path_pattern, path))
    return next(names, "other")


def _read_headers(message: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request or response: names in lower case, of several values the first."""
    headers: dict[str, str] = {}
    for name, value in (message.get("headers") or {}).items():
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, (str, int)):
            headers.setdefault(str(name).lower(), str(first))
    return headers


def _read_status(response: Mapping[str, Any]) -> int:
    status = response.get("status", response.get("status_code", 200))
    return int(status["code"] if isinstance(status, Mapping) else status)


def _read_body(message: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
    """The body of a request or response, decompressed."""
    if "parsed_body" in message:  # the recorder kept the value and not the bytes
        value = message["parsed_body"]
        return value.encode() if isinstance(value, str) else _encode_json_body(value)
    body = message.get("body")
    if isinstance(body, Mapping):
        if "base64_string" in body:
            body = base64.b64decode(body["base64_string"])
        else:
            body = body.get("string", body or None)
    if body is None:
        return b""
    if isinstance(body, (Mapping, list)):
        return _encode_json_body(body)
    data = body.encode("utf-8", "surrogateescape") if isinstance(body, str) else bytes(body)
    return decompress_body(data, headers.get("content-encoding", ""))


def _encode_json_body(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str).encode()


def decompress_body(data: bytes, coding: str) -> bytes:
    """The plain bytes of a body with that `content-encoding`.

    Some recorders decompress and leave the header as it was, so the first bytes decide.

    Raises:
        ValueError: larger than the limit of a cassette; it was not decompressed on.
    """
    is_compressed = data[:2] == b"\x1f\x8b" or ("deflate" in coding and data[:1] == b"\x78")
    try:
        # A decompressor object also gives what there is of a truncated stream. 47: gzip or zlib, by its head.
        limit = MAX_CASSETTE_CHARACTERS + 1
        plain = zlib.decompressobj(47).decompress(data, limit) if is_compressed else data
    except zlib.error:
        return data
    if len(plain) > MAX_CASSETTE_CHARACTERS:
        raise ValueError(f"a body is larger than {MAX_CASSETTE_CHARACTERS // 2**20} MiB")
    return plain


def _parse_json_body(body: bytes) -> Any:
    """The body as JSON; None where it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _is_stream(endpoint: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether a response body is a stream.

    The content type is not enough: some streams are recorded without it, and a stream may be a JSON array.
    """
    head = body.lstrip()[:6]
    if head.startswith((b"data:", b"event:", b":")):
        return True
    if "ndjson" in headers.get("content-type", ""):
        return True
    wire_format = find_wire_format(endpoint)
    if wire_format and wire_format.stream_type and wire_format.stream_type in headers.get("content-type", ""):
        return True
    unmarked_stream = wire_format.unmarked_stream if wire_format else None
    if unmarked_stream == "json_lines":
        return len(body.strip().splitlines()) > 1 and _parse_json_body(body) is None
    return unmarked_stream == "json_array" and head.startswith(b"[")


# -- recorded streams ------------------------------------------------------------------------------
# A recording is complete, so nothing has to be shown as it arrives. The joined body is read by the same code
# as a body that was not streamed. A stream without its terminal marker was cut and is a failure; so is a
# stream that contains an error.


def join_stream_body(endpoint: str, body: bytes) -> Any:
    """The complete answer of a streamed body.

    Raises:
        ProviderError: the stream contains an error, was cut, or is not JSON.
    """
    wire_format = find_wire_format(endpoint)
    if wire_format is None:
        raise build_bad_response_error(f"recorded streams of the endpoint {endpoint!r} cannot be read")
    accumulator = wire_format.load_accumulator()()
    frames = wire_format.create_frame_reader()
    if frames is None:
        values, is_done = _read_stream_values(body.strip())
    else:
        values, is_done = [*frames.add_bytes(body), *frames.finish()], frames.is_done
    for value in values:
        if isinstance(value, Mapping):
            accumulator.add_frame(value)
    return accumulator.build_body(is_done)


def _read_stream_values(body: bytes) -> tuple[list[Any], bool]:
    """The values of events, JSON lines or an array of chunks; and whether the stream has its end marker."""
    if body.startswith(b"["):
        try:
            return list(json.loads(body)), False  # keeps integers beyond 64 bits
        except (ValueError, RecursionError):
            raise build_bad_response_error("the recorded stream is not JSON") from None
    frames: FrameReader = LineFrameReader() if body.startswith(b"{") else EventFrameReader()
    # A recorder may have kept lone carriage returns, which end a line too.
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    values = [*frames.add_bytes(lines), *frames.finish()]
    return values, frames.is_done
