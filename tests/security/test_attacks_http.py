"""Attacks on HTTP tools: no private address is reached, by whatever spelling or detour."""

from __future__ import annotations

import gzip
import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_calls import call, executor, ran
from web import Answer, web

from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import ToolFailure
from toolchart.tools.sources.http.address_guard import Guard, is_public
from toolchart.tools.sources.http.settings import outgoing, parse_http
from toolchart.tools.sources.http.tool import http_tool

PRIVATE = (
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.8",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "2002:7f00:1::",
    "2002:a00:1::",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2001:0:0:0:0:0:80ff:fffe",
    "2001:db8::1",
    "64:ff9b:1::a00:1",
    "3fff::1",
    "5f00::1",
    "fec0::1",
    "100::1",
    "not an address",
)
PUBLIC = ("93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")


def tool(url: str, *, guard: Guard | None = None, **settings: Any) -> Any:
    """An HTTP tool named `fetch`."""
    parsed = parse_http({"url": url, "retry": {"attempts": 1}, **settings}, "fetch")
    definition = ToolDefinition(
        name="fetch", description="", parameters={"type": "object", "additionalProperties": True}
    )
    return http_tool(definition, parsed, resolve=lambda text, where: text, guard=guard)


def told(made: Any, **arguments: Any) -> Any:
    """The result of one call."""
    return ran(executor(made), call("fetch", arguments))[0].result


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_seen_through_every_wrapping(address: str) -> None:
    """Issue 6: loopback, private, link-local, mapped and tunnelled addresses are not public."""
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_public(address: str) -> None:
    """Issue 6: what is on the public network may be reached."""
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_a_wrapped_address_is_judged_as_the_bare_one(address: Any) -> None:
    """Issue 6: wrapping an IPv4 address in IPv6 changes nothing."""
    assert is_public(f"::ffff:{address}") == is_public(str(address))
    assert is_public(f"64:ff9b::{address}") == is_public(str(address))


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
    """Issue 6: whatever the spelling, a server on this machine hears nothing."""
    with web(lambda asked: (200, {}, b"inside")) as server:
        name, _, rest = host.partition("#")
        result = told(tool(f"http://{name}:{server.port}/{'#' + rest if rest else ''}"))
    assert not result["success"]
    assert server.asked == []


