"""Our own corpus of recorded traffic: every adapter, read from the files and over loopback."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from canonical_requests import find_differences, read_request
from cassette_server import CassetteServer
from exchange_resending import ResentExchange, resend_exchange
from recorded_chains import ENTRIES, find_verbatim_values, make_entry, read_chain, run_chain
from recorded_exchanges import Exchange, read_cassette, read_recorded_reply
from recorded_traffic import OWN, find_recording, read_expectations, read_index

from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.messages import CallArguments, CallStarted, ReasoningDelta, Reply, TextDelta

MODEL_IN_ADDRESS = re.compile(r"/models/([^/:?]+)")
"""Gemini names the model in the address."""

EXPECTED = read_expectations()
CONVERSATIONS = [path for path in EXPECTED if read_chain(path)]
STREAMED = [
    entry["file"]
    for entry in read_index("own")
    if entry["kind"] == "cassette" and entry["streamed_responses"]
]


def describe_outcome(outcome: Reply | ProviderError) -> dict[str, Any]:
    """A reply or a failure in the form of `EXPECTED.jsonl`."""
    if isinstance(outcome, ProviderError):
        return {
            "error": outcome.kind,
            "status": outcome.status,
            "retryable": outcome.retryable,
            "retry_after_s": outcome.retry_after_s,
        }
    assert outcome.usage is not None
    return {
        "text": outcome.content or "",
        "reasoning": outcome.reasoning or "",
        "calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in outcome.tool_calls
        ],
        "finish_reason": outcome.finish_reason,
        "native_reason": outcome.native_reason,
        "tokens": [outcome.usage.input, outcome.usage.total],
    }


def list_expected(path: str) -> list[dict[str, Any]]:
    """The expected outcomes of a cassette's exchanges, without their place."""
    return [
        {key: value for key, value in row.items() if key not in ("file", "exchange")}
        for row in EXPECTED[path]
    ]


# -- the files -----------------------------------------------------------------------------------


def test_the_committed_files_are_what_the_script_writes(tmp_path: Path) -> None:
    """The files of the corpus are what `tests/corpus/write.py` writes, and no other file lies there."""
    subprocess.run([sys.executable, str(OWN / "write.py"), str(tmp_path)], check=True, timeout=300)
    written_files = _list_data_files(tmp_path)
    committed_files = _list_data_files(OWN)
    assert sorted(written_files) == sorted(committed_files)
    for name, data in written_files.items():
        assert data == committed_files[name], name
    assert sum(map(len, committed_files.values())) < 250_000


def _list_data_files(folder: Path) -> dict[str, bytes]:
    """The bytes of every data file in a folder, by its path there."""
    endings = (".json", ".jsonl", ".yaml", ".yml")
    files = [file for file in folder.rglob("*.*") if file.suffix in endings]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def test_the_readme_describes_every_file() -> None:
    """The README of the corpus names every file, and the index lists it."""
    text = (OWN / "README.md").read_text("utf-8")
    paths = [entry["file"] for entry in read_index("own")]
    assert not [path for path in paths if f"`{path.removeprefix('cassettes/')}`" not in text]
    top_files = {"INDEX.jsonl", "EXPECTED.jsonl"}
    assert set(_list_data_files(OWN)) - top_files == set(paths)
    sources = [file.name for file in OWN.glob("*.py")]
    assert not [name for name in (*top_files, *sources) if f"`{name}`" not in text]


def test_every_spelling_is_used() -> None:
    """The cassettes use each of the five spellings, for whole answers and for streams."""
    cassettes = [entry for entry in read_index("own") if entry["kind"] == "cassette"]
    spellings = {entry["format"] for entry in cassettes}
    assert spellings == {"text", "gzip", "parsed", "ruby", "pair"}
    streamed_spellings = {entry["format"] for entry in cassettes if entry["streamed_responses"]}
    assert streamed_spellings >= {"text", "gzip", "ruby"}
    assert b"\x1f\x8b" in b"".join(
        exchange["response"]["body"]["string"] for exchange in _load_gzip_interactions()
    )


def _load_gzip_interactions() -> list[dict[str, Any]]:
    import yaml

    path = OWN / "cassettes" / "openai-chat" / "own__tools.yaml"
    interactions: list[dict[str, Any]] = yaml.safe_load(path.read_text("utf-8"))["interactions"]
    return interactions


# -- reading -------------------------------------------------------------------------------------


def read_outcome(exchange: Exchange) -> Reply | ProviderError:
    """The reply of an exchange, or the failure."""
    try:
        return read_recorded_reply(exchange)
    except ProviderError as error:
        return error


@pytest.mark.parametrize("path", EXPECTED)
def test_every_answer_is_decoded(path: str) -> None:
    """S2.13, S3.4: text, reasoning, calls, ids, tokens and finish word of each answer, whole or streamed;
    each error gets its kind, whether to retry, and the wait that the host asks for."""
    outcomes = [describe_outcome(read_outcome(exchange)) for exchange in read_cassette(find_recording(path))]
    assert outcomes == list_expected(path)


# -- over loopback -------------------------------------------------------------------------------


