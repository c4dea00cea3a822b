"""Recorded requests, asked again by our adapters: the same question, in the same wire format."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from recorded import RECORDED, index, needs_recorded

from toolchart.providers import wire_gemini, wire_ollama, wire_openai
from toolchart.providers.asked import Asked, asked_of, differences
from toolchart.providers.asked_wire import READERS
from toolchart.providers.cassette import read_cassette
from toolchart.states.messages import Message, Request, ToolCall, ToolDefinition

CASSETTES = [entry["file"] for entry in index() if entry["kind"] == "cassette"]


EXPECTED = {
    "chat": (364, {"content that is no text": 9}),
    "gemini": (144, {"content that is no text": 21, "the host's own": 8}),
    "ollama": (6, {}),
}
"""Requests that are the same, and those that ours cannot say, with the reason."""


class Outside(Exception):
    """A request that says what ours cannot: pictures, tools of the host's own, a choice among tools."""


def request_of(asked: Asked) -> Request:
    """Our request that asks the same.

    Raises:
        Outside: ours cannot.
    """
    system = [Message(role="system", content=asked["system"])] if asked["system"] else []
    tools = tuple(_tool(name, one) for name, one in asked["tools"].items())
    messages = [_message(one, _names(asked)) for one in asked["messages"]]
    return Request(
        model=asked["model"], messages=[*system, *messages], tools=tools, options=_options(asked)
    )


def _tool(name: str, one: dict[str, Any]) -> ToolDefinition:
    if not one:
        raise Outside(f"the host's own tool {name}")
    return ToolDefinition(name=name, description=one["description"], parameters=one["parameters"])


def _names(asked: Asked) -> dict[int, str]:
    made = [call for one in asked["messages"] for call in one.get("calls", ())]
    return {call["call"]: call["name"] for call in made}


def _message(one: dict[str, Any], names: dict[int, str]) -> Message:
    if one["role"] == "tool":
        if one["call"] is None:
            raise Outside("a result without a call")
        content = one["content"]
        result = {
            "success": "output" in content,
            "result": content.get("output"),
            "error": content.get("error"),
        }
        return Message(
            role="tool", tool_call_id=f"call_{one['call']}", name=names[one["call"]],
            content=json.dumps(result),
        )  # fmt: skip
    if not isinstance(one["content"], str):
        raise Outside("content that is no text")
    if one["role"] == "user":
        return Message(role="user", content=one["content"])
    return Message(
        role="assistant", content=one["content"] or None, tool_calls=tuple(map(_call, one["calls"]))
    )


def _call(call: dict[str, Any]) -> ToolCall:
    if not isinstance(call["arguments"], dict):
        raise Outside("arguments that are no object")
    return ToolCall(
        id=f"call_{call['call']}", name=call["name"], arguments=call["arguments"],
        native_id=f"call_{call['call']}",
    )  # fmt: skip


def _options(asked: Asked) -> dict[str, Any]:
    options = dict(asked["options"])
    if isinstance(options.get("tool_choice"), dict):
        raise Outside("a choice among several tools")
    shape = options.get("response_format")
    if shape == "json":
        options["response_format"] = {"type": "json_object"}
    elif shape:
        inner = {"name": "shape", "schema": shape}
        options["response_format"] = {"type": "json_schema", "json_schema": inner}
    return options


def sent(endpoint: str, request: Request) -> dict[str, Any]:
    """The body that our adapter builds."""
    if endpoint == "chat":
        return wire_openai.to_wire(request)
    if endpoint == "ollama":
        return wire_ollama.to_wire(request)
    wire = wire_gemini.to_wire(request)
    config = wire["config"]
    system = [{"text": config["system_instruction"]}] if "system_instruction" in config else []
    return {
        "model": wire["model"], "contents": wire["contents"], "systemInstruction": {"parts": system},
        "tools": config.get("tools"), "toolConfig": config.get("tool_config") or {},
        "generationConfig": config,
    }  # fmt: skip


@needs_recorded
@pytest.mark.parametrize("endpoint", ["chat", "gemini", "ollama"])
def test_our_request_is_the_recorded_one(endpoint: str) -> None:
    """S2.2, S4.1: every recorded request that ours can say leaves our adapter as the same request.

    What counts as the same, and the list of harmless differences, stands in `providers/asked.py`; what
    ours cannot say is counted by its reason.
    """
    same, outside = 0, Counter[str]()
    for path in CASSETTES:
        for exchange in read_cassette(RECORDED / path):
            if exchange.endpoint != endpoint:
                continue
            recorded = READERS[endpoint](exchange.asked, exchange.uri)
            try:
                request = request_of(recorded)
            except Outside as reason:
                outside[str(reason).split(" tool ")[0]] += 1
                continue
            again = READERS[endpoint](sent(endpoint, request), exchange.uri)
            told = [str(one) for one in differences(recorded, again)]
            assert not told, path
            # The shape of our own request is the same, too: strict matching rests on it.
            assert not [str(one) for one in differences(recorded, asked_of(request))], path
            same += 1
    assert (same, dict(outside)) == EXPECTED[endpoint]
