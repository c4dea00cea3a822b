"""Gemini and Ollama over loopback: every recorded exchange, whole or streamed and however split."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest
from asked_again import Outside, request_of
from chained import conversation, tools_of
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import RECORDED, needs_recorded, replayer
from resent import (
    Answered,
    Told,
    cassettes,
    chunks,
    model_calls,
    resent,
    streams,
    told_gemini,
    told_ollama,
)

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.providers.gemini.stream import GeminiStream
from toolchart.providers.ollama.stream import OllamaStream
from toolchart.providers.recording.canonical_requests import differences
from toolchart.providers.recording.cassettes import Exchange
from toolchart.providers.recording.recorded_calls import reply_of
from toolchart.providers.recording.request_readers import READERS
from toolchart.states.deltas import CallStarted, ReasoningDelta, TextDelta
from toolchart.states.errors import ProviderError

CASSETTES = cassettes("gemini", "gemini-vertex", "ollama-native")
STREAMED = [path for path in CASSETTES if any(map(streams, model_calls(path)))]


def check(one: Answered, path: str) -> str:
    """The answer says what its recorded body says; how it was told."""
    if one.exchange.status >= 400:
        assert one.failure is not None, path
        assert one.failure.status == one.exchange.status, path
        return "error"
    reply = one.reply
    assert reply is not None, (path, one.failure)
    ollama = one.exchange.endpoint == "ollama"
    told = (told_ollama if ollama else told_gemini)(one.exchange)
    assert (reply.content or "", reply.reasoning or "") == (told.text, told.reasoning), path
    assert [(call.name, call.arguments) for call in reply.tool_calls] == told.calls, path
    assert [call.id for call in reply.tool_calls] == told.ids, path
    if told.word is not None:
        assert reply.native_reason == str(told.word), path
    tokens = (reply.usage.input, reply.usage.total) if reply.usage else (None, None)
    assert tokens == told.tokens, path
    kept = (reply.provider_data or {}).get("content", {}).get("parts", [])
    assert [p["thoughtSignature"] for p in kept if "thoughtSignature" in p] == told.signatures, path
    if streams(one.exchange):
        assert "".join(d.text for d in one.deltas if isinstance(d, TextDelta)) == told.text
        thoughts = "".join(d.text for d in one.deltas if isinstance(d, ReasoningDelta))
        assert thoughts == told.reasoning
        begun = [(d.index, d.name) for d in one.deltas if isinstance(d, CallStarted)]
        assert begun == list(enumerate(name for name, _ in told.calls))
    return "streamed" if streams(one.exchange) else "whole"


@needs_recorded
def test_every_cassette_is_read_without_loss() -> None:
    """S2.13, S3.4: each recorded exchange of Gemini, Vertex and Ollama, asked again through the SDKs.

    Text, reasoning, calls, ids, arguments, finish word, tokens, signatures and statuses are those that a
    second reader finds in the recorded body. Left out: the token requests of Vertex, no model calls.
    """
    seen = Counter[str]()
    for path in CASSETTES:
        answers, _ = resent(path)
        seen.update(f"{one.exchange.endpoint} {check(one, path)}" for one in answers)
    assert seen["gemini whole"] > 120
    assert seen["gemini streamed"] > 20
    assert seen["gemini error"] >= 4
    assert (seen["ollama whole"], seen["ollama streamed"]) == (5, 1)


@needs_recorded
def test_what_leaves_the_sdks_is_what_was_recorded() -> None:
    """S2.2, S4.1: the bodies on the wire ask what the recorded ones asked.

    What is harmless is listed in
    `providers/recording/canonical_requests.py`; what ours cannot say (pictures, the host's own
    tools) is left out and counted.
    """
    same, outside = 0, 0
    for path in CASSETTES:
        answers, requests = resent(path)
        for one, sent in zip(answers, requests, strict=True):
            reader = READERS[one.exchange.endpoint]
            recorded = reader(one.exchange.asked, one.exchange.uri)
            try:
                request_of(recorded)
            except Outside:
                outside += 1
                continue
            again = reader(json.loads(sent["body"]), sent["path"])
            assert not [str(each) for each in differences(recorded, again)], path
            same += 1
    assert (same, outside) == (150, 29)


@needs_recorded
@pytest.mark.parametrize(
    ("file", "make", "read"),
    [
        ("prism.gemini", GeminiStream, told_gemini),
        ("vercel-ai.google", GeminiStream, told_gemini),
        ("prism.ollama", OllamaStream, told_ollama),
    ],
)
def test_recorded_bodies_without_requests_are_read(
    file: str,
    make: type[GeminiStream | OllamaStream],
    read: Callable[[Exchange], Told],
) -> None:
    """S3.4: streams of which only the body was kept say what a second reader finds in them.

    Left out: calls that Vertex streams in pieces on request (`willContinue`), which ours never asks for,
    and another interface of the same host.
    """
    lines = (RECORDED / "bodies" / f"{file}.jsonl").read_text("utf-8").splitlines()
    streamed = [one for one in map(json.loads, lines) if one["kind"] != "json"]
    streamed = [one for one in streamed if "willContinue" not in one["body"]]
    streamed = [one for one in streamed if "/interactions/" not in one["scenario"]]
    assert len(streamed) >= 2
    for one in streamed:
        exchange = Exchange(
            method="POST",
            uri="",
            endpoint="other",
            asked=None,
            status=200,
            headers={},
            body=one["body"].encode(),
            streamed=True,
        )
        growing = make()
        deltas = [delta for chunk in chunks(exchange) for delta in growing.feed(chunk)]
        reply, told = growing.reply(), read(exchange)
        assert (reply.content or "", reply.reasoning or "") == (told.text, told.reasoning)
        assert [(call.name, call.arguments) for call in reply.tool_calls] == told.calls
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == told.text


def test_a_call_in_pieces_is_never_run() -> None:
    """S3.11: a piece of a call has no arguments and says why; it is not run without them."""
    growing = GeminiStream()
    piece = {"functionCall": {"name": "a", "willContinue": True}}
    growing.feed({"candidates": [{"content": {"parts": [piece]}, "finishReason": "STOP"}]})
    (call,) = growing.reply().tool_calls
    assert call.arguments is None
    assert "in pieces" in (call.problem or "")


# -- conversations -------------------------------------------------------------------------------


@cache
def turns() -> list[str]:
    """Cassettes that are one conversation with tools."""
    return [path for path in CASSETTES if conversation(path)]


@needs_recorded
@pytest.mark.parametrize("path", turns())
def test_conversations_run_over_the_wire(path: str) -> None:
    """S3.4: each recorded tool conversation, streamed ones too, runs through SDK and engine to its end.

    Every thought signature that the recorded client sent back is sent back by us, and the log replays.
    """
    found = conversation(path)
    assert found is not None
    takes, first, replies = found
    watched: list[object] = []
    on_delta = watched.append if streams(model_calls(path)[0]) else None
    with replayer().CassetteServer(RECORDED / path, match="tail") as server:
        entry = {"provider": model_calls(path)[0].endpoint, "base_url": server.url, "api_key": "x"}
        spec = {
            "llms": {"host": entry},
            "tools": {"apply_globally": True, "max_iterations": 20},
            "limits": {"max_tool_only_streak": 20, "max_repeats": 20},
            "responses": [{"llm": "host", "model": first.model or "m"}],
        }
        said = [one for one in first.messages if one.role != "system"]
        tools = tools_of(first, takes[-1].asked)
        with Engine(spec, log="memory", functions=tools) as engine:
            result = engine.run(
                said[-1].content or "", conversation="c", history=said[:-1], on_delta=on_delta
            )
            assert (result.state, result.content) == ("finished", replies[-1].content)
            asked = [call for reply in replies for call in reply.tool_calls]
            for made, call in zip(result.tool_calls, asked, strict=True):
                # An argument that the tool has not is dropped before it is run.
                assert made["tool"] == call.name
                assert made["params"].items() <= (call.arguments or {}).items()
            assert list(replay(engine.store.read("c"), "c"))
    assert not server.misses
    assert bool(watched) is (on_delta is not None)
    for sent, exchange in zip(server.requests, model_calls(path), strict=True):
        assert signatures(json.loads(sent["body"])) >= signatures(exchange.asked)


@needs_recorded
def test_there_are_conversations_of_both_kinds() -> None:
    """S3.4: the recorded traffic has tool conversations, whole and streamed, of Gemini and of Vertex."""
    kinds = Counter((path.split("/")[1], streams(model_calls(path)[0])) for path in turns())
    assert kinds["gemini", False] >= 10
    assert kinds["gemini", True] >= 2
    assert kinds["gemini-vertex", False] + kinds["gemini-vertex", True] >= 1


def signatures(body: object) -> set[str]:
    """Every thought signature of a request, in one alphabet."""
    if isinstance(body, list):
        return {each for one in body for each in signatures(one)}
    if not isinstance(body, dict):
        return set()
    found = {each for one in body.values() for each in signatures(one)}
    own = body.get("thoughtSignature") or body.get("thought_signature")
    if isinstance(own, str):
        found.add(own.replace("-", "+").replace("_", "/").rstrip("="))
    return found


@needs_recorded
@pytest.mark.parametrize("path", STREAMED)
def test_a_stream_is_the_same_however_it_is_split(path: str) -> None:
    """S3.4: split at 1, 7 or 4096 bytes, and read whole from the cassette: one and the same reply."""
    size = sum(len(one.body) for one in model_calls(path))
    for split in (1, 7, 4096) if size < 20_000 else (7, 4096):
        answers, _ = resent(path, split)
        for one in answers:
            check(one, path)
            if one.reply is not None:
                assert one.reply == reply_of(one.exchange)


# -- bad streams ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [GeminiStream, OllamaStream])
def test_a_stream_without_its_end_is_a_failure(make: type[GeminiStream | OllamaStream]) -> None:
    """S3.4: a stream that was cut is no reply, though it said a lot."""
    growing = make()
    with pytest.raises(ProviderError) as caught:
        growing.reply()
    assert caught.value.kind == "bad_response"
    part = {"parts": [{"text": "Hel"}]}
    growing.feed({"candidates": [{"content": part}], "message": {"content": "Hel"}, "done": False})
    with pytest.raises(ProviderError) as caught:
        growing.reply()
    assert caught.value.kind == "bad_response"
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("growing", "line", "kind"),
    [
        (GeminiStream(), {"error": {"code": 503, "message": "full"}}, "overloaded"),
        (GeminiStream(), [{"error": {"code": 429, "message": "slow"}}], "rate_limited"),
        (OllamaStream(), {"error": "out of memory", "status": 500}, "server"),
        (OllamaStream(), {"error": "m does not support tools"}, "tools_unsupported"),
    ],
)
def test_an_error_inside_a_stream_is_classified(
    growing: GeminiStream | OllamaStream, line: object, kind: str
) -> None:
    """S3.8: an error told inside a stream that began well is the failure it would have been before."""
    with pytest.raises(ProviderError) as caught:
        growing.feed(line)
    assert caught.value.kind == kind


WORDS = st.sampled_from(
    [
        "error",
        "candidates",
        "content",
        "parts",
        "text",
        "thought",
        "functionCall",
        "name",
        "args",
        "id",
        "finishReason",
        "STOP",
        "usageMetadata",
        "promptTokenCount",
        "thoughtsTokenCount",
        "promptFeedback",
        "blockReason",
        "finishMessage",
        "message",
        "thinking",
        "tool_calls",
        "function",
        "arguments",
        "done",
        "done_reason",
        "stop",
        "eval_count",
        "thoughtSignature",
        "modelVersion",
        "code",
        "status",
        "details",
        "retryDelay",
        "candidatesTokenCount",
        "\ud800",
        "{",
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


def test_no_sequence_of_chunks_is_a_crash() -> None:
    """S3.4: whatever JSON comes, in 10,000 sequences, ends in a reply or in a classified failure."""
    ends = Counter[str]()

    def end(growing: GeminiStream | OllamaStream, chunks: list[object]) -> str:
        try:
            for chunk in chunks:
                growing.feed(chunk)
            growing.reply()
        except ProviderError as error:
            return error.kind
        return "reply"

    @settings(max_examples=2_000, deadline=None, database=None)
    @given(st.lists(NEAR | ANYTHING, max_size=5))
    def run(chunks: list[object]) -> None:
        # Drawing is what takes time, so each drawn sequence is told from five beginnings.
        for first in range(5):
            told = chunks[first:] + chunks[:first]
            for make in (GeminiStream, OllamaStream):
                ends[f"{make.__name__} {end(make(), told)}"] += 1

    run()
    assert ends.total() >= 20_000
    assert min(ends["GeminiStream reply"], ends["OllamaStream reply"]) > 20
    assert min(ends["GeminiStream bad_response"], ends["OllamaStream bad_response"]) > 20
