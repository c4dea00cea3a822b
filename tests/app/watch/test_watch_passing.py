"""What passes the watching proxy is what passes without it: bytes, headers, statuses, breaks."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
from proxied_hosts import WAIT_S, Call, run_proxy, serve_host

from toolchart.app.watch import kept_bodies
from toolchart.states.reading_limits import READING
from toolchart.testing.emulators import emulate_host

KEY = "sk-secret-0123456789abcdef"

_TURN = [{"role": "user", "content": "hello"}]
_TOOL = {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}

WIRES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "chat": ("openai", "/openai/v1/chat/completions", {"messages": _TURN}, {"stream": True}),
    "responses": ("openai", "/openai/v1/responses", {"input": _TURN}, {"stream": True}),
    "messages": (
        "anthropic",
        "/anthropic/v1/messages",
        {"messages": _TURN, "max_tokens": 99},
        {"stream": True},
    ),
    "ollama": ("ollama", "/ollama/api/chat", {"messages": _TURN, "stream": False}, {"stream": True}),
    "gemini": (
        "gemini",
        "/gemini/v1beta/models/gemini-3-pro:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]},
        {},
    ),
}
"""For each wire format its host, a path, a body, and what makes it a stream."""


def make_client() -> httpx2.AsyncClient:
    """A client that is no part of the proxy."""
    return httpx2.AsyncClient(timeout=WAIT_S, trust_env=False)


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_wire_passes_byte_for_byte(wire: str, is_streamed: bool) -> None:
    """Each wire format, whole and streamed: the program and the record have the very bytes of the host."""
    host, path, body, streaming = WIRES[wire]
    if is_streamed and wire == "gemini":
        path = path.replace(":generate", ":streamGenerate") + "?alt=sse"
    headers = {"authorization": f"Bearer {KEY}", "x-api-key": KEY, "anthropic-version": "2023-06-01"}
    with emulate_host(host) as bare, emulate_host(host) as watched:
        sent = {"model": bare.model, **body, **(streaming if is_streamed else {})}
        sent = {key: value for key, value in sent.items() if wire != "gemini" or key != "model"}
        base = watched.base_url if host == "openai" else f"http://127.0.0.1:{watched.port}"
        direct = bare.base_url.removesuffix("/v1") + path.removeprefix(f"/{host}")
        async with run_proxy(**{host: base}) as watch, make_client() as client:
            expected = await client.post(direct, json=sent, headers=headers)
            answer = await client.post(watch.url + path, json=sent, headers=headers)
            exchange = await watch.read_one()
    assert expected.status_code == 200, expected.text
    assert (answer.status_code, answer.content) == (200, expected.content)
    assert answer.headers["content-type"] == expected.headers["content-type"] == exchange.content_type
    assert (exchange.wire, exchange.host, exchange.method) == (wire, base, "POST")
    assert exchange.path == path.removeprefix(f"/{host}")
    assert (exchange.request, exchange.answer) == (answer.request.content, expected.content)
    assert (exchange.status, exchange.is_streamed, exchange.is_cut) == (200, is_streamed, False)
    assert exchange.problem == ""
    assert exchange.first_ms is not None
    assert exchange.first_ms <= exchange.duration_ms


async def test_chunks_pass_one_by_one() -> None:
    """A chunk reaches the program before the host sends the next one."""
    may_go_on = asyncio.Event()

    async def answer(call: Call) -> None:
        await call.begin_stream()
        for number in range(5):
            await call.send_chunk(b"data: %d\n\n" % number)
            async with asyncio.timeout(WAIT_S):
                await may_go_on.wait()
            may_go_on.clear()
        await call.send_chunk(b"")

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        async with client.stream("POST", f"{watch.url}/openai/v1/responses", json={}) as stream:
            number = 0
            async for chunk in stream.aiter_raw():
                assert chunk == b"data: %d\n\n" % number
                assert watch.sink.exchanges == []
                number += 1
                may_go_on.set()
        exchange = await watch.read_one()
    assert number == 5
    assert exchange.answer == b"".join(b"data: %d\n\n" % number for number in range(5))


async def test_headers_of_the_answer_pass_before_its_body() -> None:
    """The program knows the status while the host thinks about the first token."""
    may_speak = asyncio.Event()

    async def answer(call: Call) -> None:
        await call.begin_stream()
        await may_speak.wait()
        await call.send_chunk(b"")

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        async with client.stream("POST", f"{watch.url}/openai/v1/responses", json={}) as stream:
            assert stream.status_code == 200
            may_speak.set()
            assert await stream.aread() == b""
        assert (await watch.read_one()).first_ms is None


async def test_a_program_that_breaks_off_ends_the_request_at_the_host() -> None:
    """The host's connection closes, and the exchange is noted as cut with what had passed."""
    is_closed = asyncio.Event()

    async def answer(call: Call) -> None:
        await call.begin_stream()
        await call.send_chunk(b"data: 1\n\n")
        await call.wait_closed()
        is_closed.set()

    async with serve_host(answer) as host, run_proxy(openai=f"{host.url}/v1") as watch:
        url = f"{watch.url}/openai/v1/responses"
        async with make_client() as client, client.stream("POST", url, json={}) as stream:
            async for _ in stream.aiter_raw():
                break
        exchange = await watch.read_one()
        async with asyncio.timeout(WAIT_S):
            await is_closed.wait()
    assert (exchange.status, exchange.answer, exchange.is_cut) == (200, b"data: 1\n\n", True)
    assert "the program ended" in exchange.problem


