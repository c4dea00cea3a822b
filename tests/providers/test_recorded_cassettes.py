"""Reading cassettes: all five formats give the same exchange, on made and on recorded cassettes."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from recorded_traffic import RECORDED, list_cassette_paths, load_cassette_server, needs_recorded

from toolchart.providers.recording.cassettes import (
    MAX_CASSETTE_CHARACTERS,
    Exchange,
    find_endpoint,
    read_cassette,
)
from toolchart.providers.recording.player import read_cassette_calls
from toolchart.states.errors import SpecError

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


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "interactions: [{request: {}}]", "damaged"),
        ("a.yaml", "{a: b}", "not a cassette"),
        ("a.yaml", "[", "not valid YAML"),
        ("a.json", "{", "cannot be read"),
        ("a.yaml", "interactions: []", "no model call"),
        ("a.yaml", "http_interactions: [3]", "damaged"),
        ("a.yaml", "interactions: [{request: {}, response: {body: {base64_string: 'a'}}}]", "damaged"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    """A file that is not a cassette, or is damaged, is refused with an error that names it."""
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=words) as caught:
        read_cassette_calls(tmp_path / name)
    assert name in str(caught.value)


def write_bombs() -> dict[str, str]:
    """Cassettes of a few kilobytes that describe more than a recording may hold."""
    exchange = "request: {uri: 'https://x.example/v1/chat/completions'}, response: "
    packed = base64.b64encode(gzip.compress(bytes(MAX_CASSETTE_CHARACTERS // 2 + 1))).decode()
    compressed = f"{{{exchange}{{body: {{base64_string: {packed}}}}}}}"
    text = "x" * 1000
    rows = [f"a0: &a0 ['{text}', '{text}']", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 30))]
    deep = "[" * 5000 + "]" * 5000
    return {
        "two compressed bodies.yaml": f"interactions: [{compressed}, {compressed}]",
        "aliases of aliases.yaml": "\n".join(rows) + f"\ninteractions: [{{{exchange}{{body: *a29}}}}]",
        "an alias of itself.yaml": f"interactions: [{{{exchange}{{body: &a [*a]}}}}]",
        "nested.yaml": f"interactions: {deep}",
        "nested.json": f'{{"interactions": {deep}}}',
    }


BOMBS = (
    *("two compressed bodies.yaml", "aliases of aliases.yaml", "an alias of itself.yaml"),
    *("nested.yaml", "nested.json"),
)


@pytest.mark.parametrize("name", BOMBS)
def test_a_cassette_beyond_the_limits_is_refused(tmp_path: Path, name: str) -> None:
    """A small cassette that expands, contains itself or is nested too deeply costs an error."""
    (tmp_path / name).write_text(write_bombs()[name])
    tracemalloc.start()
    try:
        with pytest.raises(SpecError, match=r"MiB|nested too deeply") as caught:
            read_cassette(tmp_path / name)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert name in str(caught.value)
    assert most < 3 * MAX_CASSETTE_CHARACTERS


def test_missing_cassette() -> None:
    """The error about a missing cassette says how to record one."""
    with pytest.raises(SpecError, match="record: FILE"):
        read_cassette(Path("nowhere.yaml"))


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
