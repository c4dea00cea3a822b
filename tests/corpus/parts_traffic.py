"""Pictures, sounds and files in requests, and a picture in a reply, in the form of each host."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import anthropic_traffic
import gemini_traffic
import ollama_traffic
import openai_traffic
import responses_traffic
from spellings import Exchange, encode_json
from station import JsonObject

QUESTION = "What do the chart, the horn and the plan say?"
IMAGE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"chart of Marlow Point").decode()
SOUND = base64.b64encode(b"RIFF\x1c\0\0\0WAVE" + b"fog horn").decode()
PLAN = base64.b64encode(b"%PDF-1.7\n% plan of the quay\n").decode()
LINK = "https://marlow-point.example/quay.png"

CHAT: list[JsonObject] = [
    {"type": "text", "text": QUESTION},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
    {"type": "image_url", "image_url": {"url": LINK}},
    {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}},
    {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PLAN}", "filename": "plan.pdf"}},
]
RESPONSES: list[JsonObject] = [
    {"type": "input_text", "text": QUESTION},
    {"type": "input_image", "image_url": f"data:image/png;base64,{IMAGE}", "detail": "auto"},
    {"type": "input_image", "image_url": LINK, "detail": "auto"},
    {"type": "input_file", "file_data": f"data:application/pdf;base64,{PLAN}", "filename": "plan.pdf"},
]
MESSAGES: list[JsonObject] = [
    {"type": "text", "text": QUESTION},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
    {"type": "image", "source": {"type": "url", "url": LINK}},
    {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PLAN},
        "title": "plan.pdf",
    },
]
GEMINI: list[JsonObject] = [
    {"text": QUESTION},
    {"inlineData": {"mimeType": "image/png", "data": IMAGE}},
    {"inlineData": {"mimeType": "audio/wav", "data": SOUND}},
    {"inlineData": {"mimeType": "application/pdf", "data": PLAN}},
]


def _take_exchange(cassettes: dict[str, tuple[str, list[Exchange]]], name: str) -> Exchange:
    _, (exchange, *_) = cassettes[name]
    return exchange


def _ask(exchange: Exchange, key: str, messages: list[JsonObject]) -> Exchange:
    """The exchange with another question: its prompt stays."""
    prompts = [item for item in exchange.request.get(key, ()) if item.get("role") in ("system", "developer")]
    return replace(exchange, request={**exchange.request, key: [*prompts, *messages]})


def _answer_with_picture(exchange: Exchange) -> Exchange:
    """The exchange of Gemini's whose answer has a picture after its text."""
    body = json.loads(exchange.response)
    body["candidates"][0]["content"]["parts"].append({"inlineData": {"mimeType": "image/png", "data": IMAGE}})
    return replace(exchange, response=encode_json(body))


def _build_responses() -> Exchange:
    exchange = _take_exchange(responses_traffic.CASSETTES, "openai-responses/own__whole")
    message = {"type": "message", "role": "user", "content": RESPONSES}
    body = json.loads(exchange.response)
    body["usage"]["input_tokens_details"]["cache_write_tokens"] = 0  # the SDK's type of today demands it
    request = {**exchange.request, "input": [message]}
    return replace(exchange, request=request, response=encode_json(body))


CASSETTES: dict[str, tuple[str, list[Exchange]]] = {
    "openai-chat/own__parts": (
        "text",
        [
            _ask(
                _take_exchange(openai_traffic.CASSETTES, "openai-chat/own__whole"),
                "messages",
                [{"role": "user", "content": CHAT}],
            )
        ],
    ),
    "openai-responses/own__parts": ("text", [_build_responses()]),
    "anthropic/own__parts": (
        "parsed",
        [
            _ask(
                _take_exchange(anthropic_traffic.CASSETTES, "anthropic/own__whole"),
                "messages",
                [{"role": "user", "content": MESSAGES}],
            )
        ],
    ),
    "gemini/own__parts": (
        "text",
        [
            _answer_with_picture(
                _ask(
                    _take_exchange(gemini_traffic.CASSETTES, "gemini/own__whole"),
                    "contents",
                    [{"role": "user", "parts": GEMINI}],
                )
            )
        ],
    ),
    "ollama-native/own__parts": (
        "text",
        [
            _ask(
                _take_exchange(ollama_traffic.CASSETTES, "ollama-native/own__whole"),
                "messages",
                [{"role": "user", "content": QUESTION, "images": [IMAGE]}],
            )
        ],
    ),
}