async def test_a_program_that_leaves_before_the_answer_ends_the_request_too() -> None:
    """Nobody waits for a host whose answer nobody takes."""
    is_asked, is_closed = asyncio.Event(), asyncio.Event()

    async def answer(call: Call) -> None:
        is_asked.set()
        await call.wait_closed()
        is_closed.set()

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        asking = asyncio.create_task(client.post(f"{watch.url}/openai/v1/responses", json={}))
        async with asyncio.timeout(WAIT_S):
            await is_asked.wait()
            asking.cancel()
            await is_closed.wait()
        exchange = await watch.read_one()
    assert (exchange.status, exchange.is_cut) == (0, True)
    assert "the program ended" in exchange.problem


@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_a_host_that_breaks_off_breaks_the_program_s_connection(
    framing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A cut answer never looks like a whole one, in chunks or of known length; no line is logged about it."""

    async def answer(call: Call) -> None:
        if framing == "chunked":
            await call.begin_stream()
            await call.send_chunk(b"data: 1\n\n")
        else:
            await call.begin("200 OK", "Content-Type: application/json", "Content-Length: 999")
            call.writer.write(b"data: 1\n\n")
        raise ConnectionError

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        parts: list[bytes] = []

        async def read() -> None:
            async with client.stream("POST", f"{watch.url}/openai/v1/responses", json={}) as stream:
                async for chunk in stream.aiter_raw():
                    parts.append(chunk)

        with pytest.raises(httpx2.RemoteProtocolError):
            await read()
        exchange = await watch.read_one()
    assert b"".join(parts) == exchange.answer == b"data: 1\n\n"
    assert exchange.is_cut
    assert "broke off its answer" in exchange.problem
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []


async def test_a_cut_stream_looks_cut_to_an_old_client() -> None:
    """HTTP/1.0 knows an end by the end of the connection: a cut answer is torn down instead."""
    may_break = asyncio.Event()

    async def answer(call: Call) -> None:
        await call.begin_stream()
        await call.send_chunk(b"data: 1\n\n")
        await may_break.wait()
        raise ConnectionError

    async with serve_host(answer) as host, run_proxy(openai=f"{host.url}/v1") as watch:
        reader, writer = await asyncio.open_connection("127.0.0.1", watch.port)
        writer.write(b"POST /openai/v1/responses HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
        async with asyncio.timeout(WAIT_S):
            assert b"data: 1" in await reader.readuntil(b"\n\n")
            may_break.set()
            with pytest.raises(ConnectionResetError):
                await reader.read()
        writer.close()


async def test_a_host_that_does_not_answer_is_said_so() -> None:
    """Refused connections and those that close without an answer give 502 with words, and status 0."""

    async def answer(call: Call) -> None:
        raise ConnectionError

    async with serve_host(answer) as host, run_proxy(openai=host.url, ollama="http://127.0.0.1:1") as watch:
        async with make_client() as client:
            for path in ("/openai/v1/responses", "/ollama/api/chat"):
                refused = await client.post(watch.url + path, json={})
                assert refused.status_code == 502
                assert "did not answer" in refused.json()["error"]["message"]
        exchanges = await watch.sink.wait_for(2)
    assert [(one.status, one.is_cut, one.answer) for one in exchanges] == [(0, False, b"")] * 2
    assert all("did not answer" in one.problem for one in exchanges)


@pytest.mark.parametrize("status", ["429 Too Many Requests", "500 Oh", "401 No", "307 There"])
async def test_every_status_passes(status: str) -> None:
    """Refusals, failures and redirects are the host's own, with their headers; nothing is followed."""
    body = b'{"error": "as the host says"}'

    async def answer(call: Call) -> None:
        await call.send_whole(
            status, body, "Retry-After: 7", "Location: https://elsewhere.example/", "X-A: b"
        )

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        passed = await client.post(f"{watch.url}/openai/v1/responses", json={})
        exchange = await watch.read_one()
    assert (passed.status_code, passed.content) == (int(status[:3]), body)
    assert (passed.headers["retry-after"], passed.headers["x-a"]) == ("7", "b")
    assert passed.headers["location"] == "https://elsewhere.example/"
    assert len(host.calls) == 1
    assert (exchange.status, exchange.answer, exchange.problem) == (int(status[:3]), body, "")


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "PATCH", "OPTIONS"])
async def test_every_method_passes(method: str) -> None:
    """Lists, files and deletions pass too; they ask no model."""

    async def answer(call: Call) -> None:
        if method in ("HEAD", "DELETE"):
            await call.begin("204 No Content", "X-Method: " + call.method)
        else:
            await call.send_whole("200 OK", b"[]", "X-Method: " + call.method)

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        content = b"new" if method in ("PUT", "PATCH") else None
        passed = await client.request(method, f"{watch.url}/openai/v1/files/f%2F1?a=%20b", content=content)
        exchange = await watch.read_one()
    assert passed.headers["x-method"] == method
    assert (host.calls[0].target, host.calls[0].body) == ("/v1/files/f%2F1?a=%20b", content or b"")
    assert (exchange.wire, exchange.method, exchange.path) == ("", method, "/v1/files/f%2F1?a=%20b")
    assert exchange.request == (content or b"")


