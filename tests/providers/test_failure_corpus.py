"""A corpus of failures, `failure_corpus.yaml`, through the real adapters, from a host on loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from failure_rows import LAST_PIECES, ROWS, STATUS_FORMS, SUCCESS_FORMS, build_answer, list_forms
from host_answers import ENTRIES, STREAMED_BODIES, encode_frames
from web import WebAnswer, serve_web
from wire_requests import REQUESTS, send_request

from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.events import FAILURE_KINDS


def describe_difference(row: Mapping[str, Any], outcome: Any) -> str | None:
    """What is not as the row says; None where all is."""
    if not isinstance(outcome, ProviderError):
        return f"{row['name']}: no failure but {outcome}"
    expected = (row["kind"], row["retryable"], row.get("status"), row.get("wait_s"))
    status = outcome.status if "status" in row else None
    found = (outcome.kind, outcome.retryable, status, outcome.retry_after_s if "wait_s" in row else None)
    if found != expected or row.get("says", "") not in outcome.message or not outcome.message:
        return f"{row['name']}: {found} instead of {expected}: {outcome}"
    return None


async def ask_all(wire: str, form: str, **keys: Any) -> list[str]:
    """The differences of all rows of a wire in a form."""
    rows = [r for r in ROWS if (r["wires"] == "all" or wire in r["wires"]) and form in list_forms(r)]
    assert rows
    answer: list[WebAnswer] = []
    path, entry = ENTRIES[wire]
    differences = []
    with serve_web(lambda _: answer[-1]) as server:
        config = LLMConfig.model_validate({**entry, "base_url": server.url + path, "api_key": "k", **keys})
        provider = create_provider(config, resolve=str)
        try:
            for row in rows:
                answer.append(build_answer(row, wire, form))
                outcome = await send_request(
                    provider, REQUESTS["plain"], stream=form not in ("status", "whole")
                )
                differences.append(describe_difference(row, outcome))
        finally:
            await provider.aclose()
    return [difference for difference in differences if difference]


@pytest.mark.parametrize("form", [*STATUS_FORMS, *SUCCESS_FORMS])
@pytest.mark.parametrize("wire", ENTRIES)
def test_every_failure_of_the_corpus_has_its_kind(wire: str, form: str) -> None:
    """S3.10: each failure of a host or of a gateway is of its kind, and is tried again where it may pass, on
    every wire: with a status, whole inside a success, as the first piece of a stream, after half an answer,
    and as whole JSON where a stream was asked for."""
    differences = asyncio.run(ask_all(wire, form))
    assert not differences, "\n".join(differences)


def test_the_corpus_covers_hosts_kinds_and_forms() -> None:
    """The corpus has each kind that the failure of an answer has; each row has a source and its own name."""
    ours = {"connection", "cancelled", "effect", "bad_output", "empty_reply", "interrupted"}
    assert {row["kind"] for row in ROWS} == set(FAILURE_KINDS) - ours
    assert len({row["name"] for row in ROWS}) == len(ROWS) > 150
    assert all(row["source"] for row in ROWS)


# -- answers that break off ------------------------------------------------------------------------


@contextmanager
def serve_bytes(data: bytes) -> Iterator[str]:
    """A host that sends these bytes to each connection and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
    thread.join()


async def ask_once(wire: str, address: str, *, stream: bool) -> Any:
    """What the adapter makes of a host at an address."""
    path, entry = ENTRIES[wire]
    config = LLMConfig.model_validate({**entry, "base_url": address + path, "api_key": "k"})
    provider = create_provider(config, resolve=str)
    try:
        return await send_request(provider, REQUESTS["plain"], stream=stream)
    finally:
        await provider.aclose()


@pytest.mark.parametrize("wire", ENTRIES)
@pytest.mark.parametrize(
    ("break_off", "kind"),
    [
        ("refused", "connection"),
        ("no answer", "connection"),
        ("half", "connection"),
        ("ended", "bad_response"),
    ],
)
def test_an_answer_that_breaks_off_may_be_asked_for_again(wire: str, break_off: str, kind: str) -> None:
    """S3.10: a host that refuses the connection, closes it without an answer or in the middle of one, or ends
    a stream before the answer does, is asked again, on every wire."""
    content_type, data = encode_frames(wire, STREAMED_BODIES[wire][: LAST_PIECES[wire]])
    data = data.removesuffix(b"data: [DONE]\n\n")
    length = len(data) + (100 if break_off == "half" else 0)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n".encode()
    with serve_bytes(b"" if break_off == "no answer" else head + data) as address:
        if break_off == "refused":
            with socket.create_server(("127.0.0.1", 0)) as closed:
                address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for stream in (True,) if break_off == "ended" else (False, True):
            outcome = asyncio.run(ask_once(wire, address, stream=stream))
            assert isinstance(outcome, ProviderError), outcome
            assert (outcome.kind, outcome.retryable) == (kind, True), outcome
