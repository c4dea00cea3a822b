"""The recorder: appends every exchange of a provider with its host to a cassette, without secrets.

A recorder hooks into the SDK's HTTP client. It passes each part of a response body on as it comes, and writes
the exchange when the body has ended, so that streaming is not delayed. The file has vcrpy's YAML format;
`provider: recorded` answers from it.

Only the headers in `RECORDED_HEADERS` are written. Three kinds of secrets are replaced wherever they appear:
values of variables, keys that stand in the `llms` entry itself, and everything that looks like a key.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import yaml

from toolchart.providers.hosts import HOSTS
from toolchart.providers.transport.connections import HttpHooks
from toolchart.providers.transport.reply_guard import make_stream_class
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import SECRET_PLACEHOLDER, find_literal_secrets, find_references, strike_secrets
from toolchart.states.errors import SpecError

log = logging.getLogger("toolchart.providers")

CASSETTE_HEAD = "# Recorded by Toolchart, without secrets.\nversion: 1\ninteractions:\n"
"""The first lines of every cassette that the recorder writes."""

_LINE_WIDTH = 1_000_000
"""Columns of the YAML: one body, one line. libyaml counts them in a C int."""

RECORDED_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
"""The headers that are recorded: those that reading the response needs."""

_KEY_PATTERN = re.compile(r"\b(?:sk|pk|rk|gsk|xai)-[\w-]{16,}|\bAIza[\w-]{20,}|(?<=Bearer )[\w.~+/-]{16,}=*")
"""What looks like a key. Source: the forms of OpenAI, OpenRouter, Groq, xAI and Google keys."""

_MIN_SECRET_LENGTH, _MIN_LITERAL_LENGTH = 4, 8
"""Shorter values of variables, or of keys in the entry, are not replaced: they stand in ordinary words, and
`api_key: ollama` is a common placeholder for no key."""


class Recorder:
    """Writes the exchanges of one provider to a cassette.

    Args:
        path: the cassette; if a recorder wrote it before, new exchanges are appended.
        config: the entry, for the secrets in it.

    Raises:
        SpecError: the file is something else, or cannot be written.
    """

    def __init__(self, path: Path, config: LLMConfig) -> None:
        self._path = path
        self._replacements = {
            value: SECRET_PLACEHOLDER
            for value in find_literal_secrets(config.model_dump())
            if len(value) >= _MIN_LITERAL_LENGTH
        }
        """What is written instead of each secret."""
        for name in (name for host in HOSTS.known_rows for name in host.key_variables or ()):
            self._hide_secret(os.environ.get(name, ""), f"${{{name}}}")
        _create_cassette(path)

    def track_secrets(self, resolve: Callable[[str], str]) -> Callable[[str], str]:
        """Wrap the function that fills in variables, so that their values are replaced in the cassette."""

        def resolve_and_hide(text: str) -> str:
            for name, reference in find_references(text):
                self._hide_secret(resolve(reference), f"${{{name}}}")
            return resolve(text)

        return resolve_and_hide

    def build_hooks(self) -> HttpHooks:
        """The event hooks of an HTTP client, after those that guard replies, which decompress them."""
        return {"request": [], "response": [self._observe_response]}

    # -- one exchange ----------------------------------------------------------------------------

    async def _observe_response(self, response: Any) -> None:
        """Replace the stream of a response by one that records its body."""
        stream_class = make_stream_class(_ObservedStream, response, "AsyncByteStream")
        response.stream = stream_class(
            response.stream, lambda parts: self._record_exchange(response, b"".join(parts))
        )

    def _record_exchange(self, response: Any, body: bytes) -> None:
        try:
            _append_interaction(self._path, self._encode_interaction(response, body))
        except Exception as error:
            # A failed recording must not end the conversation.
            log.warning("an exchange was not recorded in %s: %s", self._path, error)

    def _encode_interaction(self, response: Any, body: bytes) -> dict[str, Any]:
        """An exchange in vcrpy's format, without secrets."""
        request = response.request
        return {
            "request": {
                "method": request.method,
                "uri": self._hide_secrets(_strip_credentials(str(request.url))),
                "headers": _select_headers(request.headers),
                "body": self._encode_body(request.content),
            },
            "response": {
                "status": {"code": response.status_code, "message": response.reason_phrase},
                "headers": _select_headers(response.headers),
                "body": {"string": self._encode_body(body)},
            },
        }

    # -- secrets ---------------------------------------------------------------------------------

    def _hide_secret(self, value: str, replacement: str) -> None:
        """Have a value replaced in everything that is written from now on."""
        if len(value) >= _MIN_SECRET_LENGTH:
            self._replacements[value] = replacement

    def _encode_body(self, body: bytes) -> str | bytes:
        """A body without secrets: as text, or as bytes where it is not UTF-8."""
        try:
            return self._hide_secrets(body.decode("utf-8"))
        except UnicodeDecodeError:
            return self._hide_secrets(body.decode("latin-1")).encode("latin-1")

    def _hide_secrets(self, text: str) -> str:
        """The text with every secret replaced."""
        for value in sorted(self._replacements, key=len, reverse=True):
            # As it is, inside JSON, inside a URL, and in bytes that are not text.
            as_bytes = value.encode().decode("latin-1")
            for spelling in {value, json.dumps(value)[1:-1], quote(value, safe=""), as_bytes}:
                text = text.replace(spelling, self._replacements[value])
        return _KEY_PATTERN.sub(SECRET_PLACEHOLDER, strike_secrets(text))


