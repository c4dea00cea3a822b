"""The recording proxy: an ASGI application that passes requests to model hosts, and answers back.

What passes is not changed: method, path, query, body and headers, keys too, go to the host, and its status,
headers and body to the program, each chunk as it comes. Left out are the headers that belong to one
connection (RFC 9110, 7.6.1), `Host`, and `Accept-Encoding`: hosts are asked for plain bytes. A host that
encodes all the same is passed as it is, and decoded for the record alone.

    program --receive--> pump --queue--> _forward --httpx2--> host
       ^                   `- ends when the program has gone: then `_forward` is cancelled
       `------- send <------- each chunk, also kept ------------'

Chunks are never collected before they are sent. Back-pressure holds in both directions: `send` waits while
the program does not read, and the host is not read meanwhile; the queue of the pump has few places, and the
program's socket is not read while they are taken.

An answer that breaks off is never ended properly: the application returns without a last message, at which
the server closes the connection.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from toolchart.app.watch.kept_bodies import KeptBody
from toolchart.app.watch.routes import Route, find_route
from toolchart.engine.runtime.clock import SystemClock
from toolchart.engine.watching.exchanges import Exchange, ExchangeSink
from toolchart.providers.entries import is_local_address, refuse_remote_address
from toolchart.specs.secrets import (
    find_spec_secrets,
    hide_secrets,
    remember_secret,
    strike_secret_bytes,
    strike_secrets,
)
from toolchart.states.errors import SpecError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
"""Headers of one connection. Source: RFC 9110, 7.6.1; the two names with `proxy-` of old clients too."""

_NOT_FOR_HOSTS = _HOP_BY_HOP | {b"host", b"accept-encoding", b"expect"}
"""`expect` is answered here: the server says `100 Continue` before the body is read."""

_STREAM_TYPES = ("text/event-stream", "application/x-ndjson")

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")

_PROGRAM_GONE = "the program ended the exchange before its end"
_WATCH_ENDED = "watching ended before the answer did"
_WATCH_OVER = "watching has ended"

_QUEUE_SIZE = 16
"""Pieces of a request's body that wait for the host. The pump sees that the program has gone only while there
is a place."""


class Upstream:
    """A model host: where it is, and its connections."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.shown = hide_secrets(address)
        """The base address without secrets."""
        parts = urlsplit(address)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._base_path = parts.path.rstrip("/")
        self._proxy = _find_proxy(address)
        # A proxy for plain HTTP is asked with the whole address, which the library writes.
        self._sends_exact_path = self._proxy is None or parts.scheme == "https"
        self._is_tls = parts.scheme == "https"
        self._transport: httpx2.AsyncHTTPTransport | None = None
        self.refusal = ""
        """Why it must not be contacted; empty: it may."""
        try:
            refuse_remote_address(address, name)
        except SpecError as error:
            self.refusal = error.message

    async def ask(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: Headers,
        content: bytes | AsyncIterator[bytes] | None,
    ) -> httpx2.Response:
        """The answer of the host, as soon as its headers are there.

        Raises:
            httpx2.HTTPError: the host cannot be reached, or broke off.
        """
        if self._transport is None:
            self._transport = httpx2.AsyncHTTPTransport(
                verify=httpx2.create_ssl_context()
                if self._is_tls
                else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
                proxy=self._proxy,
            )
        target = (self._base_path + path).encode("ascii") + (b"?" + query if query else b"")
        # Not by the client above it: that has headers and cookies of its own, and logs addresses with keys.
        request = httpx2.Request(
            method,
            self._origin + (target.decode("ascii") or "/"),
            headers=[*headers, (b"accept-encoding", b"identity")],
            content=content,
            # So that the path goes as it came: the library would write some characters in another way. No
            # timeout: how long a host may take, the program decides.
            extensions={"target": target or b"/"} if self._sends_exact_path else {},
        )
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close its connections."""
        if self._transport is not None:
            await self._transport.aclose()


def _find_proxy(address: str) -> httpx2.Proxy | None:
    """The proxy of the environment for an address; None for one of this machine.

    Raises:
        SpecError: the variable holds no address of a proxy that can be used.
    """
    parts = urlsplit(address)
    if is_local_address(address) or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    try:
        return httpx2.Proxy(proxy if "://" in proxy else f"http://{proxy}")
    except (ValueError, httpx2.InvalidURL):
        raise SpecError(
            f"{parts.scheme.upper()}_PROXY or ALL_PROXY holds no address of a proxy",
            hint="write it as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT",
        ) from None


class Proxy:
    """Passes requests to their hosts, and notes each exchange in a sink when it has ended.

    `serve_proxy` serves it: what comes with a request, the number of its connection, is that server's.

    Args:
        hosts: base addresses by the `provider` words `openai`, `anthropic`, `gemini`, `ollama`.
        sink: takes the exchanges.

    Raises:
        SpecError: the environment names a proxy that cannot be used.
    """

    def __init__(self, hosts: Mapping[str, str], sink: ExchangeSink) -> None:
        self._upstreams = {name: Upstream(name, address) for name, address in hosts.items()}
        self._sink = sink
        self._clock = SystemClock()
        self._count = 0
        self._open: set[asyncio.Task[Any]] = set()
        self._is_over = False
        self.refusals: Counter[str] = Counter()
        """Requests that were passed to no host, by what was wrong with them."""
        self.sink_failures: list[Exception] = []
        """What the sink raised. Programs do not notice it."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request of a program."""
        if scope["type"] != "http":
            return
        headers: Headers = scope["headers"]
        names = {name: value.decode("latin-1") for name, value in headers}
        if words := _find_caller_fault(names):
            await self._refuse(send, 403, words)
            return
        path = scope["raw_path"].decode("ascii")
        route = find_route(scope["method"], path, has_anthropic_version=b"anthropic-version" in names)
        if route is None or route.host not in self._upstreams:
            words = f"no model host has the path {path}"
            await self._refuse(
                send, 404, f"{words}; paths begin with {', '.join(f'/{name}/' for name in self._upstreams)}"
            )
            return
        upstream = self._upstreams[route.host]
        if self._is_over:
            await self._refuse(send, 503, _WATCH_OVER)
            return
        if upstream.refusal:
            await self._refuse(send, 403, upstream.refusal)
            return
        if names.get(b"upgrade", "").lower() == "websocket":
            await self._refuse(send, 501, f"WebSockets are not passed on: {path}; let the client use HTTP")
            return
        self._count += 1
        passage = _Passage(self._count, upstream, route, scope, names, self._clock.now())
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await passage.run(receive, send)
        finally:
            self._open.discard(task)
            self._note(passage)
        if passage.is_cut and scope["http_version"] == "1.0":
            # To such a program the end of the connection is the end of the answer, unless it is torn down.
            scope["state"]["tear_down"]()

    def _note(self, passage: _Passage) -> None:
        try:
            self._sink.note(passage.build_exchange())
        except Exception as error:
            self.sink_failures.append(error)

    async def _refuse(self, send: Send, status: int, words: str) -> None:
        self.refusals[strike_secrets(words)] += 1
        await _send_words(send, status, words)

    async def finish(self, grace_s: float) -> None:
        """Wait for the exchanges that are under way; those that take longer are cut, and noted too.

        What comes from now on is refused.
        """
        self._is_over = True
        if self._open:
            await asyncio.wait(self._open, timeout=grace_s)
        while self._open:
            for task in self._open:
                task.cancel()
            await asyncio.wait(self._open)

    async def aclose(self) -> None:
        """Close the connections to the hosts."""
        for upstream in self._upstreams.values():
            await upstream.aclose()


