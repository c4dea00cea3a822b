"""A server behind nginx with TLS, configured as docs/serve.md says: requests, streams and cuts."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from nginx import Proxy, write_certificate
from served import bearer, make_site, make_value
from site_server import run_server

from toolchart.app.server.serving import Address, make_settings
from toolchart.app.server.site import Site

DOC = Path(__file__).parents[3] / "docs" / "serve.md"
NAME = "chat.example"
TLS: dict[str, Any] = {"sni_hostname": NAME}


def read_block() -> str:
    """The `server` block of the document."""
    match = re.search(r"For nginx:\n\n((?:    .*\n|\n)+)", DOC.read_text())
    assert match is not None
    return match[1]


def fill_block(server_port: int, proxy_port: int, folder: Path) -> str:
    """The block with these ports and files; each of them stands in the document."""
    changes = {
        "listen 443 ssl;": f"listen 127.0.0.1:{proxy_port} ssl;",
        "/etc/ssl/chat.example.pem": str(folder / "chain.pem"),
        "/etc/ssl/chat.example.key": str(folder / "key.pem"),
        "http://127.0.0.1:8765;": f"http://127.0.0.1:{server_port};",
    }
    block = read_block()
    for documented, ours in changes.items():
        assert block.count(documented) == 1, documented
        block = block.replace(documented, ours)
    return block


class Place(NamedTuple):
    """A running site behind a running nginx."""

    site: Site
    proxy: Proxy
    port: int
    client: httpx.Client
    """Speaks TLS with nginx, as the owner."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A site whose model says `one`, `two`, ... behind nginx."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    write_certificate(NAME, tmp_path / "chain.pem", tmp_path / "key.pem")
    settings = make_settings(Address(), (NAME,))
    site = make_site(make_engine(["one", "two", "three"]), settings=settings)
    trust = ssl.create_default_context(cafile=str(tmp_path / "chain.pem"))
    headers = {**bearer(), "Host": NAME}
    with run_server(site) as (_, listener):
        proxy = Proxy(fill_block(listener.getsockname()[1], port, tmp_path), tmp_path)
        assert "test is successful" in proxy.check()
        proxy.start(port)
        url = f"https://127.0.0.1:{port}"
        with httpx.Client(
            base_url=url, verify=trust, headers=headers, timeout=120, trust_env=False
        ) as client:
            try:
                yield Place(site, proxy, port, client)
            finally:
                proxy.stop()


def begin(place: Place) -> None:
    """Begin the conversation `c`."""
    body = {"message": "hi", "conversation": "c"}
    answer = place.client.post("/api/conversations", json=body, extensions=TLS)
    assert (answer.status_code, answer.json()["content"]) == (200, "one")


def say(place: Place) -> None:
    """Send a message to it."""
    answer = place.client.post("/api/conversations/c/messages", json={"message": "more"}, extensions=TLS)
    assert answer.status_code == 200, answer.text


@contextlib.contextmanager
def follow(place: Place, **headers: str) -> Iterator[Iterator[str]]:
    """The ids of the records of `c`, as they come."""
    path = "/api/conversations/c/events"
    with place.client.stream("GET", path, headers=headers, extensions=TLS) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        yield (line.removeprefix("id: ") for line in lines if line.startswith("id: "))


def follow_and_cut(place: Place, seen: list[str]) -> None:
    """Follow `c` while the proxy dies.

    Args:
        seen: gets the ids that were seen.
    """
    with follow(place) as ids:
        seen.append(next(ids))
        place.proxy.stop()
        seen.extend(ids)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return when something is so."""
    end_s = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_requests_pass_and_keep_their_guards(place: Place) -> None:
    """Through the documented proxy a turn runs; a browser of the name signs in, and its forms pass, those of
    another site do not; what is for operators inside stays inside."""
    begin(place)
    page = place.client.get("/conversations", headers={"Accept": "text/html"}, extensions=TLS)
    assert (page.status_code, "conversations" in page.text) == (200, True)
    for origin, status in ((f"https://{NAME}", 200), ("https://elsewhere.example", 403)):
        signed_in = place.client.post(
            "/sign-in", data={"token": make_value("owner")}, headers={"Origin": origin}, extensions=TLS
        )
        assert signed_in.status_code == status, signed_in.text
    for path in ("/livez", "/readyz", "/metrics"):
        denied = place.client.get(path, extensions=TLS)
        assert (denied.status_code, "nginx" in denied.text) == (403, True), path
    assert place.client.get("/health", extensions=TLS).status_code == 200


def test_a_stream_is_not_held_back(place: Place) -> None:
    """Records come through the proxy while their stream is open, each when it is written."""
    begin(place)
    with follow(place) as ids:
        seen = [next(ids)]
        newest, _ = place.site.engine.store.read_last_line("c") or (0, b"")
        while seen[-1] != str(newest):
            seen.append(next(ids))
        say(place)
        assert next(ids) == str(newest + 1)


def test_a_reader_that_goes_frees_its_place(place: Place) -> None:
    """When a client goes, the proxy goes too, and the server has the place of its stream back."""
    begin(place)
    with follow(place) as ids:
        next(ids)
        assert place.site.readers.in_use == 1
    wait_until(lambda: place.site.readers.is_idle)


def test_a_cut_is_an_error_and_nothing_is_lost(place: Place) -> None:
    """When the proxy dies, a client sees that its stream was cut, and the server has the place back. With its
    last id it goes on behind the next proxy, and has each record once."""
    begin(place)
    seen: list[str] = []
    with pytest.raises(httpx.TransportError):
        follow_and_cut(place, seen)
    wait_until(lambda: place.site.readers.is_idle)
    place.proxy.start(place.port)
    say(place)
    newest, _ = place.site.engine.store.read_last_line("c") or (0, b"")
    with follow(place, **{"Last-Event-ID": seen[-1]}) as ids:
        while seen[-1] != str(newest):
            seen.append(next(ids))
    assert seen == [str(number) for number in range(newest + 1)]
