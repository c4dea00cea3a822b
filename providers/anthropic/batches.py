"""Anthropic's Message Batches: the calls stand in the request that creates the job.

Source: anthropic 2.12.0, `types/messages/message_batch.py`, `batch_create_params.py` and
`message_batch_individual_response.py`; platform.claude.com, Batch processing: 100,000 calls or 256 MB in a
job, answered within 24 hours, in any order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any

import msgspec

from toolchart.providers.shared.failures import build_bad_response_error, convert_exceptions
from toolchart.providers.transport.batches import BatchAnswer, BatchCall, BatchJob, iterate_lines
from toolchart.providers.transport.reply_guard import allow_batch_bytes
from toolchart.providers.wire_adapter import HttpAdapter, decode_json
from toolchart.states.json_bounds import parse_foreign_json

_PATH = "/v1/messages/batches"

_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that each type of error has where a call is sent alone; any other is 500.

Source: anthropic 2.12.0, `types/shared/error_object.py`; the API reference, Errors.
"""

_CLOCK_GAP = timedelta(minutes=10)
"""By how much the clock of a host may differ from ours."""


class _Result(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _Line(msgspec.Struct):
    """A line of the results."""

    custom_id: str
    result: _Result


_line_decoder = msgspec.json.Decoder(_Line)


class AnthropicBatches:
    """The `BatchApi` of an adapter of Anthropic."""

    max_calls = 100_000
    max_bytes = 256 * 10**6

    def __init__(self, adapter: HttpAdapter, gather_s: float, poll_s: float) -> None:
        self._adapter = adapter
        self.host = adapter.host
        self.gather_s, self.poll_s = gather_s, poll_s

    async def create_job(self, key: str, calls: Sequence[BatchCall]) -> BatchJob:
        """Create a job; our key begins the `custom_id` of each call. Raises ProviderError."""
        lines = (b'{"custom_id":"%s","params":%s}' % (call.custom_id.encode(), call.body) for call in calls)
        data = b'{"requests":[' + b",".join(lines) + b"]}"
        with convert_exceptions(ValueError):
            response = await self._adapter.post(_PATH, data)
            return _read_batch(decode_json(response.content))

    async def find_job(self, key: str, calls: int, since: str, others: frozenset[str]) -> BatchJob | None:
        """The oldest job since then that has so many calls and is none of the others.

        A job has no metadata, and says its `custom_id`s only when it is over: so this is a guess, which the
        answers confirm. Raises ProviderError.
        """
        earliest = datetime.fromisoformat(since) - _CLOCK_GAP
        matching_job, after = None, ""
        while True:
            page = await self._adapter.fetch_object("GET", f"{_PATH}?limit=100{after}")
            rows = page.get("data") or ()
            for row in rows:
                with convert_exceptions(ValueError, KeyError, TypeError, AttributeError):
                    if datetime.fromisoformat(row["created_at"]) < earliest:  # the newest come first
                        return matching_job
                    if sum(row["request_counts"].values()) == calls and row["id"] not in others:
                        matching_job = msgspec.structs.replace(_read_batch(row), is_named=False)
            if not page.get("has_more") or not page.get("last_id"):
                return matching_job
            after = f"&after_id={page['last_id']}"

    async def read_job(self, job: str) -> BatchJob:
        """The job with this id. Raises ProviderError."""
        return _read_batch(await self._adapter.fetch_object("GET", f"{_PATH}/{job}"))

    async def read_answers(self, job: BatchJob) -> AsyncIterator[BatchAnswer]:
        """The results. Raises ProviderError.

        They are read below the entry's own address, and not where `results_url` leads: the key goes nowhere
        else.
        """
        with convert_exceptions(msgspec.DecodeError, ValueError), allow_batch_bytes():
            async with aclosing(self._adapter.stream_path(f"{_PATH}/{job.id}/results")) as pieces:
                async for line in iterate_lines(pieces):
                    yield _read_result_line(_line_decoder.decode(line))


def _read_result_line(line: _Line) -> BatchAnswer:
    result = line.result
    if result.type == "succeeded":
        return BatchAnswer(custom_id=line.custom_id, status=200, content=bytes(result.message))
    if result.type == "errored":
        error = parse_foreign_json(bytes(result.error), "reply_values") if result.error else {}
        inner = error.get("error") if isinstance(error, Mapping) else None
        type_ = inner.get("type") if isinstance(inner, Mapping) else None
        status = _STATUSES.get(str(type_), 500)
        return BatchAnswer(custom_id=line.custom_id, status=status, content=bytes(result.error))
    return BatchAnswer(custom_id=line.custom_id)  # canceled, expired


def _read_batch(answer: Any) -> BatchJob:
    """The job of an answer.

    Raises:
        ProviderError: it is none.
    """
    id_ = answer.get("id") if isinstance(answer, Mapping) else None
    # The id becomes a part of paths.
    if not isinstance(id_, str) or not id_.replace("_", "").replace("-", "").isalnum():
        raise build_bad_response_error("the batch job has no id")
    return BatchJob(id=id_, is_over=answer.get("processing_status") == "ended")
