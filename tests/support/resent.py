"""Recorded exchanges sent again through our adapters, over loopback, and read by hand for comparison."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asked_again import Outside, request_of
from recorded import RECORDED, index, replayer

from toolchart.providers.recording.cassettes import Exchange, read_cassette
from toolchart.providers.recording.request_readers import READERS
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states.deltas import Delta
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request


@dataclass
class Answered:
    """What came of one exchange."""

    exchange: Exchange
    reply: Reply | None = None
    failure: ProviderError | None = None
    deltas: list[Delta] = field(default_factory=list)


def cassettes(*folders: str) -> list[str]:
    """The cassettes of those folders."""
    return [
        entry["file"]
        for entry in index()
        if entry["kind"] == "cassette" and entry["file"].split("/")[1] in folders
    ]


def model_calls(path: str) -> list[Exchange]:
    """The exchanges of a cassette that are model calls."""
    return [one for one in read_cassette(RECORDED / path) if one.endpoint in READERS]


def resent(path: str, split: str | int = "event") -> tuple[list[Answered], list[Any]]:
    """Every model call of a cassette, asked again in order, and what the server noted of each."""
    calls = model_calls(path)
    provider = "ollama" if calls[0].endpoint == "ollama" else "gemini"
    with replayer().CassetteServer(RECORDED / path, match="tail", split=split) as server:
        config = LLMConfig(provider=provider, base_url=server.url, api_key="x")
        answers = asyncio.run(_answers(config, calls))
    return answers, server.requests


async def _answers(config: LLMConfig, calls: list[Exchange]) -> list[Answered]:
    provider: Any = create_provider(config, resolve=str)
    try:
        return [await _answer(provider, one) for one in calls]
    finally:
        await provider.aclose()


async def _answer(provider: Any, exchange: Exchange) -> Answered:
    answered = Answered(exchange)
    try:
        if not streams(exchange):
            answered.reply = await provider.complete(asked(exchange))
            return answered
        async for piece in provider.stream(asked(exchange)):
            if isinstance(piece, Reply):
                answered.reply = piece
            else:
                answered.deltas.append(piece)
    except ProviderError as error:
        answered.failure = error
    return answered


def streams(exchange: Exchange) -> bool:
    """Whether a stream was asked for."""
    by_body = isinstance(exchange.asked, dict) and exchange.asked.get("stream") is True
    return "stream" in Path(exchange.uri.partition("?")[0]).name.lower() or by_body


def asked(exchange: Exchange) -> Request:
    """The recorded request as one of ours, or a plain one where ours cannot say it."""
    try:
        return request_of(READERS[exchange.endpoint](exchange.asked, exchange.uri))
    except (Outside, TypeError, AttributeError):
        return Request(model="m", messages=(Message(role="user", content="hi"),))


# -- read by hand --------------------------------------------------------------------------------


def chunks(exchange: Exchange) -> Iterator[Any]:
    """The JSON values of a recorded body, whole or streamed."""
    text = exchange.body.decode("utf-8").replace("\r\n", "\n")
    try:
        value = json.loads(text)
    except ValueError:
        lines = [re.sub(r"^data: ?", "", line) for line in text.split("\n")]
        yield from (json.loads(line) for line in lines if line.startswith("{"))
    else:
        yield from value if isinstance(value, list) else [value]


@dataclass
class Told:
    """What a recorded answer says."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    word: str | None = None
    tokens: tuple[int | None, int | None] = (None, None)
    signatures: list[str] = field(default_factory=list)


def told_gemini(exchange: Exchange) -> Told:
    """A `generateContent` answer, whole or streamed."""
    told = Told()
    for chunk in chunks(exchange):
        usage = chunk.get("usageMetadata")
        if usage:
            told.tokens = (usage.get("promptTokenCount"), usage.get("totalTokenCount"))
        candidate = (chunk.get("candidates") or [{}])[0]
        told.word = candidate.get("finishReason") or told.word
        for part in candidate.get("content", {}).get("parts", []):
            if part.get("thought"):
                told.reasoning += part.get("text", "")
            else:
                told.text += part.get("text", "")
            if "functionCall" in part:
                call = part["functionCall"]
                told.calls.append((call["name"], call.get("args", {})))
                told.ids.append(call.get("id", ""))
            if "thoughtSignature" in part:
                told.signatures.append(part["thoughtSignature"])
    return told


def told_ollama(exchange: Exchange) -> Told:
    """An `/api/chat` answer, whole or streamed."""
    told = Told()
    for chunk in chunks(exchange):
        message = chunk["message"]
        told.text += message.get("content", "")
        told.reasoning += message.get("thinking", "")
        for call in message.get("tool_calls", []):
            told.calls.append((call["function"]["name"], call["function"]["arguments"]))
            told.ids.append(call.get("id", ""))
        if chunk["done"]:
            told.word = chunk.get("done_reason")
            count, more = chunk.get("prompt_eval_count"), chunk.get("eval_count")
            told.tokens = (count, None if more is None else (count or 0) + more)
    return told
