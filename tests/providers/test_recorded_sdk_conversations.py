"""Recorded tool conversations run through the real SDKs over loopback, up to their recorded answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cassette_server import CassetteServer
from conversations import (
    RecordedConversation,
    list_linear_cassettes,
    read_gemini_conversation,
    read_openai_conversation,
)
from recorded_traffic import RECORDED, find_recording, load_cassette_server, needs_recorded

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.engine.runtime.result import TurnResult
from toolchart.specs.chat_messages import read_history
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool

OPENAI = list_linear_cassettes("openai")
GEMINI = list_linear_cassettes("gemini")


def make_tools(recording: RecordedConversation) -> list[Tool]:
    """The recorded tools: each call gets the next recorded result."""
    results = iter(recording.results)

    def return_next(arguments: Any) -> Any:
        return next(results)

    return [
        Tool(definition=ToolDefinition(**_complete_definition(tool)), run=return_next)
        for tool in recording.tools
    ]


def _complete_definition(tool: dict[str, Any]) -> dict[str, Any]:
    empty = {"type": "object", "properties": {}}
    return {
        "name": tool["name"],
        "description": tool.get("description", ""),
        "parameters": tool.get("parameters") or empty,
    }


def run_conversation(
    recording: RecordedConversation, llm: dict[str, Any], cassette_server: Any
) -> tuple[TurnResult, Any, Engine]:
    """Run a conversation through engine, SDK and loopback, with the plain loop that the clients had."""
    with cassette_server as server:
        spec = {
            "chart": "tool_loop",
            "llms": {"host": {**llm, "base_url": server.url + llm.get("base_url", "")}},
            "tools": {"apply_globally": True, "max_iterations": 20},
            "responses": [{"llm": "host", "model": recording.model, "prompt": recording.system}],
        }
        engine = Engine(spec, log="memory", functions=make_tools(recording))
        result = engine.run(recording.message, conversation="c", history=read_history(recording.history))
        engine.close()
    return result, server, engine


def check_end(recording: RecordedConversation, result: TurnResult, engine: Engine) -> None:
    """Check that the turn ends as recorded, with every call as recorded, and that the log replays."""
    assert result.state == "finished"
    assert result.content == recording.replies[-1].text
    calls = [(call["tool"], call["params"]) for call in result.tool_calls]
    assert calls == [recorded_call for reply in recording.replies for recorded_call in reply.calls]
    assert result.iterations == len(recording.replies) - 1
    assert sum(1 for _ in replay(engine.store.read_lines("c"), "c")) > len(recording.replies)


@pytest.mark.parametrize("path", OPENAI)
def test_openai_conversations(path: str) -> None:
    """S1.9-13, S4.1-2: recorded chat completions run through the real SDK up to their recorded answer.

    Every request is accepted in the recorded order. Its model, tools, roles and call ids are the
    recorded ones.
    """
    recording = read_openai_conversation(path)
    llm = {"provider": "openai", "api_key": "x", "base_url": "/v1"}
    if "snowflake" in path:  # this host ends its answers with an empty word
        llm["finish_words"] = {"": "stop"}
    cassette_server = CassetteServer(find_recording(path), match="strict-order")
    result, server, engine = run_conversation(recording, llm, cassette_server)
    check_end(recording, result, engine)
    assert server.is_done
    assert not server.misses
    for sent, recorded in zip(server.requests, recording.requests, strict=True):
        body = json.loads(sent["body"])
        assert body["model"] == recorded.get("model", recording.model)  # Azure has it in the path
        assert [tool["function"]["name"] for tool in body["tools"]] == [
            tool["function"]["name"] for tool in recorded["tools"]
        ]
        ours = [(m["role"], m.get("tool_call_id")) for m in body["messages"]]
        theirs = [(m["role"], m.get("tool_call_id")) for m in recorded["messages"]]
        assert ours == [
            ("system", None) if role == "developer" else (role, call_id) for role, call_id in theirs
        ]


@pytest.mark.parametrize("path", GEMINI)
def test_gemini_conversations(path: str) -> None:
    """S2.13: recorded generateContent traffic runs through the real SDK up to its recorded answer.

    Thought signatures are sent back unchanged on the parts on which they came.
    """
    recording = read_gemini_conversation(path)
    llm = {"provider": "gemini", "api_key": "x"}
    result, server, engine = run_conversation(recording, llm, CassetteServer(find_recording(path)))
    check_end(recording, result, engine)
    assert not server.misses
    assert len(server.requests) == len(recording.requests)
    for sent, recorded in zip(server.requests, recording.requests, strict=True):
        body = json.loads(sent["body"])
        assert read_shape(body) == read_shape(recorded)
        # The recording client repeats a signature on every call of a reply, or drops thoughts. Ours sends
        # back what came, so it has at least the same signatures.
        assert read_signatures(body) >= read_signatures(recorded)


def read_shape(body: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Role, calls and results of each content of a request."""
    return [
        (
            "model" if content.get("role") == "model" else "user",
            sum("functionCall" in part for part in content["parts"]),
            sum("functionResponse" in part for part in content["parts"]),
        )
        for content in body["contents"]
    ]


def read_signatures(body: dict[str, Any]) -> set[str]:
    """Every thought signature of a request, in one alphabet."""
    return {
        str(part["thoughtSignature"]).replace("-", "+").replace("_", "/").rstrip("=")
        for content in body["contents"]
        for part in content["parts"]
        if "thoughtSignature" in part
    }


@needs_recorded
def test_ollama_conversation() -> None:
    """S2.13: a recorded two-step `/api/chat` conversation with two tools runs up to its recorded answer."""
    path = "bodies/prism.ollama.jsonl"
    scenario = "generate-text-with-multiple-tools"
    lines = [json.loads(x) for x in (RECORDED / path).read_text("utf-8").splitlines()]
    bodies = [json.loads(x["body"]) for x in lines if x["scenario"] == scenario]
    calls = [call["function"] for body in bodies for call in body["message"].get("tool_calls") or ()]
    arguments_by_tool = {call["name"]: call["arguments"] for call in calls}
    recording = RecordedConversation(
        path=path,
        model="qwen",
        system="s",
        history=[],
        message="go",
        tools=[
            {"name": name, "parameters": {"type": "object", "properties": {key: {} for key in arguments}}}
            for name, arguments in arguments_by_tool.items()
        ],
        results=["sunny"] * len(calls),
        replies=[],
    )
    cassette_server = load_cassette_server().CassetteServer(RECORDED / path, scenario=scenario)
    result, server, engine = run_conversation(recording, {"provider": "ollama"}, cassette_server)
    assert result.state == "finished"
    assert result.content == bodies[-1]["message"]["content"]
    assert [(c["tool"], c["params"]) for c in result.tool_calls] == [
        (call["name"], call["arguments"]) for call in calls
    ]
    assert server.done
    last = json.loads(server.requests[-1]["body"])["messages"]
    assert [m["role"] for m in last] == ["system", "user", "assistant", *["tool"] * len(calls)]
    ids = [call["id"] for call in last[2]["tool_calls"]]
    assert [m["tool_call_id"] for m in last[3:]] == ids
    assert sum(1 for _ in replay(engine.store.read_lines("c"), "c")) > 4
