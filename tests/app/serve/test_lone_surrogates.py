"""Lone surrogates over HTTP: half a pair in a reply comes as valid JSON, in a request it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from served import make_site, open_client

HALF = "a\ud800b"
USER = [{"role": "user", "content": "hi"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "/api/conversations": {"message": "hi", "conversation": "c"},
    "/v1/chat/completions": {"model": "agent", "messages": USER},
    "/v1/chat/completions?stream": {"model": "agent", "messages": USER, "stream": True},
    "/v1/responses": {"model": "agent", "input": "hi"},
    "/v1/responses?stream": {"model": "agent", "input": "hi", "stream": True},
    "/ag-ui": {"threadId": "t", "runId": "r", "messages": [{**USER[0], "id": "m"}]},
    "/chat/api": {"prompt": "hi"},
}


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_reply_with_half_a_pair_is_answered(path: str) -> None:
    """The answer of each protocol, also as a stream, is UTF-8 with the escape in its JSON; so are the lists,
    and the pages of the conversation open."""
    engine = make_engine([HALF], name="agent")
    async with open_client(make_site(engine)) as client:
        answer = await client.post(path, json=REQUESTS[path])
        assert answer.status_code == 200, answer.text
        assert "a\\ud800b" in answer.content.decode("utf-8")
        (name,) = engine.store.list_conversations()
        for shown in (f"/api/conversations/{name}", f"/api/conversations/{name}/messages"):
            data = (await client.get(shown)).content
            assert HALF in json.dumps(json.loads(data), ensure_ascii=False)
        for shown in (f"/conversations/{name}", "/conversations", f"/api/conversations/{name}/export/openai"):
            assert (await client.get(shown)).status_code == 200


async def test_a_request_with_half_a_pair_is_refused() -> None:
    """JSON with such an escape is no text that a protocol could echo: 400, and nothing is written."""
    engine = make_engine(["one"], name="agent")
    async with open_client(make_site(engine)) as client:
        for path, body in REQUESTS.items():
            text = json.dumps(body).replace('"hi"', '"a\\ud800b"')
            headers = {"Content-Type": "application/json"}
            answer = await client.post(path, content=text.encode(), headers=headers)
            assert answer.status_code == 400, path
            assert "surrogate" in answer.text
    assert list(engine.store.list_conversations()) == []
