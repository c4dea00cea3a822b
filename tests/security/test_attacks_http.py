"""Attacks on HTTP tools: no spelling, redirect or DNS answer leads to a private address."""

from __future__ import annotations

import gzip
import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_calls import make_call, make_executor, run_calls
from web import WebAnswer, serve_web

from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import ToolFailure
from toolchart.tools.sources.http.address_guard import AddressGuard, is_public_address
from toolchart.tools.sources.http.settings import build_request, parse_http_settings
from toolchart.tools.sources.http.tool import make_http_tool

PRIVATE = (
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
    *("100.64.0.1", "192.0.0.8", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1"),
    *("fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
    *("::127.0.0.1", "2002:7f00:1::", "2002:a00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("2001:0:0:0:0:0:80ff:fffe", "2001:db8::1", "64:ff9b:1::a00:1", "3fff::1", "5f00::1", "fec0::1"),
    *("100::1", "not an address"),
)
PUBLIC = ("93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")


def make_fetch_tool(url: str, *, guard: AddressGuard | None = None, **settings: Any) -> Any:
    """Make an HTTP tool named `fetch`."""
    parsed = parse_http_settings({"url": url, "retry": {"attempts": 1}, **settings}, "fetch")
    definition = ToolDefinition(
        name="fetch", description="", parameters={"type": "object", "additionalProperties": True}
    )
    return make_http_tool(definition, parsed, resolve=lambda text, where: text, guard=guard)


def fetch(tool: Any, **arguments: Any) -> Any:
    """Call the tool once; return its result."""
    return run_calls(make_executor(tool), make_call("fetch", arguments))[0].result


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_seen_through_every_wrapping(address: str) -> None:
    """Issue 6: loopback, private, link-local, mapped and tunnelled addresses are not public."""
    assert not is_public_address(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_public(address: str) -> None:
    """Issue 6: addresses on the public network may be reached."""
    assert is_public_address(address)


@given(st.ip_addresses(v=4))
def test_a_wrapped_address_is_judged_as_the_bare_one(address: Any) -> None:
    """Issue 6: an IPv4 address wrapped in IPv6 is judged like the IPv4 address."""
    assert is_public_address(f"::ffff:{address}") == is_public_address(str(address))
    assert is_public_address(f"64:ff9b::{address}") == is_public_address(str(address))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "[::1]",
        "127.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "public@127.0.0.1",
        "127.0.0.1#@public",
        "%31%32%37.0.0.1",
    ],
)
def test_no_spelling_of_loopback_is_reached(host: str) -> None:
    """Issue 6: no spelling of loopback reaches a server on this machine."""
    with serve_web(lambda request: (200, {}, b"inside")) as server:
        name, _, rest = host.partition("#")
        result = fetch(make_fetch_tool(f"http://{name}:{server.port}/{'#' + rest if rest else ''}"))
    assert not result["success"]
    assert server.requests == []


async def test_every_address_behind_a_name_must_be_public() -> None:
    """Issue 6: a name that resolves to a public and a private address is refused."""

    async def resolve_to_both(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(ToolFailure, match="not on the public network"):
        await AddressGuard(resolver=resolve_to_both).choose_address("https", "evil.example", 443)
    for scheme in ("file", "ftp", "gopher", "javascript"):
        with pytest.raises(ToolFailure, match="only http and https"):
            await AddressGuard(resolver=resolve_to_both).choose_address(scheme, "x", 1)


def test_a_name_is_resolved_only_once() -> None:
    """Issue 6: the connection goes to the address that was checked; the name is not resolved again."""
    answers = iter([["127.0.0.1"], ["203.0.113.7"]])
    resolved_hosts: list[str] = []

    async def resolve_once_privately(host: str, port: int) -> list[str]:
        resolved_hosts.append(host)
        return next(answers)

    def answer(request: dict[str, Any]) -> WebAnswer:
        return 200, {"Content-Type": "text/plain"}, request["headers"]["Host"].encode()

    with serve_web(answer) as server:
        guard = AddressGuard(resolver=resolve_once_privately, allow_hosts=("rebind.example",))
        result = fetch(make_fetch_tool(f"http://rebind.example:{server.port}/", guard=guard))
    assert result["result"] == f"rebind.example:{server.port}"
    assert resolved_hosts == ["rebind.example"]


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2:{port}/",
        "http://localhost:{port}/",
        "//127.0.0.2:{port}/",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]:{port}/",
    ],
)
def test_no_redirect_leads_inside(target: str) -> None:
    """Issue 6: every redirect is checked again; only the host that `allow_hosts` names may be private."""

    def answer(request: dict[str, Any]) -> WebAnswer:
        if request["path"] == "/start":
            return 302, {"Location": target.format(port=server.port)}, b""
        return 200, {}, b"inside"

    with serve_web(answer) as server:
        result = fetch(make_fetch_tool(f"{server.url}/start", allow_hosts=["127.0.0.1"]))
    assert not result["success"]
    assert [request["path"] for request in server.requests] == ["/start"]


