"""Recording: what went over the wire answers again, and no secret is in it."""

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
from web import Answer, web

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.engine.runtime.result import TurnResult
from toolchart.providers.recording.cassettes import read_cassette
from toolchart.providers.recording.recorder import HEAD, Recorder
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import HIDDEN
from toolchart.states.errors import SpecError

KEY = "sk-live-0123456789abcdef"
PLAIN = LLMConfig(provider="openai")


def openai(asked: dict[str, Any]) -> Any:
    """A chat completions host that wants the calculator once."""
    if asked["messages"][-1]["role"] == "tool":
        text = f"It is {json.loads(asked['messages'][-1]['content'])['result']}."
        return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    function = {"name": "calculator", "arguments": '{"expression":"6*7"}'}
    call = {"id": "call_7", "type": "function", "function": function}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    message = {"content": None, "tool_calls": [call]}
    return {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}


def ollama(asked: dict[str, Any]) -> Any:
    """The same in Ollama's words."""
    if asked["messages"][-1]["role"] == "tool":
        return {"message": {"content": "It is 42."}, "done": True, "done_reason": "stop"}
    call = {"id": "c1", "function": {"name": "calculator", "arguments": {"expression": "6*7"}}}
    return {"message": {"content": "", "tool_calls": [call]}, "done": True, "done_reason": "stop"}


def gemini(asked: dict[str, Any]) -> Any:
    """The same in Gemini's words."""
    if any("functionResponse" in part for part in asked["contents"][-1]["parts"]):
        parts = [{"text": "It is 42."}]
    else:
        parts = [{"functionCall": {"name": "calculator", "args": {"expression": "6*7"}}}]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def anthropic(body: dict[str, Any]) -> Any:
    """A call, then the answer."""
    answered = len(body["messages"]) > 1
    call = {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "calculator",
        "input": {"expression": "6*7"},
    }
    return {
        "id": "msg_1",
        "model": "m",
        "content": [{"type": "text", "text": "It is 42."} if answered else call],
        "stop_reason": "end_turn" if answered else "tool_use",
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }


HOSTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "openai": openai,
    "ollama": ollama,
    "gemini": gemini,
    "anthropic": anthropic,
}


def host(provider: str) -> Callable[[dict[str, Any]], Answer]:
    """A web server's answers as that provider's."""

    def answer(asked: dict[str, Any]) -> Answer:
        body = HOSTS[provider](json.loads(asked["body"]))
        cookies = {"set-cookie": "session=abc", "x-request-id": "req_1"}
        return 200, {"content-type": "application/json", **cookies}, json.dumps(body).encode()

    return answer


def turn(llm: dict[str, Any], message: str = "6*7?") -> tuple[TurnResult, list[dict[str, Any]]]:
    """A turn of an agent with that model host, and the events of its log."""
    with Engine(agents.spec(llms={"model": {"model": "m", **llm}}), log="memory") as engine:
        result = engine.run(message, conversation="c")
        assert list(replay(engine.store.read("c"), "c"))
        return result, [json.loads(line)["event"] for line in engine.store.read("c")]


