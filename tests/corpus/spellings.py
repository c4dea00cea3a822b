"""Writes exchanges as cassettes, in the five spellings that recorders of HTTP traffic use."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from station import JsonObject, encode_compact

JSON = "application/json"
SSE = "text/event-stream"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request with its answer, and the content that a reader must find in the answer."""

    uri: str
    request: JsonObject
    response: bytes
    """The bytes that the host sends."""
    expected: JsonObject
    status: int = 200
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    """More headers of the response."""

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is a stream, also one that is written as a JSON array."""
        return self.content_type != JSON or self.response.startswith(b"[{")


def encode_json(value: Any) -> bytes:
    """A whole answer as a host writes it."""
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


def encode_events(
    values: Sequence[JsonObject], *, named: bool = False, newline: str = "\n", done: bool = False
) -> bytes:
    """Values as server-sent events.

    Args:
        named: whether each event has a line with its `type`.
        newline: ends each line.
        done: whether the stream ends with `[DONE]`.
    """
    texts = [
        (f"event: {value['type']}{newline}" if named else "")
        + f"data: {encode_compact(value)}{newline}{newline}"
        for value in values
    ]
    return ("".join(texts) + (f"data: [DONE]{newline}{newline}" if done else "")).encode()


def compress_stored(data: bytes) -> bytes:
    """The data as gzip without compression: the same bytes whatever zlib Python is built with."""
    block = b"\x01" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data
    head = b"\x1f\x8b\x08" + b"\x00" * 6 + b"\xff"
    return head + block + struct.pack("<II", zlib.crc32(data), len(data))


class _RubyBinary(bytes):
    """Bytes that Ruby's YAML writes with its own tag."""


class _Dumper(yaml.SafeDumper):
    """Writes `_RubyBinary`, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values twice."""
        return True


def _represent_ruby_binary(dumper: yaml.SafeDumper, data: _RubyBinary) -> Any:
    text = base64.encodebytes(data).decode()
    return dumper.represent_scalar("!binary", text, style="|")


_Dumper.add_representer(_RubyBinary, _represent_ruby_binary)


def _dump_yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10_000)


def _list_headers(exchange: Exchange, **more: str) -> dict[str, list[str]]:
    pairs = {"content-type": exchange.content_type, **exchange.headers, **more}
    return {name: [value] for name, value in pairs.items()}


def _spell_vcrpy(
    exchanges: Sequence[Exchange],
    spell_response: Callable[[Exchange], JsonObject],
    spell_request: Callable[[Exchange], JsonObject],
) -> str:
    interactions = [
        {
            "request": {
                "method": "POST",
                "uri": exchange.uri,
                "headers": {"Content-Type": [JSON]},
                **spell_request(exchange),
            },
            "response": {"status": {"code": exchange.status, "message": ""}, **spell_response(exchange)},
        }
        for exchange in exchanges
    ]
    return _dump_yaml({"interactions": interactions, "version": 1})


def _spell_text_request(exchange: Exchange) -> JsonObject:
    return {"body": encode_compact(exchange.request)}


def _spell_text_response(exchange: Exchange) -> JsonObject:
    return {"headers": _list_headers(exchange), "body": {"string": exchange.response.decode()}}


def spell_text(exchanges: Sequence[Exchange]) -> str:
    """vcrpy with text bodies."""
    return _spell_vcrpy(exchanges, _spell_text_response, _spell_text_request)


def spell_gzip(exchanges: Sequence[Exchange]) -> str:
    """vcrpy with compressed, binary response bodies."""

    def spell_response(exchange: Exchange) -> JsonObject:
        headers = _list_headers(exchange, **{"Content-Encoding": "gzip"})
        return {"headers": headers, "body": {"string": compress_stored(exchange.response)}}

    return _spell_vcrpy(exchanges, spell_response, _spell_text_request)


def spell_parsed(exchanges: Sequence[Exchange]) -> str:
    """vcrpy with JSON bodies kept as values; streams are text."""

    def spell_request(exchange: Exchange) -> JsonObject:
        return {"parsed_body": exchange.request}

    def spell_response(exchange: Exchange) -> JsonObject:
        if exchange.is_streamed:
            return _spell_text_response(exchange)
        return {"headers": _list_headers(exchange), "parsed_body": json.loads(exchange.response)}

    return _spell_vcrpy(exchanges, spell_response, spell_request)


def spell_ruby(exchanges: Sequence[Exchange]) -> str:
    """Ruby's VCR: `http_interactions`, with its own tag on bodies that are not ASCII."""
    interactions = [
        {
            "request": {
                "method": "post",
                "uri": exchange.uri,
                "body": {"encoding": "UTF-8", "string": encode_compact(exchange.request)},
                "headers": {"Content-Type": [JSON]},
            },
            "response": {
                "status": {"code": exchange.status, "message": ""},
                "headers": _list_headers(exchange),
                "body": _spell_ruby_body(exchange.response),
            },
        }
        for exchange in exchanges
    ]
    return "---\n" + _dump_yaml(
        {"http_interactions": interactions, "recorded_with": "the corpus of Toolchart"}
    )


def _spell_ruby_body(body: bytes) -> JsonObject:
    if body.isascii():
        return {"encoding": "UTF-8", "string": body.decode()}
    return {"encoding": "ASCII-8BIT", "string": _RubyBinary(body)}


def spell_pair(exchanges: Sequence[Exchange]) -> str:
    """One request and one response, as JSON."""
    (exchange,) = exchanges
    pair = {
        "request": {
            "method": "POST",
            "url": exchange.uri,
            "headers": {"Content-Type": JSON},
            "body": encode_compact(exchange.request),
        },
        "response": {
            "status": {"code": exchange.status},
            "headers": {"Content-Type": exchange.content_type, **exchange.headers},
            "body": exchange.response.decode(),
        },
    }
    return json.dumps(pair, ensure_ascii=False, indent=1) + "\n"


SPELLINGS: dict[str, tuple[Callable[[Sequence[Exchange]], str], str]] = {
    "text": (spell_text, "yaml"),
    "gzip": (spell_gzip, "yaml"),
    "parsed": (spell_parsed, "yaml"),
    "ruby": (spell_ruby, "yml"),
    "pair": (spell_pair, "json"),
}
"""Writer and file ending of each spelling."""
