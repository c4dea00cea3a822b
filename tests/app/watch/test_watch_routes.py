"""Which host a path belongs to, which variables lead programs to it, and which hosts the operator's name."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from toolchart.app.watch.client_variables import (
    HOST_NAMES,
    VARIABLES,
    build_environment,
    check_hosts,
    list_settings,
    read_hosts,
)
from toolchart.app.watch.routes import find_route
from toolchart.providers.hosts import find_host
from toolchart.states.errors import SpecError

ROUTES = [
    ("/openai/v1/chat/completions", "openai", "/chat/completions", "chat"),
    ("/openai/chat/completions", "openai", "/chat/completions", "chat"),
    ("/openai/v1/responses", "openai", "/responses", "responses"),
    ("/openai/v1/responses/resp_1/cancel", "openai", "/responses/resp_1/cancel", ""),
    ("/openai/v1/threads/t/messages", "openai", "/threads/t/messages", ""),
    ("/openai/v1/embeddings", "openai", "/embeddings", ""),
    ("/anthropic/v1/messages", "anthropic", "/v1/messages", "messages"),
    ("/anthropic/messages", "anthropic", "/v1/messages", "messages"),
    ("/anthropic/v1/messages/count_tokens", "anthropic", "/v1/messages/count_tokens", ""),
    ("/gemini/v1beta/models/m:generateContent", "gemini", "/v1beta/models/m:generateContent", "gemini"),
    ("/gemini/v1/models/m:streamGenerateContent", "gemini", "/v1/models/m:streamGenerateContent", "gemini"),
    ("/gemini/v1beta/models/m:countTokens", "gemini", "/v1beta/models/m:countTokens", ""),
    ("/gemini/v1beta/openai/chat/completions", "gemini", "/v1beta/openai/chat/completions", "chat"),
    ("/ollama/api/chat", "ollama", "/api/chat", "ollama"),
    ("/ollama/v1/api/chat", "ollama", "/api/chat", "ollama"),
    ("/ollama/v1/chat/completions", "ollama", "/v1/chat/completions", "chat"),
    ("/ollama", "ollama", "/", ""),
    ("/v1/chat/completions", "openai", "/chat/completions", "chat"),
    ("/v1/responses", "openai", "/responses", "responses"),
    ("/v1/messages", "anthropic", "/v1/messages", "messages"),
    ("/messages", "anthropic", "/v1/messages", "messages"),
    ("/v1beta/models/m:generateContent", "gemini", "/v1beta/models/m:generateContent", "gemini"),
    ("/v1/models/m:generateContent", "gemini", "/v1/models/m:generateContent", "gemini"),
    ("/api/chat", "ollama", "/api/chat", "ollama"),
    ("/api/tags", "ollama", "/api/tags", ""),
    ("/v1/models", "openai", "/models", ""),
]


@pytest.mark.parametrize(("path", "host", "host_path", "wire"), ROUTES)
def test_a_path_has_its_host(path: str, host: str, host_path: str, wire: str) -> None:
    """Paths with a prefix and without lead to a host, and are known for what they ask."""
    route = find_route("POST", path)
    assert route is not None
    assert (route.host, route.host_path, route.wire) == (host, host_path, wire)
    assert path.endswith(route.path) or route.path == "/"
    read = find_route("GET", path)
    assert read is not None
    assert (read.host, read.wire) == (host, "")


def test_a_header_tells_two_hosts_apart() -> None:
    """Paths that both have go to Anthropic where its header is sent."""
    route = find_route("GET", "/v1/models", has_anthropic_version=True)
    assert route is not None
    assert (route.host, route.host_path) == ("anthropic", "/v1/models")


@pytest.mark.parametrize("path", ["/", "/openaix/v1", "/v2/thing", "/favicon.ico", "//v1/models"])
def test_a_path_of_nobody_has_no_host(path: str) -> None:
    """What no host has is known as such."""
    assert find_route("GET", path) is None


def test_every_variable_leads_to_its_host() -> None:
    """Each value is the address with a path that the routes know."""
    settings = list_settings("http://127.0.0.1:9")
    assert len(settings) == len(VARIABLES)
    for variable in VARIABLES:
        path = urlsplit(settings[variable.name]).path
        route = find_route("POST", path)
        assert route is not None
        assert route.host == variable.host


def test_hosts_are_those_of_the_environment() -> None:
    """The option counts, then the operator's variable, then the host's own address."""
    assert read_hosts({}, {}) == {name: find_host(name).own_row.base_url for name in HOST_NAMES}
    environment = {
        "OPENAI_BASE_URL": "https://gateway.example/openai/v1/",
        "ANTHROPIC_API_URL": "https://a.example/v1",
        "GEMINI_API_BASE": "https://g.example/v1beta",
        "OLLAMA_HOST": "box:1234",
        "OLLAMA_BASE_URL": "http://box:1234/v1",
    }
    expected = {
        "openai": "https://gateway.example/openai/v1",
        "anthropic": "https://a.example",
        "gemini": "https://g.example",
        "ollama": "http://box:1234",
    }
    assert read_hosts({}, environment) == expected
    options = {"openai": "http://127.0.0.1:8000/v1", "gemini": None}
    assert read_hosts(options, environment) == {**expected, "openai": "http://127.0.0.1:8000/v1"}


def test_what_hosts_get_is_what_clients_would_send() -> None:
    """Base address and path together are where the client would have gone without the proxy."""
    hosts = read_hosts({}, {"OPENAI_BASE_URL": "https://gateway.example/api/v1"})
    for path, url in [
        ("/openai/v1/chat/completions", "https://gateway.example/api/v1/chat/completions"),
        ("/anthropic/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("/gemini/v1beta/models/m:x", "https://generativelanguage.googleapis.com/v1beta/models/m:x"),
    ]:
        route = find_route("POST", path)
        assert route is not None
        assert hosts[route.host] + route.host_path == url


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        ({}, {"OPENAI_BASE_URL": "https://a/v1", "OPENAI_API_BASE": "https://b/v1"}, "--openai URL"),
        ({"openai": "nonsense"}, {}, "--openai: this is no address"),
        ({}, {"ANTHROPIC_BASE_URL": "ftp://a"}, "ANTHROPIC_BASE_URL: this is no address"),
        ({"gemini": "https://user:word@g.example"}, {}, "no user and no password"),
    ],
)
def test_unusable_hosts_are_refused(
    options: dict[str, str | None], environment: dict[str, str], words: str
) -> None:
    """Nothing is guessed: two hosts in one place, no address and a password are errors in words."""
    with pytest.raises(SpecError, match=words) as caught:
        read_hosts(options, environment)
    assert "word@" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9/v1", "http://localhost:9", "http://[::1]:9", "http://0.0.0.0:9"]
)
def test_a_host_that_is_the_proxy_is_refused(address: str) -> None:
    """It would ask itself without end; another port of the machine is a host."""
    with pytest.raises(SpecError, match="the proxy itself"):
        check_hosts({"openai": address}, 9)
    check_hosts({"openai": address}, 10)


def test_the_environment_is_only_led_elsewhere() -> None:
    """All other variables stay; where an HTTP proxy is set, it is told that this machine needs none."""
    settings = list_settings("http://127.0.0.1:9")
    assert build_environment({"A": "b"}, "http://127.0.0.1:9") == {"A": "b", **settings}
    built = build_environment({"HTTPS_PROXY": "http://p", "NO_PROXY": "x.example"}, "http://127.0.0.1:9")
    assert built["NO_PROXY"] == built["no_proxy"] == "x.example,127.0.0.1,localhost"
