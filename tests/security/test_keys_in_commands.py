"""Fault 6, widened: every command of the table runs with a planted key, and none shows or keeps it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import run_toolchart
from planted_key import KEY, find_key
from web import WebAnswer, serve_web

from toolchart.app.cli import COMMANDS, cli
from toolchart.app.cli.exit_codes import run_to_exit_code

WITHOUT_KEY = {
    "init": "writes a shipped agent",
    "keys": "makes keys of its own",
    "import": "writes what a file of the operator holds",
    "chat": "runs in a process of its own below",
}
"""Commands that are not in `CASES`, and why."""


def quote_key(request: dict[str, Any]) -> WebAnswer:
    """A host that quotes the key in its replies, its calls and its errors."""
    names = {name.lower(): value for name, value in request["headers"].items()}
    key = names.get("authorization", "")
    headers = {"content-type": "application/json"}
    if b"fail" in request["body"]:
        return 401, headers, json.dumps({"error": {"message": f"the key {key} is wrong"}}).encode()
    message: dict[str, Any] = {"role": "assistant", "content": f"I got {key}"}
    if b'"role":"tool"' not in request["body"].replace(b" ", b""):
        function = {"name": "echo", "arguments": json.dumps({"text": key})}
        message["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
    choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    return (
        200,
        headers,
        json.dumps({"id": "1", "model": "m", "choices": [{**choice, "message": message}]}).encode(),
    )


def write_inputs(folder: Path, url: str) -> None:
    """An agent, and questions for a batch."""
    box = {"provider": "openai", "base_url": f"{url}/v1", "api_key": "${BOX_KEY}", "model": "m"}
    spec = {
        "chart": "approval",
        "llms": {"box": {**box, "record": "tape.yaml"}},
        "tools": {"registry": [{"name": "echo", "requires_approval": True}]},
        "responses": [{"llm": "box", "tools": {"enabled": True}}],
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(spec), "utf-8")
    (folder / "batch.jsonl").write_text(json.dumps({"message": "hello"}) + "\n", "utf-8")


CASES: tuple[tuple[str, ...], ...] = (
    ("run", "agent.yaml", "hello", "--conversation", "a"),
    ("run", "agent.yaml", "fail", "--conversation", "f", "--verbose"),
    ("run", "agent.yaml", "fail", "--json"),
    ("approve", "a", "c1", "--spec", "agent.yaml"),
    ("migrate", "a", "--spec", "agent.yaml", "--json"),
    ("cancel", "f", "--spec", "agent.yaml"),
    ("recover", "agent.yaml", "--json"),
    ("resume", "a", "--spec", "agent.yaml", "--json"),
    ("fork", "a", "--spec", "agent.yaml", "--json"),
    ("fork", "a", "--offline", "--json"),
    ("batch", "agent.yaml", "batch.jsonl"),
    ("rerun", "agent.yaml"),
    ("show", "a"),
    ("show", "f", "--json"),
    ("tail", "a", "--json"),
    ("runs", "--json"),
    ("stats",),
    ("stats", "--json"),
    ("verify", "--spec", "agent.yaml"),
    ("seal",),
    ("replay", "a"),
    ("replay", "a", "--wire"),
    ("check", "agent.yaml"),
    ("agents", "--json"),
    ("charts", "--json"),
    ("draw", "a"),
    ("draw", "agent.yaml"),
    ("coverage",),
    ("diff", "a", "f"),
    ("prune", "--older-than", "1d"),
    ("convert", "a"),
    *(("export", "a", "--format", form) for form in ("openai", "jsonl", "otel", "xes", "evidence")),
    ("export", "a", "--format", "otel", "--content"),
    ("tools", "list", "agent.yaml", "--json"),
    ("tools", "test", "agent.yaml", "echo", "--args", '{"text": "x"}', "--yes"),
    ("models", "list", "agent.yaml"),
    ("doctor", "agent.yaml"),
    ("doctor", "agent.yaml", "--json"),
    ("schema", "spec"),
)


def test_no_command_shows_or_keeps_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files, database, cassette and every output are free of it, whatever the host quotes; a new command has
    to be added here."""
    assert set(COMMANDS.names()) - set(WITHOUT_KEY) <= {words[0] for words in CASES}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOX_KEY", KEY)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # an empty pipe
    outputs: list[str] = []
    with serve_web(quote_key) as web:
        write_inputs(tmp_path, web.url)
        run = _make_runner(capsys)
        for words in CASES:
            outputs += run(words)
        chat = run_toolchart("chat", "agent.yaml", cwd=tmp_path, stdin="hello\n", BOX_KEY=KEY)
        outputs += [chat.stdout, chat.stderr]
        assert len(web.requests) >= 4
    assert any("(secret)" in text for text in outputs)
    assert find_key(tmp_path, *outputs) == []


def _make_runner(capsys: pytest.CaptureFixture[str]) -> Callable[[tuple[str, ...]], list[str]]:
    def run(words: tuple[str, ...]) -> list[str]:
        code = run_to_exit_code(lambda: cli.main(list(words), standalone_mode=False, prog_name="toolchart"))
        out, err = capsys.readouterr()
        assert "Traceback" not in err, (words, err)
        assert code != 70, (words, err)
        return [out, err]

    return run
