"""HTTP tools against a real server on loopback."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from tool_calls import call, executor, ran
from web import Answer, web

from toolchart.specs.secrets import resolve
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool
from toolchart.tools.sources.http.settings import fill, outgoing, parse_http
from toolchart.tools.sources.http.tool import http_tool

JSON = {"Content-Type": "application/json"}


def fetcher(url: str, **settings: Any) -> Tool:
    """An HTTP tool that may reach loopback."""
    idempotent = settings.pop("idempotent", False)
    parsed = parse_http({"url": url, "allow_hosts": ["127.0.0.1"], **settings}, "fetch")
    definition = ToolDefinition(
        name="fetch", description="", parameters={"type": "object", "additionalProperties": True}
    )
    return http_tool(definition, parsed, resolve=resolve, idempotent=idempotent)


def told(tool: Tool, arguments: dict[str, Any] | None = None) -> Any:
    """The event of one call."""
    return ran(executor(tool), call("fetch", arguments or {}))[0]


def as_json(value: Any, status: int = 200) -> Answer:
    """A JSON answer."""
    return status, JSON, json.dumps(value).encode()


def test_arguments_go_where_the_mapping_says() -> None:
    """S2.5: path, query, header and body each take their arguments, safely written."""
    with web(lambda asked: as_json({"ok": True})) as server:
        tool = fetcher(
            f"{server.url}/users/{{id}}/notes",
            method="POST",
            params_mapping={"q": "query:search", "trace": "header:X-Trace", "deep": "body:a.b"},
        )
        arguments = {"id": "a/../b?x", "q": ["one & two", 3], "trace": "t1", "deep": 5, "n": [1]}
        event = told(tool, arguments)
    (asked,) = server.asked
    assert event.result["result"] == {"ok": True}
    assert asked["path"] == "/users/a%2F..%2Fb%3Fx/notes?search=one+%26+two&search=3"
    assert asked["headers"]["X-Trace"] == "t1"
    assert json.loads(asked["body"]) == {"a": {"b": 5}, "n": [1]}
    assert asked["headers"]["Content-Type"] == "application/json"


def test_a_body_template_keeps_types_and_leaves_out_what_is_not_given() -> None:
    """S2.5: a lone slot keeps the argument's type; one without an argument is left out."""
    template = {"n": "{{n}}", "text": "n is {{n}}", "gone": "{{other}}", "list": ["{{n}}", 1]}
    assert fill(template, {"n": 5}) == {"n": 5, "text": "n is 5", "list": [5, 1]}


def test_response_path_picks_what_is_wanted() -> None:
    """S2.5: a JSONPath picks from the answer; nothing found is a failure that helps."""
    with web(lambda asked: as_json({"items": [{"t": 1}, {"t": 2}], "total": 2})) as server:
        one = told(fetcher(server.url, response_path="$.total"))
        many = told(fetcher(server.url, response_path="$.items[*].t"))
        none = told(fetcher(server.url, response_path="$.nope"))
    assert (one.result["result"], many.result["result"]) == (2, [1, 2])
    assert "top level: items, total" in none.result["error"]


def test_retries_only_what_may_pass() -> None:
    """Issue 6: 503 and 429 are tried again, another 4xx never, a POST only where declared."""
    statuses = iter([503, 429, 200, 404, 503, 503, 200])
    with web(lambda asked: as_json({}, next(statuses))) as server:
        again = {"retry": {"attempts": 3, "backoff_s": 0.0}}
        assert told(fetcher(server.url, **again)).outcome == "succeeded"
        assert len(server.asked) == 3
        missing = told(fetcher(server.url, **again))
        assert missing.result["error"].startswith("HTTP 404")
        assert len(server.asked) == 4
        assert told(fetcher(server.url, method="POST", **again)).outcome == "failed"
        assert len(server.asked) == 5
        posted = told(fetcher(server.url, method="POST", idempotent=True, **again))
        assert posted.outcome == "succeeded"
        assert len(server.asked) == 7


def test_secrets_are_filled_in_late_and_never_come_back(monkeypatch: Any) -> None:
    """Issue 6: the header is sent; neither result nor error holds the secret, echoed or not."""
    monkeypatch.setenv("WEATHER_KEY", "hush-hush-123")
    with web(lambda a: as_json({"echo": a["headers"], "path": a["path"]})) as server:
        tool = fetcher(
            server.url + "/x?key=${WEATHER_KEY}", headers={"Authorization": "Bearer ${WEATHER_KEY}"}
        )
        event = told(tool)
    (asked,) = server.asked
    assert asked["headers"]["Authorization"] == "Bearer hush-hush-123"
    assert "hush" not in json.dumps(event.result)
    assert event.result["result"]["echo"]["Authorization"] == "Bearer (secret)"
    with web(lambda asked: (400, JSON, asked["headers"]["Authorization"].encode())) as server:
        failed = told(fetcher(server.url, headers={"Authorization": "Bearer ${WEATHER_KEY}"}))
    assert failed.result["error"] == "HTTP 400 Bad Request: Bearer (secret)"
    monkeypatch.delenv("WEATHER_KEY")
    unset = told(tool)
    assert "WEATHER_KEY is not set" in unset.result["error"]


