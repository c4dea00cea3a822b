"""OpenAI chat completions: to the wire and from it, as pure maps over JSON data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from toolchart.providers.shared import finish_reasons
from toolchart.providers.shared.arguments import parse_arguments
from toolchart.providers.shared.failures import failure, unreadable
from toolchart.providers.shared.tool_choice import choice_of
from toolchart.states.errors import ProviderError
from toolchart.states.messages import (
    Message,
    Reply,
    Request,
    ToolCall,
    ToolDefinition,
    Usage,
    arguments_text,
)
from toolchart.states.schema_dialects import OPENAI, parameters_for

NAME = "openai"

EchoReasoning = Literal["always", "tool_turns", "never"]

_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
"""Where hosts put reasoning. Source: DeepSeek, vLLM and xAI say `reasoning_content`; OpenRouter, Groq and
Ollama's /v1 say `reasoning`, OpenRouter with `reasoning_details` beside it (recorded traffic)."""

_OPTIONS = (
    "temperature",
    "top_p",
    "seed",
    "stop",
    "parallel_tool_calls",
    "response_format",
)


_STATUSES = {"rate_limit_exceeded": 429, "insufficient_quota": 429, "server_error": 500}
"""Codes of errors told inside a success, by the status that they would have had.
Source: openai 3.52.0, `types/responses/response_error.py`; `insufficient_quota` comes with status 429."""


# -- to the wire ---------------------------------------------------------------------------------


