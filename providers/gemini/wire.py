"""Gemini `generateContent`: to the SDK's arguments and from the wire, as pure maps over plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.providers.shared import finish_reasons
from toolchart.providers.shared.failures import failure, unreadable
from toolchart.providers.shared.tool_choice import Choice, choice_of
from toolchart.providers.shared.wire_values import count, text_or_none
from toolchart.states.messages import Message, Reply, Request, ToolCall, Usage
from toolchart.states.schema_dialects import GEMINI, parameters_for

NAME = "gemini"

_OPTIONS = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
}


# -- to the wire ---------------------------------------------------------------------------------


def to_wire(request: Request) -> dict[str, Any]:
    """`{model, contents, config}` for the SDK's `generate_content`.

    The SDK acts by itself unless told not to: it would run callables and join continued answers.
    Source: google-genai 3.4.0, `models.py` (both switches were tried).
    """
    system = [m.content for m in request.messages if m.role == "system" and m.content]
    config: dict[str, Any] = {
        "automatic_function_calling": {"disable": True},
        **{
            wire: request.options[name]
            for name, wire in _OPTIONS.items()
            if name in request.options
        },
    }
    if system:
        config["system_instruction"] = "\n\n".join(system)
    stop = request.options.get("stop")
    if stop:
        config["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if request.tools:
        # One Tool with all declarations: on the raw interface only the first Tool counts.
        config["tools"] = [
            {
                "function_declarations": [
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters_json_schema": parameters_for(tool, GEMINI),
                    }
                    for tool in request.tools
                ]
            }
        ]
        if request.options.get("tool_choice") is not None:
            calling = _calling(choice_of(request.options["tool_choice"]))
            config["tool_config"] = {"function_calling_config": calling}
    config.update(_response_format(request.options.get("response_format")))
    # No content at all is refused by the SDK; an empty text is taken where nothing follows the system's.
    contents = contents_of(request.messages) or [{"role": "user", "parts": [{"text": ""}]}]
    return {"model": request.model, "contents": contents, "config": config}


def _calling(choice: Choice) -> dict[str, Any]:
    """`AUTO` takes no names, so a choice among some that forces none is `VALIDATED`.

    Source: google-genai 3.4.0, `types.py`, `FunctionCallingConfigMode`.
    """
    modes = {"auto": "VALIDATED" if choice.names else "AUTO", "none": "NONE", "required": "ANY"}
    calling: dict[str, Any] = {"mode": modes[choice.mode]}
    if choice.names:
        calling["allowed_function_names"] = list(choice.names)
    return calling


def _response_format(response_format: Any) -> dict[str, Any]:
    if not isinstance(response_format, Mapping) or response_format.get("type") == "text":
        return {}
    shape: dict[str, Any] = {"response_mime_type": "application/json"}
    schema = response_format.get("json_schema")
    if isinstance(schema, Mapping) and "schema" in schema:
        shape["response_json_schema"] = schema["schema"]
    return shape


def contents_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The conversation as contents; all results of one reply stand in one user content, in order."""
    contents: list[dict[str, Any]] = []
    native: dict[str, str | None] = {}
    answering = False
    for message in messages:
        if message.role == "system":
            continue
        if message.role == "tool":
            part = _response(message, native.get(message.tool_call_id or ""))
            if answering:
                contents[-1]["parts"].append(part)
            else:
                contents.append({"role": "user", "parts": [part]})
        elif message.role == "assistant":
            native.update({call.id: call.native_id for call in message.tool_calls})
            contents.append(_model(message))
        else:
            # An empty part is refused, so an empty message becomes a blank one.
            contents.append({"role": "user", "parts": [{"text": message.content or " "}]})
        answering = message.role == "tool"
    return contents


def _model(message: Message) -> dict[str, Any]:
    data = message.provider_data or {}
    if data.get("provider") == NAME and isinstance(data.get("content"), Mapping):
        # Verbatim: Gemini 3 refuses a call that comes back without its thought signature.
        return {"role": "model", **data["content"]}
    parts: list[dict[str, Any]] = [{"text": message.content}] if message.content else []
    for call in message.tool_calls:
        arguments = call.arguments if call.arguments is not None else {"unreadable": call.raw}
        made: dict[str, Any] = {"name": call.name, "args": arguments}
        if call.native_id:
            made["id"] = call.native_id
        parts.append({"function_call": made})
    return {"role": "model", "parts": parts or [{"text": " "}]}


def _response(message: Message, native_id: str | None) -> dict[str, Any]:
    answer: dict[str, Any] = {"name": message.name, "response": _outcome(message.content)}
    if native_id:
        answer["id"] = native_id
    return {"function_response": answer}


