"""A network between workers and the server of a store: a proxy that delays, cuts and refuses connections."""

from __future__ import annotations

import asyncio
import random
import threading
from types import TracebackType


class Proxy:
    """Passes connections on to a server, with faults of a seed; a context manager.

    Args:
        server: its port on the loopback, or the path of its socket.
        cut: chance that a connection is cut at a piece of data, before or after it is passed on.
    """

    def __init__(self, server: int | str, rng: random.Random, cut: float = 0.01) -> None:
        self._place = server
        self._rng = rng
        self._cut = cut
        self.is_calm = False
        """Whether nothing more happens to connections."""
        self.cuts = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        other = None
        try:
            if isinstance(self._place, str):
                other_reader, other = await asyncio.open_unix_connection(self._place)
            else:
                other_reader, other = await asyncio.open_connection("127.0.0.1", self._place)
            pumps = [self._pump(reader, other), self._pump(other_reader, writer)]
            tasks = [asyncio.ensure_future(pump) for pump in pumps]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for pump in tasks:
                pump.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for end in (writer, other):
                if end is not None:
                    end.transport.abort()  # type: ignore[union-attr]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            rng = self._rng
            if not self.is_calm:
                if rng.random() < 0.05:
                    await asyncio.sleep(rng.uniform(0.0, 0.05))
                if rng.random() < self._cut:
                    self.cuts += 1
                    if rng.random() < 0.5:  # what was asked for happens, and its answer is lost
                        writer.write(data)
                        await writer.drain()
                    return
            writer.write(data)
            await writer.drain()