async def test_headers_pass_both_ways() -> None:
    """All but those of one connection: repeated ones stay repeated, and nothing is added."""

    async def answer(call: Call) -> None:
        await call.send_whole(
            "200 OK",
            b"{}",
            "Set-Cookie: a=1",
            "Set-Cookie: b=2",
            "Connection: x-hop",
            "X-Hop: 1",
            "Date: then",
        )

    request = (
        b"POST /openai/v1/responses HTTP/1.1\r\nHost: localhost:1\r\nAuthorization: Bearer k\r\nX-Own: 1\r\n"
        b"x-own: 2\r\nTE: trailers\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nAccept-Encoding: br\r\n"
        b"X-Session-Id: s-1\r\nContent-Length: 2\r\n\r\n{}"
    )
    async with serve_host(answer) as host, run_proxy(openai=f"{host.url}/v1") as watch:
        reader, writer = await asyncio.open_connection("127.0.0.1", watch.port)
        writer.write(request)
        async with asyncio.timeout(WAIT_S):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        exchange = await watch.read_one()
    assert body == b"{}"
    assert head.lower().split(b"\r\n")[1:] == [
        *(b"set-cookie: a=1", b"set-cookie: b=2", b"date: then", b"content-length: 2", b"connection: close")
    ]
    assert sorted(host.calls[0].headers) == sorted(
        [
            *[("host", host.url.removeprefix("http://")), ("authorization", "Bearer k"), ("x-own", "1")],
            *[
                ("x-own", "2"),
                ("accept-encoding", "identity"),
                ("x-session-id", "s-1"),
                ("content-length", "2"),
            ],
        ]
    )
    assert exchange.session == "s-1"


