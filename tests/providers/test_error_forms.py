"""Errors in the forms in which hosts send them: inside a success, streamed or whole, and with a status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from toolchart.providers.anthropic.stream import AnthropicAccumulator
from toolchart.providers.anthropic.wire import decode_reply as decode_anthropic
from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.providers.gemini.wire import decode_reply as decode_gemini
from toolchart.providers.ollama.stream import OllamaAccumulator
from toolchart.providers.ollama.wire import decode_reply as decode_ollama
from toolchart.providers.openai.responses_wire import ResponsesAccumulator
from toolchart.providers.openai.responses_wire import decode_reply as decode_responses
from toolchart.providers.openai.stream import ChatAccumulator
from toolchart.providers.openai.wire import decode_reply as decode_chat
from toolchart.providers.shared.failures import classify_http_error
from toolchart.states.errors import ProviderError

READERS: Mapping[str, tuple[type[Any], Callable[[Any], Any]]] = {
    "chat": (ChatAccumulator, decode_chat),
    "responses": (ResponsesAccumulator, decode_responses),
    "ollama": (OllamaAccumulator, decode_ollama),
    "gemini": (GeminiAccumulator, decode_gemini),
    "anthropic": (AnthropicAccumulator, decode_anthropic),
}

# Kinds of failure, each with whether the call may be made again.
SERVER = ("server", True)
RATE = ("rate_limited", True)
REFUSED = ("bad_request", False)
BUSY = ("overloaded", True)
LENGTH = ("context_length", False)
QUOTA = ("quota", False)
AUTH = ("auth", False)
FILTER = ("content_filter", False)
UNREADABLE = ("bad_response", True)
MISSING = ("not_found", False)
NO_TOOLS = ("tools_unsupported", False)
QUOTA_IN_FLIGHT = ("quota", True)

PIECES: Mapping[str, tuple[str, dict[str, Any], tuple[str, bool]]] = {
    "openai": ("chat", {"error": {"type": "server_error", "code": None, "message": "sorry"}}, SERVER),
    "litellm 500": ("chat", {"error": {"message": "no", "type": "None", "code": "500"}}, SERVER),
    "litellm 429": ("chat", {"error": {"message": "no", "type": "None", "code": "429"}}, RATE),
    "litellm 400": ("chat", {"error": {"message": "no", "type": "None", "code": "400"}}, REFUSED),
    "litellm length": (
        "chat",
        {"error": {"message": "This model's maximum context length is 9 tokens", "code": "400"}},
        LENGTH,
    ),
    "tgi": ("chat", {"error": {"message": "Input validation", "http_status_code": 422}}, REFUSED),
    "tgi busy": ("chat", {"error": {"message": "busy", "http_status_code": 503}}, BUSY),
    "tgi old": ("chat", {"error": "Request failed during generation", "error_type": "generation"}, SERVER),
    "vllm": (
        "chat",
        {"object": "error", "message": "gone", "type": "InternalServerError", "code": 500},
        SERVER,
    ),
    "vllm nested": (
        "chat",
        {"error": {"message": "bad", "type": "BadRequestError", "param": None, "code": 400}},
        REFUSED,
    ),
    "openrouter": (
        "chat",
        {
            "error": {"code": 502, "message": "Provider disconnected"},
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
        },
        SERVER,
    ),
    "openrouter word": (
        "chat",
        {
            "error": {"code": "server_error", "message": "Provider disconnected"},
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
        },
        SERVER,
    ),
    "openrouter choice": (
        "chat",
        {
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "half"},
                    "finish_reason": "error",
                    "error": {"code": 429, "message": "slow down"},
                }
            ]
        },
        RATE,
    ),
    "xai": ("chat", {"code": "The service is currently unavailable", "error": "capacity"}, BUSY),
    "xai argument": ("chat", {"code": "Client specified an invalid argument", "error": "no"}, REFUSED),
    "lm studio": ("chat", {"error": "The model has crashed without additional information."}, SERVER),
    "lm studio choice": ("chat", {"error": "Invalid tool_choice type: 'object'."}, REFUSED),
    "minimax rate": ("chat", {"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, RATE),
    "minimax key": ("chat", {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "key"}}, AUTH),
    "minimax balance": ("chat", {"base_resp": {"status_code": 1008, "status_msg": "balance"}}, QUOTA),
    "minimax filter": (
        "chat",
        {"choices": [], "base_resp": {"status_code": 1027, "status_msg": "sensitive"}},
        FILTER,
    ),
    "minimax new": ("chat", {"base_resp": {"status_code": 4711, "status_msg": "?"}}, SERVER),
    "groq": ("chat", {"x_groq": {"id": "r", "error": "over capacity"}}, SERVER),
    "groq call": (
        "chat",
        {"error": {"message": "Failed to call a function.", "code": "tool_use_failed", "status_code": 400}},
        UNREADABLE,
    ),
    "zai": ("chat", {"error": {"code": "1305", "message": "busy"}}, BUSY),
    "databricks": ("chat", {"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "slow"}, RATE),
    "unknown": ("chat", {"error": {"message": "something new", "type": "never_seen"}}, SERVER),
    "no details": ("chat", {"error": True}, SERVER),
    "ollama": ("ollama", {"error": "unexpected EOF"}, SERVER),
    "ollama status": ("ollama", {"error": "busy", "status_code": 503}, BUSY),
    "ollama model": ("ollama", {"error": "model 'x' not found, try pulling it first"}, MISSING),
    "ollama tools": ("ollama", {"error": "x does not support tools"}, NO_TOOLS),
    "responses": ("responses", {"type": "error", "code": "server_error", "message": "no"}, SERVER),
    "responses nested": (
        "responses",
        {"type": "error", "error": {"type": "server_error", "code": None, "message": "no"}},
        SERVER,
    ),
    "responses rate": (
        "responses",
        {"type": "error", "error": {"type": "tokens", "code": "rate_limit_exceeded", "message": "no"}},
        RATE,
    ),
    "responses unknown": ("responses", {"type": "error", "code": None, "message": "no"}, SERVER),
    "gemini": ("gemini", {"error": {"code": 503, "status": "UNAVAILABLE", "message": "no"}}, BUSY),
    "gemini text": ("gemini", {"error": {"code": "429", "message": "no"}}, RATE),
    "gemini word": ("gemini", {"error": {"status": "INTERNAL", "message": "no"}}, SERVER),
    "anthropic": ("anthropic", {"type": "error", "error": {"type": "overloaded_error"}}, BUSY),
    "anthropic request": (
        "anthropic",
        {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}},
        REFUSED,
    ),
    "anthropic unknown": ("anthropic", {"type": "error", "error": {"type": "new_error"}}, SERVER),
}
"""A wire format, a piece of a stream (or a whole body) with status 200, and what it means."""


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("form", ["stream", "whole"])
def test_an_error_inside_a_success_says_whether_it_may_pass(name: str, form: str) -> None:
    """S3.10: an error that comes with status 200 is classified by its numbers, words and text, streamed and
    whole; one that says nothing known is retryable, and its message is kept."""
    wire, piece, kind = PIECES[name]
    accumulator, decode = READERS[wire]
    read = accumulator().add_frame if form == "stream" else decode
    with pytest.raises(ProviderError) as caught:
        read(piece)
    error = caught.value
    assert (error.kind, error.retryable) == kind
    assert error.message


STATUSES: Mapping[str, tuple[int, Any, dict[str, str], tuple[str, bool]]] = {
    "groq call": (
        400,
        {
            "error": {
                "message": "Failed to call a function. Please adjust your prompt.",
                "type": "invalid_request_error",
                "code": "tool_use_failed",
                "failed_generation": "<function=add>{</function>",
            }
        },
        {},
        UNREADABLE,
    ),
    "groq minute": (
        413,
        {
            "error": {
                "message": "Request too large for model `m` on tokens per minute (TPM): Limit 6000, "
                "Requested 7000. Upgrade at https://console.groq.com/settings/billing",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
        {},
        RATE,
    ),
    "groq 429": (
        429,
        {
            "error": {
                "message": "Rate limit reached. Please try again in 2.5s. "
                "Need more tokens? Upgrade at https://console.groq.com/settings/billing",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
        {},
        RATE,
    ),
    "groq flex": (498, {"error": {"message": "capacity"}}, {}, BUSY),
    "too large": (413, {"error": {"message": "too large"}}, {}, LENGTH),
    "zai balance": (429, {"error": {"code": "1113", "message": "no"}}, {}, QUOTA),
    "zai locked": (429, {"error": {"code": "1112", "message": "no"}}, {}, AUTH),
    "zai plan": (429, {"error": {"code": "1310", "message": "no"}}, {}, QUOTA),
    "zai busy": (429, {"error": {"code": "1302", "message": "no"}}, {}, RATE),
    "zai length": (400, {"error": {"code": "1261", "message": "Prompt too long"}}, {}, LENGTH),
    "zai filter": (400, {"error": {"code": "1301", "message": "unsafe"}}, {}, FILTER),
    "mistral code": (429, {"object": "error", "message": "no", "code": "1113"}, {}, RATE),
    "qwen filter": (
        400,
        {"error": {"code": "data_inspection_failed", "message": "inappropriate"}},
        {},
        FILTER,
    ),
    "qwen length": (
        400,
        {"error": {"code": "invalid_parameter_error", "message": "Range of input length should be [1, 9]"}},
        {},
        LENGTH,
    ),
    "qwen quota": (429, {"error": {"code": "insufficient_quota", "message": "no"}}, {}, QUOTA),
    "moonshot quota": (429, {"error": {"type": "exceeded_current_quota_error", "message": "no"}}, {}, QUOTA),
    "moonshot busy": (429, {"error": {"type": "engine_overloaded_error", "message": "no"}}, {}, BUSY),
    "moonshot rate": (429, {"error": {"type": "rate_limit_reached_error", "message": "no"}}, {}, RATE),
    "moonshot length": (
        400,
        {"error": {"type": "invalid_request_error", "message": "Your request exceeded model token limit: 9"}},
        {},
        LENGTH,
    ),
    "openrouter 402": (402, {"error": {"code": 402, "message": "no"}}, {}, QUOTA),
    "openrouter in flight": (
        402,
        {"error": {"code": 402, "message": "no"}},
        {"Retry-After": "3"},
        QUOTA_IN_FLIGHT,
    ),
    "deepseek balance": (402, {"error": {"message": "Insufficient Balance"}}, {}, QUOTA),
    "anthropic credit": (
        400,
        {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}},
        {},
        QUOTA,
    ),
    "openai quota": (429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}, {}, QUOTA),
    "gemini list": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "status": "INVALID_ARGUMENT",
                    "message": "input token count (9) exceeds 8",
                }
            }
        ],
        {},
        LENGTH,
    ),
    "llama.cpp": (400, {"error": {"type": "exceed_context_size_error", "n_ctx": 9}}, {}, LENGTH),
    "lm studio": (400, {"error": "Invalid tool_choice type: 'object'."}, {}, REFUSED),
}
"""A status, its body and headers, and what they mean."""


@pytest.mark.parametrize("name", STATUSES)
def test_an_error_with_a_status_is_read_by_its_body_too(name: str) -> None:
    """S3.10: where a host's word or number is more exact than its status, the word decides whether the call
    is made again: an empty balance is not, a call that the model wrote badly is."""
    status, body, headers, kind = STATUSES[name]
    error = classify_http_error(status, body, headers)
    assert (error.kind, error.retryable) == kind
    assert error.status == status


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("model_length", "length"),
        ("model_context_window_exceeded", "length"),
        ("repetition", "length"),
        ("sensitive", "content_filter"),
        ("insufficient_system_resource", "error"),
        ("network_error", "error"),
        ("abort", "error"),
        ("eos_token", "stop"),
    ],
)
def test_finish_words_of_compatible_hosts_have_a_meaning(word: str, reason: str) -> None:
    """S3.3: the finish words of Mistral, Z.AI, DeepSeek, TGI, SGLang and vLLM are known."""
    body = {"choices": [{"message": {"content": "half"}, "finish_reason": word}]}
    reply = decode_chat(body)
    assert (reply.finish_reason, reply.native_reason) == (reason, word)


def test_a_success_that_names_no_error_is_a_reply() -> None:
    """S3.10: `error: null` and MiniMax's status 0 beside an answer are no errors."""
    body = {
        "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
        "error": None,
        "base_resp": {"status_code": 0, "status_msg": ""},
    }
    assert decode_chat(body).content == "yes"