def test_a_redirect_to_another_host_loses_the_headers() -> None:
    """Issue 6: what the spec gives to one host is not sent to another."""
    with web(lambda asked: as_json(asked["headers"])) as second:
        to = f"http://127.0.0.1:{second.port}/there"
        with web(lambda asked: (302, {"Location": to}, b"")) as first:
            event = told(fetcher(first.url, headers={"X-Key": "k", "Authorization": "Bearer k"}))
    assert event.outcome == "succeeded"
    headers = second.asked[0]["headers"]
    assert "X-Key" not in headers
    assert "Authorization" not in headers


def test_redirects_follow_the_method_rules() -> None:
    """Issue 6: after 303 a POST becomes a GET without a body, after 307 it stays."""

    def answer(asked: dict[str, Any]) -> Answer:
        if asked["path"] == "/end":
            return as_json([asked["method"], len(asked["body"])])
        return int(asked["path"][1:]), {"Location": "/end"}, b""

    with web(answer) as server:
        seen = [
            told(fetcher(f"{server.url}/{status}", method="POST"), {"a": 1}).result["result"]
            for status in (303, 302, 307, 308)
        ]
    assert seen == [["GET", 0], ["GET", 0], ["POST", 8], ["POST", 8]]


def test_text_and_packed_answers_are_read() -> None:
    """Issue 6: text comes as text in its own charset; a packed answer is unpacked."""
    answers = iter(
        [
            (200, {"Content-Type": "text/plain; charset=iso-8859-2"}, "žluť".encode("iso-8859-2")),
            (200, {**JSON, "Content-Encoding": "gzip"}, gzip.compress(b'{"a": 1}')),
            (204, {}, b""),
            (200, {"Content-Type": "application/octet-stream"}, b"\x00"),
        ]
    )
    with web(lambda asked: next(answers)) as server:
        text, packed, empty, binary = (told(fetcher(server.url)) for _ in range(4))
    assert text.result["result"] == "žluť"
    assert packed.result["result"] == {"a": 1}
    assert empty.result["result"] is None
    assert "application/octet-stream" in binary.result["error"]


def test_a_dead_host_is_a_failure_in_words() -> None:
    """S2.4: a connection that fails names the host and no internals."""
    with web(lambda asked: as_json({})) as server:
        url = server.url
    event = told(fetcher(url, retry={"attempts": 1}))
    assert event.result["error"] == "127.0.0.1 could not be reached (ConnectError)"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "url"),
        ({"url": "https://x/", "metod": "GET"}, "did you mean 'method'"),
        ({"url": "https://x/", "method": "FETCH"}, "method"),
        ({"url": "ftp://x/"}, "no http address"),
        ({"url": "https://{host}/x"}, "cannot choose the host"),
        ({"url": "https://api.{domain}?x"}, "cannot choose the host"),
        ({"url": "https://x/", "params_mapping": {"a": "cookie:b"}}, "params_mapping.a"),
        ({"url": "https://x/", "retry": {"attempts": 0}}, "retry.attempts"),
    ],
)
def test_settings_that_cannot_be_are_named(data: dict[str, Any], words: str) -> None:
    """Issue 6: a misspelt or impossible setting is an error of the spec that helps."""
    with pytest.raises(SpecError) as caught:
        parse_http(data, "fetch")
    assert words in str(caught.value)
    assert "'fetch'" in str(caught.value)


def test_a_broken_path_is_found_when_the_tool_is_made() -> None:
    """Issue 6: a response path that is no JSONPath is an error of the spec."""
    with pytest.raises(SpecError, match="no JSONPath"):
        fetcher("https://x/", response_path="$[")


def test_environment_and_arguments_do_not_mix_in_an_address() -> None:
    """Issue 6: `${NAME}` is the environment's, `{name}` an argument's, also where both stand."""
    settings = parse_http({"url": "https://x/${TENANT}/{id}"}, "t")
    assert outgoing(settings, {"id": "7"}).url == "https://x/${TENANT}/7"
