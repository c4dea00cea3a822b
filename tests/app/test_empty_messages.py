"""A message that says nothing is refused in the same words at every door, and nothing is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from command_runs import RunCli
from served import make_site, open_client

TEXTS = ("", " ", "\n\t")
WORDS = "the message is empty"

PICTURE = "iVBORw0KGgo="
URL = f"data:image/png;base64,{PICTURE}"


def make_requests(text: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """By door of the server: path and body of a request with this text."""
    run = {"threadId": "t", "runId": "r", "tools": [], "context": [], "state": {}, "forwardedProps": {}}
    return {
        "a new conversation": ("/api/conversations", {"message": text}),
        "a message": ("/api/conversations/old/messages", {"message": text}),
        "chat completions": (
            "/v1/chat/completions",
            {"model": "agent", "messages": [{"role": "user", "content": text}]},
        ),
        "chat completions in parts": (
            "/v1/chat/completions",
            {"model": "agent", "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]},
        ),
        "responses": ("/v1/responses", {"model": "agent", "input": text}),
        "responses in items": (
            "/v1/responses",
            {"model": "agent", "input": [{"role": "user", "content": text}]},
        ),
        "AG-UI": ("/ag-ui", {**run, "messages": [{"id": "1", "role": "user", "content": text}]}),
    }


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("door", list(make_requests("")))
async def test_the_server_refuses_it(door: str, text: str) -> None:
    """With 400 and the same words; the log stays as it is."""
    engine = make_engine(["hello", "never"])
    async with open_client(make_site(engine)) as client:
        await engine.arun("hi", conversation="old")
        before = [(name, engine.store.read_last_line(name)) for name in engine.store.list_conversations()]
        path, body = make_requests(text)[door]
        answer = await client.post(path, json=body)
        after = [(name, engine.store.read_last_line(name)) for name in engine.store.list_conversations()]
    assert (answer.status_code, WORDS in answer.text) == (400, True), answer.text
    assert after == before


async def test_what_is_attached_says_something() -> None:
    """A picture alone is a message, at each door that takes one."""
    part = {"type": "image_url", "image_url": {"url": URL}}
    source = {"type": "data", "value": PICTURE, "mimeType": "image/png"}
    contents: dict[str, Any] = {
        "chat completions": [part],
        "responses in items": [{"type": "input_image", "image_url": URL}],
        "AG-UI": [{"type": "image", "source": source}],
    }
    async with open_client(make_site(make_engine(["hello"] * 4))) as client:
        for door, content in contents.items():
            path, body = make_requests("")[door]
            (body.get("messages") or body["input"])[0]["content"] = content
            assert (await client.post(path, json=body)).status_code == 200, door
        attachment = {"data": PICTURE, "media_type": "image/png"}
        body = {"message": "", "attachments": [attachment]}
        assert (await client.post("/api/conversations", json=body)).status_code == 200


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "command", ["run quickstart", "submit quickstart --dsn postgresql://nobody@127.0.0.1:1/x", "batch"]
)
def test_the_command_line_refuses_it(run_cli: RunCli, command: str, text: str) -> None:
    """With exit 2 and the same words; nothing is begun."""
    if command == "batch":
        lines = json.dumps({"message": text}).encode()
        done = run_cli("batch", "quickstart", "-", "-o", "r.jsonl", stdin=lines)
    else:
        name, spec, *options = command.split()
        done = run_cli(name, spec, text, *options)
    assert (done.code, WORDS in done.err, done.out) == (2, True, ""), done.err
