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
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from toolchart.app.watch.enforced_passage import EnforcedPassage
from toolchart.app.watch.messages import Headers, Receive, Send, send_words
from toolchart.app.watch.named_hosts import NamedHost
from toolchart.app.watch.passage import Passage
from toolchart.app.watch.routes import Route, brings_no_calls, find_route
from toolchart.app.watch.upstream import Upstream
from toolchart.engine.runtime.clock import SystemClock
from toolchart.engine.watching.enforcing import Gate
from toolchart.engine.watching.exchanges import ExchangeSink
from toolchart.specs.secrets import strike_secrets

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")

_WATCH_OVER = "watching has ended"


class Proxy:
    """Passes requests to their hosts, and notes each exchange in a sink when it has ended.

    `serve_proxy` serves it: what comes with a request, the number of its connection, is that server's.

    Args:
        hosts: base addresses by the `provider` words `openai`, `anthropic`, `gemini`, `ollama`.
        sink: takes the exchanges.
        gate: where rules are enforced: says what passes. It gets the exchanges too.
        named: hosts by their DNS names that the server lets programs take the proxy for.

    Raises:
        SpecError: the environment names a proxy that cannot be used.
    """

    def __init__(
        self,
        hosts: Mapping[str, str],
        sink: ExchangeSink,
        gate: Gate | None = None,
        named: Mapping[str, NamedHost] = MappingProxyType({}),
    ) -> None:
        self._gate = gate
        self._upstreams = {name: Upstream(name, address) for name, address in hosts.items()}
        self._named = named
        self._named_upstreams = {
            name: Upstream(host.provider, f"https://{name}")
            for name, host in named.items()
            if not host.is_official
        }
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
        named_host: str = scope["state"]["named_host"]
        if words := _find_caller_fault(names, named_host):
            await self._refuse(send, 403, words)
            return
        path = scope["raw_path"].decode("ascii")
        upstream, route = self._find_target(scope["method"], path, named_host, names)
        if route is None or upstream is None:
            words = f"no model host has the path {path}"
            await self._refuse(
                send, 404, f"{words}; paths begin with {', '.join(f'/{name}/' for name in self._upstreams)}"
            )
            return
        if self._gate is not None and not route.wire and not brings_no_calls(scope["method"], route.path):
            words = f"nothing is known of {scope['method']} {path}, and --enforce passes what it can judge"
            await self._refuse(send, 403, words)
            return
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
        parts = (self._count, upstream, route, scope, names, self._clock.now())
        gate = self._gate if route.wire else None
        passage = Passage(*parts) if gate is None else EnforcedPassage(gate, *parts)
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

    def _find_target(
        self, method: str, path: str, named_host: str, names: Mapping[bytes, str]
    ) -> tuple[Upstream | None, Route | None]:
        """Where a request goes. What a program sends to a named host has the path of that host."""
        named = self._named.get(named_host)
        prefix = f"/{named.provider}" if named is not None else ""
        has_version = b"anthropic-version" in names
        route = find_route(method, prefix + path, has_anthropic_version=has_version)
        if route is None or named is None:
            return self._upstreams.get(route.host) if route is not None else None, route
        if named.is_official:
            return self._upstreams.get(named.provider), route
        return self._named_upstreams[named_host], msgspec.structs.replace(route, host_path=route.path)

    def _note(self, passage: Passage) -> None:
        try:
            exchange = passage.build_exchange()
            self._sink.note(exchange)
            if self._gate is not None:
                self._gate.note(exchange)
        except Exception as error:
            self.sink_failures.append(error)

    async def _refuse(self, send: Send, status: int, words: str) -> None:
        self.refusals[strike_secrets(words)] += 1
        await send_words(send, status, words)

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
        for upstream in (*self._upstreams.values(), *self._named_upstreams.values()):
            await upstream.aclose()


def _find_caller_fault(names: Mapping[bytes, str], named_host: str) -> str:
    """Why a caller is refused; empty: it is not.

    A page in a browser reaches loopback too. It is told by its `Origin`, or, where it makes a name of its own
    lead to this machine (DNS rebinding), by the name in `Host`.

    Args:
        named_host: the host that the caller takes the proxy for; empty: it is for itself.
    """
    host = names.get(b"host")
    allowed = (named_host,) if named_host else _LOOPBACK_NAMES
    if host is not None and _read_host_name(f"http://{host}") not in allowed:
        return f"the request names the host {host}: ask {named_host or '127.0.0.1 or localhost'}"
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
