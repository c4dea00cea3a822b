"""Requests that come twice with one `Idempotency-Key`: carried out once, answered each time."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, make_spec
from served import bearer, make_site, open_client

from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider


def key(text: str) -> dict[str, str]:
    """The header of a key."""
    return {"Idempotency-Key": text}


def count_calls(answers: list[httpx.Response]) -> set[str]:
    """The conversations that answers name."""
    return {answer.json()["conversation"] for answer in answers}


@pytest.mark.parametrize("query", ["", "?wait=false"])
async def test_a_request_that_is_sent_twice_begins_one_conversation(query: str) -> None:
    """Two requests with one key at the same time, and a third one later, begin one conversation and one turn,
    and get the same answer; another key, and no key, begin another one."""
    site = make_site(make_engine(["one", "two", "three"]))
    async with open_client(site) as client:

        async def post(headers: dict[str, str]) -> httpx.Response:
            return await client.post(f"/api/conversations{query}", json={"message": "hi"}, headers=headers)

        twice = await asyncio.gather(post(key("k1")), post(key("k1")))
        twice.append(await post(key("k1")))
        assert len({answer.content for answer in twice}) == 1
        assert twice[0].is_success
        others = [await post(key("k2")), await post({})]
        assert len(count_calls([twice[0], *others])) == 3
        assert len(list(site.engine.store.list_conversations())) == 3


async def test_a_message_that_is_sent_twice_is_one_turn() -> None:
    """A message of an existing conversation with one key is heard once; the same words with another key, or
    from another person, are another message."""
    site = make_site(make_engine(["one", "two", "three", "four"]))
    async with open_client(site) as client:
        await client.post("/api/conversations", json={"message": "hi", "conversation": "c1"})

        async def say(headers: dict[str, str]) -> str:
            path, body = "/api/conversations/c1/messages", {"message": "again"}
            answer = await client.post(path, json=body, headers=headers)
            return str(answer.json()["content"])

        assert await asyncio.gather(say(key("k1")), say(key("k1"))) == ["two", "two"]
        assert await say(key("k2")) == "three"
        assert await say({**key("k1"), **bearer("talker")}) == "four"


async def test_a_key_belongs_to_one_request() -> None:
    """Another body with the same key is refused (422), a key beyond 255 characters too (400)."""
    site = make_site(make_engine(["one"]))
    async with open_client(site) as client:
        await client.post("/api/conversations", json={"message": "hi"}, headers=key("k1"))
        for headers, status in ((key("k1"), 422), (key("x" * 256), 400)):
            answer = await client.post("/api/conversations", json={"message": "ho"}, headers=headers)
            assert (answer.status_code, "Idempotency-Key" in answer.json()["error"]) == (status, True)
        assert len(list(site.engine.store.list_conversations())) == 1


async def test_what_was_refused_is_carried_out_when_it_comes_again() -> None:
    """A refusal is not kept: the same request with the same key succeeds once it may."""
    site = make_site(make_engine(["one"]))
    async with open_client(site) as client:

        async def post() -> httpx.Response:
            return await client.post("/api/conversations", json={"message": "hi"}, headers=key("k1"))

        free, site.turns.free = site.turns.free, 0
        assert (await post()).status_code == 429
        site.turns.free = free
        assert (await post()).json()["content"] == "one"


async def test_a_key_holds_over_a_restart(tmp_path: Any) -> None:
    """A request that comes again to a new process on the same log finds the conversation that it began, also
    where the agent has another prompt now. Another body with its key is refused there too (422)."""
    body = {"message": "hi", "variables": {"city": "Rome"}}
    history = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    others = [
        {**body, "message": "ho"},
        {**body, "variables": {"city": "Oslo"}},
        {**body, "model": "other"},
        {**body, "history": history},
        {**body, "attachments": [{"data": "eA==", "media_type": "image/png", "name": "x"}]},
    ]

    async def post(body: dict[str, Any], reply: str, prompt: str) -> httpx.Response:
        spec = make_spec(responses=[{"llm": "model", "prompt": prompt}])
        engine = Engine(spec, log=tmp_path / "log.db", providers={"model": ScriptedProvider([reply])})
        async with open_client(make_site(engine)) as client:
            return await client.post("/api/conversations", json=body, headers=key("k1"))

    first = await post(body, "one", "In {{city}}.")
    assert first.json()["content"] == "one"
    for prompt in ("In {{city}}.", "Near {{city}}."):
        assert (await post(body, "two", prompt)).json() == first.json()
    for other in others:
        answer = await post(other, "two", "In {{city}}.")
        assert (answer.status_code, "another request" in answer.json()["error"]) == (422, True), other
