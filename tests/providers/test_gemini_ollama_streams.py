"""Tests of the Gemini and Ollama adapters over loopback, with every recorded exchange."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from effort import choose_count
from exchange_resending import (
    AnswerContent,
    ResentExchange,
    iterate_chunks,
    list_cassettes,
    read_gemini_answer,
    read_ollama_answer,
    requests_stream,
    resend_cassette,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_exchanges import Exchange
from recorded_traffic import CORPORA, RECORDED, needs_recorded

from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.providers.gemini.wire import decode_reply as decode_gemini_reply
from toolchart.providers.ollama.stream import OllamaAccumulator
from toolchart.providers.ollama.wire import decode_reply as decode_ollama_reply
from toolchart.states.errors import ProviderError
from toolchart.states.messages import CallStarted, ReasoningDelta, Reply, TextDelta

FOLDERS = ("gemini", "gemini-vertex", "ollama-native")
CASSETTES = list_cassettes(*FOLDERS)
SEQUENCES = choose_count(short=100, long=2_000)
"""Drawn sequences; each is rotated five times."""


def check_result(result: ResentExchange, path: str) -> str:
    """Compare an answer with its recorded body; return its kind."""
    if result.exchange.status >= 400:
        assert result.failure is not None, path
        assert result.failure.status == result.exchange.status, path
        return "error"
    reply = result.reply
    assert reply is not None, (path, result.failure)
    ollama = result.exchange.endpoint == "ollama"
    expected = (read_ollama_answer if ollama else read_gemini_answer)(result.exchange)
    assert (reply.content or "", reply.reasoning or "") == (expected.text, expected.reasoning), path
    assert [(call.name, call.arguments) for call in reply.tool_calls] == expected.calls, path
    assert [call.id for call in reply.tool_calls] == expected.ids, path
    if expected.finish_word is not None:
        assert reply.native_reason == str(expected.finish_word), path
    tokens = (reply.usage.input, reply.usage.total) if reply.usage else (None, None)
    assert tokens == expected.tokens, path
    own_parts = (reply.provider_data or {}).get("content", {}).get("parts", [])
    assert [p["thoughtSignature"] for p in own_parts if "thoughtSignature" in p] == expected.signatures, path
    if requests_stream(result.exchange):
        assert "".join(d.text for d in result.deltas if isinstance(d, TextDelta)) == expected.text
        thoughts = "".join(d.text for d in result.deltas if isinstance(d, ReasoningDelta))
        assert thoughts == expected.reasoning
        started_calls = [(d.index, d.name) for d in result.deltas if isinstance(d, CallStarted)]
        assert started_calls == list(enumerate(name for name, _ in expected.calls))
    return "streamed" if requests_stream(result.exchange) else "whole"


MINIMUM_COUNTS = {
    "own": {
        "gemini whole": 6,
        "gemini streamed": 4,
        "gemini error": 3,
        "ollama whole": 4,
        "ollama streamed": 3,
        "ollama error": 2,
    },
    "recorded": {
        "gemini whole": 121,
        "gemini streamed": 21,
        "gemini error": 4,
        "ollama whole": 5,
        "ollama streamed": 1,
    },
}
"""By corpus: the least number of exchanges of each kind."""


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
def test_every_cassette_is_read_without_loss(corpus: str) -> None:
    """S2.13, S3.4: each recorded exchange of Gemini, Vertex and Ollama, sent again through the SDKs.

    Text, reasoning, calls, ids, arguments, finish word, tokens, signatures and statuses are those that a
    second, independent reader finds in the recorded body. Vertex's token requests are no model calls
    and are left out.
    """
    counts = Counter[str]()
    for path in list_cassettes(*FOLDERS, corpus=corpus):
        results = resend_cassette(path)
        counts.update(f"{result.exchange.endpoint} {check_result(result, path)}" for result in results)
    assert counts >= Counter(MINIMUM_COUNTS[corpus])


def build_reply(accumulator: GeminiAccumulator | OllamaAccumulator) -> Reply:
    """The whole reply of a stream."""
    is_gemini = isinstance(accumulator, GeminiAccumulator)
    return (decode_gemini_reply if is_gemini else decode_ollama_reply)(accumulator.build_body())


@needs_recorded
@pytest.mark.parametrize(
    ("file", "make_accumulator", "read_answer"),
    [
        ("prism.gemini", GeminiAccumulator, read_gemini_answer),
        ("vercel-ai.google", GeminiAccumulator, read_gemini_answer),
        ("prism.ollama", OllamaAccumulator, read_ollama_answer),
    ],
)
def test_recorded_bodies_without_requests_are_read(
    file: str,
    make_accumulator: type[GeminiAccumulator | OllamaAccumulator],
    read_answer: Callable[[Exchange], AnswerContent],
) -> None:
    """S3.4: streams of which only the body is recorded are decoded as a second reader decodes them.

    Left out: calls that Vertex streams in pieces on request (`willContinue`), which ours never asks for,
    and another interface of the same host.
    """
    lines = (RECORDED / "bodies" / f"{file}.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["kind"] != "json"]
    rows = [row for row in rows if "willContinue" not in row["body"]]
    rows = [row for row in rows if "/interactions/" not in row["scenario"]]
    assert len(rows) >= 2
    for row in rows:
        exchange = Exchange(
            method="POST",
            uri="",
            endpoint="other",
            request_body=None,
            status=200,
            headers={},
            response_body=row["body"].encode(),
            is_streamed=True,
        )
        accumulator = make_accumulator()
        deltas = [delta for chunk in iterate_chunks(exchange) for delta in accumulator.add_frame(chunk)]
        reply, expected = build_reply(accumulator), read_answer(exchange)
        assert (reply.content or "", reply.reasoning or "") == (expected.text, expected.reasoning)
        assert [(call.name, call.arguments) for call in reply.tool_calls] == expected.calls
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == expected.text


def test_a_partial_call_is_never_run() -> None:
    """S1.17: a partial call has a problem and no arguments, so it is never run."""
    accumulator = GeminiAccumulator()
    piece = {"functionCall": {"name": "a", "willContinue": True}}
    accumulator.add_frame({"candidates": [{"content": {"parts": [piece]}, "finishReason": "STOP"}]})
    (call,) = build_reply(accumulator).tool_calls
    assert call.arguments is None
    assert "in pieces" in (call.problem or "")


# -- arbitrary input -----------------------------------------------------------------------------


WORDS = st.sampled_from(
    [
        *("error", "candidates", "content", "parts", "text", "thought", "functionCall", "name", "args"),
        *("id", "finishReason", "STOP", "usageMetadata", "promptTokenCount", "thoughtsTokenCount"),
        *("promptFeedback", "blockReason", "finishMessage", "message", "thinking", "tool_calls", "function"),
        *("arguments", "done", "done_reason", "stop", "eval_count", "thoughtSignature", "modelVersion"),
        *("code", "status", "details", "retryDelay", "candidatesTokenCount", "\ud800", "{"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
NEAR = st.fixed_dictionaries(
    {},
    optional={
        "candidates": st.lists(
            ANYTHING
            | st.fixed_dictionaries(
                {"content": st.fixed_dictionaries({"parts": st.lists(ANYTHING, max_size=3)})},
                optional={"finishReason": ANYTHING | st.just("STOP")},
            ),
            max_size=2,
        ),
        "message": st.dictionaries(
            st.sampled_from(["content", "thinking", "tool_calls"]),
            ANYTHING | st.lists(st.fixed_dictionaries({"function": ANYTHING}), max_size=2),
        ),
        "usageMetadata": ANYTHING,
        "done": st.booleans() | ANYTHING,
        "prompt_eval_count": ANYTHING,
    },
)


WHOLE_REPLIES = {
    GeminiAccumulator: [{"candidates": [{"content": {"parts": [{"text": "yes"}]}, "finishReason": "STOP"}]}],
    OllamaAccumulator: [{"message": {"content": "yes"}, "done": True, "done_reason": "stop"}],
}
"""What each host says to give a reply."""


def test_no_sequence_of_chunks_is_a_crash() -> None:
    """S3.4: each sequence of arbitrary JSON values ends in a reply or in a ProviderError."""

    def find_outcome(accumulator: GeminiAccumulator | OllamaAccumulator, chunks: list[Any]) -> str:
        try:
            for chunk in chunks:
                accumulator.add_frame(chunk)
            build_reply(accumulator)
        except ProviderError as error:
            return error.kind
        return "reply"

    @settings(max_examples=SEQUENCES, deadline=None, database=None)
    @given(st.lists(NEAR | ANYTHING, max_size=5))
    def run(chunks: list[Any]) -> None:
        # Drawing takes most of the time, so each drawn sequence is rotated five times.
        for first in range(5):
            rotated_chunks = chunks[first:] + chunks[:first]
            for make in (GeminiAccumulator, OllamaAccumulator):
                find_outcome(make(), rotated_chunks)

    run()
    for make, chunks in WHOLE_REPLIES.items():
        assert (find_outcome(make(), chunks), find_outcome(make(), [])) == ("reply", "bad_response")
