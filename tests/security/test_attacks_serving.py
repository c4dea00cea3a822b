"""Attacks on `toolchart serve`: no token, foreign names and origins, forged requests, oversized bodies."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from served import bearer, make_site, make_value, open_client, serve
from starlette.requests import Request

from toolchart.app.server import application
from toolchart.app.server.answers import JsonAnswer, encode_json
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.event_stream import stream_events
from toolchart.app.server.server_events import ServerEvent
from toolchart.app.server.serving import Address, check_address, make_settings
from toolchart.app.server.site import Limits, SiteSettings, get_access
from toolchart.app.studio.pages.sign_in import clean_path
from toolchart.app.studio.rendering import render_page
from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import SpecError
from toolchart.states.json_bounds import is_deeper

SAME_ORIGIN = {"Origin": "http://127.0.0.1:8765"}


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The body of the endpoint of these tests."""

    text: str
    more: Any = None


async def echo(request: Request) -> JsonAnswer:
    note = await read_form(request, Note)
    return JsonAnswer({"by": get_access(request).name, "text": note.text})


async def fail(request: Request) -> JsonAnswer:
    raise ValueError("a detail that strangers need not know")


async def stream_for_ever(request: Request) -> Any:
    async def say_hello() -> Any:
        yield ServerEvent(data={"hello": 1}, id="0")
        await asyncio.Event().wait()

    return stream_events(request, say_hello())


@pytest.fixture(autouse=True)
def _test_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three endpoints beside the real ones."""
    group = RouteGroup()
    group.endpoint("POST", "/test/echo", "chat")(echo)
    group.endpoint("GET", "/test/fail", "read")(fail)
    group.endpoint("GET", "/test/stream", "read")(stream_for_ever)
    defaults = (*application.ROUTE_GROUPS, group)
    monkeypatch.setattr(application.build_application, "__defaults__", (defaults,))


# -- tokens and roles --------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", application.list_endpoints(), ids=lambda row: f"{row.method} {row.path}")
async def test_every_endpoint_with_a_role_wants_a_token(endpoint: Endpoint) -> None:
    """Without a token an endpoint answers 401, or leads a browser to the page to sign in; it does nothing."""
    if endpoint.role is None:
        public = ("/livez", "/readyz", "/health", "/sign-in", "/static/{name}")
        assert endpoint.path in public, "these alone are public"
        return
    path = endpoint.path.replace("{", "").replace("}", "").replace(":path", "").replace(":int", "")
    async with open_client(make_site(), None) as client:
        answer = await client.request(endpoint.method, path, json={})
    if endpoint.is_page:
        assert (answer.status_code, answer.headers["location"][:9]) == (303, "/sign-in?")
    else:
        assert answer.status_code == 401
        assert "token is needed" in answer.text


@pytest.mark.parametrize(
    ("name", "status"), [("owner", 200), ("talker", 200), ("viewer", 403), ("decider", 403)]
)
async def test_a_token_may_do_what_its_roles_say(name: str, status: int) -> None:
    """An endpoint of the role `chat` answers those who have it; others hear which role they lack."""
    async with open_client(make_site(), name) as client:
        answer = await client.post("/test/echo", json={"text": "hi"})
    assert answer.status_code == status
    if status == 403:
        assert "lacks the role 'chat'" in answer.json()["error"]
    else:
        assert answer.json() == {"by": name, "text": "hi"}


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer ", "bearer token-of-owner", "Basic b3duZXI6", "owner", "Bearer \xff"]
)
async def test_wrong_tokens_are_refused(header: str) -> None:
    """Wrong, empty, cut and strange headers give 401, with no hint at what would be right."""
    async with open_client(make_site(), None) as client:
        headers = [(b"Authorization", header.encode("latin-1"))]
        answer = await client.post("/test/echo", json={"text": "hi"}, headers=headers)
    assert answer.status_code == 401
    assert make_value("owner") not in answer.text


# -- sessions ----------------------------------------------------------------------------------------


async def test_a_browser_signs_in_once_with_the_link() -> None:
    """The link of the start sets a cookie that scripts and other sites cannot use; it works once."""
    site = make_site()
    code = site.sessions.make_code(site.tokens.find(make_value("talker")))  # type: ignore[arg-type]
    async with open_client(site, None) as client:
        first = await client.get("/sign-in", params={"code": code})
        cookie = first.headers["set-cookie"].lower()
        assert first.status_code == 200
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        echoed = await client.post("/test/echo", json={"text": "hi"}, headers=SAME_ORIGIN)
        assert echoed.json()["by"] == "talker"
        client.cookies.clear()
        again = await client.get("/sign-in", params={"code": code})
        assert (again.status_code, "set-cookie" in again.headers) == (403, False)
        assert "has been used" in again.text


async def test_signing_out_ends_the_session() -> None:
    """After signing out the old cookie is worth nothing, also for whoever has copied it."""
    site = make_site()
    async with open_client(site, None) as client:
        form = {"token": make_value("owner"), "next": "/"}
        await client.post("/sign-in", data=form, headers=SAME_ORIGIN)
        copied = dict(client.cookies)
        assert (await client.post("/sign-out", headers=SAME_ORIGIN)).status_code == 303
        client.cookies.update(copied)
        answer = await client.post("/test/echo", json={"text": "hi"}, headers=SAME_ORIGIN)
    assert answer.status_code == 401


async def test_under_tls_the_cookie_is_for_tls_only() -> None:
    """With a certificate the cookie is Secure and bound to the host, and browsers are told to stay."""
    site = make_site(settings=SiteSettings(is_tls=True))
    async with open_client(site, None) as client:
        form = {"token": make_value("owner")}
        answer = await client.post("/sign-in", data=form, headers={"Origin": "https://127.0.0.1:8765"})
    assert answer.headers["set-cookie"].startswith("__Host-toolchart-8765=")
    assert "secure" in answer.headers["set-cookie"].lower()
    assert "max-age" in answer.headers["strict-transport-security"]


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/a\n/b", ""]
)
def test_signing_in_leads_to_no_other_site(path: str) -> None:
    """The address to go on to is a path of this server; anything else becomes the first page."""
    assert clean_path(path) == "/"


# -- other sites -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "127.0.0.1@evil", "", "[::1", "0"]
)
async def test_dns_rebinding_is_refused(host: str) -> None:
    """A name that is not this server's own is refused, even for what needs no token."""
    async with open_client(make_site()) as client:
        answer = await client.get("/health", headers={"Host": host})
    assert answer.status_code == 421
    assert "Host header" in answer.json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:9000", "LOCALHOST", "[::1]:8765", "[::1]"])
