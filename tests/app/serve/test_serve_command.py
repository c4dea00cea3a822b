"""`toolchart serve`: tokens and their roles, addresses that are in use, and a start and an end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from served import bearer, make_site
from site_server import run_server

from toolchart.app.server.access.rates import Slots
from toolchart.app.server.access.tokens import MIN_TOKEN_CHARACTERS, ROLES, TokenTable, make_tokens
from toolchart.app.server.application import build_application
from toolchart.app.server.serving import Address, SiteServer, TimedProtocol, open_socket
from toolchart.app.server.site import Limits
from toolchart.states.errors import SpecError


def test_without_a_word_there_is_one_owner_with_every_role() -> None:
    """A server is never without a token; its value is made up and long."""
    (token,) = make_tokens(())
    assert (token.access.name, token.access.roles) == ("owner", frozenset(ROLES))
    assert token.is_generated
    assert len(token.value) >= 40
    assert make_tokens(())[0].value != token.value


def test_tokens_have_names_and_roles_and_everybody_may_read() -> None:
    """Roles are those that the operator names, and `read`; a table finds a token by its whole value."""
    tokens = make_tokens(("anna:chat,approve", "viewer:read", "bare"))
    roles = {token.access.name: token.access.roles for token in tokens}
    assert roles == {"anna": {"read", "chat", "approve"}, "viewer": {"read"}, "bare": {"read"}}
    table = TokenTable(tokens)
    assert table.find(tokens[0].value) == tokens[0].access
    assert table.find(tokens[0].value[:-1]) is None
    assert table.find("") is None


def test_a_value_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """TOOLCHART_TOKEN_NAME sets the value, so that it holds over restarts; a short one is refused."""
    monkeypatch.setenv("TOOLCHART_TOKEN_NIGHT_JOB", "x" * MIN_TOKEN_CHARACTERS)
    (token,) = make_tokens(("night-job:chat",))
    assert (token.value, token.is_generated) == ("x" * MIN_TOKEN_CHARACTERS, False)
    monkeypatch.setenv("TOOLCHART_TOKEN_NIGHT_JOB", "short")
    with pytest.raises(SpecError, match="can be guessed"):
        make_tokens(("night-job:chat",))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("anna:chatt",), "did you mean 'chat'"),
        ((":chat",), "cannot be a name"),
        (("a b:chat",), "cannot be a name"),
        (("anna:read", "anna:chat"), "'anna' twice"),
    ],
)
def test_wrong_words_are_refused(words: tuple[str, ...], text: str) -> None:
    """An unknown role, no name and a name that stands twice are errors that say so."""
    with pytest.raises(SpecError, match=text):
        make_tokens(words)


def test_a_port_in_use_is_an_error_that_says_so(run_cli: Callable[..., Any]) -> None:
    """The command ends with code 2 and names the port, once, and the option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run_cli("serve", "quickstart", "--log", "memory", "--port", port)
    assert result.code == 2
    assert f"port {port}" in result.err
    assert (result.err.count(port), result.err.count("127.0.0.1")) == (1, 1)
    assert "--port" in result.err


def test_an_open_address_is_refused_before_anything_listens(run_cli: Callable[..., Any]) -> None:
    """`--host 0.0.0.0` without TLS or a word ends with code 2."""
    result = run_cli("serve", "quickstart", "--host", "0.0.0.0", "--port", "1")
    assert result.code == 2
    assert "--allow-plain-http" in result.err


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Connections send headers and body at once: with Nagle's algorithm each answer took 40 ms more."""
    with open_socket(Address(port=0)) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("beginning", [b"", b"GET /health HTTP/1.1\r\nHost: 127.0", b"G"])
def test_a_connection_without_a_request_is_closed(beginning: bytes) -> None:
    """Whoever connects and sends nothing, or headers without an end, is let go."""
    site = make_site(make_engine(["hello"]), limits=Limits(headers_s=0.2))
    with (
        run_server(site) as (_, listener),
        socket.create_connection(listener.getsockname(), timeout=120) as connection,
        suppress(BrokenPipeError, ConnectionResetError),  # it was closed before the beginning came
    ):
        connection.sendall(beginning)
        assert connection.recv(100) == b""


def test_connections_have_the_times_of_their_site() -> None:
    """Two servers of one process keep their own times for headers and for readers."""
    sites = [make_site(limits=Limits(headers_s=seconds, reading_s=seconds)) for seconds in (7.0, 8.0)]
    servers = [SiteServer(site, build_application(site), Address(port=0)) for site in sites]
    protocols = [cast("type[TimedProtocol]", server.config.http) for server in servers]
    assert [protocol.limits for protocol in protocols] == [site.limits for site in sites]


def note_places(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to the places of a site from now on, in order."""
    seen: list[str] = []
    take, give_back = slots.take, slots.give_back
    monkeypatch.setattr(slots, "take", lambda: (take(), seen.append("taken")))
    monkeypatch.setattr(slots, "give_back", lambda: (give_back(), seen.append("given back")))
    return seen


def test_a_reader_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a stream and does not read what comes holds no place of a reader for ever."""
    engine = make_engine(["x" * 8_000_000])
    engine.run("hi", conversation="c1")
    site = make_site(engine, limits=Limits(reading_s=0.2))
    places = note_places(site.readers, monkeypatch)
    with run_server(site) as (_, listener), socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(120)
        connection.connect(listener.getsockname())
        request = "GET /api/conversations/c1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: "
        connection.sendall(f"{request}{bearer()['Authorization']}\r\n\r\n".encode())
        end_s = time.monotonic() + 120
        while places != ["taken", "given back"]:
            assert time.monotonic() < end_s, places
            time.sleep(0.01)
    assert site.readers.free == site.limits.readers


def test_a_server_stops_although_a_stream_is_open() -> None:
    """Stopping ends open streams at once, gives turns back, and frees the port."""
    site = make_site(make_engine(["hello"]))
    with run_server(site) as (server, listener):
        read_until_stopped(server, listener.getsockname()[1])
    assert listener.fileno() == -1, "it still listens"


def read_until_stopped(server: SiteServer, port: int) -> None:
    """Follow a conversation, stop the server, and read to the end of the stream."""
    headers = {"Authorization": "Bearer token-of-owner-for-tests-only"}
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False) as client:
        client.post("/api/conversations", json={"message": "hi", "conversation": "c1"}).raise_for_status()
        with client.stream("GET", "/api/conversations/c1/events") as response:
            lines = response.iter_lines()
            assert next(lines) == "id: 0"
            server.should_exit = True
            assert all(line is not None for line in lines)