class _Passage:
    """One exchange while it is under way."""

    def __init__(
        self,
        number: int,
        upstream: Upstream,
        route: Route,
        scope: Mapping[str, Any],
        names: Mapping[bytes, str],
        asked_at: str,
    ) -> None:
        self._number = number
        self._upstream = upstream
        self._route = route
        self._scope = scope
        self._names = names
        self._asked_at = asked_at
        self._start_s = time.perf_counter()
        self._first_s: float | None = None
        self._end_s: float | None = None
        self._request = KeptBody("request")
        self._answer = KeptBody("answer")
        self._status = 0
        self._answer_names: dict[bytes, str] = {}
        self._queue: asyncio.Queue[Message] = asyncio.Queue(_QUEUE_SIZE)
        self._has_answer = False
        """Whether the host has begun to answer: what the program sends from then on is not needed."""
        self.is_cut = False
        self._problem = ""

    async def run(self, receive: Receive, send: Send) -> None:
        """Pass the request and its answer until one side ends it."""
        pump = asyncio.ensure_future(self._pump(receive))
        forward = asyncio.ensure_future(self._forward(send))
        try:
            await asyncio.wait((forward, pump), return_when=asyncio.FIRST_COMPLETED)
            if not forward.done():
                self._cut(_PROGRAM_GONE)
        except asyncio.CancelledError:
            self._cut(_WATCH_ENDED)
        finally:
            # Also after an error of our own: nothing may go on without the exchange.
            forward.cancel()
            pump.cancel()
            await asyncio.wait((forward, pump))
            if self._end_s is None or self.is_cut:
                self._end_s = time.perf_counter()
        if not forward.cancelled():
            forward.result()

    def _cut(self, problem: str) -> None:
        self.is_cut, self._problem = True, self._problem or problem

    async def _pump(self, receive: Receive) -> None:
        """Take what the program sends; ends when it has gone."""
        while (message := await receive())["type"] != "http.disconnect":
            if not self._has_answer:
                await self._queue.put(message)

    async def _forward(self, send: Send) -> None:
        """Pass the request to the host, and its answer to the program."""
        try:
            response = await self._ask()
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            words = f"{self._upstream.shown} did not answer: {_describe(error)}"
            self._problem = words
            self._end_s = time.perf_counter()
            await _send_words(send, 502, words)
            return
        self._has_answer = True
        while not self._queue.empty():  # a pump that waits for a place sees what comes again
            self._queue.get_nowait()
        try:
            await self._pass_answer(response, send)
        except httpx2.HTTPError as error:
            self._cut(f"{self._upstream.shown} broke off its answer: {_describe(error)}")
        except Exception as error:  # of the server: an answer that HTTP does not allow
            self._cut(f"the answer of {self._upstream.shown} cannot be passed on: {_describe(error)}")
        finally:
            await response.aclose()

    async def _ask(self) -> httpx2.Response:
        first = await self._queue.get()
        data = first.get("body", b"")
        self._request.add(data)
        content = self._iterate_body(data) if first.get("more_body") else data or None
        scope = self._scope
        headers = _select_headers(scope["headers"], _NOT_FOR_HOSTS)
        path, query = self._route.host_path, scope["query_string"]
        return await self._upstream.ask(scope["method"], path, query, headers, content)

    async def _iterate_body(self, data: bytes) -> AsyncIterator[bytes]:
        """The body of the request as it comes; its first bytes are kept already."""
        yield data
        is_over = False
        while not is_over:
            message = await self._queue.get()
            data, is_over = message.get("body", b""), not message.get("more_body")
            self._request.add(data)
            yield data

    async def _pass_answer(self, response: httpx2.Response, send: Send) -> None:
        headers = response.headers.raw
        self._status = response.status_code
        self._answer_names = {name.lower(): value.decode("latin-1") for name, value in headers}
        selected = _select_headers(headers, _HOP_BY_HOP)
        await send({"type": "http.response.start", "status": self._status, "headers": selected})
        keep, stream = self._answer.add, response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        async for chunk in stream:
            # Before the program can have it: it may ask again while we still wait to go on.
            self._end_s = time.perf_counter()
            if self._first_s is None:
                self._first_s = self._end_s
            keep(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def build_exchange(self) -> Exchange:
        """What has passed."""
        query = self._scope["query_string"].decode("ascii")
        address = f"http://host{self._route.path}{'?' + query if query else ''}"
        headers = {name.decode("latin-1"): value for name, value in self._names.items()}
        # Keys come back: hosts quote them in errors, programs tell them to models. What is known by its value
        # is struck here, and wherever a sink writes.
        for text, is_variable in find_spec_secrets({**headers, "url": address}):
            if not is_variable:
                remember_secret(text)
        path = strike_secrets(hide_secrets(address).removeprefix("http://host"))
        request, request_problem = self._request.read(self._names.get(b"content-encoding", ""))
        answer, answer_problem = self._answer.read(self._answer_names.get(b"content-encoding", ""))
        content_type = self._answer_names.get(b"content-type", "")
        is_stream = content_type.partition(";")[0].strip().lower() in _STREAM_TYPES
        problems = [text for text in (self._problem, request_problem, answer_problem) if text]
        return Exchange(
            number=self._number,
            wire=self._route.wire,
            host=self._upstream.shown,
            method=self._scope["method"],
            path=path,
            session=strike_secrets(self._names.get(b"x-session-id", "")),
            connection=self._scope["state"]["connection"],
            request=b"" if request_problem else strike_secret_bytes(request),
            asked_at=self._asked_at,
            first_ms=self._measure_ms(self._first_s),
            duration_ms=self._measure_ms(self._end_s) or 0.0,
            status=self._status,
            answer=strike_secret_bytes(answer),
            content_type=content_type,
            is_streamed=is_stream or ":streamGenerateContent" in path,
            is_cut=self.is_cut or bool(request_problem or answer_problem),
            problem=strike_secrets("; ".join(problems)),
        )

    def _measure_ms(self, moment_s: float | None) -> float | None:
        return None if moment_s is None else round((moment_s - self._start_s) * 1000, 3)


def _select_headers(headers: Headers, left_out: frozenset[bytes]) -> Headers:
    """The headers that are passed on: all but some, and but those that `Connection` names."""
    lowered = [(name.lower(), value) for name, value in headers]
    named = {
        word.strip().lower() for name, value in lowered if name == b"connection" for word in value.split(b",")
    }
    dropped = left_out | named if named else left_out
    return [(name, value) for name, value in lowered if name not in dropped]


def _find_caller_fault(names: Mapping[bytes, str]) -> str:
    """Why a caller is refused; empty: it is not.

    A page in a browser reaches loopback too. It is told by its `Origin`, or, where it makes a name of its own
    lead to this machine (DNS rebinding), by the name in `Host`.
    """
    host = names.get(b"host")
    if host is not None and _read_host_name(f"http://{host}") not in _LOOPBACK_NAMES:
        return f"the request names the host {host}: ask 127.0.0.1 or localhost"
    origin = names.get(b"origin")
    if origin is not None and _read_host_name(origin) not in _LOOPBACK_NAMES:
        return f"pages of {origin} may not ask model hosts here"
    if names.get(b"sec-fetch-site") == "cross-site":
        return "pages of other sites may not ask model hosts here"
    return ""


def _read_host_name(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _send_words(send: Send, status: int, words: str) -> None:
    """Answer in the place of a host, in the form in which most hosts send errors."""
    body = json.dumps({"error": {"message": f"toolchart watch: {words}", "type": "toolchart_watch"}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
