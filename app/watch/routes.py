"""Which host a request is for, and what it asks there, by its path."""

from __future__ import annotations

import re

import msgspec

from toolchart.app.watch.client_variables import HOST_NAMES
from toolchart.providers.hosts import CHAT, GENERATE_CONTENT, MESSAGES, OLLAMA_CHAT, RESPONSES


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes."""

    host: str
    """The host by its `provider` word."""
    path: str
    """The path as the program sent it, without the prefix of the proxy."""
    host_path: str
    """What is added to the base address of the host."""
    wire: str
    """The name of the wire format in which it asks a model; empty where it asks none."""


_PREFIX = re.compile(rf"/({'|'.join(HOST_NAMES)})(/.*)?", re.DOTALL)

_WIRES = (
    (re.compile(r"(/.*)?/chat/completions"), CHAT.name),
    (re.compile(r"(/.*)?/responses"), RESPONSES.name),
    # Not by its end alone: OpenAI's threads have `/messages` too, and ask no model.
    (re.compile(r"((/.*)?/v1)?/messages"), MESSAGES.name),
    (re.compile(r"/.*:(streamGenerateContent|generateContent)"), GENERATE_CONTENT.name),
    (re.compile(r"(/.*)?/api/chat"), OLLAMA_CHAT.name),
)
"""The wire format of a path that asks a model."""

_HOST_FORMS = (
    (re.compile(r"(/v1)?/messages(/.*)?"), "anthropic"),
    (re.compile(r"/(upload/)?v1(beta|alpha)[^/]*/.*|/.*:(streamGenerateContent|generateContent)"), "gemini"),
    (re.compile(r"/api/.*"), "ollama"),
    (re.compile(r"/(chat/completions|responses)(/.*)?"), "openai"),
)
"""The host of a path without a prefix."""

_ANTHROPIC_ENDPOINT = re.compile(r"/(messages|models|files|complete)(/.*)?")
"""Paths that @ai-sdk/anthropic adds to a base address that ends in `/v1`, as its own does."""


_WITHOUT_CALLS = {
    "GET": re.compile(r"/|(/v\d\w*)?/(models|files)(/[^/:]+)?|/api/(tags|ps|version)"),
    "HEAD": re.compile(r"/.*"),
    "POST": re.compile(
        r"(/v\d\w*)?/(embeddings|moderations|files|messages/count_tokens|responses/input_tokens)"
        r"|(/v\d\w*)?/(audio|images)/\w+"
        r"|/.*:(countTokens|embedContent|batchEmbedContents)"
        r"|/api/(show|embed|embeddings|pull)"
    ),
}
"""By method: paths whose answers never ask for a call of a tool."""


def brings_no_calls(method: str, path: str) -> bool:
    """Whether no answer of a path that asks no model can have a call of a tool.

    Args:
        path: without the prefix of the proxy.
    """
    form = _WITHOUT_CALLS.get(method)
    return form is not None and form.fullmatch(path) is not None


def find_route(method: str, path: str, *, has_anthropic_version: bool = False) -> Route | None:
    """The route of a request; None where the path belongs to no host.

    Args:
        path: as it was sent, without its query.
        has_anthropic_version: whether it has the header `anthropic-version`, which tells apart the paths that
            two hosts have.
    """
    match = _PREFIX.fullmatch(path)
    if match is not None:
        host, path = match[1], match[2] or "/"
    else:
        host = next((host for form, host in _HOST_FORMS if form.fullmatch(path)), "")
        if not host and path.startswith("/v1/"):
            host = "anthropic" if has_anthropic_version else "openai"
        if not host:
            return None
    wires = _WIRES if method == "POST" else ()
    wire = next((wire for form, wire in wires if form.fullmatch(path)), "")
    return Route(host=host, path=path, host_path=_find_host_path(host, path), wire=wire)


def _find_host_path(host: str, path: str) -> str:
    """What a client's path is behind the base address of a host.

    Only the base address of OpenAI's API has a version in it: other hosts with this API have other paths
    there, as `/openai/v1` or `/api/v1`.
    """
    if host == "openai" and (path == "/v1" or path.startswith("/v1/")):
        return path[3:]
    if host == "anthropic" and _ANTHROPIC_ENDPOINT.fullmatch(path):
        return f"/v1{path}"
    if host == "ollama" and path.startswith("/v1/api/"):  # clients that add it to `OLLAMA_BASE_URL`
        return path[3:]
    return path
