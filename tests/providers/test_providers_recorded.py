"""Recorded tool conversations through the real SDKs over loopback, to their recorded end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conversations import Recording, gemini_recording, linear, openai_recording
from recorded import RECORDED, needs_recorded, replayer

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.engine.runtime.result import TurnResult
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool

OPENAI = linear("openai")
GEMINI = linear("gemini")


def tools_of(recording: Recording) -> list[Tool]:
    """The recorded tools: each call gets the next recorded result."""
    results = iter(recording.results)

    def run(arguments: Any) -> Any:
        return next(results)

    return [Tool(definition=ToolDefinition(**_complete(one)), run=run) for one in recording.tools]


def _complete(one: dict[str, Any]) -> dict[str, Any]:
    empty = {"type": "object", "properties": {}}
    return {
        "name": one["name"],
        "description": one.get("description", ""),
        "parameters": one.get("parameters") or empty,
    }


def run(recording: Recording, llm: dict[str, Any], **served: Any) -> tuple[TurnResult, Any, Engine]:
    """The conversation through engine, SDK and loopback."""
    with replayer().CassetteServer(RECORDED / recording.path, **served) as server:
        spec = {
            "llms": {"host": {**llm, "base_url": server.url + llm.get("base_url", "")}},
            "tools": {"apply_globally": True, "max_iterations": 20},
            "responses": [{"llm": "host", "model": recording.model, "prompt": recording.system}],
        }
        from toolchart.specs.history import messages_of

        engine = Engine(spec, log="memory", functions=tools_of(recording))
        result = engine.run(
            recording.message, conversation="c", history=messages_of(recording.history)
        )
        engine.close()
    return result, server, engine


def check_end(recording: Recording, result: TurnResult, engine: Engine) -> None:
    """The turn ended as recorded, every call as recorded, and the log replays."""
    assert result.state == "finished"
    assert result.content == recording.replies[-1].text
    made = [(call["tool"], call["params"]) for call in result.tool_calls]
    assert made == [call for reply in recording.replies for call in reply.calls]
    assert result.iterations == len(recording.replies) - 1
    assert sum(1 for _ in replay(engine.store.read("c"), "c")) > len(recording.replies)


@needs_recorded
@pytest.mark.parametrize("path", OPENAI)
def test_openai_conversations(path: str) -> None:
    """S1.9-13, S4.1-2: recorded chat completions run through the real SDK to their recorded end.

    Every request is accepted in the recorded order and has the recorded shape: model, tools, roles
    and call ids.
    """
    recording = openai_recording(path)
    llm = {"provider": "openai", "api_key": "x", "base_url": "/v1"}
    if "snowflake" in path:  # this host ends its answers with an empty word
        llm["finish_words"] = {"": "stop"}
    result, server, engine = run(recording, llm, match="strict-order")
    check_end(recording, result, engine)
    assert server.done
    assert not server.misses
    for sent, was in zip(server.requests, recording.requests, strict=True):
        body = json.loads(sent["body"])
        assert body["model"] == was.get("model", recording.model)  # Azure has it in the path
        assert [one["function"]["name"] for one in body["tools"]] == [
            one["function"]["name"] for one in was["tools"]
        ]
        ours = [(m["role"], m.get("tool_call_id")) for m in body["messages"]]
        theirs = [(m["role"], m.get("tool_call_id")) for m in was["messages"]]
        assert ours == [
            ("system", None) if role == "developer" else (role, i) for role, i in theirs
        ]


@needs_recorded
@pytest.mark.parametrize("path", GEMINI)
def test_gemini_conversations(path: str) -> None:
    """S2.13: recorded generateContent traffic runs through the real SDK to its recorded end.

    Thought signatures go back on the parts on which they came, unchanged.
    """
    recording = gemini_recording(path)
    llm = {"provider": "gemini", "api_key": "x"}
    result, server, engine = run(recording, llm)
    check_end(recording, result, engine)
    assert not server.misses
    assert len(server.requests) == len(recording.requests)
    for sent, was in zip(server.requests, recording.requests, strict=True):
        body = json.loads(sent["body"])
        assert shape(body) == shape(was)
        # Their client repeats a signature on every call of a reply, or drops thoughts; ours sends
        # back what came, so it has at least theirs.
        assert signatures(body) >= signatures(was)


def shape(body: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Role, calls and results of each content of a request."""
    return [
        (
            "model" if content.get("role") == "model" else "user",
            sum("functionCall" in part for part in content["parts"]),
            sum("functionResponse" in part for part in content["parts"]),
        )
        for content in body["contents"]
    ]


def signatures(body: dict[str, Any]) -> set[str]:
    """Every thought signature of a request, in one alphabet."""
    return {
        str(part["thoughtSignature"]).replace("-", "+").replace("_", "/").rstrip("=")
        for content in body["contents"]
        for part in content["parts"]
        if "thoughtSignature" in part
    }


@needs_recorded
def test_ollama_conversation() -> None:
    """S2.13: a recorded two-step `/api/chat` conversation with two tools runs to its recorded end."""
    path = "bodies/prism.ollama.jsonl"
    scenario = "generate-text-with-multiple-tools"
    lines = [json.loads(x) for x in (RECORDED / path).read_text("utf-8").splitlines()]
    bodies = [json.loads(x["body"]) for x in lines if x["scenario"] == scenario]
    asked = [
        call["function"] for body in bodies for call in body["message"].get("tool_calls") or ()
    ]
    given = {one["name"]: one["arguments"] for one in asked}
    recording = Recording(
        path=path,
        model="qwen",
        system="s",
        history=[],
        message="go",
        tools=[
            {
                "name": name,
                "parameters": {"type": "object", "properties": {key: {} for key in keys}},
            }
            for name, keys in given.items()
        ],
        results=["sunny"] * len(asked),
        replies=[],
    )
    result, server, engine = run(recording, {"provider": "ollama"}, scenario=scenario)
    assert result.state == "finished"
    assert result.content == bodies[-1]["message"]["content"]
    assert [(c["tool"], c["params"]) for c in result.tool_calls] == [
        (one["name"], one["arguments"]) for one in asked
    ]
    assert server.done
    last = json.loads(server.requests[-1]["body"])["messages"]
    assert [m["role"] for m in last] == ["system", "user", "assistant", *["tool"] * len(asked)]
    ids = [call["id"] for call in last[2]["tool_calls"]]
    assert [m["tool_call_id"] for m in last[3:]] == ids
    assert sum(1 for _ in replay(engine.store.read("c"), "c")) > 4