def to_wire(
    request: Request,
    *,
    max_tokens_name: str = "max_completion_tokens",
    echo_reasoning: EchoReasoning = "tool_turns",
) -> dict[str, Any]:
    """The body of `POST /chat/completions`."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message, echo_reasoning) for message in request.messages],
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.options.get("tool_choice") is not None:
            body["tool_choice"] = _choice(request.options["tool_choice"])
    if "max_tokens" in request.options:
        body[max_tokens_name] = request.options["max_tokens"]
    for name in _OPTIONS:
        if name in request.options and (request.tools or name != "parallel_tool_calls"):
            body[name] = request.options[name]
    return body


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": parameters_for(tool, OPENAI),
        },
    }


def _choice(given: Any) -> Any:
    """Words as they are; a name, or a set of names, in OpenAI's mappings.

    Source: openai 3.52.0, `chat_completion_tool_choice_option_param.py`.
    """
    if isinstance(given, Mapping) and "allowed" not in given:
        return given  # the host's own spelling
    choice = choice_of(given)
    named = [{"type": "function", "function": {"name": name}} for name in choice.names]
    if not named:
        return choice.mode
    if isinstance(given, str):
        return named[0]
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": named}}


def _message(message: Message, echo: EchoReasoning) -> dict[str, Any]:
    if message.role == "tool":
        return {
            "role": "tool",
            "tool_call_id": message.tool_call_id,
            "content": message.content or "",
        }
    if message.role != "assistant":
        return {"role": message.role, "content": message.content or ""}
    wire: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [_call(call) for call in message.tool_calls]
    elif not message.content:
        wire["content"] = ""  # without calls a host refuses an assistant message that has no text
    if echo == "always" or (echo == "tool_turns" and message.tool_calls):
        wire.update(_own(message))
    return wire


def _own(message: Message) -> dict[str, Any]:
    data = message.provider_data or {}
    kept = data.get("message") if data.get("provider") == NAME else None
    return dict(kept) if isinstance(kept, Mapping) else {}


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments_text(call)},
    }


# -- from the wire -------------------------------------------------------------------------------


def from_wire(body: Any, finish_words: finish_reasons.Table | None = None) -> Reply:
    """The reply of a response body; `finish_words` are a host's own, beside OpenAI's.

    Raises:
        ProviderError: an error told inside a success, or a body that is no completion. The SDK does
            not check what it receives, so everything is checked here.
    """
    if not isinstance(body, Mapping):
        raise unreadable(f"the answer is no chat completion but {type(body).__name__}: {body}")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        if body.get("error"):
            raise told_failure(body)
        raise unreadable("the answer has no choices")
    return _reply(body, choices[0], {**finish_reasons.OPENAI, **(finish_words or {})})


def told_failure(body: Mapping[str, Any]) -> ProviderError:
    """The failure of an error told inside a success; its code is a status, or a word."""
    error = body.get("error")
    told = error if isinstance(error, Mapping) else body
    code = told.get("code")
    if isinstance(code, int) and not isinstance(code, bool):
        return failure(code, body)
    return failure(_STATUSES.get(str(code), 200), body)


def _reply(
    body: Mapping[str, Any], choice: Mapping[str, Any], words: finish_reasons.Table
) -> Reply:
    message = choice.get("message")
    message = message if isinstance(message, Mapping) else {}
    calls, word = _calls(message), choice.get("finish_reason")
    word = word if isinstance(word, str) else None
    refusal = _string(message.get("refusal"))
    kept = {key: message[key] for key in _REASONING if message.get(key)}
    return Reply(
        content=_text(message.get("content")),
        tool_calls=calls,
        finish_reason=finish_reasons.finish_reason(
            word, words, calls=len(calls), refused=bool(refusal)
        ),
        native_reason=word,
        usage=usage_of(body.get("usage")),
        reasoning=_reasoning(message),
        refusal=refusal,
        model=_string(body.get("model")),
        response_id=_string(body.get("id")),
        provider_data={"provider": NAME, "message": kept} if kept else None,
        warnings=_warnings(word, calls, words),
    )


def _warnings(
    word: Any, calls: tuple[ToolCall, ...], words: finish_reasons.Table
) -> tuple[str, ...]:
    if calls and words.get(str(word)) == "stop":
        return (f"the reply carries tool calls beside the finish reason {word!r}",)
    return ()


def _text(content: Any) -> str | None:
    """Text of a message; Mistral answers with a list of parts when it thinks (recorded traffic)."""
    if isinstance(content, list):
        parts = [
            p.get("text") for p in content if isinstance(p, Mapping) and p.get("type") == "text"
        ]
        return "".join(part for part in parts if isinstance(part, str)) or None
    return content if isinstance(content, str) else None


def _reasoning(message: Mapping[str, Any]) -> str | None:
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str) and message[key]:
            return str(message[key])
    details = message.get("reasoning_details")
    if isinstance(details, list):
        texts = [one.get("text") for one in details if isinstance(one, Mapping)]
        return "".join(text for text in texts if isinstance(text, str)) or None
    return _thoughts(message.get("content"))


def _thoughts(parts: Any) -> str | None:
    """Thinking among the parts of a content (Mistral)."""
    if not isinstance(parts, list):
        return None
    thoughts = [
        part.get("thinking")
        for part in parts
        if isinstance(part, Mapping) and part.get("type") == "thinking"
    ]
    return "".join(_text(thought) or "" for thought in thoughts) or None


def _calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    listed = message.get("tool_calls")
    listed = listed if isinstance(listed, list) else []
    calls = [_tool_call(one) for one in listed if isinstance(one, Mapping)]
    # Some hosts put an empty call beside a plain answer (recorded from Snowflake); it asks for nothing.
    calls = [call for call in calls if call.name or call.id or call.raw]
    old = message.get("function_call")
    if not calls and isinstance(old, Mapping) and old.get("name"):
        calls.append(_function("", old))
    return tuple(calls)


def _tool_call(wire: Mapping[str, Any]) -> ToolCall:
    call_id = _string(wire.get("id")) or ""
    custom = wire.get("custom")
    if isinstance(custom, Mapping) and wire.get("type") == "custom":  # free-text input
        return ToolCall(
            id=call_id, name=str(custom.get("name")), arguments={"input": custom.get("input")}
        )
    function = wire.get("function")
    return _function(call_id, function if isinstance(function, Mapping) else {})


def _function(call_id: str, function: Mapping[str, Any]) -> ToolCall:
    name, given = str(function.get("name") or ""), function.get("arguments")
    if isinstance(given, Mapping):  # compatible hosts send an object now and then
        return ToolCall(id=call_id, name=name, arguments=dict(given))
    raw = given if isinstance(given, str) else "" if given is None else json.dumps(given)
    arguments, problem = parse_arguments(raw)
    return ToolCall(id=call_id, name=name, arguments=arguments, raw=raw, problem=problem)


def usage_of(wire: Any) -> Usage | None:
    """Tokens of a completion; completion tokens include the reasoning."""
    if not isinstance(wire, Mapping):
        return None
    return Usage(
        input=count_of(wire.get("prompt_tokens")),
        output=count_of(wire.get("completion_tokens")),
        reasoning=count_of(_inner(wire, "completion_tokens_details", "reasoning_tokens")),
        cached=count_of(_inner(wire, "prompt_tokens_details", "cached_tokens")),
        total=count_of(wire.get("total_tokens")),
        cost=_amount(wire.get("cost")),
    )


def _inner(wire: Mapping[str, Any], key: str, name: str) -> Any:
    inner = wire.get(key)
    return inner.get(name) if isinstance(inner, Mapping) else None


def count_of(value: Any) -> int | None:
    """A count of tokens; None for what is no number, and for NaN and Infinity, which JSON readers accept."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _amount(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) else None


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