def _select_headers(headers: Mapping[str, str]) -> dict[str, list[str]]:
    """The headers that are recorded."""
    return {name: [headers[name]] for name in RECORDED_HEADERS if name in headers}


def _strip_credentials(uri: str) -> str:
    """The URI without user, password and query. `alt=sse` stays: it marks a streamed response."""
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    query = "alt=sse" if "alt=sse" in parts.query.split("&") else ""
    return parts._replace(netloc=host, query=query, fragment="").geturl()


# -- observing a body ----------------------------------------------------------------------------


class _ObservedStream:
    """A response body that calls back once with all its parts, when it has ended or is closed."""

    def __init__(self, inner: Any, on_end: Callable[[Iterable[bytes]], None]) -> None:
        self._inner = inner
        self._on_end: Callable[[Iterable[bytes]], None] | None = on_end
        self._parts: list[bytes] = []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            self._parts.append(part)
            yield part
        self._call_back()

    async def aclose(self) -> None:
        """Close the connection. Of a body that was cut the parts so far are recorded."""
        try:
            await self._inner.aclose()
        finally:
            self._call_back()

    def _call_back(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self._parts)


# -- the file ------------------------------------------------------------------------------------


def _create_cassette(path: Path) -> None:
    """Create an empty cassette, or check that the file is a cassette of ours."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock_folder(path):
            if not path.exists():
                _replace_file(path, CASSETTE_HEAD.encode())
        is_ours = path.read_bytes().startswith(CASSETTE_HEAD.encode())
    except OSError as error:
        raise SpecError(
            f"the cassette cannot be written: {error.strerror}", file=str(path), path="llms.*.record"
        ) from None
    if not is_ours:
        raise SpecError(
            "the file exists and is not a cassette of Toolchart",
            file=str(path),
            path="llms.*.record",
            hint="record to another file: nothing is overwritten",
        )


def _append_interaction(path: Path, interaction: dict[str, Any]) -> None:
    """Append one exchange completely or not at all. Processes take turns."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump([interaction], Dumper=dumper, sort_keys=False, allow_unicode=True, width=_LINE_WIDTH)
    with _lock_folder(path):
        before = path.read_bytes() if path.exists() else CASSETTE_HEAD.encode()
        _replace_file(path, before + text.encode())


@contextmanager
def _lock_folder(path: Path) -> Iterator[None]:
    """Let one writer in at a time. The lock is on the folder, since the file itself is replaced."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace_file(path: Path, data: bytes) -> None:
    """Replace a file in one step: readers see the old content or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
