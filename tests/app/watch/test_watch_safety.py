"""The watching proxy writes no key, serves programs of this machine alone, and asks only its hosts."""

from __future__ import annotations

import asyncio
import base64
import logging

import httpx2
import msgspec
import pytest
from proxied_hosts import WAIT_S, Call, run_proxy, serve_host

from toolchart.app.watch.proxy import Proxy
from toolchart.states.errors import SpecError

KEY = "sk-watched/key+0123456789abcdef"


def make_client() -> httpx2.AsyncClient:
    """A client that is no part of the proxy."""
    return httpx2.AsyncClient(timeout=WAIT_S, trust_env=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorization", f"Bearer {KEY}"),
        ("authorization", "Basic " + base64.b64encode(f"user:{KEY}".encode()).decode()),
        ("x-api-key", KEY),
        ("x-goog-api-key", KEY),
        ("api-key", KEY),
        ("cookie", KEY),
        ("?key", KEY),
    ],
)
async def test_a_key_is_in_no_field(name: str, value: str, caplog: pytest.LogCaptureFixture) -> None:
    """A key of a header or a query, quoted by the host and told to the model, is struck everywhere."""
    caplog.set_level(logging.DEBUG)

    async def answer(call: Call) -> None:
        await call.send_whole(
            "401 No", f'{{"error": "the key {KEY} is wrong"}}'.encode(), "Content-Type: a/b"
        )

    query = {"key": KEY, "alt": "sse"} if name == "?key" else {}
    headers = {} if name == "?key" else {name: value}
    path = "/gemini/v1beta/models/gemini-3-pro:generateContent"
    async with serve_host(answer) as host, run_proxy(gemini=host.url) as watch, make_client() as client:
        body = {"contents": f"my key is {KEY}"}
        passed = await client.post(watch.url + path, params=query, headers=headers, json=body)
        exchange = await watch.read_one()
    assert KEY in passed.text  # the program gets what the host said
    if headers:
        assert host.calls[0].find(name) == [value]
    else:
        assert "key=sk-watched%2Fkey%2B0123456789abcdef&alt=sse" in host.calls[0].target
        assert exchange.path == f"{path.removeprefix('/gemini')}?key=(secret)&alt=sse"
    # Not what the test's own client writes, which is no part of the proxy.
    lines = [record.getMessage() for record in caplog.records if record.name != "httpx2"]
    written = repr(msgspec.structs.asdict(exchange)) + "\n".join(lines)
    assert all(text not in written for text in (KEY, value, "key%2B0123456789abcdef"))
    assert b"(secret) is wrong" in exchange.answer


async def test_a_key_is_in_no_words_about_failures() -> None:
    """What is said of an unreachable host, and of a path that has none, holds no query."""
    async with run_proxy(gemini="http://127.0.0.1:1") as watch, make_client() as client:
        for path in ("/gemini/v1beta/models/m:generateContent", "/nowhere"):
            refused = await client.post(f"{watch.url}{path}?key={KEY}", json={}, headers={"api-key": KEY})
            assert refused.status_code in (404, 502)
            assert "0123456789abcdef" not in refused.text
        exchange = await watch.read_one()
        assert "0123456789abcdef" not in repr(exchange) + repr(watch.proxy.refusals)


@pytest.mark.parametrize(
    ("headers", "is_passed"),
    [
        ({"host": "evil.example"}, False),
        ({"host": "127.0.0.1.evil.example:80"}, False),
        ({"host": "10.0.0.1:80"}, False),
        ({"host": "localhost"}, True),
        ({"host": "[::1]:9"}, True),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://localhost:3000"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-mode": "cors"}, True),  # Node's fetch
    ],
)
async def test_pages_of_others_are_refused(headers: dict[str, str], is_passed: bool) -> None:
    """A name in `Host` that is not this machine's, and a foreign `Origin`, reach no host."""

    async def answer(call: Call) -> None:
        await call.send_whole("200 OK", b"{}")

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        passed = await client.get(f"{watch.url}/openai/v1/models", headers=headers)
        assert (passed.status_code == 200) == is_passed == bool(host.calls)
        if not is_passed:
            assert passed.status_code == 403
            assert watch.sink.exchanges == []