def resend_cassette(path: str, *splits: str | int) -> tuple[list[list[ResentExchange]], CassetteServer]:
    """The results of sending every exchange again, once for each size of the pieces of streams."""

    async def resend(server: CassetteServer) -> list[list[ResentExchange]]:
        config = LLMConfig.model_validate(make_entry(path, server.url))
        provider: Any = create_provider(config, resolve=str)
        rounds = []
        try:
            for split in splits:
                server.rewind(split)
                rounds.append([await resend_exchange(provider, exchange) for exchange in server.exchanges])
        finally:
            await provider.aclose()
        return rounds

    with CassetteServer(find_recording(path), match="strict-order") as server:
        return asyncio.run(resend(server)), server


def check_deltas(result: ResentExchange) -> None:
    """Check that the deltas of a stream add up to its reply."""
    reply, deltas = result.reply, result.deltas
    assert reply is not None
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    thought = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    assert (text, thought) == (reply.content or "", reply.reasoning or "")
    started_calls = [(d.index, d.name) for d in deltas if isinstance(d, CallStarted)]
    assert started_calls == list(enumerate(call.name for call in reply.tool_calls))
    for index, call in enumerate(reply.tool_calls):
        pieces = [d.text for d in deltas if isinstance(d, CallArguments) and d.index == index]
        assert json.loads("".join(pieces)) == call.arguments


@pytest.mark.parametrize("path", EXPECTED)
def test_requests_and_answers_pass_the_sdks(path: str) -> None:
    """S2.2, S2.13, S4.1: each recorded request leaves adapter and SDK as the same request, at the endpoint of
    the recorded one; the answer is the recorded one, or an error of the same kind."""
    (results,), server = resend_cassette(path, "event")
    outcomes = [describe_outcome(result.reply or result.failure) for result in results]  # type: ignore[arg-type]
    assert outcomes == list_expected(path)
    assert server.is_done
    for exchange, sent in zip(server.exchanges, server.requests, strict=True):
        recorded_request = read_request(exchange.endpoint, exchange.request_body, exchange.uri)
        sent_request = read_request(exchange.endpoint, json.loads(sent["body"]), sent["path"])
        assert find_differences(recorded_request, sent_request) == []
        assert MODEL_IN_ADDRESS.findall(sent["path"]) == MODEL_IN_ADDRESS.findall(exchange.uri)


@pytest.mark.parametrize("path", STREAMED)
def test_a_stream_is_the_same_however_it_is_cut(path: str) -> None:
    """S3.4: a stream that arrives in pieces of 1, 7 or 4096 bytes gives the reply of the whole answer, and
    its deltas add up to it."""
    rounds, _ = resend_cassette(path, 1, 7, 4096)
    for results in rounds:
        outcomes = [describe_outcome(result.reply or result.failure) for result in results]  # type: ignore[arg-type]
        assert outcomes == list_expected(path)
        for result in results:
            if result.reply is not None:
                check_deltas(result)


@pytest.mark.parametrize("path", [path for path in STREAMED if "error" not in EXPECTED[path][0]])
def test_a_stream_without_its_end_is_an_error(path: str) -> None:
    """S3.4: a stream whose connection closes after three events is an error that may be tried again."""
    (exchange, *_) = read_cassette(find_recording(path))

    async def resend(url: str) -> ResentExchange:
        config = LLMConfig.model_validate(make_entry(path, url))
        provider: Any = create_provider(config, resolve=str)
        try:
            return await resend_exchange(provider, exchange)
        finally:
            await provider.aclose()

    with CassetteServer(find_recording(path), match="order", cut_after=3) as server:
        result = asyncio.run(resend(server.url))
    assert result.reply is None
    assert result.failure is not None
    assert result.failure.kind in ("bad_response", "connection")
    assert result.failure.retryable


# -- conversations -------------------------------------------------------------------------------


def test_every_host_has_a_conversation() -> None:
    """The corpus has a conversation with tools for every kind of host, and five streamed ones."""
    assert {path.split("/")[1] for path in CONVERSATIONS} == set(ENTRIES) - {"openai-compatible-responses"}
    assert len([path for path in CONVERSATIONS if path in STREAMED]) >= 5


@pytest.mark.parametrize("path", CONVERSATIONS)
def test_conversations_run_over_loopback(path: str) -> None:
    """S1.9-13, S3.8, S4.2, S4.6: each conversation runs through engine, adapter and SDK to its recorded end.

    Its requests are the recorded ones, and what a host wants back unchanged (signatures, thinking, encrypted
    reasoning) is in them.
    """
    run_chain(path, is_exact=True)


def test_some_values_go_back_unchanged() -> None:
    """The corpus has such values for Responses, Gemini, Anthropic, Ollama and a compatible host."""
    folders = {
        path.split("/")[1]
        for path in CONVERSATIONS
        if find_verbatim_values(read_cassette(find_recording(path))[-1].request_body)
    }
    assert folders >= {
        "anthropic",
        "gemini",
        "gemini-vertex",
        "ollama-native",
        "openai-compatible-chat",
        "openai-responses",
    }
