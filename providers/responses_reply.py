"""Replies of OpenAI's Responses, from the wire, as a pure map over JSON data.

A response is a list of items: reasoning, messages, calls, and what the host did itself. Calls and text
become the reply; the items themselves travel along verbatim, since the host wants its reasoning back,
encrypted or not, before the results of the calls that it led to.

Source: openai 3.52.0, `types/responses/`, and recorded traffic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers import finish
from toolchart.providers.arguments import parse_arguments
from toolchart.providers.failures import failure, unreadable
from toolchart.states.messages import Reply, ToolCall, Usage

NAME = "openai"

Item = Mapping[str, Any]

WORDS: finish.Table = {
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "cancelled": "error",
    **dict.fromkeys(("queued", "in_progress", "max_messages", "steered"), "paused"),
}
"""Statuses, and of an incomplete response its reason."""


def from_wire(body: Any) -> Reply:
    """The reply of a response body, or of the response in a stream's last event.

    Raises:
        ProviderError: a failed response, an error body, or a body that is no response.
    """
    if not isinstance(body, Mapping):
        raise unreadable(f"the answer is no response but {type(body).__name__}: {body}")
    if body.get("error"):
        raise _failed(body)
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
        finish_reason=finish.finish_reason(word, WORDS, calls=len(calls), refused=bool(refusal)),
        native_reason=word,
        usage=_usage(body.get("usage")),
        reasoning=_reasoning(items),
        refusal=refusal,
        model=_string(body.get("model")),
        response_id=_string(body.get("id")),
        provider_data=_kept(items),
    )


def _failed(body: Item) -> Exception:
    """The failure that a response tells; its code is a word (`server_error`, `rate_limit_exceeded`)."""
    error = body["error"]
    code = error.get("code") if isinstance(error, Mapping) else None
    status = {"rate_limit_exceeded": 429, "server_error": 500}.get(str(code), 200)
    return failure(code if isinstance(code, int) else status, body)


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
        input=wire.get("input_tokens"),
        output=wire.get("output_tokens"),
        reasoning=made.get("reasoning_tokens") if isinstance(made, Mapping) else None,
        cached=given.get("cached_tokens") if isinstance(given, Mapping) else None,
        total=wire.get("total_tokens"),
    )
