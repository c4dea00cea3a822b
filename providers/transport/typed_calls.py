"""Calls through the typed public methods of the SDKs, with the body and the answer of the fast path.

The adapters hand bodies to an SDK's own connection, because its typed methods walk every message (see
`openai/client.py`) or drop what their types do not have (see `ollama/wire.py`). Programs that instrument
those methods see nothing then, and the names that the fast path uses are private. So `sdk: typed` in an
`llms` entry calls the methods, and an SDK that lacks a private name is called so too, with a warning.

What is sent stays exactly what was digested: the method gets what it can take of the body, and a hook of the
HTTP client puts the bytes of the body into the request that the method made. A second hook takes the bytes of
the answer, which our own decoders read; what the method makes of them is for those who watch it. Only a
stream with a piece that the SDK's types refuse ends there, where the fast path reads on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from sys import modules
from typing import Any

from toolchart.providers.shared.failures import read_http_error
from toolchart.providers.transport.connections import HttpHooks
from toolchart.providers.transport.reply_guard import make_stream_class

Method = Callable[[bool], Awaitable[Any]]
"""Calls a typed method with all that it can take of a body, or (False) with the least that it needs."""


class TypedCall:
    """One call of a typed method.

    Args:
        data: the bytes of the body.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pieces: list[bytes] = []
        self._headers: Mapping[str, str] = {}
        self._status = 0
        self._is_whole = False
        """Whether the answer was read to its end."""

    def put_body(self, request: Any) -> None:
        """Have a request carry the body."""
        library = modules[type(request).__module__.partition(".")[0]]
        request.stream = library.ByteStream(self._data)
        request.headers.pop("transfer-encoding", None)
        request.headers["content-length"] = str(len(self._data))

    def watch_answer(self, response: Any) -> None:
        """Have the bytes of an answer taken as they are read."""
        self._status, self._headers, self._pieces = response.status_code, response.headers, []
        kind = make_stream_class(_TakenStream, response, "AsyncByteStream")
        response.stream = kind(response.stream, self)

    def add_bytes(self, data: bytes) -> None:
        """Take the next bytes of the answer."""
        self._pieces.append(data)

    def finish(self) -> None:
        """The answer was read to its end."""
        self._is_whole = True

    def take_bytes(self) -> bytes:
        """The bytes that were read since the last time."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data

    @contextmanager
    def _activate(self) -> Iterator[None]:
        token = _current_call.set(self)
        try:
            yield
        finally:
            _current_call.reset(token)

    async def _begin(self, method: Method, *, stream: bool) -> tuple[Any, bool]:
        """What the method returns; of a stream its items after the first, and whether there was one.

        A method that refuses an argument before anything is sent is called again with the least.
        """
        with self._activate():
            for has_all in (True, False):
                try:
                    result = await method(has_all)
                    if not stream:
                        return result, True
                    # Some SDKs send the request when the first item is asked for.
                    return result, await anext(result, _NOTHING) is not _NOTHING
                except (TypeError, ValueError, AttributeError):
                    if self._status or not has_all:
                        raise
        raise AssertionError("one of two attempts returns or raises")

    def _check_status(self, error: Exception) -> None:
        """Raise the failure of an answer with an error status, which says more than the SDK's exception."""
        if self._status >= 400:
            raise read_http_error(self._status, self.take_bytes(), self._headers) from error
        if not self._status:
            raise error

    async def fetch_content(self, method: Method) -> bytes:
        """The bytes of the whole answer.

        Raises:
            ProviderError: the answer has an error status.
        """
        try:
            await self._begin(method, stream=False)
        except Exception as error:  # of an SDK that cannot read what came: our decoder says what is wrong
            self._check_status(error)
        return self.take_bytes()

    async def stream_bytes(self, method: Method) -> AsyncGenerator[bytes, None]:
        """The bytes of the streamed answer, as the SDK's iterator reads them.

        Raises:
            ProviderError: the answer has an error status.
        """
        items: AsyncIterator[Any] | None = None
        try:
            try:
                items, has_item = await self._begin(method, stream=True)
                yield self.take_bytes()
                if has_item and items is not None:
                    async for _ in items:
                        yield self.take_bytes()
            except Exception as error:
                self._check_status(error)
                yield self.take_bytes()  # an error in the stream, as a rule: our decoder raises it
                if not self._is_whole:
                    raise
            yield self.take_bytes()
        finally:
            close = getattr(items, "aclose", None) or getattr(items, "close", None)
            if close is not None:
                await close()


_NOTHING = object()


class _TakenStream:
    """A response body whose bytes are taken as they are read."""

    def __init__(self, inner: Any, call: TypedCall) -> None:
        self._inner = inner
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._inner:
            self._call.add_bytes(data)
            yield data
        self._call.finish()

    async def aclose(self) -> None:
        await self._inner.aclose()


_current_call: ContextVar[TypedCall | None] = ContextVar("current_typed_call", default=None)


async def _put_body(request: Any) -> None:
    call = _current_call.get()
    if call is not None:
        call.put_body(request)


async def _watch_answer(response: Any) -> None:
    call = _current_call.get()
    if call is not None:
        call.watch_answer(response)


def add_typed_hooks(hooks: HttpHooks | None) -> HttpHooks:
    """The hooks of an HTTP client through which typed methods are called."""
    caller_hooks = hooks or {}
    return {
        "request": [*caller_hooks.get("request", ()), _put_body],
        "response": [*caller_hooks.get("response", ()), _watch_answer],
    }


def find_missing_name(client: Any, *names: str) -> str:
    """The first of some private names that a client of an SDK lacks, with what it stands on; empty if none.

    >>> find_missing_name("text", "upper", "upper.lower")
    'upper.lower'
    """
    for name in names:
        part = client
        for step in name.split("."):
            part = getattr(part, step, _NOTHING)
            if part is _NOTHING:
                return name
    return ""


def build_fallback_warning(package: str, name: str) -> str:
    """The warning of calls that take the typed methods because the SDK lacks a name."""
    return (
        f"sdk: {package} {version(package)} has no {name}, which the fast path needs, so calls go through "
        "its typed methods; say `sdk: typed` in the llms entry to accept that"
    )