async def test_what_has_no_host_is_refused_in_words() -> None:
    """An unknown path gets 404, and a WebSocket 501; both are counted, and are no exchanges."""
    async with run_proxy(openai="http://127.0.0.1:1/v1") as watch, make_client() as client:
        unknown = await client.get(f"{watch.url}/elsewhere")
        upgrade = {"connection": "upgrade", "upgrade": "websocket"}
        socket = await client.get(f"{watch.url}/openai/v1/responses", headers=upgrade)
        assert (unknown.status_code, socket.status_code) == (404, 501)
        assert "no model host has the path /elsewhere" in unknown.json()["error"]["message"]
        assert "WebSockets are not passed on" in socket.json()["error"]["message"]
        assert sum(watch.proxy.refusals.values()) == 2
        assert watch.sink.exchanges == []


async def test_offline_mode_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TOOLCHART_OFFLINE=1 a remote host is not contacted, and one of this machine is."""
    monkeypatch.setenv("TOOLCHART_OFFLINE", "1")

    async def answer(call: Call) -> None:
        await call.send_whole("200 OK", b"{}")

    hosts = {"anthropic": "https://api.anthropic.com"}
    async with (
        serve_host(answer) as host,
        make_client() as client,
        run_proxy(openai=f"{host.url}/v1", **hosts) as watch,
    ):
        assert (await client.post(f"{watch.url}/openai/v1/responses", json={})).status_code == 200
        refused = await client.post(f"{watch.url}/anthropic/v1/messages", json={})
    assert refused.status_code == 403
    assert "TOOLCHART_OFFLINE" in refused.json()["error"]["message"]


async def test_the_operator_s_proxy_is_used_for_other_machines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY and HTTPS_PROXY hold for hosts elsewhere, and never for those of this machine."""

    async def answer(call: Call) -> None:
        if call.method == "CONNECT":
            await call.send_whole("407 No", b"")
        else:
            await call.send_whole("200 OK", call.target.encode())

    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with serve_host(answer) as between, serve_host(answer) as host, make_client() as client:
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.delenv(name.lower(), raising=False)
            monkeypatch.setenv(name, between.url)
        hosts = {
            "openai": f"{host.url}/v1",
            "anthropic": "http://far.example",
            "gemini": "https://far.example",
        }
        async with run_proxy(**hosts) as watch:
            here = await client.post(f"{watch.url}/openai/v1/responses?a=1", json={})
            far = await client.post(f"{watch.url}/anthropic/v1/messages?a=1", json={})
            tls = await client.post(f"{watch.url}/gemini/v1beta/models/m:generateContent", json={})
    assert here.text == "/v1/responses?a=1"
    assert far.text == "http://far.example/v1/messages?a=1"
    assert tls.status_code == 502
    assert [call.target for call in between.calls if call.method == "CONNECT"] == ["far.example:443"]


async def test_an_unusable_proxy_is_refused_without_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that holds no address of a proxy is an error that names it."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("https_proxy", f"gopher://user:{KEY}@far.example")
    with pytest.raises(SpecError, match="HTTPS_PROXY or ALL_PROXY") as caught:
        Proxy({"openai": "https://far.example/v1"}, sink=None)  # type: ignore[arg-type]
    assert KEY not in str(caught.value)


async def test_the_proxy_keeps_no_cookies() -> None:
    """What a host tells one program to remember is not sent for another one."""

    async def answer(call: Call) -> None:
        await call.send_whole("200 OK", b"{}", "Set-Cookie: who=first")

    async with serve_host(answer) as host, run_proxy(openai=f"{host.url}/v1") as watch:
        for _ in range(2):
            async with make_client() as client:
                await client.post(f"{watch.url}/openai/v1/responses", json={})
    assert [call.find("cookie") for call in host.calls] == [[], []]


async def test_only_loopback_is_bound() -> None:
    """The proxy is not reached by another address of the machine."""
    async with run_proxy(openai="http://127.0.0.1:1/v1") as watch:
        with pytest.raises(OSError):  # noqa: PT011  the system's own words
            await asyncio.wait_for(asyncio.open_connection("127.0.0.2", watch.port), WAIT_S)
