"""Batch APIs: model calls that a host takes as one job, and answers within a day at half the price.

`BatchApi` is what the job of one host needs; each adapter that has one returns it by `find_batch_api`. Which
calls go into a job, and what happens to those that it did not answer, is not decided here.

A worker may die between the moment at which a job is created and that at which it is told the job's id. So
every job has a key of ours, which the log has before the job is created, and `find_job` finds the job by it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Protocol

import msgspec

from toolchart.providers.transport.reply_guard import build_excess_error
from toolchart.states.errors import ProviderError
from toolchart.states.json_bounds import MAX_DEPTH, is_deeper
from toolchart.states.reading_limits import READING, format_bytes


class BatchCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a job."""

    custom_id: str
    """Our name of the call, unique in all jobs: at most 64 letters, digits, `-` and `_`."""
    body: bytes
    """The body, as it would be sent alone."""


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a job says of one call."""

    custom_id: str
    status: int = 0
    """Of HTTP, as if the call had been sent alone; 0 where the job ended without answering it."""
    content: bytes = b""
    """The body of the answer."""


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as the host describes it."""

    id: str
    """The host's id of it."""
    is_over: bool = False
    """Whether nothing more will happen to it; then its answers can be read."""
    failure: ProviderError | None = None
    """Why the host refused the whole job; None where it did not."""
    files: tuple[str, ...] = ()
    """The host's names of the files with answers."""
    is_named: bool = True
    """Whether the host itself says that the job has our key. Where it cannot, the answers show it."""


class BatchApi(Protocol):
    """The batch API of one host, for the calls of one path."""

    host: str
    """Name of the host."""
    max_calls: int
    """Most calls of one job."""
    max_bytes: int
    """Most bytes of one job."""
    gather_s: float
    """Seconds without a further call after which a job begins."""
    poll_s: float
    """Seconds until the first look at a job."""

    async def create_job(self, key: str, calls: Sequence[BatchCall]) -> BatchJob:
        """Create a job with these calls.

        Raises:
            ProviderError: the host did not take it, or nobody knows whether it did.
        """
        ...

    async def find_job(self, key: str, calls: int, since: str, others: frozenset[str]) -> BatchJob | None:
        """The job that was created with a key; None where there is none.

        Args:
            calls: how many calls it has.
            since: when it was about to be created: RFC 3339.
            others: ids of jobs that are known not to be it.

        Raises:
            ProviderError: the host did not say it.
        """
        ...

    async def read_job(self, job: str) -> BatchJob:
        """The job with this id.

        Raises:
            ProviderError: the host did not say it; status 404: there is no such job.
        """
        ...

    def read_answers(self, job: BatchJob) -> AsyncIterator[BatchAnswer]:
        """The answers of a job that is over, in any order; a call may be missing.

        Raises:
            ProviderError: they could not be read to the end.
        """
        ...


def build_no_batch_error(provider: str, host: str) -> ProviderError:
    """The error for a call that asks for a batch API which its host does not have."""
    place = f" at {host}" if host else ""
    return ProviderError(
        kind="bad_request",
        message=f"`batch: true`: no batch API is known of provider {provider!r}{place}. Toolchart uses those "
        "of `openai` (api.openai.com, or an entry with `batches: true` whose host has the same API) and of "
        "`anthropic`; leave `batch` out for other hosts",
        retryable=False,
    )


async def iterate_lines(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The lines of a file of results that are not empty.

    Raises:
        ProviderError: a line is longer than that of a stream may be, or nested too deeply.
    """
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield _check_depth(line)
        if len(rest) > READING.line_bytes:
            problem = f"a line of the results is longer than {format_bytes(READING.line_bytes)}"
            raise build_excess_error(problem, "line_bytes")
    if rest.strip():
        yield _check_depth(rest)


def _check_depth(line: bytes) -> bytes:
    if is_deeper(line, MAX_DEPTH):
        raise build_excess_error(f"a line of the results is nested deeper than {MAX_DEPTH} lists and objects")
    return line
