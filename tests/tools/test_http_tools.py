"""Tests of HTTP tools against a real server on loopback."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from tool_calls import make_call, make_executor, run_calls
from web import WebAnswer, serve_web

from toolchart.specs.secrets import resolve_environment
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool
from toolchart.tools.sources.http.settings import build_request, fill_template, parse_http_settings
from toolchart.tools.sources.http.tool import make_http_tool

JSON = {"Content-Type": "application/json"}


def make_fetcher(url: str, **settings: Any) -> Tool:
    """An HTTP tool that may reach loopback."""
    idempotent = settings.pop("idempotent", False)
    http_settings = parse_http_settings({"url": url, "allow_hosts": ["127.0.0.1"], **settings}, "fetch")
    definition = ToolDefinition(
        name="fetch", description="", parameters={"type": "object", "additionalProperties": True}
    )
    return make_http_tool(definition, http_settings, resolve=resolve_environment, idempotent=idempotent)


def run_fetch(tool: Tool, arguments: dict[str, Any] | None = None) -> Any:
    """The event of one call."""
    return run_calls(make_executor(tool), make_call("fetch", arguments or {}))[0]


def make_json_response(value: Any, status: int = 200) -> WebAnswer:
    """A JSON answer."""
    return status, JSON, json.dumps(value).encode()


def test_arguments_go_where_the_mapping_says() -> None:
    """S2.5: arguments are encoded safely in path, query, header and body."""
    with serve_web(lambda request: make_json_response({"ok": True})) as server:
        tool = make_fetcher(
            f"{server.url}/users/{{id}}/notes",
            method="POST",
            params_mapping={"q": "query:search", "trace": "header:X-Trace", "deep": "body:a.b"},
        )
        arguments = {"id": "a/../b?x", "q": ["one & two", 3], "trace": "t1", "deep": 5, "n": [1]}
        event = run_fetch(tool, arguments)
    (request,) = server.requests
    assert event.result["result"] == {"ok": True}
    assert request["path"] == "/users/a%2F..%2Fb%3Fx/notes?search=one+%26+two&search=3"
    assert request["headers"]["X-Trace"] == "t1"
    assert json.loads(request["body"]) == {"a": {"b": 5}, "n": [1]}
    assert request["headers"]["Content-Type"] == "application/json"


def test_a_body_template_keeps_types_and_leaves_out_what_is_not_given() -> None:
    """S2.5: a lone slot keeps the argument's type; one without an argument is left out."""
    template = {"n": "{{n}}", "text": "n is {{n}}", "gone": "{{other}}", "list": ["{{n}}", 1]}
    assert fill_template(template, {"n": 5}) == {"n": 5, "text": "n is 5", "list": [5, 1]}


def test_response_path_selects_a_part() -> None:
    """S2.5: a JSONPath selects a part of the response; without a match the error lists the keys."""
    with serve_web(lambda request: make_json_response({"items": [{"t": 1}, {"t": 2}], "total": 2})) as server:
        single = run_fetch(make_fetcher(server.url, response_path="$.total"))
        several = run_fetch(make_fetcher(server.url, response_path="$.items[*].t"))
        missing = run_fetch(make_fetcher(server.url, response_path="$.nope"))
    assert (single.result["result"], several.result["result"]) == (2, [1, 2])
    assert "top level: items, total" in missing.result["error"]


def test_only_transient_failures_are_retried() -> None:
    """Issue 6: 503 and 429 are retried, other 4xx never, and a POST only if declared idempotent."""
    statuses = iter([503, 429, 200, 404, 503, 503, 200])
    with serve_web(lambda request: make_json_response({}, next(statuses))) as server:
        retry_settings = {"retry": {"attempts": 3, "backoff_s": 0.0}}
        assert run_fetch(make_fetcher(server.url, **retry_settings)).outcome == "succeeded"
        assert len(server.requests) == 3
        missing = run_fetch(make_fetcher(server.url, **retry_settings))
        assert missing.result["error"].startswith("HTTP 404")
        assert len(server.requests) == 4
        assert run_fetch(make_fetcher(server.url, method="POST", **retry_settings)).outcome == "failed"
        assert len(server.requests) == 5
        repeated_post = run_fetch(make_fetcher(server.url, method="POST", idempotent=True, **retry_settings))
        assert repeated_post.outcome == "succeeded"
        assert len(server.requests) == 7


