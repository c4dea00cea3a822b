"""`toolchart serve` is told to stop while answers run: a grace, then the error of each protocol."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from command_line import START
from gated_host import ANSWER, GatedHost, serve_gated_host
from msgspec.structs import replace
from openai import APIError, APIStatusError, OpenAI
from served import make_site, make_value, serve

from toolchart import Engine, load_spec
from toolchart.app.server.conversations.live_turns import TurnStopped, require_rest
from toolchart.app.server.site import Limits
from toolchart.engine.log.stores import open_store
from toolchart.engine.reading.waiting import Waiting, WaitingCall

TOKEN = "a-token-for-tests-of-a-release"

SPEC = """
name: agent
llms:
  model: {provider: openai, base_url: URL, api_key: none, model: m}
responses: [{llm: model}]
"""


@pytest.fixture
def host() -> Iterator[GatedHost]:
    """A model that waits in the middle of its answer."""
    with serve_gated_host() as host:
        yield host


@dataclass
class Process:
    """A running `toolchart serve`."""

    popen: Any
    url: str
    token: str = TOKEN

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer to a request with the owner's token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.request(
            method, self.url + path, headers=headers, timeout=120, trust_env=False, **options
        )

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, and wait until the server says that it stops."""
        self.popen.send_signal(number)
        wait_until(lambda: self.ask("GET", "/health").json()["status"] == "stopping")

    def wait(self) -> int:
        """The exit code of the process, which must end."""
        return self.popen.wait(120)


def wait_until(is_true: Callable[[], bool]) -> None:
    """Return when something is true; fail after two minutes."""
    end_s = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@contextmanager