async def test_own_names_are_answered(host: str) -> None:
    """The names of the loopback address are answered with any port, so that a tunnel works."""
    async with open_client(make_site()) as client:
        assert (await client.get("/health", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "", "http://["])
@pytest.mark.parametrize("has_token", [True, False])
async def test_forged_requests_are_refused(origin: str, has_token: bool) -> None:
    """A page of another origin, also of another port, changes nothing, with a token or with a cookie."""
    site = make_site()
    async with open_client(site, None) as client:
        await client.post("/sign-in", data={"token": make_value("owner")}, headers=SAME_ORIGIN)
        headers = {"Origin": origin, **(bearer() if has_token else {})}
        answer = await client.post("/test/echo", json={"text": "hi"}, headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        (SAME_ORIGIN, 200),
    ],
)
async def test_a_cookie_needs_a_proof_of_origin(headers: dict[str, str], status: int) -> None:
    """What a cookie allows is done only for a request that shows it comes from our own pages."""
    async with open_client(make_site(), None) as client:
        await client.post("/sign-in", data={"token": make_value("owner")}, headers=SAME_ORIGIN)
        answer = await client.post("/test/echo", json={"text": "hi"}, headers=headers)
    assert answer.status_code == status


async def test_only_origins_of_the_operator_may_read_answers() -> None:
    """An origin that the operator names is let in by CORS; any other gets no such header."""
    site = make_site(settings=SiteSettings(origins=("https://chat.example",)))
    async with open_client(site) as client:
        ours = await client.post(
            "/test/echo", json={"text": "hi"}, headers={"Origin": "https://chat.example"}
        )
        foreign = await client.get("/health", headers={"Origin": "https://evil.example"})
    assert ours.headers["access-control-allow-origin"] == "https://chat.example"
    assert "access-control-allow-origin" not in foreign.headers


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
async def test_a_body_that_a_form_can_send_is_refused(kind: str) -> None:
    """JSON under a type that a plain HTML form can send gives 415."""
    async with open_client(make_site()) as client:
        answer = await client.post("/test/echo", content='{"text": "hi"}', headers={"Content-Type": kind})
    assert answer.status_code == 415


async def test_answers_forbid_scripts_frames_and_guessing() -> None:
    """Every answer, errors too, has a policy without inline scripts, and may not be framed or cached."""
    async with open_client(make_site()) as client:
        for path in ("/health", "/sign-in", "/nowhere", "/test/fail"):
            headers = (await client.get(path)).headers
            policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == "'self'"
            assert policy["frame-ancestors"] == "'none'"
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"


