"""The connection of the store: its address, one event loop in a thread, and the requests to its stream.

The client of NATS knows no other way than an event loop. The store is called from any thread and waits for
its answers; this thread only moves bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, NoRespondersError

from toolchart import LogUnavailable, SpecError, StorageFailure, ToolchartError

# -- the address ---------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_DEFAULT_PORT = 4222
_FORM = "nats://HOST:4222/NAME"


class NatsAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a log is, without its secrets where it is shown."""

    servers: tuple[str, ...]
    """URLs of the servers, with user and password where the address has them."""
    name: str
    """Name of the stream."""
    credentials: str | None = None
    """Path of a NATS credentials file."""
    ca: str | None = None
    """Path of a file with the certificates that sign those of the servers."""

    @property
    def place(self) -> str:
        """The address for people: hosts and name, neither users, passwords nor options."""
        places = [url.rpartition("@")[2].removeprefix("nats://") for url in self.servers]
        return f"nats://{','.join(places)}/{self.name}"


def parse_address(address: str) -> NatsAddress:
    """The parts of an address.

    Raises:
        SpecError: it has no host or no name, or an unknown option.
    """
    rest = address.partition("://")[2]
    location, _, query = rest.partition("?")
    hosts, _, name = location.partition("/")
    if not hosts or not _NAME.fullmatch(name):
        raise SpecError(
            "an address of a NATS log has a host and a name of letters, digits, `_` and `-`",
            hint=f"write {_FORM}",
        )
    users, separator, places = hosts.rpartition("@")
    servers = tuple(_build_url(users + separator, place) for place in places.split(","))
    options = dict(parse_qsl(query))
    unknown = sorted(options.keys() - {"credentials", "ca"})
    if unknown:
        raise SpecError(f"unknown option of a NATS log: {unknown[0]}", hint="known: ca, credentials")
    return NatsAddress(
        servers=servers, name=name, credentials=options.get("credentials"), ca=options.get("ca")
    )


