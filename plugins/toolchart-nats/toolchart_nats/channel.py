"""The connection of the JetStream store: one event loop in a thread, because its client knows no other.

The store is called from any thread and waits for its answers; this thread only moves bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.errors import Error

from toolchart.states.errors import LogUnavailable, ToolchartError
from toolchart_nats.address import NatsAddress

Value = TypeVar("Value")

_CONNECT_S = 5
"""Seconds for one try to connect."""

ANSWER_S = 20.0
"""Seconds for one answer: a server that vanishes without a word is given up within half a minute."""

_PING_S = 10
"""Between two signs of life on a connection that is not used."""


class ConnectionLost(Exception):
    """The connection ended before the answer came."""


class Channel:
    """A connection to the servers of an address; opened when it is needed, and again after it broke."""

    def __init__(self, address: NatsAddress, *, on_connect: Callable[[], Awaitable[None]]) -> None:
        self._address = address
        self._on_connect = on_connect
        self._client: Client | None = None
        self._lost: asyncio.Future[None] | None = None
        self._connecting: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._start = threading.Lock()
        self.clock_offset_s = 0.0
        """What the clock of the server is ahead of this machine's."""

    @property
    def place(self) -> str:
        """The address for people."""
        return self._address.place

    # -- from any thread -------------------------------------------------------------------------

    def run(self, work: Callable[[bool], Coroutine[Any, Any, Value]]) -> Value:
        """Run `work` on a connection; once more on a new one where the connection broke.

        Args:
            work: is told whether this is the second time. What it publishes may be there already then.

        Raises:
            LogUnavailable: the servers cannot be reached, or do not answer.
        """
        return asyncio.run_coroutine_threadsafe(self._run_twice(work), self._get_loop()).result()

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        with self._start:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._client, self._connecting = None, None
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="toolchart-nats", daemon=True
                )
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """Close the connection and end the thread; safe to call twice."""
        with self._start:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None or not thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._drop(self._client), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    # -- in the thread ---------------------------------------------------------------------------

    async def _run_twice(self, work: Callable[[bool], Coroutine[Any, Any, Value]]) -> Value:
        client: Client | None = None
        for is_retry in (False, True):
            try:
                client = await self._connect()
                return await self._race(work(is_retry))
            except ToolchartError:
                raise
            except (Error, ConnectionLost, OSError) as error:
                await self._drop(client)
                if is_retry:
                    raise LogUnavailable(f"{self._address.place}: {explain(error)}") from None
        raise AssertionError("two tries end in a value or an error")

    async def _race(self, work: Coroutine[Any, Any, Value]) -> Value:
        """The value of some work, unless the connection is lost first."""
        assert self._lost is not None
        task = asyncio.ensure_future(work)
        await asyncio.wait((task, self._lost), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            raise ConnectionLost("the connection was lost")
        if task.cancelled():  # the client cancels what waits for a message when it closes
            raise ConnectionLost("the connection was lost")
        return task.result()

    async def _connect(self) -> Client:
        """The client, connected."""
        self._connecting = self._connecting or asyncio.Lock()
        async with self._connecting:
            if self._client is not None and self._client.is_connected:
                return self._client
            await self._drop(self._client)
            lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def note_end() -> None:
                if not lost.done():
                    lost.set_result(None)

            client = await self._open_client(note_end)
            self._client, self._lost = client, lost
            await self._on_connect()
            return client

    async def _open_client(self, note_end: Callable[[], Awaitable[None]]) -> Client:
        """A client that is connected, to the first server that answers."""

        async def ignore(_: Exception) -> None:
            """Each error comes to whoever asked."""

        address, failure = self._address, Exception("no server")
        tls = ssl.create_default_context(cafile=address.ca) if address.ca else None
        for server in address.servers:
            client = Client()
            try:
                await client.connect(
                    server,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=_CONNECT_S,
                    ping_interval=_PING_S,
                    error_cb=ignore,
                    closed_cb=note_end,
                    tls=tls,
                    user_credentials=address.credentials,
                )
                return client
            except (Error, OSError) as error:
                failure = client.last_error or error
                with contextlib.suppress(Exception):
                    await client.close()
        raise LogUnavailable(f"{address.place} cannot be reached: {explain(failure)}")

    async def _drop(self, client: Client | None) -> None:
        """Close a client; another one may be connected already."""
        if client is self._client:
            self._client = None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()

    def _get_client(self) -> Client:
        if self._client is None:
            raise ConnectionLost("the connection was lost")
        return self._client


def explain(error: BaseException) -> str:
    """What an error of the client says, without the name of its library."""
    text = str(error).removeprefix("nats: ").strip("'\" ")
    return text or type(error).__name__