def _deflate_raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", _deflate_raw)],
    ids=["gzip", "deflate", "raw deflate"],
)
async def test_encoded_answers_pass_and_are_recorded_plain(encoding: str, encode: Any) -> None:
    """A host that encodes unasked: the program gets its bytes, the record what they mean."""
    plain = json.dumps({"text": "word " * 5000}).encode()

    async def answer(call: Call) -> None:
        assert call.find("accept-encoding") == ["identity"]
        await call.send_whole("200 OK", encode(plain), f"Content-Encoding: {encoding}")

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        passed = await client.post(f"{watch.url}/openai/v1/responses", json={})
        exchange = await watch.read_one()
    assert (passed.content, passed.headers["content-encoding"]) == (plain, encoding)
    assert (exchange.answer, exchange.is_cut, exchange.problem) == (plain, False, "")


async def test_encoded_requests_are_recorded_plain() -> None:
    """A program may encode what it sends; the host gets it so, and the record what it means."""
    body = b'{"input": "hello"}'

    async def answer(call: Call) -> None:
        await call.send_whole("200 OK", b"{}")

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        headers = {"content-encoding": "gzip"}
        sent = gzip.compress(body)
        await client.post(f"{watch.url}/openai/v1/responses", content=sent, headers=headers)
        exchange = await watch.read_one()
    assert host.calls[0].body == sent
    assert host.calls[0].find("content-encoding") == ["gzip"]
    assert (exchange.request, exchange.problem) == (body, "")


@pytest.mark.parametrize(("encoding", "words"), [("br", "'br'"), ("gzip", "not what its encoding")])
async def test_what_cannot_be_decoded_is_said(encoding: str, words: str) -> None:
    """An unknown encoding, or bytes that are not what they say: they pass, and the record says so."""

    async def answer(call: Call) -> None:
        await call.send_whole("200 OK", b"not that", f"Content-Encoding: {encoding}")

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        async with client.stream("POST", f"{watch.url}/openai/v1/responses", json={}) as stream:
            passed = b"".join([chunk async for chunk in stream.aiter_raw()])
        exchange = await watch.read_one()
    assert passed == b"not that"
    assert (exchange.answer, exchange.is_cut) == (b"", True)
    assert words in exchange.problem


async def test_large_bodies_pass() -> None:
    """Eight megabytes each way, in chunks of no known length, whole and recorded whole."""
    data = bytes(range(256)) * (32 * 1024)

    async def upload() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 50_000):
            yield data[start : start + 50_000]

    async def answer(call: Call) -> None:
        await call.begin_stream("application/octet-stream")
        await call.send_chunk(call.body)
        await call.send_chunk(b"")

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        passed = await client.post(f"{watch.url}/openai/v1/files", content=upload())
        exchange = await watch.read_one()
    assert passed.content == data
    assert exchange.request == exchange.answer == data


