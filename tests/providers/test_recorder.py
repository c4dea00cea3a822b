"""The recorder writes what went over the wire, without secrets, in cassettes that can be answered from."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import httpx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from web import WebAnswer, serve_web

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.engine.runtime.result import TurnResult
from toolchart.providers.recording.cassettes import read_cassette
from toolchart.providers.recording.recorder import CASSETTE_HEAD, Recorder
from toolchart.providers.registry import create_provider
from toolchart.providers.transport.connections import build_client_options
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import SECRET_PLACEHOLDER
from toolchart.states.errors import SpecError

KEY = "sk-live-0123456789abcdef"
PLAIN = LLMConfig(provider="openai")


def answer_openai(body: dict[str, Any]) -> Any:
    """The body of a chat completions host: a call of the calculator, then the answer."""
    if body["messages"][-1]["role"] == "tool":
        text = f"It is {json.loads(body['messages'][-1]['content'])['result']}."
        return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    function = {"name": "calculator", "arguments": '{"expression":"6*7"}'}
    call = {"id": "call_7", "type": "function", "function": function}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    message = {"content": None, "tool_calls": [call]}
    return {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}


def answer_ollama(body: dict[str, Any]) -> Any:
    """The same body from Ollama."""
    if body["messages"][-1]["role"] == "tool":
        return {"message": {"content": "It is 42."}, "done": True, "done_reason": "stop"}
    call = {"id": "c1", "function": {"name": "calculator", "arguments": {"expression": "6*7"}}}
    return {"message": {"content": "", "tool_calls": [call]}, "done": True, "done_reason": "stop"}


def answer_gemini(body: dict[str, Any]) -> Any:
    """The same body from Gemini."""
    if any("functionResponse" in part for part in body["contents"][-1]["parts"]):
        parts = [{"text": "It is 42."}]
    else:
        parts = [{"functionCall": {"name": "calculator", "args": {"expression": "6*7"}}}]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def answer_anthropic(body: dict[str, Any]) -> Any:
    """The same body from Anthropic."""
    has_result = len(body["messages"]) > 1
    call = {"type": "tool_use", "id": "toolu_1", "name": "calculator", "input": {"expression": "6*7"}}
    return {
        "id": "msg_1",
        "model": "m",
        "content": [{"type": "text", "text": "It is 42."} if has_result else call],
        "stop_reason": "end_turn" if has_result else "tool_use",
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }


HOSTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "openai": answer_openai,
    "ollama": answer_ollama,
    "gemini": answer_gemini,
    "anthropic": answer_anthropic,
}


def make_host(provider: str) -> Callable[[dict[str, Any]], WebAnswer]:
    """The answer function of a web server that acts as that provider."""

    def answer_request(request: dict[str, Any]) -> WebAnswer:
        body = HOSTS[provider](json.loads(request["body"]))
        cookies = {"set-cookie": "session=abc", "x-request-id": "req_1"}
        return 200, {"content-type": "application/json", **cookies}, json.dumps(body).encode()

    return answer_request


def run_turn(llm: dict[str, Any], message: str = "6*7?") -> tuple[TurnResult, list[dict[str, Any]]]:
    """Run a turn of an agent with that model host; also gives the events of its log."""
    with Engine(agents.make_spec(llms={"model": {"model": "m", **llm}}), log="memory") as engine:
        result = engine.run(message, conversation="c")
        assert list(replay(engine.store.read_lines("c"), "c"))
        return result, [json.loads(line)["event"] for line in engine.store.read_lines("c")]


@pytest.mark.parametrize("provider", HOSTS)
def test_recorded_turn_is_answered_again(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.8: a turn that was recorded over a real SDK gets the same replies again with `match: strict`."""
    monkeypatch.setenv("HOST_KEY", KEY)
    cassette = tmp_path / "made" / "calls.yaml"
    with serve_web(make_host(provider)) as server:
        llm = {"provider": provider, "base_url": server.url + "/v1" * (provider == "openai")}
        live, live_events = run_turn({**llm, "api_key": "${HOST_KEY}", "record": str(cassette)})
        request_count = len(server.requests)
    assert live.content == "It is 42."
    assert request_count == len(read_cassette(cassette)) == 2
    again, events = run_turn({"provider": "recorded", "cassette": str(cassette)})
    assert (again.content, again.usage) == (live.content, live.usage)
    replies = [
        [{**event["reply"], "wire_digest": None} for event in log if event["type"] == "replied"]
        for log in (live_events, events)
    ]
    assert replies[0] == replies[1]
    _, mismatch_events = run_turn({"provider": "recorded", "cassette": str(cassette)}, "7*7?")
    assert "no recorded request matches" in mismatch_events[-1]["message"]


