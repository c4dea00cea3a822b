"""OpenAI's Responses: to the wire and from it, as pure maps over JSON data.

A response is a list of items: reasoning, messages, calls, and what the host did itself. Calls and text
become the reply; the items themselves travel along verbatim, since the host wants its reasoning back,
encrypted or not, before the results of the calls that it led to.

Source: openai 3.52.0, `types/responses/`, and recorded traffic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.openai.wire import count_of, told_failure
from toolchart.providers.shared import finish_reasons
from toolchart.providers.shared.arguments import parse_arguments
from toolchart.providers.shared.failures import unreadable
from toolchart.providers.shared.tool_choice import Choice, choice_of
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

Item = Mapping[str, Any]

WORDS: finish_reasons.Table = {
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "cancelled": "error",
    **dict.fromkeys(("queued", "in_progress", "max_messages", "steered"), "paused"),
}
"""Statuses, and of an incomplete response its reason."""


_OPTIONS = ("temperature", "top_p")

_CALLS = ("function_call", "custom_tool_call")
"""Calls that are ours to answer; a host's own (search, code) bring their results themselves."""

# -- to the wire ---------------------------------------------------------------------------------


def to_wire(request: Request) -> dict[str, Any]:
    """The body of `POST /responses`. `seed` and `stop` have no place in it."""
    custom: set[str] = set()
    system = [one.content or "" for one in request.messages if one.role == "system"]
    body: dict[str, Any] = {
        "model": request.model,
        "input": [
            item
            for message in request.messages
            if message.role != "system"
            for item in _items(message, custom)
        ],
    }
    if system:
        body["instructions"] = "\n\n".join(system)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if "tool_choice" in request.options:
            body["tool_choice"] = _choice(choice_of(request.options["tool_choice"]))
        if "parallel_tool_calls" in request.options:
            body["parallel_tool_calls"] = request.options["parallel_tool_calls"]
    if "max_tokens" in request.options:
        body["max_output_tokens"] = request.options["max_tokens"]
    body |= {name: request.options[name] for name in _OPTIONS if name in request.options}
    if "response_format" in request.options:
        body["text"] = {"format": _format(request.options["response_format"])}
    return body


def unsaid(request: Request) -> list[str]:
    """Options of a request that Responses have no place for."""
    return [
        f"{name}: Responses know no such option"
        for name in ("seed", "stop")
        if name in request.options
    ]


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters_for(tool, OPENAI),
        # The host's default is strict, which refuses every schema with an optional parameter.
        "strict": False,
    }


def _choice(choice: Choice) -> Any:
    if not choice.names:
        return choice.mode
    named = [{"type": "function", "name": name} for name in choice.names]
    if choice.mode == "required" and len(named) == 1:
        return named[0]
    return {"type": "allowed_tools", "mode": choice.mode, "tools": named}


def _format(given: Any) -> Any:
    """The schema of a reply, flat where chat completions nest it."""
    inner = given.get("json_schema") if isinstance(given, Mapping) else None
    return {"type": "json_schema", **inner} if isinstance(inner, Mapping) else given


def _items(message: Message, custom: set[str]) -> list[dict[str, Any]]:
    """The items of a message; calls with free text are remembered for their results."""
    if message.role == "tool":
        call_id = message.tool_call_id or ""
        kind = "custom_tool_call_output" if call_id in custom else "function_call_output"
        return [{"type": kind, "call_id": call_id, "output": message.content or ""}]
    if message.role != "assistant":
        return [{"role": message.role, "content": message.content or ""}]
    own = _own(message)
    custom.update(str(one.get("call_id")) for one in own if one.get("type") == "custom_tool_call")
    return own or _made(message)


def _own(message: Message) -> list[dict[str, Any]]:
    """The host's own items, where they still say what the message says."""
    data = message.provider_data or {}
    items = _listed(data.get("output")) if data.get("provider") == NAME else []
    calls = {
        str(item.get("call_id"))
        for item in items
        if isinstance(item, Mapping) and item.get("type") in _CALLS
    }
    return (
        [dict(item) for item in items] if calls == {call.id for call in message.tool_calls} else []
    )


