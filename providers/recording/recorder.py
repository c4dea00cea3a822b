"""Recording: every exchange of a provider with its host, appended to a cassette, without secrets.

A recorder listens where the SDK's HTTP client gives a response over: it passes each part of the body on
as it comes and writes the exchange when the body has ended, so that streaming is not held up. What is
written is vcrpy's own spelling, in YAML; `provider: recorded` answers from it.

No header is written but those listed here. Values of variables, keys that stand in the entry itself, and
what looks like a key are replaced wherever they appear.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import yaml

from toolchart.providers.recording.cassettes import decompressed
from toolchart.providers.shared.settings import Hooks
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import HIDDEN, literal_secrets, references
from toolchart.states.errors import SpecError

log = logging.getLogger("toolchart.providers")

HEAD = "# Recorded by Toolchart, without secrets.\nversion: 1\ninteractions:\n"

_WIDTH = 1_000_000
"""Columns of the YAML: one body, one line. libyaml counts them in a C int."""

KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
"""Headers that a reader of the answer needs."""

_CODINGS = "gzip, deflate"
"""What the host may compress with: what this reader can undo."""

_KEYS = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai)-[\w-]{16,}|\bAIza[\w-]{20,}|(?<=Bearer )[\w.~+/-]{16,}=*"
)
"""What is a key by its looks. Source: the forms of OpenAI, OpenRouter, Groq, xAI and Google keys."""

_AMBIENT = (
    "OPENAI_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OLLAMA_API_KEY",
)

_LEAST, _LEAST_LITERAL = 4, 8
"""Characters from which on a value is replaced: shorter ones stand in ordinary words, and `api_key: ollama`
is a common way to say nothing."""


class Recorder:
    """Writes the exchanges of one provider to a cassette.

    Args:
        path: the cassette; one that this wrote before is gone on with.
        config: the entry, for the secrets that stand in it.

    Raises:
        SpecError: the file is something else, or cannot be written.
    """

    def __init__(self, path: Path, config: LLMConfig) -> None:
        self._path = path
        self._secrets = {
            value: HIDDEN
            for value in literal_secrets(config.model_dump())
            if len(value) >= _LEAST_LITERAL
        }
        for name in _AMBIENT:
            self._hide(os.environ.get(name, ""), f"${{{name}}}")
        _begin(path)

    def watching(self, resolve: Callable[[str], str]) -> Callable[[str], str]:
        """The same resolving, with an eye on what is secret in it."""

        def resolved(text: str) -> str:
            for name, reference in references(text):
                self._hide(resolve(reference), f"${{{name}}}")
            return resolve(text)

        return resolved

    def hooks(self) -> Hooks:
        """What the SDK's HTTP client has to call."""
        return {"request": [_plain], "response": [self._watch]}

    # -- one exchange ----------------------------------------------------------------------------

    async def _watch(self, response: Any) -> None:
        response.stream = _seen_kind(type(response).__module__.partition(".")[0])(
            response.stream, lambda parts: self._keep(response, b"".join(parts))
        )

    def _keep(self, response: Any, body: bytes) -> None:
        try:
            _append(self._path, self._interaction(response, body))
        except Exception as error:
            # The conversation must not end because its recording did.
            log.warning("an exchange was not recorded in %s: %s", self._path, error)

    def _interaction(self, response: Any, body: bytes) -> dict[str, Any]:
        request = response.request
        plain = decompressed(body, response.headers.get("content-encoding", ""))
        return {
            "request": {
                "method": request.method,
                "uri": self._clean(_without_query(str(request.url))),
                "headers": _kept(request.headers),
                "body": self._text(request.content),
            },
            "response": {
                "status": {"code": response.status_code, "message": response.reason_phrase},
                "headers": _kept(response.headers),
                "body": {"string": self._text(plain)},
            },
        }

    # -- secrets ---------------------------------------------------------------------------------

    def _hide(self, value: str, shown: str) -> None:
        if len(value) >= _LEAST:
            self._secrets[value] = shown

    def _text(self, body: bytes) -> str | bytes:
        try:
            return self._clean(body.decode("utf-8"))
        except UnicodeDecodeError:
            return self._clean(body.decode("latin-1")).encode("latin-1")

    def _clean(self, text: str) -> str:
        for value in sorted(self._secrets, key=len, reverse=True):
            # As it is, inside JSON, inside a URL, and in bytes that are no text.
            bare = value.encode().decode("latin-1")
            for spelt in {value, json.dumps(value)[1:-1], quote(value, safe=""), bare}:
                text = text.replace(spelt, self._secrets[value])
        return _KEYS.sub(HIDDEN, text)


async def _plain(request: Any) -> None:
    request.headers["accept-encoding"] = _CODINGS


def _kept(headers: Mapping[str, str]) -> dict[str, list[str]]:
    return {name: [headers[name]] for name in KEPT_HEADERS if name in headers}


def _without_query(uri: str) -> str:
    """Without user, password and query; of the query `alt`, which says that an answer is streamed."""
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    kept = "alt=sse" if "alt=sse" in parts.query.split("&") else ""
    return parts._replace(netloc=host, query=kept, fragment="").geturl()


# -- listening -----------------------------------------------------------------------------------


class _Seen:
    """A body on its way, seen part by part; told whole once, when it has ended or is closed."""

    def __init__(self, inner: Any, told: Callable[[Iterable[bytes]], None]) -> None:
        self._inner = inner
        self._told: Callable[[Iterable[bytes]], None] | None = told
        self._parts: list[bytes] = []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            self._parts.append(part)
            yield part
        self._end()

    async def aclose(self) -> None:
        """Close the connection; a body that was cut is recorded as it was seen."""
        try:
            await self._inner.aclose()
        finally:
            self._end()

    def _end(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(self._parts)


@lru_cache(maxsize=8)
def _seen_kind(library: str) -> Any:
    """`_Seen` as a stream of that HTTP library: the SDKs use two, and each demands its own base class."""
    return type("Seen", (_Seen, sys.modules[library].AsyncByteStream), {})


# -- the file ------------------------------------------------------------------------------------


def _begin(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path):
            if not path.exists():
                _replace(path, HEAD.encode())
        ours = path.read_bytes().startswith(HEAD.encode())
    except OSError as error:
        raise SpecError(
            f"the cassette cannot be written: {error.strerror}",
            file=str(path),
            path="llms.*.record",
        ) from None
    if not ours:
        raise SpecError(
            "the file is there and is no cassette of Toolchart's",
            file=str(path),
            path="llms.*.record",
            hint="record to another file: nothing is overwritten",
        )


def _append(path: Path, interaction: dict[str, Any]) -> None:
    """One more exchange: all of it or nothing, whatever happens; processes take turns."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(
        [interaction], Dumper=dumper, sort_keys=False, allow_unicode=True, width=_WIDTH
    )
    with _alone(path):
        before = path.read_bytes() if path.exists() else HEAD.encode()
        _replace(path, before + text.encode())


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Only one writer at a time; the lock is on the folder, since the file is replaced."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(path: Path, data: bytes) -> None:
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