async def test_what_is_larger_than_the_limit_passes_unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `reply_bytes` all passes; the record has the beginning of the answer, and says so."""
    monkeypatch.setattr(kept_bodies, "READING", msgspec.structs.replace(READING, reply_bytes=1000))
    data = b"x" * 300_000

    async def answer(call: Call) -> None:
        await call.send_whole("200 OK", call.body)

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        passed = await client.post(f"{watch.url}/openai/v1/responses", content=data)
        exchange = await watch.read_one()
    assert passed.content == data
    assert (exchange.request, exchange.answer, exchange.is_cut) == (b"", b"x" * 1000, True)
    assert "the request is larger than 1,000 bytes" in exchange.problem
    assert "the answer is larger than 1,000 bytes" in exchange.problem


async def test_a_program_that_reads_slowly_slows_the_host() -> None:
    """What the program does not read stays with the host: the proxy holds back, and loses nothing."""
    total, piece = 96, b"x" * 2**20
    sent = 0

    async def answer(call: Call) -> None:
        nonlocal sent
        await call.begin_stream()
        for _ in range(total):
            await call.send_chunk(piece)
            sent += 1
        await call.send_chunk(b"")

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
        client.stream("POST", f"{watch.url}/openai/v1/responses", json={}) as stream,
    ):
        before = -1
        while before < sent < total:  # until the host comes no further
            before = sent
            await asyncio.sleep(0.3)
        assert sent < total
        size = 0
        async for chunk in stream.aiter_raw():
            size += len(chunk)
    assert size == total * len(piece)


async def test_requests_pass_side_by_side() -> None:
    """Twenty requests are with the host at once; each has its own number, connection and bodies."""
    count = 20
    all_there = asyncio.Event()

    async def answer(call: Call) -> None:
        if len(host.calls) == count:
            all_there.set()
        async with asyncio.timeout(WAIT_S):
            await all_there.wait()
        await call.send_whole("200 OK", call.body)

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        url = f"{watch.url}/openai/v1/responses"
        answers = await asyncio.gather(*(client.post(url, content=b"%d" % n) for n in range(count)))
        exchanges = list(await watch.sink.wait_for(count))
        # A client that keeps its connection is known by it.
        await client.post(url, content=b"again")
        later = (await watch.sink.wait_for(count + 1))[-1]
    assert [one.content for one in answers] == [b"%d" % n for n in range(count)]
    assert {one.number for one in exchanges} == set(range(1, count + 1))
    assert {one.connection for one in exchanges} == set(range(1, count + 1))
    assert all(one.request == one.answer for one in exchanges)
    assert (later.number, later.connection <= count) == (count + 1, True)


async def test_exchanges_under_way_at_the_end_are_cut_and_noted() -> None:
    """Watching that ends waits a while, then cuts what goes on; no exchange is lost."""

    async def answer(call: Call) -> None:
        await call.begin_stream()
        await call.send_chunk(b"data: 1\n\n")
        await call.wait_closed()

    async with make_client() as client, serve_host(answer) as host:
        async with run_proxy(grace_s=0, openai=f"{host.url}/v1") as watch:
            request = client.build_request("POST", f"{watch.url}/openai/v1/responses", json={})
            stream = await client.send(request, stream=True)
            chunks = stream.aiter_raw()
            assert await anext(chunks) == b"data: 1\n\n"
        with pytest.raises(httpx2.HTTPError):
            await anext(chunks)
    (exchange,) = watch.sink.exchanges
    assert (exchange.answer, exchange.is_cut) == (b"data: 1\n\n", True)
    assert "watching ended" in exchange.problem


async def test_a_sink_that_fails_is_no_matter_of_the_program() -> None:
    """The answer passes all the same, and the failure is kept for whoever runs the proxy."""

    async def answer(call: Call) -> None:
        await call.send_whole("200 OK", b"{}")

    def fail(exchange: object) -> None:
        raise OSError("the disk is full")

    async with (
        serve_host(answer) as host,
        run_proxy(openai=f"{host.url}/v1") as watch,
        make_client() as client,
    ):
        watch.sink.note = fail  # type: ignore[method-assign]
        for _ in range(2):
            assert (await client.post(f"{watch.url}/openai/v1/responses", json={})).status_code == 200
        await watch.proxy.finish(WAIT_S)
        failures = [str(error) for error in watch.proxy.sink_failures]
        watch.proxy.sink_failures.clear()
    assert failures == ["the disk is full"] * 2