def test_no_secret_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No recorded header, URI or body contains a key, token, cookie, variable or password of an address."""
    monkeypatch.setenv("HOST_KEY", "k" * 12 + '"quoted')
    monkeypatch.setenv("TEAM", "team/blue & co")
    monkeypatch.setenv("OPENAI_API_KEY", "ambient-key-of-the-shell")
    secret_parts = [
        "k" * 12,
        "team/blue",
        "ambient-key",
        "literal-token-1",
        "hunter22",
        "session=abc",
        "AIzaSy",
        "sk-proj",
    ]

    def echo(request: dict[str, Any]) -> WebAnswer:
        content = json.loads(request["body"])["messages"][-1]["content"]
        body = {"choices": [{"message": {"content": f"You said {content}"}, "finish_reason": "stop"}]}
        headers = {"content-type": "application/json", "set-cookie": "session=abc"}
        return 200, headers, json.dumps(body).encode()

    cassette = tmp_path / "c.yaml"
    with serve_web(echo) as server:
        address = server.url.replace("http://", "http://me:hunter22@") + "/v1"
        llm = {
            "provider": "openai",
            "base_url": address,
            "api_key": "${HOST_KEY}",
            "record": str(cassette),
            "headers": {"x-team": "${TEAM}", "authorization": "Bearer literal-token-1"},
        }
        secrets = 'keep kkkkkkkkkkkk"quoted team/blue & co ambient-key-of-the-shell literal-token-1 '
        run_turn(llm, secrets + "AIzaSyA0123456789abcdefghijk sk-proj-0123456789abcdef")
        sent = {name.lower(): value for name, value in server.requests[0]["headers"].items()}
    assert sent["x-team"] == "team/blue & co"
    text = cassette.read_text("utf-8")
    assert [secret for secret in secret_parts if secret in text] == []
    (exchange,) = read_cassette(cassette)
    content = exchange.request_body["messages"][-1]["content"]
    hidden = " ".join([SECRET_PLACEHOLDER] * 3)
    # Two of them are keys that the process knows: they are struck from the message before it is sent.
    assert content == f"keep (secret) ${{TEAM}} (secret) {hidden}"


def test_no_secret_is_in_binary_bodies(tmp_path: Path) -> None:
    """Secrets are replaced in a body that is not UTF-8 too; its other bytes stay the same."""
    path = tmp_path / "c.yaml"
    record_parts(path, [b"\xff\xfe ", KEY.encode(), b" \x80"])
    assert read_cassette(path)[0].response_body == b"\xff\xfe (secret) \x80"


def test_the_cassette_is_what_a_vcr_reader_expects(tmp_path: Path) -> None:
    """The file is plain YAML in vcrpy's format: version 1, request and response with these keys."""
    cassette = tmp_path / "c.yaml"
    with serve_web(make_host("openai")) as server:
        run_turn({"provider": "openai", "base_url": server.url + "/v1", "record": str(cassette)})
    data = yaml.safe_load(cassette.read_text("utf-8"))
    assert data["version"] == 1
    for interaction in data["interactions"]:
        assert set(interaction["request"]) == {"method", "uri", "headers", "body"}
        assert set(interaction["response"]) == {"status", "headers", "body"}
        assert set(interaction["response"]["status"]) == {"code", "message"}
        assert all(isinstance(value, list) for value in interaction["response"]["headers"].values())
        assert isinstance(interaction["request"]["body"], str)
        assert isinstance(interaction["response"]["body"]["string"], str)


def test_failures_are_recorded_too(tmp_path: Path) -> None:
    """A recorded failure fails again with the same kind, status and waiting time."""

    def refuse_busy(request: dict[str, Any]) -> WebAnswer:
        headers = {"content-type": "application/json", "retry-after": "7"}
        return 429, headers, b'{"error": {"message": "slow down"}}'

    cassette = tmp_path / "c.yaml"
    with serve_web(refuse_busy) as server:
        base = server.url + "/v1"
        run_turn({"provider": "openai", "base_url": base, "record": str(cassette)})
    _, events = run_turn({"provider": "recorded", "cassette": str(cassette)})
    failed = next(event for event in events if event["type"] == "failed")
    assert (failed["kind"], failed["status"], failed["retry_after_s"]) == ("rate_limited", 429, 7)


# -- the file ------------------------------------------------------------------------------------


