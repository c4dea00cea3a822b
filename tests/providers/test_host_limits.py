"""The limits of a host: calls wait for their turn, and proxy and certificates are those of the entry."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from host_answers import WHOLE_BODIES
from recorded_exchanges import find_endpoint
from simulation import VirtualLoop
from web import WebAnswer, serve_web
from wire_requests import LIBRARY_ENTRIES, QUESTION, make_config

from toolchart.providers.registry import create_body_builder, create_provider
from toolchart.providers.transport import connections, limits
from toolchart.providers.transport.limits import HostLimiter, find_limiter
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Message, Reply, Request, Usage

REQUEST = Request(model="m", messages=[QUESTION])
WIRES = ("openai", "openai responses", "ollama", "gemini", "anthropic")


class _VirtualClock:
    """The module `time` of the limiter, on the virtual time of the running loop."""

    @staticmethod
    def monotonic() -> float:
        return asyncio.get_running_loop().time()


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    """A loop in which waiting costs nothing, so that times are exact however busy the machine is."""
    monkeypatch.setattr(limits, "time", _VirtualClock)
    loop = VirtualLoop()
    yield loop
    loop.close()


async def time_calls(limiter: HostLimiter, count: int, tokens: int = 0, work_s: float = 0.0) -> list[float]:
    """The seconds after which each of several calls at once was admitted."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    request = Request(model="m", messages=[Message(role="user", content="x" * tokens * 4)])
    times: list[float] = []

    async def call() -> None:
        async with limiter.admit(request):
            times.append(round(loop.time() - start, 3))
            await asyncio.sleep(work_s)

    await asyncio.gather(*(call() for _ in range(count)))
    return times


def test_calls_of_a_minute_are_limited(virtual_time: VirtualLoop) -> None:
    """Issue 15, to build 4: in any window at most that many calls start, in their order; none starves."""
    times = virtual_time.run_until_complete(time_calls(HostLimiter(requests_per_minute=2), 6))
    assert times == [0, 0, 60, 60, 120, 120]


def test_tokens_of_a_minute_are_limited(virtual_time: VirtualLoop) -> None:
    """Issue 15, to build 4: estimated tokens count until the reply says how many they were."""
    run = virtual_time.run_until_complete
    assert run(time_calls(HostLimiter(tokens_per_minute=100), 3, tokens=60)) == [0, 60, 120]
    limiter = HostLimiter(tokens_per_minute=100)
    request = Request(model="m", messages=[QUESTION], options={"max_tokens": 80})

    async def make_short_calls() -> float:
        for _ in range(3):
            async with limiter.admit(request) as reservation:
                reservation.count_tokens(Reply(finish_reason="stop", usage=Usage(total=5)))
        return virtual_time.time()

    assert run(make_short_calls()) == pytest.approx(120, abs=0.01)  # three short calls wait for nothing more
    assert run(time_calls(HostLimiter(tokens_per_minute=10), 1, tokens=60)) == [0]


def test_calls_at_the_same_time_are_limited(virtual_time: VirtualLoop) -> None:
    """Issue 15, to build 4: `concurrent` calls run at once, and the next starts when one ends."""
    times = virtual_time.run_until_complete(time_calls(HostLimiter(concurrent=2), 4, work_s=0.2))
    assert times == [0, 0, 0.2, 0.2]


def test_a_cancelled_call_gives_its_place_back(virtual_time: VirtualLoop) -> None:
    """Issue 15, to build 4: a call that is cancelled while it waits leaves no gap."""
    limiter = HostLimiter(requests_per_minute=1, concurrent=3)

    async def cancel_the_second() -> list[float]:
        await time_calls(limiter, 1)
        waiting = asyncio.ensure_future(time_calls(limiter, 1))
        await asyncio.sleep(5)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return await time_calls(limiter, 1)

    assert virtual_time.run_until_complete(cancel_the_second()) == [55]


def test_a_limiter_serves_one_loop_after_the_other() -> None:
    """Issue 15, to build 4: the blocking engine begins a new event loop now and then."""
    limiter = HostLimiter(concurrent=1, requests_per_minute=10)
    for _ in range(2):
        assert len(asyncio.run(time_calls(limiter, 2, work_s=0.01))) == 2


def test_entries_of_one_host_share_a_limiter() -> None:
    """Issue 15, to build 4: the same address and limits are one limiter; without limits there is none."""
    first, second = (make_config("openai", model=name, requests_per_minute=3) for name in "ab")
    limiter = find_limiter(first, "http://h")
    assert limiter is find_limiter(second, "http://h")
    assert limiter is not find_limiter(second, "http://other")
    assert find_limiter(make_config("openai"), "http://h") is None


