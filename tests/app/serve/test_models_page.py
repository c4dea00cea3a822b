"""The page of models: hosts, scores, prices and limits, and never a key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, make_spec, reply_with_calls
from served import make_site, open_client
from web import WebAnswer, serve_web

from toolchart.app.server.site import Site, SiteSettings
from toolchart.app.studio.pages.tools import clean_address
from toolchart.engine import Engine
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.figures import find_seen_limits

KEY = "sk-planted-by-a-test-and-no-real-key"
PRICES: dict[str, Any] = {"currency": "EUR", "models": {"m*": {"input": 0.4, "output": 1.6}}}
HEADERS = {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59"}


def answer_request(request: dict[str, Any]) -> WebAnswer:
    """A host with one model, which says how many requests are left."""
    models = {"data": [{"id": "offered-model"}]}
    reply = {"model": "m", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    body = models if request["path"].endswith("/models") else reply
    return 200, {"Content-Type": "application/json", **HEADERS}, json.dumps(body).encode()


def make_served(engine: Engine, folder: Path) -> Site:
    """A site whose scores are in a folder of this test."""
    return make_site(engine, settings=SiteSettings(results=str(folder / "models.json")))


def make_host_engine(port: int) -> Engine:
    """An engine with a host on loopback, whose address and key hold secrets."""
    address = f"http://me:{KEY}@127.0.0.1:{port}/v1"
    entry = {"provider": "openai", "model": "m", "base_url": address, "api_key": KEY}
    spec = make_spec(llms={"main": entry, "bare": {"provider": "ollama"}}, prices=PRICES, tools=None)
    return Engine({**spec, "responses": [{"llm": "main"}]}, log="memory")


def read_text(page: str) -> str:
    """The text of a page, without tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


async def test_hosts_show_their_limits_and_prices_and_no_key(tmp_path: Path) -> None:
    """Each host has its address, what it said about its limits, and its models with prices; neither its key
    nor a password in its address stands anywhere in the page."""
    with serve_web(answer_request) as server:
        engine = make_host_engine(server.port)
        async with open_client(make_served(engine, tmp_path), "viewer") as client:
            before = read_text((await client.get("/models")).text)
            await engine.arun("hi", conversation="c")
            page = (await client.get("/models")).text
    text = read_text(page)
    assert "requests 59 of 60 left" not in before
    assert "requests 59 of 60 left" in text
    assert f"http://127.0.0.1:{server.port}/v1" in text
    assert "not tested" in text
    assert "0.4 as input 1.6" in text
    assert "EUR per million tokens" in text
    assert "The spec names no model of this host" in text
    assert KEY not in page


async def test_a_model_shows_its_context_and_what_its_tests_gave(tmp_path: Path) -> None:
    """A test in the bench counts on the page: a badge, how many succeeded, and when."""
    entry = {"provider": "scripted", "model": "m", "replies": ["unused"], "context_limit": 8000}
    engine = make_engine([reply_with_calls(("echo", {"text": "a"})), "done"], llms={"model": entry})
    async with open_client(make_served(engine, tmp_path)) as client:
        assert "not tested 8,000" in read_text((await client.get("/models")).text)
        body = {"llm": "model", "model": "m", "query": "echo a"}
        assert (await client.post("/api/tools/test", json=body)).status_code == 200
        text = read_text((await client.get("/models")).text)
    assert re.search(r"validated 1 of 1 \d{4}-\d\d-\d\d \d\d:\d\d:\d\d 8,000 no price", text)


async def test_a_host_is_asked_by_the_name_of_its_entry(tmp_path: Path) -> None:
    """Whoever may chat asks a host of the agent which models it offers; an unknown name reaches no host."""
    with serve_web(answer_request) as server:
        site = make_served(make_host_engine(server.port), tmp_path)
        async with open_client(site) as client:
            answer = await client.post("/api/models/main/offered", json={})
            unknown = await client.post("/api/models/elsewhere/offered", json={})
        count = len(server.requests)
    assert [model["name"] for model in answer.json()["models"]] == ["offered-model"]
    assert (unknown.status_code, count) == (404, 1)
    assert "main, bare" in unknown.json()["error"]


async def test_who_may_only_read_asks_no_host(tmp_path: Path) -> None:
    """A request to a host costs, so it needs the role chat."""
    with serve_web(answer_request) as server:
        async with open_client(make_served(make_host_engine(server.port), tmp_path), "viewer") as client:
            assert (await client.post("/api/models/main/offered", json={})).status_code == 403
        assert server.requests == []


def test_limits_are_those_of_the_newest_answer_of_each_host() -> None:
    """Of several answers the newest counts, under the entry that the effect asked; a damaged conversation
    hides nothing of the others."""
    store = MemoryStore()
    left = iter([59, 58, 57])

    def count_down(request: dict[str, Any]) -> WebAnswer:
        status, headers, body = answer_request(request)
        return status, {**headers, "x-ratelimit-remaining-requests": str(next(left))}, body

    with serve_web(count_down) as server:
        entry = {"provider": "openai", "model": "m", "base_url": f"http://127.0.0.1:{server.port}/v1"}
        entry["api_key"] = KEY
        effects = {"ask": {"call_model": {"llm": "other", "model": "m"}}}
        spec = make_spec(llms={"main": entry, "other": entry}, tools=None, responses=[{"llm": "main"}])
        asking = {"prompting": {"enter": "ask"}}
        chart = {"name": "asking", "extends": "tool_loop", "states": asking}
        with Engine(spec, log=store) as engine:
            engine.run("hi", conversation="a")
            engine.run("hi", conversation="b")
        with Engine({**spec, "chart": chart, "effects": effects}, log=store) as engine:
            engine.run("hi", conversation="c")
    store._lines["damaged"] = [b"{no record"]
    seen = find_seen_limits(store, ["damaged", "c", "b", "a"])
    remaining = {name: item.limits["requests"]["remaining"] for name, item in seen.items()}
    assert remaining == {"main": 58, "other": 57}


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("", ""),
        ("${HOST_ADDRESS}", "${HOST_ADDRESS}"),
        ("https://host.example/v1", "https://host.example/v1"),
        ("https://me:secret@host.example:8080/v1?key=secret#secret", "https://host.example:8080/v1"),
        ("https://[broken/secret", ""),
    ],
)
def test_an_address_is_shown_without_secrets(address: str, shown: str) -> None:
    """User, password, query and fragment are left out; an address that cannot be read is not shown."""
    assert clean_address(address) == shown