class PartStream(httpx.AsyncByteStream):
    """A response body that comes in these parts."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    async def __aiter__(self) -> Any:
        for part in self.parts:
            yield part


def record_parts(
    path: Path, parts: list[bytes], *, max_parts: int | None = None, **headers: str
) -> list[bytes]:
    """Record one exchange, and give the parts that the reader got: at most `max_parts`, then it closes."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=PartStream(parts)))

    async def receive_parts() -> list[bytes]:
        options = build_client_options(PLAIN, str, httpx, Recorder(path, PLAIN).build_hooks())
        client = httpx.AsyncClient(transport=transport, **options)
        parts_seen: list[bytes] = []
        async with client.stream("POST", "http://h/api/chat", content=b"{}") as response:
            async for part in response.aiter_raw():
                parts_seen.append(part)
                if len(parts_seen) == max_parts:
                    break
        return parts_seen

    return asyncio.run(receive_parts())


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
def test_any_body_is_passed_on_and_recorded_exactly(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    """All bytes, text or not, reach the reader part by part and are in the cassette."""
    path = tmp_path_factory.mktemp("c") / "c.yaml"
    assert record_parts(path, parts) == parts
    (exchange,) = read_cassette(path)
    assert exchange.response_body == b"".join(parts) or b"".join(parts)[:2] == b"\x1f\x8b"


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_any_text_survives_yaml(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Line ends, control characters and letters of every script are read from the cassette unchanged."""
    path = tmp_path_factory.mktemp("c") / "c.yaml"
    body = text.encode("utf-8", "replace")
    record_parts(path, [body] if body else [])
    assert read_cassette(path)[0].response_body == body


def test_body_that_is_closed_early_is_recorded_so_far(tmp_path: Path) -> None:
    """If the reader stops early, the parts that it got are recorded once."""
    path = tmp_path / "c.yaml"
    assert record_parts(path, [b"one", b"two"], max_parts=1) == [b"one"]
    assert [exchange.response_body for exchange in read_cassette(path)] == [b"one"]


def test_compressed_answers_are_written_plain(tmp_path: Path) -> None:
    """A body that the host compressed is readable text in the cassette."""
    import gzip

    path = tmp_path / "c.yaml"
    record_parts(path, [gzip.compress(b'{"a": 1}')], **{"content-encoding": "gzip"})
    assert '{"a": 1}' in path.read_text()
    assert "content-encoding" not in path.read_text()


def test_concurrent_recorders_lose_nothing(tmp_path: Path) -> None:
    """Several recorders append to one cassette at the same time, and it has every exchange."""
    path = tmp_path / "c.yaml"

    def record_several(number: int) -> None:
        for index in range(5):
            record_parts(path, [f"{number}.{index}".encode()])

    threads = [threading.Thread(target=record_several, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bodies = {exchange.response_body.decode() for exchange in read_cassette(path)}
    assert bodies == {f"{n}.{index}" for n in range(4) for index in range(5)}
    assert path.read_text().startswith(CASSETTE_HEAD)
    assert [file.name for file in tmp_path.iterdir()] == ["c.yaml"]


def test_other_files_are_not_overwritten(tmp_path: Path) -> None:
    """A file that is not a cassette of ours, or cannot be written, is refused at the start."""
    (tmp_path / "notes.yaml").write_text("interactions: []")
    entry = {"provider": "openai", "api_key": "x", "base_url": "http://127.0.0.1:1/v1"}

    def create_recording(**settings: Any) -> Any:
        return create_provider(LLMConfig.model_validate({**entry, **settings}), resolve=str)

    with pytest.raises(SpecError, match="nothing is overwritten"):
        create_recording(record=str(tmp_path / "notes.yaml"))
    with pytest.raises(SpecError, match="cannot be written"):
        create_recording(record=str(tmp_path / "notes.yaml" / "c.yaml"))
    with pytest.raises(SpecError, match="no traffic to record"):
        create_provider(
            LLMConfig.model_validate(
                {"provider": "scripted", "replies": ["x"], "record": str(tmp_path / "d.yaml")}
            ),
            resolve=str,
        )


def test_cassette_paths_are_relative_to_the_spec(tmp_path: Path) -> None:
    """A relative path of a cassette starts at the folder of the spec, whatever the working directory is."""
    folder = tmp_path / "agent"
    folder.mkdir()
    with serve_web(make_host("openai")) as server:
        llm = {"provider": "openai", "model": "m", "base_url": server.url + "/v1", "record": "c.yaml"}
        (folder / "live.yaml").write_text(json.dumps(agents.make_spec(llms={"model": llm})))
        with Engine(folder / "live.yaml", log="memory") as engine:
            engine.run("6*7?")
    llm = {"provider": "recorded", "model": "m", "cassette": "c.yaml"}
    (folder / "again.yaml").write_text(json.dumps(agents.make_spec(llms={"model": llm})))
    with Engine(folder / "again.yaml", log="memory") as engine:
        assert engine.run("6*7?").content == "It is 42."
