"""OpenAI's batch API: the calls go up as a file of JSON lines, and the answers come back in one or two.

Source: openai 3.54.0, `types/batch.py`, `types/batch_create_params.py`; the API's own page: 50,000 calls and
200 MB in a job, answered within 24 hours; the order of the answers is free, and what failed or expired stands
in a second file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from toolchart.providers.shared.failures import build_bad_response_error, convert_exceptions
from toolchart.providers.transport.batches import BatchAnswer, BatchCall, BatchJob, iterate_lines
from toolchart.providers.transport.reply_guard import allow_batch_bytes
from toolchart.providers.wire_adapter import HttpAdapter
from toolchart.states.errors import ProviderError

Endpoint = Literal["/v1/chat/completions", "/v1/responses"]

_KEY = "toolchart_job"
"""The metadata of a job that has our key."""

_OVER = frozenset({"completed", "failed", "expired", "cancelled"})

_UNANSWERED = frozenset({"batch_expired", "batch_cancelled"})
"""Codes of calls that the job ended without."""

_CLOCK_GAP_S = 600.0
"""Seconds by which the clock of a host may differ from ours."""


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw


class _LineError(msgspec.Struct):
    code: str | None = None
    message: str | None = None


class _Line(msgspec.Struct):
    """A line of a file of answers."""

    custom_id: str
    response: _Response | None = None
    error: _LineError | None = None


_line_decoder = msgspec.json.Decoder(_Line)


class OpenAIBatches:
    """The `BatchApi` of an adapter of OpenAI's, for the calls of one path."""

    max_calls = 50_000
    max_bytes = 200 * 10**6

    def __init__(self, adapter: HttpAdapter, endpoint: Endpoint, gather_s: float, poll_s: float) -> None:
        self._adapter = adapter
        self._endpoint: Endpoint = endpoint
        self.host = adapter.host
        self.gather_s, self.poll_s = gather_s, poll_s

    async def create_job(self, key: str, calls: Sequence[BatchCall]) -> BatchJob:
        """Upload the calls, and create a job with our key among its metadata. Raises ProviderError."""
        lines = b"\n".join(
            b'{"custom_id":"%s","method":"POST","url":"%s","body":%s}'
            % (call.custom_id.encode(), self._endpoint.encode(), call.body)
            for call in calls
        )
        files = {"file": (f"{key}.jsonl", lines)}
        file = await self._adapter.fetch_object("POST", "/files", data={"purpose": "batch"}, files=files)
        job = {
            "completion_window": "24h",
            "endpoint": self._endpoint,
            "input_file_id": file.get("id"),
            "metadata": {_KEY: key},
        }
        return _read_job(await self._adapter.fetch_object("POST", "/batches", json=job))

    async def find_job(self, key: str, calls: int, since: str, others: frozenset[str]) -> BatchJob | None:
        """The newest job with our key. Raises ProviderError."""
        earliest = datetime.fromisoformat(since).timestamp() - _CLOCK_GAP_S
        after: dict[str, str] = {}
        while True:
            page = await self._adapter.fetch_object("GET", "/batches", params={"limit": "100", **after})
            rows = page.get("data") or ()
            with convert_exceptions(KeyError, TypeError, AttributeError):
                for row in rows:
                    if (row.get("metadata") or {}).get(_KEY) == key:
                        return _read_job(row)
                    if row["created_at"] < earliest:  # the newest come first
                        return None
                if not rows or page.get("has_more") is False:
                    return None
                after = {"after": rows[-1]["id"]}

    async def read_job(self, job: str) -> BatchJob:
        """The job with this id. Raises ProviderError."""
        return _read_job(await self._adapter.fetch_object("GET", f"/batches/{quote(job, safe='')}"))

    async def read_answers(self, job: BatchJob) -> AsyncIterator[BatchAnswer]:
        """The answers of both files. Raises ProviderError."""
        for file in job.files:
            path = f"/files/{quote(file, safe='')}/content"
            with convert_exceptions(msgspec.DecodeError), allow_batch_bytes():
                async with aclosing(self._adapter.stream_path(path)) as pieces:
                    async for line in iterate_lines(pieces):
                        yield _read_line(_line_decoder.decode(line))


def _read_line(line: _Line) -> BatchAnswer:
    if line.response is not None:
        return BatchAnswer(
            custom_id=line.custom_id, status=line.response.status_code, content=bytes(line.response.body)
        )
    error = line.error or _LineError()
    if error.code in _UNANSWERED:
        return BatchAnswer(custom_id=line.custom_id)
    content = msgspec.json.encode({"error": {"code": error.code, "message": error.message}})
    return BatchAnswer(custom_id=line.custom_id, status=500, content=content)


def _read_job(batch: Mapping[str, Any]) -> BatchJob:
    """The job of an answer.

    Raises:
        ProviderError: it has no id.
    """
    id_ = batch.get("id")
    if not isinstance(id_, str) or not id_:
        raise build_bad_response_error("the batch job has no id")
    files = (batch.get("output_file_id"), batch.get("error_file_id"))
    return BatchJob(
        id=id_,
        is_over=batch.get("status") in _OVER,
        failure=_read_failure(batch) if batch.get("status") == "failed" else None,
        files=tuple(file for file in files if isinstance(file, str) and file),
    )


def _read_failure(batch: Mapping[str, Any]) -> ProviderError:
    """Why the host refused a whole job. `token_limit_exceeded`: other jobs of the account wait already."""
    codes, messages = [], []
    with suppress(AttributeError, KeyError, TypeError):
        for error in batch["errors"]["data"] or ():
            codes.append(error.get("code"))
            messages.append(str(error.get("message")))
    reason = "; ".join(messages[:3]) or "it does not say why"
    is_full = "token_limit_exceeded" in codes
    return ProviderError(
        kind="rate_limit" if is_full else "bad_request",
        message=f"the host refused batch job {batch['id']}: {reason}",
        retryable=is_full,
    )