def test_redirects_without_end_are_ended() -> None:
    """Issue 6: a loop of redirects ends at the limit."""
    with serve_web(lambda request: (302, {"Location": "/again"}, b"")) as server:
        result = fetch(make_fetch_tool(server.url, allow_hosts=["127.0.0.1"], max_redirects=3))
    assert "more than 3 redirects" in result["error"]
    assert len(server.requests) == 4


def test_a_compressed_answer_cannot_fill_the_memory() -> None:
    """Issue 6: decompression of a small answer with huge content stops at `max_bytes`."""
    bomb = gzip.compress(b"\0" * 50_000_000)
    headers = {"Content-Encoding": "gzip", "Content-Type": "text/plain"}
    with serve_web(lambda request: (200, headers, bomb)) as server:
        result = fetch(make_fetch_tool(server.url, allow_hosts=["127.0.0.1"], max_bytes=100_000))
    assert "larger than 100000 bytes" in result["error"]


def test_a_large_answer_is_not_read_to_its_end() -> None:
    """Issue 6: an answer larger than `max_bytes` is refused; the body of an error is cut."""
    answers = iter([(200, {"Content-Type": "text/plain"}, b"x" * 500_000), (500, {}, b"y" * 500_000)])
    with serve_web(lambda request: next(answers)) as server:
        fetching = make_fetch_tool(server.url, allow_hosts=["127.0.0.1"], max_bytes=1000, method="POST")
        large, failed = fetch(fetching), fetch(fetching)
    assert "larger than 1000 bytes" in large["error"]
    assert failed["error"].startswith("HTTP 500")
    assert len(failed["error"]) < 400


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "\x00", "é", "\u2028"])
def test_an_argument_cannot_break_a_header(value: str) -> None:
    """Issue 6: an argument with a line end or a special character is refused in a header."""
    settings = parse_http_settings({"url": "https://x/", "params_mapping": {"h": "header:X-A"}}, "t")
    with pytest.raises(ToolFailure, match="header"):
        build_request(settings, {"h": value})


@given(value=st.text(max_size=30))
def test_an_argument_cannot_change_the_url_around_it(value: str) -> None:
    """Issue 6: no argument changes the host or the path around its place in the URL."""
    settings = parse_http_settings({"url": "https://api.example.com/v1/{id}/end"}, "t")
    try:
        url = build_request(settings, {"id": value.encode("utf-8", "replace").decode()}).url
    except ToolFailure:
        assert value in ("", ".", "..")
        return
    prefix, rest = url[:27], url[27:]
    assert prefix == "https://api.example.com/v1/"
    assert rest.endswith("/end")
    assert rest.count("/") == 1
    assert not set(rest) & set("?#@\\")


def test_an_argument_cannot_break_a_body() -> None:
    """Issue 6: an argument in a body template stays one value, even with quotes in it."""
    settings = parse_http_settings(
        {"url": "https://x/", "method": "POST", "body": {"q": "{{q}}", "admin": False}}, "t"
    )
    outgoing = build_request(settings, {"q": '", "admin": true, "x": "{{q}}'})
    assert json.loads(outgoing.content or b"") == {"q": '", "admin": true, "x": "{{q}}', "admin": False}


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6: a proxy from the environment, which the guard cannot check, is ignored."""
    with serve_web(lambda request: (200, {}, b"")) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        with serve_web(lambda request: (200, {"Content-Type": "text/plain"}, b"direct")) as server:
            result = fetch(make_fetch_tool(server.url, allow_hosts=["127.0.0.1"]))
    assert result["result"] == "direct"
    assert proxy.requests == []


def test_allowing_a_host_allows_that_host_alone() -> None:
    """Issue 6: `allow_hosts` allows a host, or a host and a port; all others stay refused."""
    with serve_web(lambda request: (200, {"Content-Type": "text/plain"}, b"ok")) as server:
        port = server.port
        assert fetch(make_fetch_tool(server.url, allow_hosts=[f"127.0.0.1:{port}"]))["success"]
        assert not fetch(make_fetch_tool(server.url, allow_hosts=[f"127.0.0.1:{port + 1}"]))["success"]
        assert not fetch(make_fetch_tool(server.url, allow_hosts=["127.0.0.2"]))["success"]
    assert socket.gethostname()


@pytest.mark.parametrize("objects", [240_000, 3_000_000])
def test_an_answer_of_small_objects_is_a_failed_call(objects: int) -> None:
    """An answer of 9 MB of empty objects, which took 650 MB, is refused before they are built; one within the
    limit of values, of which an object in a list counts as four, is read."""
    body = b"[" + b"{}," * objects + b"{}]"
    with serve_web(lambda request: (200, {"Content-Type": "application/json"}, body)) as server:
        tool = make_fetch_tool(f"http://127.0.0.1:{server.port}/", allow_hosts=["127.0.0.1"])
        [event] = run_calls(make_executor(tool), make_call("fetch", {}))
    assert ("more than 1,000,000 JSON values" in json.dumps(event.result)[:500]) == (objects > 10**6)
