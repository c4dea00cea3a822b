"""Hosts with TLS and proxies for HTTPS on loopback, in threads, and the proxy of a watch for HTTPS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from nginx import write_certificate
from proxied_hosts import WAIT_S, KeptExchanges

from toolchart.app.listening import open_listener
from toolchart.app.watch.authority import open_authority
from toolchart.app.watch.named_hosts import read_named_hosts
from toolchart.app.watch.proxy import Proxy
from toolchart.app.watch.serving import serve_proxy
from toolchart.app.watch.summary import TunnelCounts
from toolchart.app.watch.tunnel import serve_tunnel


@contextmanager
def _serve(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve each connection in a thread while the block runs; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def work(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(WAIT_S)
                serve(connection)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=work, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


@dataclass
class SecureHost:
    """A host with TLS."""

    port: int
    certificate: Path
    """What its clients trust."""


@contextmanager
def serve_secure(name: str, folder: Path, answer: Callable[[bytes], bytes]) -> Iterator[SecureHost]:
    """A host under a name that answers all that a connection has sent before its end, or a head of HTTP."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    write_certificate(name, certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            length = int.from_bytes(_read_exactly(secured, 4), "big")
            secured.sendall(answer(_read_exactly(secured, length)))

    def serve_http(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            head = _read_head(secured)
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = _read_exactly(secured, int(lengths[0].split(b":")[1])) if lengths else b""
            secured.sendall(answer(head + body))

    with _serve(serve_http if "." in name and not name[0].isdigit() else serve) as port:
        yield SecureHost(port, certificate)


@dataclass
class ForwardProxy:
    """The proxy of an operator."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    """What it was asked."""


@contextmanager
def serve_forward_proxy(ports: dict[str, int]) -> Iterator[ForwardProxy]:
    """A proxy for HTTPS to which names are ports of this machine; it knows no others."""
    proxy = ForwardProxy()

    def serve(connection: socket.socket) -> None:
        head = _read_head(connection).decode()
        proxy.heads.append(head)
        port = ports.get(head.split()[1])
        if port is None:
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as far:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=_copy, args=(far, connection), daemon=True)
            back.start()
            _copy(connection, far)
            back.join(WAIT_S)

    with _serve(serve) as proxy.port:
        yield proxy


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _read_exactly(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length and (part := connection.recv(length - len(data))):
        data += part
    return data


def _read_head(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\r\n\r\n") and (part := connection.recv(1)):
        data += part
    return data


@dataclass
class HttpsWatch:
    """A running proxy with named hosts."""

    url: str
    port: int
    context: ssl.SSLContext
    """That of a client that trusts it."""
    proxy: Proxy
    sink: KeptExchanges
    counts: TunnelCounts


@asynccontextmanager
async def run_https(*named: str, **hosts: str) -> AsyncIterator[HttpsWatch]:
    """The proxy of a watch for HTTPS with these named hosts, in front of hosts by their words."""
    sink, names = KeptExchanges(), read_named_hosts(named)
    proxy, counts = Proxy(hosts, sink, named=names), TunnelCounts(names)
    async with serve_proxy(proxy, open_listener("127.0.0.1", 0), grace_s=WAIT_S) as make_protocol:
        with open_authority(names, {}) as authority, open_listener("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            context = ssl.create_default_context(cafile=authority.settings["NODE_EXTRA_CA_CERTS"])
            async with serve_tunnel(listener, authority.context, make_protocol, counts):
                yield HttpsWatch(f"http://127.0.0.1:{port}", port, context, proxy, sink, counts)
