"""Tests of the OpenAI adapter: every recorded exchange is sent again through the official SDK."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from cassette_server import CassetteServer
from exchange_resending import AnswerContent, ResentExchange, iterate_chunks, requests_stream, resend_exchange
from recorded_exchanges import Exchange, read_cassette
from recorded_traffic import CORPORA, find_recording, list_cassette_paths

from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig

ENTRIES: dict[str, dict[str, Any]] = {
    "chat": {"finish_words": {"": "stop"}},
    "responses": {"api": "responses"},
}


def list_model_calls(path: str) -> list[Exchange]:
    """The OpenAI model calls of a cassette, without streams that were recorded as arrays."""
    return [
        exchange
        for exchange in read_cassette(find_recording(path))
        if exchange.endpoint in ENTRIES
        and not (exchange.is_streamed and exchange.response_body.startswith(b"["))
    ]


def resend_calls(path: str) -> list[ResentExchange]:
    """Send every model call again, each for its own answer: a cassette may hold calls of several kinds."""
    with CassetteServer(find_recording(path), match="order") as server:
        return asyncio.run(_resend_calls(path, server))


async def _resend_calls(path: str, server: CassetteServer) -> list[ResentExchange]:
    results = []
    providers: dict[str, Any] = {}
    try:
        for exchange in list_model_calls(path):
            if exchange.endpoint not in providers:
                entry = {"provider": "openai", "api_key": "x", "base_url": f"{server.url}/v1"}
                config = LLMConfig.model_validate({**entry, **ENTRIES[exchange.endpoint]})
                providers[exchange.endpoint] = create_provider(config, resolve=str)
            place = server.exchanges.index(exchange)
            server.is_used = [index < place for index in range(len(server.exchanges))]
            results.append(await resend_exchange(providers[exchange.endpoint], exchange))
    finally:
        for provider in providers.values():
            await provider.aclose()
    return results


# -- independent reading --------------------------------------------------------------------------


def read_chat_answer(exchange: Exchange) -> AnswerContent:
    """The content of a chat completion, whole or streamed."""
    answer, calls = AnswerContent(), {}
    for chunk in iterate_chunks(exchange):
        usage = chunk.get("usage") or {}
        if usage.get("total_tokens"):
            answer.tokens = (usage.get("prompt_tokens"), usage.get("total_tokens"))
        choice = (chunk.get("choices") or [{}])[0]
        answer.finish_word = choice.get("finish_reason") or answer.finish_word
        message = choice.get("message") or choice.get("delta") or {}
        text = message.get("content")
        if isinstance(text, str):
            answer.text += text
        old_call = message.get("function_call")
        wire_calls = [*(message.get("tool_calls") or ()), *([{"function": old_call}] if old_call else ())]
        for position, call in enumerate(wire_calls):
            key = call.get("index", position) if "delta" in choice else position
            if call.get("id") and calls.get(key, {}).get("id") not in (None, "", call["id"]):
                key = (key, call["id"])  # a host that numbers every call 0
            call_parts = calls.setdefault(key, {"id": "", "name": "", "arguments": ""})
            call_parts["id"] = call_parts["id"] or call.get("id") or ""
            function = call.get("function") or call.get("custom") or {}
            call_parts["name"] = call_parts["name"] or function.get("name") or ""
            call_parts["arguments"] += function.get("arguments") or function.get("input") or ""
    answer.calls = [(call["name"], call["arguments"]) for call in calls.values() if call["name"]]
    answer.ids = [call["id"] for call in calls.values() if call["name"]]
    return answer


def read_responses_answer(exchange: Exchange) -> AnswerContent:
    """The content of a response, whole or in the last event of a stream."""
    answer = AnswerContent()
    response = [chunk.get("response", chunk) for chunk in iterate_chunks(exchange)][-1]
    answer.tokens = tuple((response.get("usage") or {}).get(key) for key in ("input_tokens", "total_tokens"))  # type: ignore[assignment]
    for item in response["output"]:
        for part in item.get("content") or () if item["type"] == "message" else ():
            answer.text += part.get("text") or ""
        if item["type"] in ("function_call", "custom_tool_call"):
            answer.calls.append((item["name"], item.get("arguments", item.get("input"))))
            answer.ids.append(item["call_id"])
    return answer


ANSWER_READERS = {"chat": read_chat_answer, "responses": read_responses_answer}


def check_result(result: ResentExchange, path: str) -> str:
    """Compare a reply with an independent reading of the recorded answer; return its kind."""
    exchange = result.exchange
    if result.failure is not None:
        has_error_inside = (
            b'"error"' in exchange.response_body or b"response.failed" in exchange.response_body
        )
        assert exchange.status >= 400 or has_error_inside, (path, result.failure)
        assert exchange.status < 400 or result.failure.status in (exchange.status, None), path
        return "error"
    assert exchange.status < 400, path
    reply, expected = result.reply, ANSWER_READERS[exchange.endpoint](exchange)
    assert reply is not None, path
    parts = b'"content":[{' in exchange.response_body.replace(b" ", b"").replace(b"\n", b"")
    if exchange.endpoint == "responses" or not parts:  # Mistral's thinking comes in parts
        assert (reply.content or "") == expected.text, path
    assert [call.name for call in reply.tool_calls] == [name for name, _ in expected.calls], path
    assert [call.id for call in reply.tool_calls] == expected.ids, path
    for call, (_, text) in zip(reply.tool_calls, expected.calls, strict=True):
        free = call.arguments == {"input": text}
        assert call.raw == text or free or call.arguments == json.loads(text or "{}"), path
    if reply.usage is not None and expected.tokens[1]:
        assert (reply.usage.input, reply.usage.total) == expected.tokens, path
    return "streamed" if requests_stream(exchange) else "whole"


EXPECTED_COUNTS = {
    "own": {
        "chat whole": 10,
        "chat streamed": 6,
        "chat error": 6,
        "responses whole": 4,
        "responses streamed": 3,
        "responses error": 2,
    },
    "recorded": {
        "chat whole": 286,
        "chat streamed": 66,
        "chat error": 21,
        "responses whole": 121,
        "responses streamed": 38,
        "responses error": 5,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
def test_every_cassette_is_read_without_loss(corpus: str) -> None:
    """S2.13, S3.4, S4.2: text, calls, ids, arguments and tokens of every exchange, and every error."""
    counts = Counter[str]()
    for path in list_cassette_paths(corpus):
        if list_model_calls(path):
            counts.update(
                f"{result.exchange.endpoint} {check_result(result, path)}" for result in resend_calls(path)
            )
    assert dict(counts) == EXPECTED_COUNTS[corpus]
