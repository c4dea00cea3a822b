"""`HostAdapter`, the base class of all adapters: what is sent is exactly what was digested.

An adapter has two halves. `build_body` is pure: from a request it makes the body, which is everything that
the host gets apart from headers and address. `send_body` and `stream_body` talk to the host: they get the
body and never see the request, so whatever depends on the request is in the body.

Between the two stands the code below. It takes the digest of the body at the moment at which the body is
handed over, and puts it into the reply or the error. The digest is recorded, and `replay` builds the
body again from the recorded request and compares: a change of the code between request and host shows.

The digest is over canonical JSON, with sorted keys, and the host gets the keys in the order of the body: the
order in a schema is a hint to some models, but requests that were read from a log must give the same digest.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from hashlib import sha256
from typing import Any, TypeVar, final

from msgspec.structs import replace

from toolchart.providers.shared.failures import convert_exceptions, read_http_error
from toolchart.providers.shared.host_rows import ThoughtForm
from toolchart.providers.shared.replies import DeltaJoiner, stream_reply
from toolchart.providers.shared.requests import Origin
from toolchart.providers.shared.thoughts import ThoughtSplitter, split_reply
from toolchart.providers.transport.batches import BatchAnswer, BatchApi, build_no_batch_error
from toolchart.providers.transport.encoded_bodies import encode_body, encode_canonical_body
from toolchart.providers.transport.limits import CallHeaders, HostLimiter
from toolchart.providers.transport.raw_answers import find_capture
from toolchart.states.errors import ProviderError
from toolchart.states.message_list import compute_request_digest
from toolchart.states.messages import Delta, Reply, Request
from toolchart.states.ports import BodyBuilder

# -- deadlines -------------------------------------------------------------------------------------
# The timeouts of HTTP clients count from the last byte, so a host that sends a comment every second is waited
# for without end. The deadline here counts from the start of the call.


Value = TypeVar("Value")


async def await_in_time(work: Coroutine[Any, Any, Value], timeout_s: float | None) -> Value:
    """The result of a call.

    Args:
        timeout_s: seconds from now; None for no limit.

    Raises:
        ProviderError: `timeout`; the work was cancelled.
    """
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise _build_timeout_error(timeout_s) from None


async def iterate_in_time(
    items: AsyncGenerator[Value, None], timeout_s: float | None
) -> AsyncGenerator[Value, None]:
    """The items of a stream, up to the deadline. Only the wait for an item is cancelled, never its reader.

    Args:
        timeout_s: seconds from now for all items; None for no limit.

    Raises:
        ProviderError: `timeout`; the stream was closed.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout_s is None else loop.time() + timeout_s
    async with aclosing(items):
        while True:
            # Items that are there at once do not wait, so nothing would end a flood of them.
            if deadline is not None and loop.time() >= deadline:
                raise _build_timeout_error(timeout_s)
            limit = asyncio.timeout_at(deadline)
            try:
                async with limit:
                    item = await anext(items)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not limit.expired():
                    raise
                raise _build_timeout_error(timeout_s) from None
            yield item


def _build_timeout_error(timeout_s: float | None) -> ProviderError:
    message = f"the model host did not finish its answer within {timeout_s:g} s (timeout_s)"
    return ProviderError(kind="timeout", message=message, retryable=True)


# -- digests ---------------------------------------------------------------------------------------


def encode_plain_request(request: Request) -> dict[str, Any]:
    """The request as JSON data: its digest stands for all of it.

    A script and an answer from a log are given the request as it is, so there is no wire map that could
    change it. Writing out the messages at each call would only make a long conversation cost its length at
    each step.
    """
    return {"digest": compute_request_digest(request)}


_DIGEST_LENGTH = 32
"""Hexadecimal digits, as in the other digests of a log."""


def compute_body_digest(body: Mapping[str, Any]) -> str:
    """The digest of a body: the first 32 digits of the SHA-256 of its canonical JSON."""
    return sha256(encode_canonical_body(body)).hexdigest()[:_DIGEST_LENGTH]


def compute_wire_digest(builder: BodyBuilder, request: Request, *, stream: bool) -> str:
    """The digest that a reply to this request carries. Nothing is sent.

    Args:
        builder: a provider, or the result of `toolchart.providers.registry.create_body_builder`, which needs
            no key.
        stream: whether the reply was requested as a stream.

    Raises:
        ProviderError: the host has no form for the request.
    """
    return compute_body_digest(builder.build_body(request, stream=stream))


