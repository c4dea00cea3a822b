"""Reading cassettes: all five formats give the same exchange, on made and on recorded cassettes."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from recorded_exchanges import Exchange, find_endpoint, read_cassette
from recorded_traffic import RECORDED, list_cassette_paths, load_cassette_server, needs_recorded

CASSETTES = list_cassette_paths("recorded")

URI = "https://api.openai.com/v1/chat/completions"
REQUEST_BODY = {"model": "m", "messages": [{"role": "user", "content": "Grüße"}]}
RESPONSE_BODY = {"choices": [{"message": {"content": "Hallo ✓"}, "finish_reason": "stop"}]}
REQUEST_TEXT = json.dumps(REQUEST_BODY)
RESPONSE_TEXT = json.dumps(RESPONSE_BODY, ensure_ascii=False)
HEADERS = {"Content-Type": ["application/json"], "Retry-After": ["3"]}


def make_vcrpy_cassette(body: Any, **headers: list[str]) -> dict[str, Any]:
    """A vcrpy cassette with that response body."""
    return {
        "version": 1,
        "interactions": [
            {
                "request": {"method": "POST", "uri": URI, "headers": {}, "body": REQUEST_TEXT},
                "response": {
                    "status": {"code": 200, "message": "OK"},
                    "headers": {**HEADERS, **headers},
                    **body,
                },
            }
        ],
    }


def make_ruby_cassette() -> str:
    """A Ruby VCR cassette, with the tag that a safe loader refuses."""
    encoded = base64.b64encode(RESPONSE_TEXT.encode()).decode()
    return f"""---
http_interactions:
- request:
    method: post
    uri: {URI}
    body: {{encoding: UTF-8, string: '{REQUEST_TEXT}'}}
    headers: {{Content-Type: [application/json]}}
  response:
    status: {{code: 200, message: OK}}
    headers: {{content-type: [application/json], Retry-After: ['3']}}
    body:
      encoding: ASCII-8BIT
      string: !binary |-
        {encoded}
recorded_with: VCR 6.3.1
"""


FORMAT_EXAMPLES = {
    "text.yaml": yaml.safe_dump(make_vcrpy_cassette({"body": {"string": RESPONSE_TEXT}})),
    "binary.yaml": yaml.safe_dump(
        make_vcrpy_cassette(
            {"body": {"string": gzip.compress(RESPONSE_TEXT.encode())}}, **{"content-encoding": ["gzip"]}
        )
    ),
    "stale_header.yaml": yaml.safe_dump(
        make_vcrpy_cassette({"body": {"string": RESPONSE_TEXT}}, **{"content-encoding": ["gzip"]})
    ),
    "parsed.yaml": yaml.safe_dump(make_vcrpy_cassette({"parsed_body": RESPONSE_BODY})),
    "ruby.yml": make_ruby_cassette(),
    "pair.json": json.dumps(
        {
            "request": {"method": "POST", "url": URI, "headers": {}, "body": REQUEST_TEXT},
            "response": {
                "status": {"code": 200},
                "headers": {"Content-Type": "application/json", "Retry-After": "3"},
                "body": RESPONSE_TEXT,
            },
        }
    ),
}


@pytest.mark.parametrize("name", FORMAT_EXAMPLES)
def test_every_format_gives_the_same_exchange(tmp_path: Path, name: str) -> None:
    """The five formats, compressed or not, give the same exchange."""
    (tmp_path / name).write_text(FORMAT_EXAMPLES[name])
    (exchange,) = read_cassette(tmp_path / name)
    assert isinstance(exchange, Exchange)
    assert (exchange.method, exchange.uri, exchange.endpoint, exchange.status) == ("POST", URI, "chat", 200)
    assert exchange.request_body == REQUEST_BODY
    assert json.loads(exchange.response_body) == RESPONSE_BODY
    assert exchange.headers["retry-after"] == "3"
    assert not exchange.is_streamed


def test_endpoints_are_found_by_path() -> None:
    """The endpoint is found whatever the host, version and query of the URI are."""
    assert find_endpoint("<OLLAMA_API_BASE>/chat/completions") == "chat"
    assert find_endpoint("https://x.azure.com/openai/deployments/d/chat/completions?api-version=1") == "chat"
    assert find_endpoint("${GEMINI}/v1beta/models/g:streamGenerateContent?alt=sse") == "gemini"
    assert find_endpoint("http://localhost:11434/api/chat") == "ollama"
    assert find_endpoint("https://api.openai.com/v1/responses") == "responses"
    assert find_endpoint("https://api.openai.com/v1/traces/ingest") == "other"


@needs_recorded
@pytest.mark.parametrize("part", range(4))
def test_recorded_cassettes_are_read_completely(part: int) -> None:
    """Each recorded cassette gives the exchanges, bodies and statuses that another reader finds."""
    load_exchanges = load_cassette_server().load
    compared = 0
    for path in CASSETTES[part::4]:
        theirs = load_exchanges(RECORDED / path)
        ours = read_cassette(RECORDED / path)
        assert len(ours) == len(theirs), path
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.status == other.status, path
            if other.req_body:
                assert mine.request_body == _parse_json(other.req_body), path
            if other.exact:
                assert mine.response_body == other.body, path
                compared += 1
            is_array = other.body[:1] == b"["  # a stream recorded without `alt=sse`
            assert mine.is_streamed == (other.kind != "plain" or is_array), path
    assert compared > 50


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