@pytest.mark.parametrize("entry", WIRES)
async def test_what_a_host_says_stops_every_call(entry: str) -> None:
    """Issue 15, to build 4: after `retry-after` no call of the entry starts until then, on every wire."""
    times: list[float] = []

    def answer(http_request: dict[str, Any]) -> WebAnswer:
        times.append(time.monotonic())
        if len(times) == 1:
            return 429, {"retry-after-ms": "400"}, b"{}"
        body = WHOLE_BODIES[find_endpoint(f"http://host.test{http_request['path']}")]
        return 200, {"content-type": "application/json"}, json.dumps(body).encode()

    with serve_web(answer) as server:
        config = make_config(entry, server.url, api_key="k", concurrent=4)
        provider = create_provider(config, resolve=str)
        with pytest.raises(ProviderError) as caught:
            await provider.complete(REQUEST)
        assert caught.value.retry_after_s == 0.4
        await asyncio.gather(*(provider.complete(REQUEST) for _ in range(2)))
        await provider.aclose()
    assert len(times) == 3
    assert times[1] - times[0] >= 0.35


@pytest.mark.parametrize("entry", WIRES)
async def test_calls_go_through_the_proxy_of_the_entry(entry: str) -> None:
    """Issue 15, to build 4: with `proxy` the proxy gets the request, with the host's full address."""

    def answer(http_request: dict[str, Any]) -> WebAnswer:
        body = WHOLE_BODIES[find_endpoint(http_request["path"])]
        return 200, {"content-type": "application/json"}, json.dumps(body).encode()

    with serve_web(answer) as proxy:
        config = make_config(entry, "http://model.invalid", api_key="k", proxy=proxy.url, max_connections=3)
        provider = create_provider(config, resolve=str)
        assert (await provider.complete(REQUEST)).content == "Hello there"
        await provider.aclose()
    assert proxy.requests[0]["path"].startswith("http://model.invalid/")


@pytest.mark.parametrize("entry", WIRES)
async def test_certificates_of_the_entry_are_used(entry: str, tmp_path: Path) -> None:
    """Issue 15, to build 4: a host of an own authority is trusted with `ca_file`, and not without it."""
    certificate = write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        body = json.dumps(WHOLE_BODIES[find_endpoint(f"http://host.test{path}")]).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    keys = {"ca_file": str(certificate), "client_certificate": str(certificate)}
    for more, kind in (({}, "connection"), (keys, "")):
        provider = create_provider(make_config(entry, address, api_key="k", **more), resolve=str)
        try:
            await provider.complete(REQUEST)
            failure = ""
        except ProviderError as error:
            failure = error.kind
        assert failure == kind
        await provider.aclose()
    server.close()


def write_certificate(folder: Path) -> Path:
    """A PEM file with the certificate of 127.0.0.1, which is its own authority, and the key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_bytes = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "all.pem"
    path.write_bytes(certificate.public_bytes(pem) + key_bytes)
    return path


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"proxy": "ftp:no"}, "proxy"),
        ({"ca_file": "absent.pem"}, "ca_file"),
        ({"client_certificate": "absent.pem"}, "client_certificate"),
    ],
)
@pytest.mark.parametrize("entry", LIBRARY_ENTRIES)
def test_wrong_connection_settings_are_spec_errors(entry: str, keys: dict[str, Any], path: str) -> None:
    """Issue 15, to build 4: a proxy that is no address and a missing file are named; a body needs neither."""
    config = make_config(entry, api_key="k", **keys)
    with pytest.raises(SpecError) as caught:
        create_provider(config, resolve=str)
    assert caught.value.path == f"llms.*.{path}"
    create_body_builder(config, resolve=str)


@pytest.mark.parametrize("place", ["entry", "environment"])
def test_a_socks_proxy_without_its_package_is_a_spec_error(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SOCKS proxy, of the entry or of the environment, names the package that it needs; its address, which
    may hold a password, is not said."""
    address = "socks5://ada:secret@127.0.0.1:1080"
    keys = {"proxy": address} if place == "entry" else {}
    if place == "environment":
        monkeypatch.setenv("ALL_PROXY", address)
    monkeypatch.setattr(connections, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match="socksio") as caught:
        create_provider(make_config("openai", api_key="k", **keys), resolve=str)
    assert "secret" not in str(caught.value)