# -- bodies ------------------------------------------------------------------------------------------


async def test_an_oversized_body_is_refused_before_it_is_read() -> None:
    """A declared size beyond the limit gives 413; so does a body that says nothing about its size."""
    site = make_site(limits=Limits(body_bytes=1000))

    async def send_pieces() -> Any:
        for _ in range(100):
            yield b" " * 100

    async with open_client(site) as client:
        declared = await client.post("/test/echo", json={"text": "x" * 1000})
        kind = {"Content-Type": "application/json"}
        silent = await client.post("/test/echo", content=send_pieces(), headers=kind)
    assert (declared.status_code, silent.status_code) == (413, 413)


@pytest.mark.parametrize(
    "body",
    [
        '{"text": "a", "more": ' + "[" * 65 + "]" * 65 + "}",
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"text": "a", "more": ' + "[" * 300 + "]" * 300 + "}",
    ],
    ids=["65 lists", "an open end", "objects", "300 lists"],
)
async def test_deep_json_is_refused(body: str) -> None:
    """Lists and objects nested beyond the limit give 400, whatever else is wrong with them."""
    async with open_client(make_site()) as client:
        kind = {"Content-Type": "application/json"}
        answer = await client.post("/test/echo", content=body, headers=kind)
    assert answer.status_code == 400
    assert "deeper than 64" in answer.json()["error"]


def test_brackets_in_texts_are_no_depth() -> None:
    """Brackets and quotation marks inside of texts do not count, and an open text ends the count."""
    text = json.dumps(["[" * 1000, '"' + "{" * 1000, "\\" * 7, {"[[[": "]"}]).encode()
    assert (is_deeper(text, 2), is_deeper(text, 1)) == (False, True)
    assert is_deeper(b'["' + b"[" * 1000, 1) is False


@pytest.mark.parametrize(
    "body", ["", "{", "nonsense", '{"text": 1}', "{}", "[]", "null", '{"text": "\ud800"}', "NaN"]
)
async def test_a_broken_body_is_an_error_that_says_so(body: str) -> None:
    """What is not JSON, or not of the form, gives 400 with a reason and a request id, never a traceback."""
    async with open_client(make_site()) as client:
        kind = {"Content-Type": "application/json"}
        content = body.encode("utf-8", "surrogatepass")
        answer = await client.post("/test/echo", content=content, headers=kind)
    assert answer.status_code == 400
    assert "the body is not" in answer.json()["error"]
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


def read_answer(connection: socket.socket) -> bytes:
    """Everything that a server sends until it closes the connection."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_a_slow_body_is_given_up() -> None:
    """A client that sends its headers and then nothing gets 408, and the connection ends."""
    with serve(make_site(limits=Limits(body_s=0.2))) as address:
        host, port = urlsplit(address).hostname, urlsplit(address).port
        with socket.create_connection((str(host), int(port or 0)), timeout=120) as connection:
            head = f"POST /test/echo HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
            head += f"Authorization: {bearer()['Authorization']}\r\nContent-Length: 100\r\n\r\n"
            connection.sendall(head.encode())
            answer = read_answer(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 0.2 s" in answer


# -- how much ----------------------------------------------------------------------------------------


def test_a_client_that_goes_away_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A body that ends in the middle is a line of information, without a traceback: anybody can send one."""
    caplog.set_level("INFO", "toolchart.server")
    with serve(make_site()) as address:
        where = urlsplit(address)
        assert where.hostname is not None
        with socket.create_connection((where.hostname, where.port or 80), timeout=120) as connection:
            head = f"POST /test/echo HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: 90\r\n"
            token = bearer()["Authorization"]
            connection.sendall(
                f"{head}Content-Type: application/json\r\nAuthorization: {token}\r\n\r\n{{".encode()
            )
        end_s = time.monotonic() + 120
        while "went away" not in caplog.text and time.monotonic() < end_s:
            time.sleep(0.01)
    assert "went away" in caplog.text
    assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == []


async def test_a_client_that_asks_too_often_waits() -> None:
    """Beyond its rate a client gets 429 with a time to wait; other tokens are served as before."""
    site = make_site(limits=Limits(requests_per_s=0.001, burst=3))
    async with open_client(site) as client:
        statuses = [(await client.get("/health")).status_code for _ in range(5)]
        refused = await client.get("/health")
        other = await client.get("/health", headers=bearer("viewer"))
    assert statuses == [200, 200, 200, 429, 429]
    assert int(refused.headers["retry-after"]) == refused.json()["retryAfter"]
    assert 500 < refused.json()["retryAfter"] <= 1000, "the bucket fills while the test runs"
    assert other.status_code == 200