def serve_agent(folder: Path, host: GatedHost, grace_s: float) -> Iterator[Process]:
    """`toolchart serve` of an agent whose model is the host, in a process of its own."""
    (folder / "agent.yaml").write_text(SPEC.replace("URL", host.url), "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = ["serve", "agent.yaml", "--port", str(port), "--log", "log.db", "--grace", str(grace_s)]
    with (folder / "messages").open("a") as messages:
        popen = subprocess.Popen(
            [sys.executable, "-c", START, *words],
            cwd=folder,
            stderr=messages,
            text=True,
            env={**os.environ, "TOOLCHART_TOKEN_OWNER": TOKEN},
        )
    process = Process(popen, f"http://127.0.0.1:{port}")

    def is_there() -> bool:
        assert popen.poll() is None, (folder / "messages").read_text()
        try:
            return process.ask("GET", "/health").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(is_there)
        yield process
    finally:
        popen.kill()
        popen.wait()


# -- clients ---------------------------------------------------------------------------------------


def connect(process: Process) -> OpenAI:
    """OpenAI's SDK as it is set up by default: it sends a request again where the answer invites it to."""
    return OpenAI(base_url=f"{process.url}/v1", api_key=process.token, timeout=120)


def stream_chat(process: Process) -> tuple[str, str]:
    """The text and the end of a streamed chat completion."""
    text, end = "", "silent"
    try:
        messages: Any = [{"role": "user", "content": "chat"}]
        for chunk in connect(process).chat.completions.create(model="agent", messages=messages, stream=True):
            text += chunk.choices[0].delta.content or ""
            end = chunk.choices[0].finish_reason or end
    except APIError as error:
        end = f"{error.code}: {error.message}"
    return text, end


def complete_chat(process: Process) -> tuple[str, str]:
    """The text and the end of a chat completion that is not streamed."""
    try:
        messages: Any = [{"role": "user", "content": "whole"}]
        answer = connect(process).chat.completions.create(model="agent", messages=messages)
    except APIStatusError as error:
        return "", f"{error.code}: {error.message}"
    return answer.choices[0].message.content or "", str(answer.choices[0].finish_reason)


def stream_response(process: Process) -> tuple[str, str]:
    """The text and the end of a streamed response."""
    text, end = "", "silent"
    for event in connect(process).responses.create(model="agent", input="response", stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
        elif event.type in ("response.completed", "response.failed"):
            error = event.response.error
            end = f"{error.code}: {error.message}" if error is not None else event.response.status or ""
    return text, end


def stream_run(process: Process) -> tuple[str, str]:
    """The text and the end of a run of AG-UI."""
    message = {"id": "m1", "role": "user", "content": "run"}
    lists: dict[str, Any] = {"tools": [], "context": [], "messages": [message]}
    body = {"threadId": "run", "runId": "r1", "state": {}, "forwardedProps": {}, **lists}
    text, end = "", "silent"
    headers = {"Authorization": f"Bearer {process.token}"}
    with httpx.stream(
        "POST", f"{process.url}/ag-ui", json=body, headers=headers, timeout=120, trust_env=False
    ) as lines:
        for line in lines.iter_lines():
            event = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
            text += event.get("delta", "") if event.get("type") == "TEXT_MESSAGE_CONTENT" else ""
            if event.get("type") in ("RUN_FINISHED", "RUN_ERROR"):
                end = f"{event['type']}: {event.get('code')}: {event.get('message')}"
    return text, end


def call_tool(process: Process) -> tuple[str, str]:
    """The text and the end of a tool call of MCP."""
    return asyncio.run(_call_tool(process))


async def _call_tool(process: Process) -> tuple[str, str]:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async def note_progress(progress: float, total: float | None, message: str | None) -> None:
        """Take notice; a call with progress is answered by a stream."""

    headers = {"Authorization": f"Bearer {process.token}"}
    answers: list[tuple[str, str]] = []
    async with httpx2.AsyncClient(headers=headers, timeout=120, trust_env=False) as http:
        transport = streamable_http_client(f"{process.url}/mcp", http_client=http)
        try:
            async with Client(transport) as client:
                await client.list_tools()  # else it asks for the schema after the answer, and the server ends
                arguments = {"message": "call", "conversation": "call"}
                result = await client.call_tool("agent", arguments, progress_callback=note_progress)
                content: Any = result.content[0]
                answers.append(("", content.text) if result.is_error else (content.text, "ok"))
        except* httpx2.TransportError:
            assert answers, "it ended without an answer"  # else the server ended before the client's farewell
    return answers[0]


def send_message(process: Process) -> tuple[str, str]:
    """The text and the end of a message through the API of conversations."""
    answer = process.ask("POST", "/api/conversations", json={"message": "message", "conversation": "message"})
    data = answer.json()
    return data.get("content", ""), str(answer.status_code if answer.is_success else data["error"])


def send_prompt(process: Process) -> tuple[str, str]:
    """The text and the end of a message of an existing front end."""
    answer = process.ask("POST", "/chat/api", json={"prompt": "prompt", "previousMessages": []})
    data = answer.json()
    if answer.is_success:
        return data["response"], str(answer.status_code)
    assert data["error"] in data["response"], "the page shows the error, and stays unlocked"
    return "", data["error"]


CLIENTS: dict[str, tuple[Callable[[Process], tuple[str, str]], str]] = {
    "chat": (stream_chat, "stop"),
    "whole": (complete_chat, "stop"),
    "response": (stream_response, "completed"),
    "run": (stream_run, "RUN_FINISHED: None: None"),
    "call": (call_tool, "ok"),
    "message": (send_message, "200"),
    "prompt": (send_prompt, "200"),
}
"""By what a client says: what it does, and how its answer ends where it is whole."""


@contextmanager
def run_clients(process: Process, host: GatedHost) -> Iterator[dict[str, Future[tuple[str, str]]]]:
    """Every client, each in the middle of its answer."""
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        try:
            answers = {name: pool.submit(client, process) for name, (client, _) in CLIENTS.items()}
            wait_until(lambda: sorted(host.questions) == sorted(CLIENTS))
            yield answers
        finally:
            if sys.exc_info()[0] is not None:  # what has failed must not wait for the clients
                process.popen.kill()


def read_states(folder: Path) -> dict[str, str]:
    """By what was said first in it: the state of each conversation of the log."""
    store = open_store(str(folder / "log.db"))
    try:
        states = {}
        for name in store.list_conversations():
            records = [json.loads(line) for line in store.read_lines(name)]
            said = [r["event"]["message"] for r in records if r["event"]["type"] == "turn_started"]
            states[said[0]] = records[-1]["target"]
        return states
    finally:
        store.close()


def test_answers_that_end_within_the_grace_are_whole(tmp_path: Path, host: GatedHost) -> None:
    """SIGTERM begins no new turn (503 with `Retry-After`, by every door), `/health` says that the server
    stops, and each answer that runs is whole for its client. S16."""
    with serve_agent(tmp_path, host, 600) as process, run_clients(process, host) as answers:
        dashboard = httpx.stream(
            "GET",
            f"{process.url}/api/conversations/message/events",
            headers={"Authorization": f"Bearer {process.token}"},
            timeout=120,
            trust_env=False,
        )
        with dashboard as events:
            lines = events.iter_lines()
            assert next(lines) == "id: 0"
            process.stop()
            assert process.ask("GET", "/health").status_code == 503
            for path, body in {
                "/v1/chat/completions": {"model": "agent", "messages": [{"role": "user", "content": "x"}]},
                "/v1/responses": {"model": "agent", "input": "x"},
                "/api/conversations": {"message": "x"},
                "/chat/api": {"prompt": "x", "previousMessages": []},
            }.items():
                refused = process.ask("POST", path, json=body)
                assert (refused.status_code, "stop" in refused.text) == (503, True), path
                assert int(refused.headers["Retry-After"]) > 0
            host.may_end.set()
            ends = {name: answer.result(120) for name, answer in answers.items()}
            assert any('"content":"' in line for line in lines), "it saw the end of the turn, and was closed"
        assert process.wait() in (0, -signal.SIGTERM)
    assert ends == {name: (ANSWER, end) for name, (_, end) in CLIENTS.items()}
    assert len(host.questions) == len(CLIENTS), "nothing was begun or paid twice"
    assert set(read_states(tmp_path).values()) == {"finished"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_runs_longer_ends_in_the_error_of_its_protocol(
    tmp_path: Path, host: GatedHost, number: int
) -> None:
    """After the grace each client reads the error of its protocol, that names the conversation; the turns
    stay open, and the next process goes on with them. S16."""
    with serve_agent(tmp_path, host, 0.5) as process, run_clients(process, host) as answers:
        process.popen.send_signal(number)
        ends = {name: answer.result(120) for name, answer in answers.items()}
        assert process.wait() in (0, -number)
    for name, (text, end) in ends.items():
        assert "stopped before the answer was whole" in end, (name, end)
        assert ANSWER.startswith(text), name
    assert ends["chat"][1].startswith("server_stopping: ")
    assert ends["response"][1].startswith("server_error: ")
    assert ends["run"][1].startswith("RUN_ERROR: server_stopping: ")
    assert {name for name, (text, _) in ends.items() if text} >= {"chat", "response", "run"}
    states = read_states(tmp_path)
    assert set(states) == set(CLIENTS)
    assert set(states.values()) == {"prompting"}, "the turns are open"
    assert len(host.questions) == len(CLIENTS), "no client has sent its request again by itself"
    host.may_end.set()
    with serve_agent(tmp_path, host, 0.5) as process:
        wait_until(lambda: set(read_states(tmp_path).values()) == {"finished"})
    assert len(host.questions) == 2 * len(CLIENTS), "each was asked once more"


def test_a_second_signal_ends_at_once(tmp_path: Path, host: GatedHost) -> None:
    """Whoever does not want to wait sends a second signal; the turns stay open all the same. S16."""
    with serve_agent(tmp_path, host, 600) as process, run_clients(process, host) as answers:
        process.stop()
        assert not any(answer.done() for answer in answers.values())
        process.popen.send_signal(signal.SIGTERM)
        for answer in answers.values():
            answer.result(120)
        assert process.wait() != 0
    assert set(read_states(tmp_path).values()) == {"prompting"}


def test_what_waits_for_its_client_is_no_error() -> None:
    """A turn that comes to rest while the server stops, because it waits for a decision or for a call of its
    client, is answered as always; one in the middle of the agent's own call is not."""
    with Engine(load_spec("careful"), log="memory") as engine:
        result = engine.run("delete report.txt")
        assert result.pending_approvals
        require_rest(result, engine, is_stopping=True)
        own, *_ = engine.tools.names()
        for tool, is_stopped in (("ask_browser", False), (own, True)):
            call = WaitingCall(id="c1", tool=tool, params={}, conversation=result.conversation)
            waiting = replace(result, waiting=Waiting(calls=(call,)))
            require_rest(waiting, engine, is_stopping=False)
            expected: Any = pytest.raises(TurnStopped) if is_stopped else nullcontext()
            with expected:
                require_rest(waiting, engine, is_stopping=True)


def test_streamed_answers_need_no_place_of_a_reader(host: GatedHost) -> None:
    """As many chats are streamed at once as `--limit turns` allows, whatever the places of readers. S16.4"""
    spec = {
        "name": "agent",
        "llms": {"model": {"provider": "openai", "base_url": host.url, "api_key": "none", "model": "m"}},
        "responses": [{"llm": "model"}],
    }
    site = make_site(Engine(spec, log="memory"), limits=Limits(readers=1, turns=4))
    with serve(site) as url, ThreadPoolExecutor(4) as pool:
        process = Process(None, url, make_value("owner"))
        try:
            answers = [pool.submit(stream_chat, process) for _ in range(4)]
            wait_until(lambda: len(host.questions) == 4)
            assert site.readers.is_idle
            body = {"model": "agent", "messages": [{"role": "user", "content": "x"}], "stream": True}
            assert process.ask("POST", "/v1/chat/completions", json=body).status_code == 429
        finally:
            host.may_end.set()
        assert [answer.result(120) for answer in answers] == [(ANSWER, "stop")] * 4