async def test_every_address_behind_a_name_must_be_public() -> None:
    """Issue 6: a name that stands for a public and a private address is refused."""

    async def both(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(ToolFailure, match="not on the public network"):
        await Guard(resolver=both).address("https", "evil.example", 443)
    for scheme in ("file", "ftp", "gopher", "javascript"):
        with pytest.raises(ToolFailure, match="only http and https"):
            await Guard(resolver=both).address(scheme, "x", 1)


def test_a_second_look_up_cannot_answer_differently() -> None:
    """Issue 6: the connection goes to the address that was judged; the name is not asked again."""
    answers = iter([["127.0.0.1"], ["203.0.113.7"]])
    asked_for: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked_for.append(host)
        return next(answers)

    def answer(asked: dict[str, Any]) -> Answer:
        return 200, {"Content-Type": "text/plain"}, asked["headers"]["Host"].encode()

    with web(answer) as server:
        guard = Guard(resolver=rebinding, allow_hosts=("rebind.example",))
        result = told(tool(f"http://rebind.example:{server.port}/", guard=guard))
    assert result["result"] == f"rebind.example:{server.port}"
    assert asked_for == ["rebind.example"]


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
    """Issue 6: a redirect is judged anew; only the host that was named may be private."""

    def answer(asked: dict[str, Any]) -> Answer:
        if asked["path"] == "/start":
            return 302, {"Location": target.format(port=server.port)}, b""
        return 200, {}, b"inside"

    with web(answer) as server:
        result = told(tool(f"{server.url}/start", allow_hosts=["127.0.0.1"]))
    assert not result["success"]
    assert [asked["path"] for asked in server.asked] == ["/start"]


def test_redirects_without_end_are_ended() -> None:
    """Issue 6: a loop of redirects stops at its limit."""
    with web(lambda asked: (302, {"Location": "/again"}, b"")) as server:
        result = told(tool(server.url, allow_hosts=["127.0.0.1"], max_redirects=3))
    assert "more than 3 redirects" in result["error"]
    assert len(server.asked) == 4


def test_a_packed_answer_cannot_fill_the_memory() -> None:
    """Issue 6: a small packed answer that unpacks without end is stopped at the size."""
    bomb = gzip.compress(b"\0" * 200_000_000, 9)
    headers = {"Content-Encoding": "gzip", "Content-Type": "text/plain"}
    with web(lambda asked: (200, headers, bomb)) as server:
        result = told(tool(server.url, allow_hosts=["127.0.0.1"], max_bytes=100_000))
    assert "larger than 100000 bytes" in result["error"]


def test_a_large_answer_is_not_read_to_its_end() -> None:
    """Issue 6: an answer beyond its size is refused, an error's body is cut."""
    answers = iter(
        [(200, {"Content-Type": "text/plain"}, b"x" * 500_000), (500, {}, b"y" * 500_000)]
    )
    with web(lambda asked: next(answers)) as server:
        made = tool(server.url, allow_hosts=["127.0.0.1"], max_bytes=1000, method="POST")
        large, failed = told(made), told(made)
    assert "larger than 1000 bytes" in large["error"]
    assert failed["error"].startswith("HTTP 500")
    assert len(failed["error"]) < 400


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "\x00", "é", "\u2028"])
def test_a_header_cannot_be_broken_open(value: str) -> None:
    """Issue 6: an argument in a header carries no line end and no odd character."""
    settings = parse_http({"url": "https://x/", "params_mapping": {"h": "header:X-A"}}, "t")
    with pytest.raises(ToolFailure, match="header"):
        outgoing(settings, {"h": value})


@given(value=st.text(max_size=30))
def test_an_argument_cannot_leave_its_place_in_the_address(value: str) -> None:
    """Issue 6: whatever an argument holds, host and path around it stay as they are."""
    settings = parse_http({"url": "https://api.example.com/v1/{id}/end"}, "t")
    try:
        url = outgoing(settings, {"id": value.encode("utf-8", "replace").decode()}).url
    except ToolFailure:
        assert value in ("", ".", "..")
        return
    prefix, rest = url[:27], url[27:]
    assert prefix == "https://api.example.com/v1/"
    assert rest.endswith("/end")
    assert rest.count("/") == 1
    assert not set(rest) & set("?#@\\")


def test_a_body_cannot_be_broken_open() -> None:
    """Issue 6: an argument inside a body template stays a value, whatever quotes it holds."""
    settings = parse_http(
        {"url": "https://x/", "method": "POST", "body": {"q": "{{q}}", "admin": False}}, "t"
    )
    made = outgoing(settings, {"q": '", "admin": true, "x": "{{q}}'})
    assert json.loads(made.content or b"") == {"q": '", "admin": true, "x": "{{q}}', "admin": False}


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6: a proxy would connect where the guard cannot look."""
    with web(lambda asked: (200, {}, b"")) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        with web(lambda asked: (200, {"Content-Type": "text/plain"}, b"direct")) as server:
            result = told(tool(server.url, allow_hosts=["127.0.0.1"]))
    assert result["result"] == "direct"
    assert proxy.asked == []


def test_allowing_a_host_allows_that_host_alone() -> None:
    """Issue 6: `allow_hosts` names a host, with a port where one is meant; others stay refused."""
    with web(lambda asked: (200, {"Content-Type": "text/plain"}, b"ok")) as server:
        port = server.port
        assert told(tool(server.url, allow_hosts=[f"127.0.0.1:{port}"]))["success"]
        assert not told(tool(server.url, allow_hosts=[f"127.0.0.1:{port + 1}"]))["success"]
        assert not told(tool(server.url, allow_hosts=["127.0.0.2"]))["success"]
    assert socket.gethostname()  # the name of this machine is no way in either
