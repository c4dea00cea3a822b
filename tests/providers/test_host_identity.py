"""What a host attached to its reply for itself goes back to that host and model, and to no other."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from host_answers import CHAT_CALL, RESPONSE, TOOL_USE, WHOLE_BODIES, chat_choice, gemini_parts
from web import WebAnswer, WebServer, serve_web
from wire_requests import ENTRIES, QUESTION, RESULTS, TOOLS

from toolchart.providers.gemini.wire import FOREIGN_SIGNATURE
from toolchart.providers.openai.wire import encode_request
from toolchart.providers.registry import create_provider
from toolchart.providers.shared.requests import Origin
from toolchart.specs.models import LLMConfig
from toolchart.states.messages import Message, Reply, Request, ToolCall

SECRET = "c2VhbGVk"
CALL = {"functionCall": {"name": "look_up", "args": {"city": "Oslo"}}, "thoughtSignature": SECRET}
PRIVATE_BODIES: dict[str, Any] = {
    "openai": chat_choice(
        message={"reasoning_content": SECRET, "tool_calls": [CHAT_CALL]}, finish_reason="tool_calls"
    ),
    "openai responses": {
        **RESPONSE,
        "output": [{"type": "reasoning", "encrypted_content": SECRET}, RESPONSE["output"][-1]],  # type: ignore[index]
    },
    "ollama": {
        **WHOLE_BODIES["ollama"],
        "message": {**WHOLE_BODIES["ollama"]["message"], "thinking": SECRET},
    },
    "gemini": gemini_parts(CALL, finishReason="STOP"),
    "anthropic": {
        **WHOLE_BODIES["messages"],
        "content": [{"type": "thinking", "thinking": "", "signature": SECRET}, TOOL_USE],
    },
}
"""A reply with a call and something that only its own host can use, by `llms` entry."""


def send_request(entry: str, server: WebServer, request: Request) -> Reply:
    """The reply of the host at a server."""

    async def complete_request() -> Reply:
        keys = {**ENTRIES[entry], "base_url": server.url + ENTRIES[entry].get("base_url", ""), "api_key": "k"}
        provider = create_provider(LLMConfig.model_validate(keys), resolve=str)
        try:
            return await provider.complete(request)
        finally:
            await provider.aclose()

    return asyncio.run(complete_request())


def continue_elsewhere(
    first: str, second: str, *, moves_host: bool = False, model: str = "m"
) -> tuple[Reply, str]:
    """A turn begins at one host and goes on at the second: its reply there, and the text that it got."""

    def answer(entry: str) -> Any:
        body = json.dumps(PRIVATE_BODIES[entry]).encode()
        return lambda _: (200, {"content-type": "application/json"}, body)

    def answer_by_path(http_request: dict[str, Any]) -> WebAnswer:
        count = len(here.requests)
        result: WebAnswer = answer(first if count == 1 else second)(http_request)
        return result

    with serve_web(answer_by_path) as here, serve_web(answer(second)) as there:
        start = send_request(first, here, Request(model="m", messages=[QUESTION], tools=TOOLS))
        calls = tuple([ToolCall(id="c1", name=call.name, arguments={}) for call in start.tool_calls])
        message = Message(role="assistant", tool_calls=calls, provider_data=start.provider_data)
        request = Request(model=model, messages=[QUESTION, message, RESULTS[0]], tools=TOOLS)
        reply = send_request(second, there if moves_host else here, request)
        return reply, ((there if moves_host else here).requests[-1]["body"]).decode()


@pytest.mark.parametrize("entry", PRIVATE_BODIES)
def test_private_data_goes_back_to_its_host_and_model(entry: str) -> None:
    """Issue 15.2: the same host and model get their data back, without a warning."""
    reply, sent = continue_elsewhere(entry, entry)
    assert SECRET in sent
    assert not [warning for warning in reply.warnings if "left out" in warning]


@pytest.mark.parametrize("entry", PRIVATE_BODIES)
def test_private_data_goes_to_no_other_host(entry: str) -> None:
    """Issue 15.2: another host with the same adapter does not get it, and the reply says so."""
    reply, sent = continue_elsewhere(entry, entry, moves_host=True)
    assert SECRET not in sent
    assert any("was left out of the request to" in warning for warning in reply.warnings)


@pytest.mark.parametrize("entry", PRIVATE_BODIES)
def test_private_data_goes_to_no_other_model(entry: str) -> None:
    """Issue 15.2: another model of the host does not get it: signatures and thoughts belong to a model."""
    reply, sent = continue_elsewhere(entry, entry, model="m2")
    assert SECRET not in sent
    assert any("for m" in warning or " m " in warning for warning in reply.warnings)
    assert (FOREIGN_SIGNATURE in sent) is (entry == "gemini")


@pytest.mark.parametrize(
    ("first", "second"), [("openai", "openai responses"), ("openai responses", "openai")]
)
def test_data_of_another_api_is_warned_of(first: str, second: str) -> None:
    """Issue 15.2: chat completions and Responses of one host cannot use each other's data; that is said."""
    reply, sent = continue_elsewhere(first, second)
    assert SECRET not in sent
    assert any("left out" in warning for warning in reply.warnings)


def test_data_of_older_logs_names_no_host() -> None:
    """Issue 15.2: data that an older release recorded goes to its adapter, as it did then."""
    data = {"provider": "openai", "message": {"reasoning": SECRET}}
    call = ToolCall(id="c1", name="count", arguments={})
    message = Message(role="assistant", tool_calls=(call,), provider_data=data)
    request = Request(model="m", messages=[QUESTION, message])
    origin = Origin(provider="openai", host="host.test", model="m")
    assert SECRET in str(encode_request(request, origin=origin))
