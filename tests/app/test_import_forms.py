"""`import` and `--history` read files of other APIs and libraries, by what stands in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_runs import RunCli

CALL = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "three"}


def build_span(**texts: Any) -> dict[str, Any]:
    """A span of a model call."""
    values = {f"gen_ai.{key}.messages": json.dumps(value) for key, value in texts.items()}
    ids = {"trace_id": "0x1", "span_id": "0x2"}
    return {"name": "chat m", "context": ids, "attributes": {"gen_ai.operation.name": "chat", **values}}


def say(role: str, **part: Any) -> dict[str, Any]:
    """A message as the GenAI conventions have it."""
    return {"role": role, "parts": [part]}


FILES: dict[str, Any] = {
    "chat completions": [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "three"},
        {"role": "assistant", "content": "3"},
    ],
    "Responses": [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "three"},
        {"role": "assistant", "content": "3"},
    ],
    "Anthropic": {
        "model": "m",
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [CALL]},
            {"role": "user", "content": [RESULT]},
            {"role": "assistant", "content": "3"},
        ],
    },
    "Gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "c1", "name": "f", "response": {"output": "three"}}}],
            },
            {"role": "model", "parts": [{"text": "3"}]},
        ]
    },
    "Ollama": [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "tool_name": "f", "content": "three"},
        {"role": "assistant", "content": "3"},
    ],
    "Pydantic AI": [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "go"}]},
        {
            "kind": "response",
            "parts": [{"part_kind": "tool-call", "tool_name": "f", "args": {"a": 1}, "tool_call_id": "c1"}],
        },
        {
            "kind": "request",
            "parts": [
                {"part_kind": "tool-return", "tool_name": "f", "content": "three", "tool_call_id": "c1"}
            ],
        },
        {"kind": "response", "parts": [{"part_kind": "text", "content": "3"}]},
    ],
    "LangGraph": {
        "messages": [
            {"type": "human", "data": {"content": "go"}},
            {
                "type": "ai",
                "data": {"content": "", "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c1"}]},
            },
            {"type": "tool", "data": {"content": "three", "tool_call_id": "c1"}},
            {"type": "ai", "data": {"content": "3"}},
        ]
    },
    "OpenTelemetry": [
        build_span(
            input=[
                say("user", type="text", content="go"),
                say("assistant", type="tool_call", id="c1", name="f", arguments={"a": 1}),
                say("tool", type="tool_call_response", id="c1", response="three"),
            ],
            output=[{**say("assistant", type="text", content="3"), "finish_reason": "stop"}],
        )
    ],
}
"""One conversation, in each form."""


def write(folder: Path, data: Any, *, as_lines: bool = False) -> str:
    """The path of a file with this data."""
    path = folder / "chat.jsonl" if as_lines else folder / "chat.json"
    path.write_text("\n".join(map(json.dumps, data)) if as_lines else json.dumps(data))
    return str(path)


@pytest.mark.parametrize("form", FILES)
def test_a_conversation_of_each_form_comes_into_a_log(form: str, run_cli: RunCli, tmp_path: Path) -> None:
    """Whatever the form, the log has the same words, the same call and the same result."""
    log = str(tmp_path / "log.db")
    run = run_cli("import", write(tmp_path, FILES[form]), "--conversation", "c", "--log", log)
    assert (run.code, run.out.split()) == (0, ["c"]), run.err
    exported = json.loads(run_cli("export", "c", "--format", "openai", "--log", log).out)
    assert [message["role"] for message in exported] == ["user", "assistant", "tool", "assistant"]
    (call,) = exported[1]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("f", {"a": 1})
    assert [message["content"] for message in exported][2:] == ["three", "3"]


@pytest.mark.parametrize("form", ["Responses", "Ollama", "Pydantic AI", "OpenTelemetry"])
def test_lines_of_a_form_are_one_conversation(form: str, run_cli: RunCli, tmp_path: Path) -> None:
    """A JSON Lines file whose lines are messages, items or spans is read as the list of them."""
    log, path = str(tmp_path / "log.db"), write(tmp_path, FILES[form], as_lines=True)
    run = run_cli("import", path, "--conversation", "c", "--log", log)
    assert (run.code, run.out.split()) == (0, ["c"]), run.err


@pytest.mark.parametrize("form", FILES)
def test_a_history_may_have_each_form(form: str, run_cli: RunCli, tmp_path: Path) -> None:
    """`run --history` takes the same files as `import`: the model is asked with the same messages."""
    spec = tmp_path / "agent.yaml"
    script = {"provider": "scripted", "model": "m", "replies": ["next"]}
    spec.write_text(json.dumps({"llms": {"main": script}, "responses": [{"llm": "main"}]}))
    log = str(tmp_path / "log.db")
    history = write(tmp_path, FILES[form])
    run = run_cli("run", str(spec), "and then?", "--history", history, "--conversation", "c", "--log", log)
    assert run.code == 0, run.err
    exported = json.loads(run_cli("export", "c", "--format", "openai", "--log", log).out)
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [message["role"] for message in exported] == roles
    assert exported[2]["content"] == "three"


def test_several_conversations_are_no_history(run_cli: RunCli, tmp_path: Path) -> None:
    """A history is one conversation; a file with two is refused, with what to do."""
    two = [FILES["chat completions"], FILES["chat completions"]]
    run = run_cli("run", "quickstart", "x", "--history", write(tmp_path, two))
    assert run.code == 2
    assert "a history is one conversation, and these are 2" in run.err
