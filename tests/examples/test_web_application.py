"""The web application of `docs/web-application.md`, over real sockets: owners, approvals, a kill."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgi_server import serve_application
from effort import choose_count
from web import QuietHandler, run_server

from toolchart import Agent, Delta, Reply, Request, TextDelta, ToolCall, open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import LogDamaged

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = choose_count(short=60, long=200)
"""The page promises 200; a run of the whole suite tries fewer."""

ADA, BOB = ({"Authorization": f"Bearer token-of-{name}"} for name in ("ada", "bob"))
LONGEST_S = 120.0
"""What takes longer than this never comes."""

pytest.importorskip("fastapi", reason="the example needs FastAPI")


def read_code() -> str:
    """The code of the page."""
    page = (ROOT / "docs" / "web-application.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return str(code)


def load_example() -> dict[str, Any]:
    """The names of the code of the page."""
    names: dict[str, Any] = {"__name__": "chat"}
    exec(compile(read_code(), "web-application.md", "exec"), names)  # noqa: S102  our own text
    return names


class Clerk:
    """A model that pays after an approval; of whoever says `stay` it begins an answer that never ends."""

    name = "clerk"

    def __init__(self) -> None:
        self.cancelled = 0

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        return {"stream": stream}

    async def complete(self, request: Request) -> Reply:
        last = request.messages[-1]
        if last.role == "tool":
            return Reply(content=f"done: {json.loads(last.content or '')['success']}", finish_reason="stop")
        call = ToolCall(id="", name="pay", arguments={"who": last.content or ""})
        return Reply(tool_calls=(call,), finish_reason="tool_calls")

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        if "stay" in (request.messages[-1].content or ""):
            yield TextDelta(text="one moment")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        yield await self.complete(request)

    async def aclose(self) -> None:
        """Nothing to close."""


async def read_result(response: httpx.Response) -> dict[str, Any]:
    """The turn at the end of a stream."""
    events = [json.loads(line[6:]) async for line in response.aiter_lines() if line.startswith("data: ")]
    turn: dict[str, Any] = events[-1]["turn"]
    return turn


async def leave_early(client: httpx.AsyncClient, name: str) -> None:
    """Read the beginning of an answer, and disconnect."""
    async with client.stream("POST", f"/chats/{name}", json={"message": "stay"}) as response:
        async for line in response.aiter_lines():
            if "one moment" in line:
                return
    raise AssertionError("the stream ended by itself")


async def pay_with_trouble(client: httpx.AsyncClient, name: str) -> list[int]:
    """Ask for a payment; approve it twice at once, once more afterwards, and decide an unknown call."""
    async with client.stream("POST", f"/chats/{name}", json={"message": name}) as response:
        (pending,) = (await read_result(response))["pending_approvals"]

    async def decide(call_id: str) -> int:
        url = f"/chats/{name}/calls/{call_id}"
        async with client.stream("POST", url, json={"approved": True}) as response:
            if response.status_code == 200:
                assert (await read_result(response))["content"] == "done: True"
            return response.status_code

    unknown = await decide("call_9_9_9")
    twice = await asyncio.gather(decide(pending["id"]), decide(pending["id"]))
    late = await decide(pending["id"])
    assert (unknown, late) == (409, 409)
    return sorted(twice)


async def visit(address: str) -> list[list[int]]:
    """All clients at once; a third of them leaves early."""
    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(
        base_url=address, headers=ADA, timeout=LONGEST_S, limits=limits, trust_env=False
    ) as client:
        leaving = [leave_early(client, f"gone{number}") for number in range(0, CLIENTS, 3)]
        staying = [pay_with_trouble(client, f"c{number}") for number in range(CLIENTS) if number % 3]
        answers = await asyncio.gather(*leaving, *staying)
    return [answer for answer in answers if answer is not None]


def test_many_clients_of_which_a_third_disconnects(tmp_path: Path) -> None:
    """Issue 16: approvals that come twice, late and for unknown calls are refused, nothing runs twice, each
    stream ends or is cancelled, and the log verifies."""
    payments: Counter[str] = Counter()

    async def pay(who: str) -> str:
        """Pay."""
        payments[who] += 1
        return "paid"

    clerk, log = Clerk(), str(tmp_path / "log.db")
    agent = Agent(clerk, prompt="Pay.", tools=[pay], approval=[{"tools": "pay", "decision": "ask"}])
    with serve_application(load_example()["make_app"](agent, log)) as address:
        decisions = asyncio.run(visit(address))
    assert all(codes == [200, 409] for codes in decisions)
    assert set(payments.values()) == {1}
    staying = [f"c{number}" for number in range(CLIENTS) if number % 3]
    assert sorted(payments) == sorted(staying)
    assert clerk.cancelled == CLIENTS - len(staying)
    check_log(log, CLIENTS)


def check_log(log: str | Path, count: int) -> None:
    """The log has so many conversations, and each verifies."""
    store = open_store(log)
    results = list(verify_store(store))
    store.close()
    assert not [result for result in results if isinstance(result, LogDamaged)]
    assert len([result for result in results if isinstance(result, VerifiedConversation)]) == count


# -- a process that is killed ---------------------------------------------------------------------------


class ModelHost:
    """A host of chat completions on loopback: it asks for a refund, and answers what the tool gave when it
    may."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[list[dict[str, Any]]] = []
        """The messages of each request."""
        self.has_request = threading.Event()
        """Set when it has got the request with the result of the tool."""
        self.may_answer = threading.Event()

    def build_delta(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The answer, in one piece; of a request that waits, when it may."""
        self.requests.append(messages)
        last = messages[-1]
        if last["role"] == "tool":
            self.has_request.set()
            self.may_answer.wait(LONGEST_S)
            return {"content": f"Done: {last['content']}"}
        if "refund" in last["content"].lower():
            function = {"name": "refund", "arguments": json.dumps({"order": "A7"})}
            return {"tool_calls": [{"index": 0, "id": "r1", "type": "function", "function": function}]}
        return {"content": f"You said: {last['content']}"}


def write_answer(delta: dict[str, Any], *, is_streamed: bool) -> bytes:
    """An answer of a host; a turn that goes on after a crash is not streamed to anybody."""
    reason = "tool_calls" if "tool_calls" in delta else "stop"
    if not is_streamed:
        choice = {"index": 0, "message": {"role": "assistant", **delta}, "finish_reason": reason}
        return json.dumps({"id": "r", "model": "m", "choices": [choice]}).encode()
    chunks = [{"index": 0, "delta": delta}, {"index": 0, "delta": {}, "finish_reason": reason}]
    data = [json.dumps({"id": "r", "model": "m", "choices": [chunk]}) for chunk in chunks]
    return "".join(f"data: {each}\n\n" for each in [*data, "[DONE]"]).encode()


@contextmanager
def serve_model() -> Iterator[ModelHost]:
    """Run the host until the block ends."""
    host = ModelHost()

    class Handler(QuietHandler):
        def answer_request(self) -> None:
            request = json.loads(self.read_body())
            body = write_answer(
                host.build_delta(request["messages"]), is_streamed=bool(request.get("stream"))
            )
            try:
                self.send_whole(200, {}, body)
            except OSError:  # whoever asked was killed
                self.close_connection = True

    with run_server(Handler) as host.port:
        try:
            yield host
        finally:
            host.may_answer.set()


@contextmanager
def run_page(folder: Path, listener: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """The page's module in a process of uvicorn, on a socket that listens already: whoever connects is served
    when the process has started. It is killed at the end, where it lives."""
    command = [sys.executable, "-m", "uvicorn", "chat:app", "--fd", str(listener.fileno())]
    with (folder / "server.log").open("ab") as output:
        process = subprocess.Popen(
            command, cwd=folder, pass_fds=[listener.fileno()], stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(LONGEST_S)


def post(client: httpx.Client, path: str, body: Any, headers: Any = ADA) -> dict[str, Any]:
    """The turn at the end of the stream that a request is answered with."""
    answer = client.post(path, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    turn: dict[str, Any] = events[-1]["turn"]
    return turn


def read_until_over(client: httpx.Client, path: str) -> dict[str, Any]:
    """A conversation, when its turn is over; the page is loaded again and again until then."""
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        page: dict[str, Any] = client.get(path, headers=ADA).json()
        if not page["is_open"]:
            return page
        time.sleep(0.05)
    raise AssertionError("the turn did not go on after the restart")


def test_a_server_that_is_killed_goes_on_with_the_turn(tmp_path: Path) -> None:
    """Issue 52: the page as it stands in a process of uvicorn. A call waits for its person, over a reload.
    Nobody else finds the conversation. The server is killed while the model has the result of the approved
    call: a new one goes on by itself, nothing is lost, the call ran once, and the conversation goes on."""
    with serve_model() as model, socket.create_server(("127.0.0.1", 0)) as listener:
        entry = {
            "provider": "openai",
            "model": "m",
            "base_url": f"http://127.0.0.1:{model.port}/v1",
            "api_key": "k",
        }
        code = read_code().replace('"openai:gpt-5.1"', repr(entry))
        assert repr(entry) in code
        (tmp_path / "chat.py").write_text(code, "utf-8")
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=address, timeout=LONGEST_S, trust_env=False) as client:
            with run_page(tmp_path, listener) as server:
                call = approve_until_killed(client, model, server)
            model.may_answer.set()
            with run_page(tmp_path, listener):
                go_on(client, call)
    assert (tmp_path / "refunds.txt").read_text("utf-8") == "A7\n"
    results = [messages for messages in model.requests if messages[-1]["role"] == "tool"]
    assert len(results) == 2, "the one that was killed, and the one after it"
    assert results[0] == results[1]
    check_log(tmp_path / "chat.db", 2)


def approve_until_killed(client: httpx.Client, model: ModelHost, server: subprocess.Popen[bytes]) -> str:
    """Ada asks and approves, and the server dies; the id of the call."""
    assert client.get("/chats/1").status_code == 401
    assert client.get("/chats/1", headers=ADA).status_code == 404
    (pending,) = post(client, "/chats/1", {"message": "Refund A7, please."})["pending_approvals"]
    check_closed_to_bob(client, pending["id"])
    page = client.get("/chats/1", headers=ADA).json()
    assert page["turn"]["pending_approvals"] == [pending]
    assert [message["role"] for message in page["messages"][-2:]] == ["user", "assistant"]
    path = f"/chats/1/calls/{pending['id']}"
    dead: list[httpx.HTTPError] = []

    def decide() -> None:
        try:
            client.post(path, json={"approved": True}, headers=ADA)
        except httpx.HTTPError as error:
            dead.append(error)

    deciding = threading.Thread(target=decide)
    deciding.start()
    assert model.has_request.wait(LONGEST_S)
    server.kill()
    deciding.join(LONGEST_S)
    assert dead, "the answer broke off"
    return str(pending["id"])


def check_closed_to_bob(client: httpx.Client, call: str) -> None:
    """What is Ada's does not exist for Bob; the ids that nobody has are free for him."""
    refused = [
        client.get("/chats/1", headers=BOB),
        client.post("/chats/1", json={"message": "hi"}, headers=BOB),
        client.post(f"/chats/1/calls/{call}", json={"approved": True}, headers=BOB),
    ]
    assert [answer.status_code for answer in refused] == [404] * 3
    assert not any("A7" in answer.text for answer in refused)
    assert post(client, "/chats/2", {"message": "hi"}, BOB)["content"] == "You said: hi"
    for headers, name in ((ADA, "1"), (BOB, "2")):
        rows = client.get("/chats", headers=headers).json()["conversations"]
        assert [row["conversation"] for row in rows] == [name]


def go_on(client: httpx.Client, call: str) -> None:
    """After the restart the turn comes to its end, its call cannot be decided again, and Ada goes on."""
    page = read_until_over(client, "/chats/1")
    assert page["turn"]["content"].startswith("Done: ")
    roles = [message["role"] for message in page["messages"] if message["role"] != "system"]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert "A7 is refunded" in page["messages"][-2]["content"]
    again = client.post(f"/chats/1/calls/{call}", json={"approved": True}, headers=ADA)
    assert again.status_code == 409
    assert client.get("/chats/1", headers=BOB).status_code == 404
    assert post(client, "/chats/1", {"message": "Thanks!"})["content"] == "You said: Thanks!"
    assert len(client.get("/chats/1", headers=ADA).json()["messages"]) == len(page["messages"]) + 2