def _made(message: Message) -> list[dict[str, Any]]:
    said = [{"role": "assistant", "content": message.content}] if message.content else []
    calls = [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": arguments_text(call),
        }
        for call in message.tool_calls
    ]
    return [*said, *calls]


# -- from the wire -------------------------------------------------------------------------------


def from_wire(body: Any) -> Reply:
    """The reply of a response body, or of the response in a stream's last event.

    Raises:
        ProviderError: a failed response, an error body, or a body that is no response.
    """
    if not isinstance(body, Mapping):
        raise unreadable(f"the answer is no response but {type(body).__name__}: {body}")
    if body.get("error"):
        raise told_failure(body)
    output = body.get("output")
    if not isinstance(output, list):
        raise unreadable("the answer has no output")
    items = [item for item in output if isinstance(item, Mapping)]
    calls = tuple(_calls(items))
    refusal = "".join(_texts(items, "message", "refusal", "refusal")) or None
    word = _word(body)
    return Reply(
        content="".join(_texts(items, "message", "output_text", "text")) or None,
        tool_calls=calls,
        finish_reason=finish_reasons.finish_reason(
            word, WORDS, calls=len(calls), refused=bool(refusal)
        ),
        native_reason=word,
        usage=_usage(body.get("usage")),
        reasoning=_reasoning(items),
        refusal=refusal,
        model=_string(body.get("model")),
        response_id=_string(body.get("id")),
        provider_data=_kept(items),
    )


def _word(body: Item) -> str | None:
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    return _string(reason or body.get("status"))


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _calls(items: list[Item]) -> Iterator[ToolCall]:
    for item in items:
        name, call_id = str(item.get("name") or ""), str(item.get("call_id") or "")
        if item.get("type") == "function_call":
            raw = item.get("arguments")
            raw = raw if isinstance(raw, str) else ""
            arguments, problem = parse_arguments(raw)
            yield ToolCall(id=call_id, name=name, arguments=arguments, raw=raw, problem=problem)
        elif item.get("type") == "custom_tool_call":  # free-text input
            yield ToolCall(id=call_id, name=name, arguments={"input": item.get("input")})


def _texts(
    items: list[Item], kind: str, part_kind: str, key: str, of: str = "content"
) -> list[str]:
    """The texts of the parts of one kind in the items of one kind."""
    return [
        part[key]
        for item in items
        if item.get("type") == kind
        for part in _listed(item.get(of))
        if isinstance(part, Mapping) and part.get("type") == part_kind
        if isinstance(part.get(key), str)
    ]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _reasoning(items: list[Item]) -> str | None:
    """The reasoning itself where the host tells it, else its summaries."""
    told = _texts(items, "reasoning", "reasoning_text", "text")
    summed = _texts(items, "reasoning", "summary_text", "text", of="summary")
    return "".join(told) or "\n\n".join(summed) or None


def _kept(items: list[Item]) -> dict[str, Any] | None:
    """The items, where text and calls alone would not bring them back."""
    plain = all(item.get("type") in ("message", "function_call") for item in items)
    return None if plain else {"provider": NAME, "output": [dict(item) for item in items]}


def _usage(wire: Any) -> Usage | None:
    """Output tokens include the reasoning."""
    if not isinstance(wire, Mapping):
        return None
    made, given = wire.get("output_tokens_details"), wire.get("input_tokens_details")
    return Usage(
        input=count_of(wire.get("input_tokens")),
        output=count_of(wire.get("output_tokens")),
        reasoning=count_of(made.get("reasoning_tokens")) if isinstance(made, Mapping) else None,
        cached=count_of(given.get("cached_tokens")) if isinstance(given, Mapping) else None,
        total=count_of(wire.get("total_tokens")),
    )