def _build_url(users: str, place: str) -> str:
    try:
        parts = urlsplit(f"nats://{place}")
        port = parts.port or _DEFAULT_PORT
    except ValueError:
        raise SpecError("a port of a NATS log is a number up to 65535", hint=f"write {_FORM}") from None
    if not parts.hostname:
        raise SpecError("a host of a NATS log is missing", hint=f"write {_FORM}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"nats://{users}{host}:{port}"


# -- the connection ------------------------------------------------------------------------------------

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


# -- the stream ----------------------------------------------------------------------------------------

_PAGE_MESSAGES, _PAGE_BYTES = 256, 8 << 20
_PULL_MESSAGES = 1000

_PAGE_SUBJECTS = 100_000
"""Subjects in one answer of the server."""

_SHORT_REPLY = 9
"""Words in the reply subject of a consumer, which has two more where it names domain and account."""

_WRONG_SEQUENCE = {10071, 10164}
"""Error codes of the server: the newest message is another than the one that the writer named."""

_FULL = {10023, 10047, 10077}
"""Error codes of the server: no room, by its own limits or on its disk."""

_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"


class Outrun(Exception):
    """Another message was published first: nothing was written."""


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the stream."""

    sequence: int
    subject: str
    headers: Mapping[str, str]
    data: bytes


class Guard(msgspec.Struct, frozen=True):
    """The condition of a publication: the newest message of the subjects is the one that is named."""

    subjects: str
    sequence: int
    """0: there is none."""

    def build_headers(self) -> dict[str, str]:
        """The headers by which the server checks it."""
        return {_EXPECTED: str(self.sequence), _EXPECTED_SUBJECT: self.subjects}


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be published."""

    subject: str
    data: bytes = b""
    headers: Mapping[str, str] = {}
    guard: Guard | None = None

    def build_headers(self) -> dict[str, str]:
        """All headers of the message."""
        return {**self.headers, **(self.guard.build_headers() if self.guard is not None else {})}


class Stream(Channel):
    """The stream of a log."""

    @property
    def max_message_bytes(self) -> int:
        """What one message may hold, with room for its headers."""
        limit = int(self._get_client().max_payload)
        return max(limit - 8192, limit // 2)

    async def ask(self, subject: str, body: Any = None) -> dict[str, Any]:
        """Ask the JetStream API and return its answer, which may be an error.

        Raises:
            LogUnavailable: JetStream is not enabled.
        """
        data, begin = b"" if body is None else msgspec.json.encode(body), time.time()
        try:
            message = await self._get_client().request(f"$JS.API.{subject}", data, timeout=ANSWER_S)
        except NoRespondersError:
            raise LogUnavailable(
                f"{self._address.place}: the server does not answer for JetStream\n"
                "  start it with JetStream enabled (nats-server --jetstream), for this account too"
            ) from None
        answer: dict[str, Any] = msgspec.json.decode(message.data)
        if isinstance(answer.get("ts"), str):
            self.clock_offset_s = compute_offset(begin, _read_timestamp(answer["ts"]), time.time())
        return answer

    async def publish(self, publication: Publication) -> int:
        """Publish a message; its number in the stream, once the server has stored it.

        Raises:
            Outrun: its guard does not hold.
        """
        return await self._publish(publication, {})

    async def publish_together(self, publications: Iterable[Publication]) -> int:
        """Publish messages, all or none; the number of the last one.

        Raises:
            Outrun: a guard does not hold.
        """
        id_ = self._get_client().new_inbox().rpartition(".")[2]
        *first, last = enumerate(publications, 1)
        for number, publication in first:
            headers = {"Nats-Batch-Id": id_, "Nats-Batch-Sequence": str(number)}
            await self._get_client().publish(
                publication.subject, publication.data, headers={**publication.build_headers(), **headers}
            )
        number, publication = last
        return await self._publish(
            publication, {"Nats-Batch-Id": id_, "Nats-Batch-Sequence": str(number), "Nats-Batch-Commit": "1"}
        )

    async def _publish(self, publication: Publication, more: Mapping[str, str]) -> int:
        headers = {**publication.build_headers(), **more}
        try:
            message = await self._get_client().request(
                publication.subject, publication.data, timeout=ANSWER_S, headers=headers or None
            )
        except NoRespondersError:
            raise LogUnavailable(f"{self._address.place}: the stream is gone, or JetStream is off") from None
        answer = msgspec.json.decode(message.data)
        if "error" in answer:
            self.refuse(answer["error"])
        return int(answer["seq"])

    def refuse(self, error: Mapping[str, Any]) -> None:
        """Raise the error that the server has answered with.

        Raises:
            Outrun, StorageFailure, LogUnavailable: as its code says.
        """
        code, text = error.get("err_code"), str(error.get("description", error))
        if code in _WRONG_SEQUENCE:
            raise Outrun(text)
        if code in _FULL:
            raise StorageFailure(f"{self._address.place} cannot store the log: {text}")
        raise LogUnavailable(f"{self._address.place}: {text}")

    async def get_message(self, **query: Any) -> StoredMessage | None:
        """One message of the stream: `last_by_subj`, `seq`, or `seq` with `next_by_subj`."""
        subject = f"$JS.API.DIRECT.GET.{self._address.name}"
        try:
            message = await self._get_client().request(subject, msgspec.json.encode(query), timeout=ANSWER_S)
        except NoRespondersError:
            raise LogUnavailable(f"{self._address.place}: the stream is gone, or JetStream is off") from None
        return self._read(message)

    def _read(self, message: Msg) -> StoredMessage | None:
        """A message of the stream; None where the answer says that there is none."""
        headers = message.headers or {}
        status = headers.get("Status")
        if status in {"204", "404"}:
            return None
        if status is not None:
            raise LogUnavailable(f"{self._address.place}: the server answers with status {status}")
        return StoredMessage(
            sequence=int(headers["Nats-Sequence"]),
            subject=headers["Nats-Subject"],
            headers=headers,
            data=message.data,
        )

    async def get_page(self, subject: str, start: int) -> list[StoredMessage]:
        """A page of the messages of a subject, from a number of the stream on; none at the end."""
        client = self._get_client()
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        query = {"seq": start, "next_by_subj": subject, "batch": _PAGE_MESSAGES, "max_bytes": _PAGE_BYTES}
        messages = []
        try:
            await client.publish(
                f"$JS.API.DIRECT.GET.{self._address.name}", msgspec.json.encode(query), reply=inbox
            )
            while (message := self._read(await subscription.next_msg(ANSWER_S))) is not None:
                messages.append(message)
        finally:
            with contextlib.suppress(Exception):
                await subscription.unsubscribe()
        return messages

    async def get_all(self, subject: str, start: int = 1) -> list[StoredMessage]:
        """All messages of a subject."""
        messages: list[StoredMessage] = []
        while page := await self.get_page(subject, start):
            messages += page
            start = page[-1].sequence + 1
        return messages

    async def consume_headers(self, subject: str) -> list[StoredMessage]:
        """All messages of a subject that are there now without their data, the oldest first."""
        client, name = self._get_client(), self._address.name
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        config = {
            "deliver_policy": "all",
            "ack_policy": "none",
            "filter_subject": subject,
            "headers_only": True,
            "inactive_threshold": 30_000_000_000,
            "mem_storage": True,
            "num_replicas": 1,
        }
        messages: list[StoredMessage] = []
        try:
            answer = await self.ask(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": config})
            if "error" in answer:
                self.refuse(answer["error"])
            pull = f"$JS.API.CONSUMER.MSG.NEXT.{name}.{answer['name']}"
            while await self._pull(pull, inbox, subscription, messages):
                """Ask for more until the server says that there is no more."""
            await self.ask(f"CONSUMER.DELETE.{name}.{answer['name']}")
        finally:
            with contextlib.suppress(Exception):
                await subscription.unsubscribe()
        return messages

    async def _pull(self, pull: str, inbox: str, subscription: Any, messages: list[StoredMessage]) -> bool:
        """Add messages of a consumer; false where there were no more."""
        query = msgspec.json.encode({"batch": _PULL_MESSAGES, "no_wait": True})
        await self._get_client().publish(pull, query, reply=inbox)
        for _ in range(_PULL_MESSAGES):
            message = await subscription.next_msg(ANSWER_S)
            if (message.headers or {}).get("Status"):
                return False
            tokens = message.reply.split(".")
            messages.append(
                StoredMessage(
                    sequence=int(tokens[5 if len(tokens) == _SHORT_REPLY else 7]),
                    subject=message.subject,
                    headers=message.headers or {},
                    data=b"",
                )
            )
        return True

    async def describe_stream(self, **query: Any) -> dict[str, Any]:
        """Configuration and state of the stream.

        Raises:
            LogUnavailable: it is not there.
        """
        answer = await self.ask(f"STREAM.INFO.{self._address.name}", query or None)
        if "error" in answer:
            self.refuse(answer["error"])
        return answer

    async def purge(self, subject: str, *, before: int | None = None) -> None:
        """Delete the messages of a subject; their bytes stay in the files until the server writes those anew.

        Args:
            before: only those with a smaller number.
        """
        query = {"filter": subject, **({"seq": before} if before is not None else {})}
        answer = await self.ask(f"STREAM.PURGE.{self._address.name}", query)
        if "error" in answer:
            self.refuse(answer["error"])

    async def erase(self, subject: str) -> None:
        """Delete the messages of a subject one by one and overwrite their bytes."""
        for message in await self.get_all(subject):
            await self.delete_message(message.sequence)

    async def delete_message(self, sequence: int) -> None:
        """Delete one message and overwrite its bytes; nothing happens where it is gone."""
        await self.ask(f"STREAM.MSG.DELETE.{self._address.name}", {"seq": sequence})

    async def count_subjects(self, subject: str) -> dict[str, int]:
        """How many messages each subject has, of those that are meant."""
        counts: dict[str, int] = {}
        while True:
            answer = await self.describe_stream(subjects_filter=subject, offset=len(counts))
            page: dict[str, int] = answer["state"].get("subjects") or {}
            counts.update(page)
            if len(page) < _PAGE_SUBJECTS:
                return counts


def compute_offset(asked: float, answered: float, received: float) -> float:
    """What a server's clock is ahead of this machine's, in seconds; 0 where nothing says that they differ.

    Args:
        asked: when it was asked, by the clock of this machine.
        answered: when it answered, by its own.
        received: when the answer came, by the clock of this machine.
    """
    return 0.0 if asked <= answered <= received else answered - (asked + received) / 2


def _read_timestamp(text: str) -> float:
    """Seconds since 1970, from a time like `2026-11-22T19:40:33.312088038Z`."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(whole + "+00:00").timestamp() + float(f"0.{fraction or 0}")