def compute_plain_digest(request: Request) -> str:
    """The digest of the body of `encode_plain_request`."""
    return sha256(b'{"digest":"%s"}' % compute_request_digest(request).encode()).hexdigest()[:_DIGEST_LENGTH]


@contextmanager
def report_digest(body: Mapping[str, Any]) -> Iterator[str]:
    """A block with the digest of a body. Every `ProviderError` of the block carries it too, with what the
    headers of the answer say about limits.

    For adapters that are no `HostAdapter`: the block hands the body over and reads the answer.
    """
    call = CallHeaders()
    digest = compute_body_digest(body)
    try:
        yield digest
    except ProviderError as error:
        call.mark_error(error, digest)
        raise


AskBatch = Callable[[BatchApi, bytes], Awaitable[BatchAnswer]]
"""Has a body answered by a batch API."""


class HostAdapter(ABC):
    """Calls the models of one host: a `StreamingProvider` whose replies and errors carry the digest.

    A subclass builds bodies, sends them, and says what of a request the host could not follow.
    """

    name: str
    """Adapter name, as in the spec's `provider`."""

    host: str = ""
    """Name and port of the host. What a reply keeps for this host goes back to no other one; empty: every
    host of this adapter gets it."""

    timeout_s: float | None = None
    """Seconds for one whole call; None for no limit."""

    counts_tokens: bool = False
    """Whether the host's own counter is asked (`count_tokens: host`)."""

    has_counter: bool = False
    """Whether `count_body` asks a counter of the host."""

    batch_gather_s: float = 5.0
    """Seconds without a further call after which a batch job begins."""

    batch_poll_s: float = 15.0
    """Seconds until the first look at a batch job; the pauses grow."""

    find_text_calls: Callable[[str, Request], Sequence[str]] | None = None
    """Finds calls of offered tools in the text of a reply without calls, and words the warning."""

    limiter: HostLimiter | None = None
    """Keeps the calls of the host below its limits; the wait for it does not count for `timeout_s`."""

    @abstractmethod
    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The complete body, as JSON data; pure."""

    @abstractmethod
    async def send_body(self, body: dict[str, Any]) -> Reply:
        """Send this body and nothing else; the whole reply.

        Raises:
            ProviderError: the call failed.
        """

    async def stream_body(self, body: dict[str, Any]) -> AsyncGenerator[Delta | Reply, None]:
        """Send this body and nothing else; the deltas as they arrive, and last the whole reply.

        This one is for hosts without a stream: it splits the whole reply into words.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        async for item in stream_reply(await self.send_body(body)):
            yield item

    async def count_body(self, body: dict[str, Any]) -> int | None:
        """Send this body to the host's counter; the tokens of it as a prompt. None: the host has no counter.

        Raises:
            ProviderError: the host did not count.
        """
        return None

    def decode_raw(self, body: dict[str, Any], content: bytes, *, is_streamed: bool) -> Reply:
        """The reply of a raw answer that was kept, by the code that decodes it when it comes.

        Args:
            body: what was sent for it.
            content: the bytes of the answer.

        Raises:
            ProviderError: as when the answer came.
            NotImplementedError: the adapter decodes no bytes; this one says so.
        """
        raise NotImplementedError

    def decode_again(self, request: Request, content: bytes, *, status: int, is_streamed: bool) -> Reply:
        """The reply to a request by its raw answer, which was kept; nothing is sent.

        It has no digest of the body, and nothing of the headers.

        Args:
            status: of HTTP.

        Raises:
            ProviderError: the call failed by this answer.
            NotImplementedError: the adapter decodes no bytes.
        """
        if status >= 400:
            raise read_http_error(status, content)
        body = self._prepare_body(request, stream=is_streamed)
        return self._add_request_data(request, self.decode_raw(body, content, is_streamed=is_streamed))

    def find_batch_api(self, body: Mapping[str, Any]) -> BatchApi:
        """The batch API that takes a body.

        Raises:
            ProviderError: the host has none that is known.
        """
        raise build_no_batch_error(self.name, self.host)

    @final
    async def complete_by_batch(self, request: Request, ask: AskBatch) -> Reply:
        """The whole reply to a request that goes to the host in a batch job, with the body of `complete`.

        Args:
            ask: has a body answered by a batch API; it may take a day.

        Raises:
            ProviderError: the call failed.
        """
        body = self._prepare_body(request, stream=False)
        headers, digest = CallHeaders(), compute_body_digest(body)
        try:
            if body.get("stream"):
                message = (
                    "`batch: true`: an answer of a batch job comes whole; leave `stream` out of `extra_body`"
                )
                raise ProviderError(kind="bad_request", message=message)
            answer = await ask(self.find_batch_api(body), encode_body(body))
            capture = find_capture()
            if capture is not None:
                capture.begin(answer.status)(answer.content)
                capture.is_whole = True
            if answer.status >= 400:
                raise read_http_error(answer.status, answer.content)
            reply = self.decode_raw(body, answer.content, is_streamed=False)
        except ProviderError as error:
            headers.mark_error(error, digest)
            raise
        return self._finish_reply(request, reply, headers, digest)

    @final
    async def count_tokens(self, request: Request) -> int | None:
        """The tokens of a request by the host's own counter; None where it is not to be asked.

        Raises:
            ProviderError: the host did not count.
        """
        if not self.counts_tokens:
            return None
        body = self._prepare_body(request, stream=False)
        return await await_in_time(self.count_body(body), self.timeout_s)

    def list_warnings(self, request: Request, reply: Reply) -> Sequence[str]:
        """A warning for each part of the request that the host could not follow."""
        return ()

    def find_thought_form(self, request: Request) -> ThoughtForm:
        """Whether the text of the reply to a request may begin with thoughts."""
        return "never"

    def keep_thoughts(self, reply: Reply, text: str) -> Reply:
        """The reply with what its host wants back of the thoughts that were taken out of its text.

        Args:
            text: what stood before the answer, with the markers.
        """
        return reply

    def get_origin(self, request: Request) -> Origin:
        """Where the reply to a request comes from: the owner of its private data."""
        return Origin(provider=self.name, host=self.host, model=request.model)

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections."""

    @final
    async def complete(self, request: Request) -> Reply:
        """The whole reply to a request.

        Raises:
            ProviderError: the call failed.
        """
        body = self._prepare_body(request, stream=False)
        headers, digest = CallHeaders(), compute_body_digest(body)
        try:
            if self.limiter is None:
                reply = await await_in_time(self.send_body(body), self.timeout_s)
            else:
                async with self.limiter.admit(request) as reservation:
                    reply = await await_in_time(self.send_body(body), self.timeout_s)
                    reservation.count_tokens(reply)
        except ProviderError as error:
            headers.mark_error(error, digest)
            raise
        return self._finish_reply(request, reply, headers, digest)

    @final
    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The deltas of the reply as they arrive, and last the whole reply.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        body = self._prepare_body(request, stream=True)
        headers, digest = CallHeaders(), compute_body_digest(body)
        try:
            async with (
                self.limiter.admit(request) if self.limiter is not None else nullcontext() as reservation,
                aclosing(iterate_in_time(self.stream_body(body), self.timeout_s)) as items,
            ):
                joiner = DeltaJoiner()
                form = self.find_thought_form(request)
                splitter = None if form == "never" else ThoughtSplitter(form)
                async for item in items:
                    if isinstance(item, Reply):
                        if reservation is not None:
                            reservation.count_tokens(item)
                        for delta in splitter.finish_text() if splitter is not None else ():
                            yield delta
                        yield self._finish_reply(request, item, headers, digest)
                    elif (joined := joiner.join_delta(item)) is None:
                        continue
                    elif splitter is None or splitter.is_answer:
                        yield joined
                    else:
                        for delta in splitter.split_delta(joined):
                            yield delta
        except ProviderError as error:
            headers.mark_error(error, digest)
            raise

    def _prepare_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body; a request that breaks the wire format is a failed call, and no fault of the driver."""
        with convert_exceptions():
            return self.build_body(request, stream=stream)

    def _finish_reply(self, request: Request, reply: Reply, headers: CallHeaders, digest: str) -> Reply:
        reply = self._add_request_data(request, reply)
        return replace(reply, wire_digest=digest, rate_limits=headers.limits)

    def _add_request_data(self, request: Request, reply: Reply) -> Reply:
        """The reply with what follows from the request: thoughts apart from its text, warnings, its owner."""
        form = self.find_thought_form(request) if reply.content else "never"
        if form != "never":
            reply, thoughts = split_reply(reply, form)
            if thoughts:
                reply = self.keep_thoughts(reply, thoughts)
        warnings = (*reply.warnings, *self.list_warnings(request, reply))
        if self.find_text_calls and request.tools and reply.content and not reply.tool_calls:
            warnings += tuple(self.find_text_calls(reply.content, request))
        data = self.get_origin(request).mark_data(reply.provider_data)
        return replace(reply, warnings=warnings, provider_data=data)