def test_secrets_are_filled_in_late_and_never_come_back(monkeypatch: Any) -> None:
    """Issue 6: the header is sent; neither result nor error contains the secret, even if echoed."""
    monkeypatch.setenv("WEATHER_KEY", "hush-hush-123")
    with serve_web(lambda a: make_json_response({"echo": a["headers"], "path": a["path"]})) as server:
        tool = make_fetcher(
            server.url + "/x?key=${WEATHER_KEY}", headers={"Authorization": "Bearer ${WEATHER_KEY}"}
        )
        event = run_fetch(tool)
    (request,) = server.requests
    assert request["headers"]["Authorization"] == "Bearer hush-hush-123"
    assert "hush" not in json.dumps(event.result)
    assert event.result["result"]["echo"]["Authorization"] == "Bearer (secret)"
    with serve_web(lambda request: (400, JSON, request["headers"]["Authorization"].encode())) as server:
        failure = run_fetch(make_fetcher(server.url, headers={"Authorization": "Bearer ${WEATHER_KEY}"}))
    assert failure.result["error"] == "HTTP 400 Bad Request: Bearer (secret)"
    monkeypatch.delenv("WEATHER_KEY")
    unset_variable = run_fetch(tool)
    assert "WEATHER_KEY is not set" in unset_variable.result["error"]


def test_a_redirect_to_another_host_loses_the_headers() -> None:
    """Issue 6: the headers of the spec are not sent to another host."""
    with serve_web(lambda request: make_json_response(request["headers"])) as second:
        to = f"http://127.0.0.1:{second.port}/there"
        with serve_web(lambda request: (302, {"Location": to}, b"")) as first:
            event = run_fetch(make_fetcher(first.url, headers={"X-Key": "k", "Authorization": "Bearer k"}))
    assert event.outcome == "succeeded"
    headers = second.requests[0]["headers"]
    assert "X-Key" not in headers
    assert "Authorization" not in headers


def test_redirects_follow_the_method_rules() -> None:
    """Issue 6: after 303 a POST becomes a GET without a body, after 307 it stays."""

    def answer(request: dict[str, Any]) -> WebAnswer:
        if request["path"] == "/end":
            return make_json_response([request["method"], len(request["body"])])
        return int(request["path"][1:]), {"Location": "/end"}, b""

    with serve_web(answer) as server:
        results = [
            run_fetch(make_fetcher(f"{server.url}/{status}", method="POST"), {"a": 1}).result["result"]
            for status in (303, 302, 307, 308)
        ]
    assert results == [["GET", 0], ["GET", 0], ["POST", 8], ["POST", 8]]


def test_text_and_packed_answers_are_read() -> None:
    """Issue 6: text is decoded in its charset, a compressed response is decompressed."""
    answers = iter(
        [
            (200, {"Content-Type": "text/plain; charset=iso-8859-2"}, "žluť".encode("iso-8859-2")),
            (200, {**JSON, "Content-Encoding": "gzip"}, gzip.compress(b'{"a": 1}')),
            (204, {}, b""),
            (200, {"Content-Type": "application/octet-stream"}, b"\x00"),
        ]
    )
    with serve_web(lambda request: next(answers)) as server:
        text, compressed, empty, binary = (run_fetch(make_fetcher(server.url)) for _ in range(4))
    assert text.result["result"] == "žluť"
    assert compressed.result["result"] == {"a": 1}
    assert empty.result["result"] is None
    assert "application/octet-stream" in binary.result["error"]


def test_a_dead_host_is_a_failure_in_words() -> None:
    """S2.4: a connection that fails names the host and no internals."""
    with serve_web(lambda request: make_json_response({})) as server:
        url = server.url
    event = run_fetch(make_fetcher(url, retry={"attempts": 1}))
    assert event.result["error"] == "127.0.0.1 could not be reached (ConnectError)"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "url"),
        ({"url": "https://x/", "metod": "GET"}, "did you mean 'method'"),
        ({"url": "https://x/", "method": "FETCH"}, "method"),
        ({"url": "ftp://x/"}, "not an http address"),
        ({"url": "https://{host}/x"}, "cannot choose the host"),
        ({"url": "https://api.{domain}?x"}, "cannot choose the host"),
        ({"url": "https://x/", "params_mapping": {"a": "cookie:b"}}, "params_mapping.a"),
        ({"url": "https://x/", "retry": {"attempts": 0}}, "retry.attempts"),
    ],
)
def test_invalid_settings_are_named(data: dict[str, Any], words: str) -> None:
    """Issue 6: a misspelt or invalid setting is a `SpecError` with a hint."""
    with pytest.raises(SpecError) as caught:
        parse_http_settings(data, "fetch")
    assert words in str(caught.value)
    assert "'fetch'" in str(caught.value)


def test_a_broken_path_is_found_when_the_tool_is_made() -> None:
    """Issue 6: a response path that is not a JSONPath is a `SpecError`."""
    with pytest.raises(SpecError, match="not a JSONPath"):
        make_fetcher("https://x/", response_path="$[")


def test_environment_and_arguments_do_not_mix_in_an_address() -> None:
    """Issue 6: `${NAME}` is an environment variable and `{name}` an argument, also side by side."""
    settings = parse_http_settings({"url": "https://x/${TENANT}/{id}"}, "t")
    assert build_request(settings, {"id": "7"}).url == "https://x/${TENANT}/7"