@pytest.mark.parametrize("provider", HOSTS)
def test_a_recorded_turn_answers_again(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.8: a turn over a real SDK and a socket, recorded, is answered again strictly and equally."""
    monkeypatch.setenv("HOST_KEY", KEY)
    cassette = tmp_path / "made" / "calls.yaml"
    with web(host(provider)) as server:
        llm = {"provider": provider, "base_url": server.url + "/v1" * (provider == "openai")}
        live, live_events = turn({**llm, "api_key": "${HOST_KEY}", "record": str(cassette)})
        asked = len(server.asked)
    assert live.content == "It is 42."
    assert asked == len(read_cassette(cassette)) == 2
    again, events = turn({"provider": "recorded", "cassette": str(cassette)})
    assert (again.content, again.usage) == (live.content, live.usage)
    replies = [[e["reply"] for e in one if e["type"] == "replied"] for one in (live_events, events)]
    assert replies[0] == replies[1]
    _, missed = turn({"provider": "recorded", "cassette": str(cassette)}, "7*7?")
    assert "no recorded request matches" in missed[-1]["message"]


def test_no_secret_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, tokens, cookies, variables and passwords in addresses are in no recorded header, URI or body."""
    monkeypatch.setenv("HOST_KEY", "k" * 12 + '"quoted')
    monkeypatch.setenv("TEAM", "team/blue & co")
    monkeypatch.setenv("OPENAI_API_KEY", "ambient-key-of-the-shell")
    told = [
        "k" * 12,
        "team/blue",
        "ambient-key",
        "literal-token-1",
        "hunter22",
        "session=abc",
        "AIzaSy",
        "sk-proj",
    ]

    def echo(asked: dict[str, Any]) -> Answer:
        said = json.loads(asked["body"])["messages"][-1]["content"]
        body = {"choices": [{"message": {"content": f"You said {said}"}, "finish_reason": "stop"}]}
        headers = {"content-type": "application/json", "set-cookie": "session=abc"}
        return 200, headers, json.dumps(body).encode()

    cassette = tmp_path / "c.yaml"
    with web(echo) as server:
        address = server.url.replace("http://", "http://me:hunter22@") + "/v1"
        llm = {
            "provider": "openai",
            "base_url": address,
            "api_key": "${HOST_KEY}",
            "record": str(cassette),
            "headers": {"x-team": "${TEAM}", "authorization": "Bearer literal-token-1"},
        }
        secrets = (
            'keep kkkkkkkkkkkk"quoted team/blue & co ambient-key-of-the-shell literal-token-1 '
        )
        turn(llm, secrets + "AIzaSyA0123456789abcdefghijk sk-proj-0123456789abcdef")
        sent = {name.lower(): value for name, value in server.asked[0]["headers"].items()}
    assert sent["x-team"] == "team/blue & co"
    text = cassette.read_text("utf-8")
    assert [secret for secret in told if secret in text] == []
    (found,) = read_cassette(cassette)
    said = found.asked["messages"][-1]["content"]
    assert said == f"keep ${{HOST_KEY}} ${{TEAM}} ${{OPENAI_API_KEY}} {HIDDEN} {HIDDEN} {HIDDEN}"


def test_no_secret_is_in_bytes_that_are_no_text(tmp_path: Path) -> None:
    """A body that is not UTF-8 is cleaned, too, and is otherwise what came."""
    path = tmp_path / "c.yaml"
    recorded(path, [b"\xff\xfe ", KEY.encode(), b" \x80"])
    assert read_cassette(path)[0].body == b"\xff\xfe (secret) \x80"


def test_the_cassette_is_what_a_vcr_reader_expects(tmp_path: Path) -> None:
    """The file is plain YAML in vcrpy's spelling: version 1, request and response with these keys."""
    cassette = tmp_path / "c.yaml"
    with web(host("openai")) as server:
        turn({"provider": "openai", "base_url": server.url + "/v1", "record": str(cassette)})
    data = yaml.safe_load(cassette.read_text("utf-8"))
    assert data["version"] == 1
    for one in data["interactions"]:
        assert set(one["request"]) == {"method", "uri", "headers", "body"}
        assert set(one["response"]) == {"status", "headers", "body"}
        assert set(one["response"]["status"]) == {"code", "message"}
        assert all(isinstance(value, list) for value in one["response"]["headers"].values())
        assert isinstance(one["request"]["body"], str)
        assert isinstance(one["response"]["body"]["string"], str)


def test_failures_are_recorded_too(tmp_path: Path) -> None:
    """A refused call fails again with the same class and waiting time."""

    def busy(asked: dict[str, Any]) -> Answer:
        headers = {"content-type": "application/json", "retry-after": "7"}
        return 429, headers, b'{"error": {"message": "slow down"}}'

    cassette = tmp_path / "c.yaml"
    with web(busy) as server:
        base = server.url + "/v1"
        turn({"provider": "openai", "base_url": base, "record": str(cassette)})
    _, events = turn({"provider": "recorded", "cassette": str(cassette)})
    failed = next(event for event in events if event["type"] == "failed")
    assert (failed["kind"], failed["status"], failed["retry_after_s"]) == ("rate_limited", 429, 7)


# -- the file ------------------------------------------------------------------------------------


class Parts(httpx.AsyncByteStream):
    """A body in parts."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    async def __aiter__(self) -> Any:
        for part in self.parts:
            yield part


def recorded(
    path: Path, parts: list[bytes], *, most: int | None = None, **headers: str
) -> list[bytes]:
    """Record one exchange and see its parts, at most so many; then the connection is closed."""
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, headers=headers, stream=Parts(parts))
    )

    async def ask() -> list[bytes]:
        client = httpx.AsyncClient(transport=transport, event_hooks=Recorder(path, PLAIN).hooks())
        seen: list[bytes] = []
        async with client.stream("POST", "http://h/api/chat", content=b"{}") as response:
            async for part in response.aiter_raw():
                seen.append(part)
                if len(seen) == most:
                    break
        return seen

    return asyncio.run(ask())


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
def test_any_body_is_passed_on_and_recorded_exactly(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    """Whatever bytes come, text or not, reach the reader part by part and stand in the cassette."""
    path = tmp_path_factory.mktemp("c") / "c.yaml"
    assert recorded(path, parts) == parts
    (found,) = read_cassette(path)
    assert found.body == b"".join(parts) or b"".join(parts)[:2] == b"\x1f\x8b"


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_any_text_survives_yaml(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Line ends, control characters and every script come back from the cassette unchanged."""
    path = tmp_path_factory.mktemp("c") / "c.yaml"
    body = text.encode("utf-8", "replace")
    recorded(path, [body] if body else [])
    assert read_cassette(path)[0].body == body


def test_a_body_that_is_closed_early_is_recorded_as_far_as_it_was_seen(tmp_path: Path) -> None:
    """Whoever stops reading leaves a recording of what came, once."""
    path = tmp_path / "c.yaml"
    assert recorded(path, [b"one", b"two"], most=1) == [b"one"]
    assert [one.body for one in read_cassette(path)] == [b"one"]


def test_compressed_answers_are_written_plain(tmp_path: Path) -> None:
    """What the host compressed can be read in the cassette."""
    import gzip

    path = tmp_path / "c.yaml"
    recorded(path, [gzip.compress(b'{"a": 1}')], **{"content-encoding": "gzip"})
    assert '{"a": 1}' in path.read_text()
    assert "content-encoding" not in path.read_text()


def test_recorders_lose_nothing_to_each_other(tmp_path: Path) -> None:
    """Several at once append to one cassette, and every exchange is there."""
    path = tmp_path / "c.yaml"

    def several(number: int) -> None:
        for place in range(5):
            recorded(path, [f"{number}.{place}".encode()])

    threads = [threading.Thread(target=several, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bodies = {one.body.decode() for one in read_cassette(path)}
    assert bodies == {f"{n}.{place}" for n in range(4) for place in range(5)}
    assert path.read_text().startswith(HEAD)
    assert [file.name for file in tmp_path.iterdir()] == ["c.yaml"]


def test_nothing_foreign_is_overwritten(tmp_path: Path) -> None:
    """A file that is there and is no cassette of ours, or cannot be written, is refused at the start."""
    (tmp_path / "notes.yaml").write_text("interactions: []")
    entry = {"provider": "openai", "api_key": "x", "base_url": "http://127.0.0.1:1/v1"}

    def create(**more: Any) -> Any:
        return create_provider(LLMConfig.model_validate({**entry, **more}), resolve=str)

    with pytest.raises(SpecError, match="nothing is overwritten"):
        create(record=str(tmp_path / "notes.yaml"))
    with pytest.raises(SpecError, match="cannot be written"):
        create(record=str(tmp_path / "notes.yaml" / "c.yaml"))
    with pytest.raises(SpecError, match="no traffic to record"):
        create_provider(
            LLMConfig.model_validate(
                {"provider": "scripted", "replies": ["x"], "record": str(tmp_path / "d.yaml")}
            ),
            resolve=str,
        )


def test_a_recording_is_found_beside_its_spec(tmp_path: Path) -> None:
    """Paths of cassettes are relative to the spec, wherever the command runs."""
    folder = tmp_path / "agent"
    folder.mkdir()
    with web(host("openai")) as server:
        llm = {
            "provider": "openai",
            "model": "m",
            "base_url": server.url + "/v1",
            "record": "c.yaml",
        }
        (folder / "live.yaml").write_text(json.dumps(agents.spec(llms={"model": llm})))
        with Engine(folder / "live.yaml", log="memory") as engine:
            engine.run("6*7?")
    llm = {"provider": "recorded", "model": "m", "cassette": "c.yaml"}
    (folder / "again.yaml").write_text(json.dumps(agents.spec(llms={"model": llm})))
    with Engine(folder / "again.yaml", log="memory") as engine:
        assert engine.run("6*7?").content == "It is 42."