async def test_readers_of_streams_are_limited() -> None:
    """One more stream than allowed gives 429; when a reader goes, its place is free again."""
    site = make_site(limits=Limits(readers=2))
    with serve(site) as address:
        async with httpx.AsyncClient(
            base_url=address, headers=bearer(), timeout=120, trust_env=False
        ) as client:
            async with client.stream("GET", "/test/stream") as first, client.stream("GET", "/test/stream"):
                assert [line async for line in take_lines(first, 2)] == ["id: 0", 'data: {"hello":1}']
                refused = await client.get("/test/stream")
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            for _ in range(12_000):  # the server sees a moment later that the readers have gone
                if site.readers.free == 2:
                    return
                await asyncio.sleep(0.01)
    raise AssertionError("a place was not given back")


async def take_lines(response: httpx.Response, count: int) -> Any:
    """The first lines of a stream."""
    async for line in response.aiter_lines():
        yield line
        count -= 1
        if not count:
            return


async def test_an_idle_stream_shows_that_it_lives() -> None:
    """Where nothing happens a comment is sent, so that proxies and readers keep the connection."""
    with serve(make_site(limits=Limits(heartbeat_s=0.05))) as address:
        async with (
            httpx.AsyncClient(base_url=address, headers=bearer(), timeout=120, trust_env=False) as client,
            client.stream("GET", "/test/stream") as response,
        ):
            lines = [line async for line in take_lines(response, 6)]
    assert lines.count(": still here") >= 1


# -- errors and files --------------------------------------------------------------------------------


async def test_an_unexpected_error_shows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A fault answers 500 with a request id only; the server's log has the id and the reason."""
    async with open_client(make_site()) as client:
        answer = await client.get("/test/fail")
    text, request_id = "internal error", answer.headers["x-request-id"]
    assert answer.json() == {"error": text, "message": text, "request_id": request_id}
    (record,) = [record for record in caplog.records if record.name == "toolchart.server"]
    assert answer.headers["x-request-id"] in record.getMessage()
    assert "a detail" in str(record.exc_info)


async def test_secrets_are_struck_out_of_answers() -> None:
    """A known key leaves the process in no answer."""
    remember_secret("a-key-that-only-this-test-has")
    async with open_client(make_site()) as client:
        answer = await client.post("/test/echo", json={"text": "it is a-key-that-only-this-test-has"})
    assert answer.json()["text"] == "it is (secret)"


def test_answers_hold_every_value_of_a_log() -> None:
    """Lone surrogates and large integers, which a log may hold, are no error of an answer or a page."""
    assert json.loads(encode_json({"a": "\ud800", "b": 2**70})) == {"a": "\ud800", "b": 2**70}
    assert b"?" in render_page("sign_in.html", next_path="/", problem="\ud800").body


@pytest.mark.parametrize(
    "name", ["../rendering.py", "..%2frendering.py", "%2e%2e/rendering.py", "templates/bare.html", "", "x.py"]
)
async def test_static_files_are_those_of_one_folder(name: str) -> None:
    """No path leads out of the folder of static files."""
    async with open_client(make_site(), None) as client:
        answer = await client.get(f"/static/{name}")
    assert answer.status_code in (404, 405)
    assert "Jinja" not in answer.text


# -- addresses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "10.0.0.1"])
def test_an_address_for_others_needs_tls_or_a_word(host: str) -> None:
    """Without a certificate such an address is refused, with the two ways out."""
    with pytest.raises(SpecError, match="--certificate") as caught:
        check_address(Address(host=host))
    assert "--allow-plain-http" in str(caught.value)
    check_address(Address(host=host, allows_plain=True))
    check_address(Address(host=host, certificate="c.pem", key="k.pem"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    """The addresses of this machine alone are served without TLS."""
    check_address(Address(host=host))


def test_certificate_and_key_belong_together() -> None:
    """One without the other is refused."""
    with pytest.raises(SpecError, match="belong together"):
        check_address(Address(certificate="c.pem"))


def test_names_of_the_operator_are_answered() -> None:
    """`--name` and the address itself join the names that the Host header may have."""
    settings = make_settings(Address(host="10.0.0.1"), ["Chat.Example"])
    assert {"chat.example", "10.0.0.1", "localhost"} <= set(settings.host_names)
