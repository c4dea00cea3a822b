"""Every recorded exchange of chat completions and Responses, asked again through the official SDK."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from recorded import RECORDED, index, needs_recorded, replayer
from resent import Answered, Told, _answer, chunks, streams

from toolchart.providers.recording.cassettes import Exchange, read_cassette
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig

ENTRIES: dict[str, dict[str, Any]] = {
    "chat": {"finish_words": {"": "stop"}},
    "responses": {"api": "responses"},
}

CASSETTES = [entry["file"] for entry in index() if entry["kind"] == "cassette"]


def calls_of(path: str) -> list[Exchange]:
    """The exchanges of a cassette that are OpenAI's kind of model call; arrays are no streams of the wire."""
    return [
        one
        for one in read_cassette(RECORDED / path)
        if one.endpoint in ENTRIES and not (one.streamed and one.body.startswith(b"["))
    ]


def resent(path: str) -> list[Answered]:
    """Every one of them, asked again: a server for each, since one cassette holds calls of several kinds."""
    answers = []
    everything = read_cassette(RECORDED / path)
    for exchange in calls_of(path):
        place = everything.index(exchange)
        with replayer().CassetteServer(RECORDED / path, match="order") as server:
            server.used[:place] = [True] * place
            entry = {"provider": "openai", "api_key": "x", "base_url": f"{server.url}/v1"}
            config = LLMConfig.model_validate({**entry, **ENTRIES[exchange.endpoint]})
            answers.append(asyncio.run(_asked(config, exchange)))
    return answers


async def _asked(config: LLMConfig, exchange: Exchange) -> Answered:
    provider: Any = create_provider(config, resolve=str)
    try:
        return await _answer(provider, exchange)
    finally:
        await provider.aclose()


# -- read by hand ------------------------------------------------------------------------------------


def told_chat(exchange: Exchange) -> Told:
    """A chat completion, whole or streamed."""
    told, calls = Told(), {}
    for chunk in chunks(exchange):
        usage = chunk.get("usage") or {}
        if usage.get("total_tokens"):
            told.tokens = (usage.get("prompt_tokens"), usage.get("total_tokens"))
        choice = (chunk.get("choices") or [{}])[0]
        told.word = choice.get("finish_reason") or told.word
        message = choice.get("message") or choice.get("delta") or {}
        content = message.get("content")
        if isinstance(content, str):
            told.text += content
        old = message.get("function_call")
        listed = [*(message.get("tool_calls") or ()), *([{"function": old}] if old else ())]
        for place, call in enumerate(listed):
            key = call.get("index", place) if "delta" in choice else place
            if call.get("id") and calls.get(key, {}).get("id") not in (None, "", call["id"]):
                key = (key, call["id"])  # a host that numbers every call 0
            one = calls.setdefault(key, {"id": "", "name": "", "arguments": ""})
            one["id"] = one["id"] or call.get("id") or ""
            function = call.get("function") or call.get("custom") or {}
            one["name"] = one["name"] or function.get("name") or ""
            one["arguments"] += function.get("arguments") or function.get("input") or ""
    told.calls = [(one["name"], one["arguments"]) for one in calls.values() if one["name"]]
    told.ids = [one["id"] for one in calls.values() if one["name"]]
    return told


def told_responses(exchange: Exchange) -> Told:
    """A response, whole or the last event of a stream."""
    told = Told()
    last = [chunk.get("response", chunk) for chunk in chunks(exchange)][-1]
    told.tokens = tuple(
        (last.get("usage") or {}).get(key) for key in ("input_tokens", "total_tokens")
    )  # type: ignore[assignment]
    for item in last["output"]:
        for part in item.get("content") or () if item["type"] == "message" else ():
            told.text += part.get("text") or ""
        if item["type"] in ("function_call", "custom_tool_call"):
            told.calls.append((item["name"], item.get("arguments", item.get("input"))))
            told.ids.append(item["call_id"])
    return told


HANDS = {"chat": told_chat, "responses": told_responses}


def check(one: Answered, path: str) -> str:
    """Compare an answer with what is read by hand; what it was."""
    exchange = one.exchange
    if one.failure is not None:
        told_inside = b'"error"' in exchange.body or b"response.failed" in exchange.body
        assert exchange.status >= 400 or told_inside, (path, one.failure)
        assert exchange.status < 400 or one.failure.status in (exchange.status, None), path
        return "error"
    assert exchange.status < 400, path
    reply, told = one.reply, HANDS[exchange.endpoint](exchange)
    assert reply is not None, path
    parts = b'"content":[{' in exchange.body.replace(b" ", b"").replace(b"\n", b"")
    if exchange.endpoint == "responses" or not parts:  # Mistral's thinking comes in parts
        assert (reply.content or "") == told.text, path
    assert [call.name for call in reply.tool_calls] == [name for name, _ in told.calls], path
    assert [call.id for call in reply.tool_calls] == told.ids, path
    for call, (_, text) in zip(reply.tool_calls, told.calls, strict=True):
        free = call.arguments == {"input": text}
        assert call.raw == text or free or call.arguments == json.loads(text or "{}"), path
    if reply.usage is not None and told.tokens[1]:
        assert (reply.usage.input, reply.usage.total) == told.tokens, path
    return "streamed" if streams(exchange) else "whole"


@needs_recorded
def test_every_cassette_is_read_without_loss() -> None:
    """S2.13, S3.4, S4.2: text, calls, ids, arguments and tokens of every exchange, and every error."""
    seen = Counter[str]()
    for path in CASSETTES:
        if calls_of(path):
            seen.update(f"{one.exchange.endpoint} {check(one, path)}" for one in resent(path))
    assert dict(seen) == {
        "chat whole": 286,
        "chat streamed": 66,
        "chat error": 21,
        "responses whole": 121,
        "responses streamed": 38,
        "responses error": 5,
    }
