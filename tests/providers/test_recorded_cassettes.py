"""Reading cassettes: five spellings, one meaning; and the recorded ones, checked by another reader."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from recorded import RECORDED, index, needs_recorded, replayer

from toolchart.providers.recording.cassettes import Exchange, endpoint_of, read_cassette
from toolchart.providers.recording.recorded_calls import cassette_takes
from toolchart.states.errors import SpecError

CASSETTES = [entry["file"] for entry in index() if entry["kind"] == "cassette"]

URI = "https://api.openai.com/v1/chat/completions"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Grüße"}]}
ANSWER = {"choices": [{"message": {"content": "Hallo ✓"}, "finish_reason": "stop"}]}
SAID, TOLD = json.dumps(ASKED), json.dumps(ANSWER, ensure_ascii=False)
HEADERS = {"Content-Type": ["application/json"], "Retry-After": ["3"]}


def vcr(body: Any, **headers: list[str]) -> dict[str, Any]:
    """A vcrpy cassette with that response body."""
    return {
        "version": 1,
        "interactions": [
            {
                "request": {"method": "POST", "uri": URI, "headers": {}, "body": SAID},
                "response": {
                    "status": {"code": 200, "message": "OK"},
                    "headers": {**HEADERS, **headers},
                    **body,
                },
            }
        ],
    }


def ruby() -> str:
    """A Ruby VCR cassette, with the tag that a safe loader refuses."""
    packed = base64.b64encode(TOLD.encode()).decode()
    return f"""---
http_interactions:
- request:
    method: post
    uri: {URI}
    body: {{encoding: UTF-8, string: '{SAID}'}}
    headers: {{Content-Type: [application/json]}}
  response:
    status: {{code: 200, message: OK}}
    headers: {{content-type: [application/json], Retry-After: ['3']}}
    body:
      encoding: ASCII-8BIT
      string: !binary |-
        {packed}
recorded_with: VCR 6.3.1
"""


SPELLINGS = {
    "text.yaml": yaml.safe_dump(vcr({"body": {"string": TOLD}})),
    "binary.yaml": yaml.safe_dump(
        vcr({"body": {"string": gzip.compress(TOLD.encode())}}, **{"content-encoding": ["gzip"]})
    ),
    "header_left_behind.yaml": yaml.safe_dump(
        vcr({"body": {"string": TOLD}}, **{"content-encoding": ["gzip"]})
    ),
    "parsed.yaml": yaml.safe_dump(vcr({"parsed_body": ANSWER})),
    "ruby.yml": ruby(),
    "pair.json": json.dumps(
        {
            "request": {"method": "POST", "url": URI, "headers": {}, "body": SAID},
            "response": {
                "status": {"code": 200},
                "headers": {"Content-Type": "application/json", "Retry-After": "3"},
                "body": TOLD,
            },
        }
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_means_the_same(tmp_path: Path, name: str) -> None:
    """The five spellings, compressed or not, give one and the same exchange."""
    (tmp_path / name).write_text(SPELLINGS[name])
    (found,) = read_cassette(tmp_path / name)
    assert isinstance(found, Exchange)
    assert (found.method, found.uri, found.endpoint, found.status) == ("POST", URI, "chat", 200)
    assert found.asked == ASKED
    assert json.loads(found.body) == ANSWER
    assert found.headers["retry-after"] == "3"
    assert not found.streamed


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "interactions: [{request: {}}]", "damaged"),
        ("a.yaml", "{a: b}", "no cassette"),
        ("a.yaml", "[", "not valid YAML"),
        ("a.json", "{", "cannot be read"),
        ("a.yaml", "interactions: []", "no model call"),
        ("a.yaml", "http_interactions: [3]", "damaged"),
        (
            "a.yaml",
            "interactions: [{request: {}, response: {body: {base64_string: 'a'}}}]",
            "damaged",
        ),
    ],
)
def test_what_is_no_cassette_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    """Files that are no cassettes, or damaged ones, are refused with their name, without a traceback."""
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=words) as caught:
        cassette_takes(tmp_path / name)
    assert name in str(caught.value)


def test_a_cassette_that_is_not_there() -> None:
    """A missing cassette says how one is made."""
    with pytest.raises(SpecError, match="record: FILE"):
        read_cassette(Path("nowhere.yaml"))


def test_endpoints_are_known_by_their_path() -> None:
    """Placeholders for hosts, versions and queries do not hide what was asked for."""
    assert endpoint_of("<OLLAMA_API_BASE>/chat/completions") == "chat"
    assert (
        endpoint_of("https://x.azure.com/openai/deployments/d/chat/completions?api-version=1")
        == "chat"
    )
    assert endpoint_of("${GEMINI}/v1beta/models/g:streamGenerateContent?alt=sse") == "gemini"
    assert endpoint_of("http://localhost:11434/api/chat") == "ollama"
    assert endpoint_of("https://api.openai.com/v1/responses") == "responses"
    assert endpoint_of("https://api.openai.com/v1/traces/ingest") == "other"


@needs_recorded
@pytest.mark.parametrize("part", range(4))
def test_recorded_cassettes_are_read_whole(part: int) -> None:
    """Each of the recorded cassettes gives the exchanges, bodies and statuses that another reader finds."""
    load = replayer().load
    compared = 0
    for path in CASSETTES[part::4]:
        theirs = load(RECORDED / path)
        ours = read_cassette(RECORDED / path)
        assert len(ours) == len(theirs), path
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.status == other.status, path
            if other.req_body:
                assert mine.asked == _value(other.req_body), path
            if other.exact:
                assert mine.body == other.body, path
                compared += 1
            array = other.body[:1] == b"["  # a stream recorded without `alt=sse`
            assert mine.streamed == (other.kind != "plain" or array), path
    assert compared > 50


def _value(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
