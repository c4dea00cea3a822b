"""Sends recorded exchanges again through our adapters, and reads recorded answers without an adapter."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canonical_requests import read_request
from cassette_server import CassetteServer
from recorded_exchanges import Exchange, read_cassette
from recorded_traffic import find_recording, list_cassette_paths
from request_rebuilding import NotExpressible, rebuild_request

from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Delta, Message, Reply, Request


@dataclass
class ResentExchange:
    """The result of sending the request of one exchange again."""

    exchange: Exchange
    reply: Reply | None = None
    failure: ProviderError | None = None
    deltas: list[Delta] = field(default_factory=list)


def list_cassettes(*folders: str, corpus: str | None = None) -> list[str]:
    """The paths of the cassettes in those folders of a corpus; without its name, of all corpora."""
    return [path for path in list_cassette_paths(corpus) if path.split("/")[1] in folders]


def read_model_exchanges(path: str) -> list[Exchange]:
    """The exchanges of a cassette that are model calls."""
    exchanges = read_cassette(find_recording(path))
    return [exchange for exchange in exchanges if exchange.endpoint != "other"]


def resend_cassette(path: str) -> list[ResentExchange]:
    """Every model call of a cassette, sent again in order."""
    exchanges = read_model_exchanges(path)
    provider = "ollama" if exchanges[0].endpoint == "ollama" else "gemini"
    with CassetteServer(find_recording(path)) as server:
        config = LLMConfig(provider=provider, base_url=server.url, api_key="x")
        return asyncio.run(_resend_all(config, exchanges))


async def _resend_all(config: LLMConfig, exchanges: list[Exchange]) -> list[ResentExchange]:
    provider: Any = create_provider(config, resolve=str)
    try:
        return [await resend_exchange(provider, exchange) for exchange in exchanges]
    finally:
        await provider.aclose()


async def resend_exchange(provider: Any, exchange: Exchange) -> ResentExchange:
    """Send the request of an exchange again, streamed if it was streamed."""
    result = ResentExchange(exchange)
    try:
        if not requests_stream(exchange):
            result.reply = await provider.complete(rebuild_or_placeholder(exchange))
            return result
        async for item in provider.stream(rebuild_or_placeholder(exchange)):
            if isinstance(item, Reply):
                result.reply = item
            else:
                result.deltas.append(item)
    except ProviderError as error:
        result.failure = error
    return result


def requests_stream(exchange: Exchange) -> bool:
    """Whether the recorded request asks for a stream."""
    by_body = isinstance(exchange.request_body, dict) and exchange.request_body.get("stream") is True
    return "stream" in Path(exchange.uri.partition("?")[0]).name.lower() or by_body


def rebuild_or_placeholder(exchange: Exchange) -> Request:
    """The recorded request as one of ours, or a placeholder where ours cannot express it."""
    try:
        return rebuild_request(read_request(exchange.endpoint, exchange.request_body, exchange.uri))
    except (NotExpressible, TypeError, AttributeError):
        return Request(model="m", messages=(Message(role="user", content="hi"),))


# -- reading answers without an adapter ----------------------------------------------------------


def iterate_chunks(exchange: Exchange) -> Iterator[Any]:
    """The JSON values of a recorded body, whole or streamed."""
    text = exchange.response_body.decode("utf-8").replace("\r\n", "\n")
    try:
        value = json.loads(text)
    except ValueError:
        lines = [re.sub(r"^data: ?", "", line) for line in text.split("\n")]
        yield from (json.loads(line) for line in lines if line.startswith("{"))
    else:
        yield from value if isinstance(value, list) else [value]


@dataclass
class AnswerContent:
    """The content of a recorded answer."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    finish_word: str | None = None
    tokens: tuple[int | None, int | None] = (None, None)
    """Tokens of the prompt, and of prompt and reply together."""
    signatures: list[str] = field(default_factory=list)


def read_gemini_answer(exchange: Exchange) -> AnswerContent:
    """A `generateContent` answer, whole or streamed."""
    content = AnswerContent()
    for chunk in iterate_chunks(exchange):
        usage = chunk.get("usageMetadata")
        if usage:
            prompt = usage.get("promptTokenCount")
            if prompt is not None:  # what the host's own tools brought into the prompt is counted apart
                prompt += usage.get("toolUsePromptTokenCount", 0)
            content.tokens = (prompt, usage.get("totalTokenCount"))
        candidate = (chunk.get("candidates") or [{}])[0]
        content.finish_word = candidate.get("finishReason") or content.finish_word
        for part in candidate.get("content", {}).get("parts", []):
            if part.get("thought"):
                content.reasoning += part.get("text", "")
            else:
                content.text += part.get("text", "")
            if "functionCall" in part:
                call = part["functionCall"]
                content.calls.append((call["name"], call.get("args", {})))
                content.ids.append(call.get("id", ""))
            if "thoughtSignature" in part:
                content.signatures.append(part["thoughtSignature"])
    return content


def read_ollama_answer(exchange: Exchange) -> AnswerContent:
    """An `/api/chat` answer, whole or streamed."""
    content = AnswerContent()
    for chunk in iterate_chunks(exchange):
        message = chunk["message"]
        content.text += message.get("content", "")
        content.reasoning += message.get("thinking", "")
        for call in message.get("tool_calls", []):
            content.calls.append((call["function"]["name"], call["function"]["arguments"]))
            content.ids.append(call.get("id", ""))
        if chunk["done"]:
            content.finish_word = chunk.get("done_reason")
            prompt_count, reply_count = chunk.get("prompt_eval_count"), chunk.get("eval_count")
            total = None if reply_count is None else (prompt_count or 0) + reply_count
            content.tokens = (prompt_count, total)
    return content
