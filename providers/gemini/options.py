"""Encodes the options of a request as Gemini's `generationConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OPTIONS = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
"""Our option names and those of `generationConfig`."""

SUPPORTED_OPTIONS = (
    *_OPTIONS,
    "stop",
    "reasoning_effort",
    "thinking_budget",
    "logprobs",
    "host_tools",
    "safety_settings",
)


def encode_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The request's part of `generationConfig`."""
    config = {wire: options[name] for name, wire in _OPTIONS.items() if options.get(name) is not None}
    stop = options.get("stop")
    if stop:
        config["stopSequences"] = [stop] if isinstance(stop, str) else list(stop)
    if options.get("logprobs") is not None:
        config |= {"responseLogprobs": True, "logprobs": options["logprobs"]}
    thinking = _encode_thinking(options.get("reasoning_effort"), options.get("thinking_budget"))
    if thinking:
        config["thinkingConfig"] = thinking
    return {**config, **_encode_response_format(options.get("response_format"))}


def _encode_thinking(effort: str | None, budget: int | None) -> dict[str, Any]:
    """`thinkingConfig`: levels are for Gemini 3, budgets for 2.5."""
    if effort == "none":
        return {"thinkingBudget": 0}
    level = {"thinkingLevel": effort.upper()} if effort else {}
    return {
        **level,
        **({"thinkingBudget": budget, "includeThoughts": budget > 0} if budget is not None else {}),
    }


def _encode_response_format(response_format: Any) -> dict[str, Any]:
    if not isinstance(response_format, Mapping) or response_format.get("type") == "text":
        return {}
    wire: dict[str, Any] = {"responseMimeType": "application/json"}
    schema = response_format.get("json_schema")
    if isinstance(schema, Mapping) and "schema" in schema:
        wire["responseJsonSchema"] = schema["schema"]
    return wire