def _outcome(content: str | None) -> dict[str, Any]:
    """`{"output": ...}` or `{"error": ...}`, the two keys that Gemini gives a meaning to."""
    try:
        result = json.loads(content or "")
    except ValueError:
        return {"output": content}
    if isinstance(result, dict) and result.get("success") is True:
        return {"output": result.get("result")}
    if isinstance(result, dict) and result.get("success") is False:
        return {"error": result.get("error")}
    return {"output": result}


# -- from the wire -------------------------------------------------------------------------------


def from_wire(body: Any) -> Reply:
    """The reply of a response body, as the REST interface spells it.

    Raises:
        ProviderError: an error body, or neither a candidate nor a reason why there is none.
    """
    if not isinstance(body, Mapping):
        raise unreadable(f"the answer is no generateContent response but {type(body).__name__}")
    if body.get("error"):
        error = body["error"]
        code = error.get("code") if isinstance(error, Mapping) else None
        raise failure(code if isinstance(code, int) else 200, body)
    candidates = body.get("candidates")
    if not isinstance(candidates, list) or not candidates:
        return _blocked(body)
    candidate = candidates[0] if isinstance(candidates[0], Mapping) else {}
    content = candidate.get("content")
    content = content if isinstance(content, Mapping) else {}
    listed = content.get("parts")
    parts = [p for p in listed if isinstance(p, Mapping)] if isinstance(listed, list) else []
    calls = tuple(
        _call(p["functionCall"]) for p in parts if isinstance(p.get("functionCall"), Mapping)
    )
    word = _word(candidate.get("finishReason"))
    return Reply(
        content=_joined(parts, thought=False),
        tool_calls=calls,
        finish_reason=finish_reasons.finish_reason(
            _NUMBERS.get(word or "", word), finish_reasons.GEMINI, calls=len(calls)
        ),
        native_reason=word,
        usage=_usage(body.get("usageMetadata")),
        reasoning=_joined(parts, thought=True),
        model=text_or_none(body.get("modelVersion")),
        response_id=text_or_none(body.get("responseId")),
        provider_data=_kept(content, parts),
        warnings=(str(candidate["finishMessage"]),) if candidate.get("finishMessage") else (),
    )


_NUMBERS = {"1": "STOP", "2": "MAX_TOKENS", "3": "SAFETY", "4": "RECITATION", "5": "OTHER"}
"""Vertex may say the number of a reason and not its name (recorded). Source: Vertex's `content.proto`."""


def _word(given: Any) -> str | None:
    number = isinstance(given, int) and not isinstance(given, bool)
    return str(given) if number else text_or_none(given)


def _blocked(body: Mapping[str, Any]) -> Reply:
    """No candidate: the prompt was blocked, and the feedback says why."""
    feedback = body.get("promptFeedback")
    reason = feedback.get("blockReason") if isinstance(feedback, Mapping) else None
    if reason is None:
        raise unreadable("the answer has no candidates")
    return Reply(
        finish_reason="content_filter",
        native_reason=str(reason),
        usage=_usage(body.get("usageMetadata")),
        model=text_or_none(body.get("modelVersion")),
        response_id=text_or_none(body.get("responseId")),
    )


def _joined(parts: Sequence[Mapping[str, Any]], *, thought: bool) -> str | None:
    texts = [
        p["text"]
        for p in parts
        if isinstance(p.get("text"), str) and bool(p.get("thought")) is thought
    ]
    return "".join(texts) or None


def _call(wire: Mapping[str, Any]) -> ToolCall:
    native = text_or_none(wire.get("id"))
    given = wire.get("args")
    if wire.get("willContinue") or "partialArgs" in wire:
        # Vertex alone does so, and only on request; ours asks for whole calls, and a piece is never run.
        return ToolCall(
            id=native or "",
            name=str(wire.get("name") or ""),
            raw=json.dumps(dict(wire)),
            native_id=native,
            problem="the call came in pieces (partialArgs), which are not read",
        )
    return ToolCall(
        id=native or "",
        name=str(wire.get("name") or ""),
        arguments=dict(given) if isinstance(given, Mapping) else {},
        native_id=native,
    )


def _kept(content: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The content itself, where rebuilding it from text and calls would lose something."""
    plain = all(set(part) in ({"text"}, {"functionCall"}) for part in parts)
    if plain or not parts:
        return None
    return {"provider": NAME, "content": {"parts": list(content.get("parts") or ())}}


def _usage(wire: Any) -> Usage | None:
    """`candidatesTokenCount` leaves the thoughts out, so they are added to the output."""
    if not isinstance(wire, Mapping):
        return None
    thoughts, made = count(wire.get("thoughtsTokenCount")), count(wire.get("candidatesTokenCount"))
    return Usage(
        input=count(wire.get("promptTokenCount")),
        output=None if made is None and thoughts is None else (made or 0) + (thoughts or 0),
        reasoning=thoughts,
        cached=count(wire.get("cachedContentTokenCount")),
        total=count(wire.get("totalTokenCount")),
    )
