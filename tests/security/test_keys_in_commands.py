"""Fault 6, widened: every command of the table runs with a planted key, and none shows or keeps it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from command_line import run_toolchart
from planted_key import KEY, find_key, quote_key
from web import serve_web

from toolchart.app.cli import COMMANDS, cli
from toolchart.app.cli.exit_codes import run_to_exit_code
from toolchart.engine.exchange.messages import import_recording
from toolchart.engine.log.stores import open_store

WITHOUT_KEY = {
    "init": "writes a shipped agent",
    "keys": "makes keys of its own",
    "chat": "runs in a process of its own below",
}
"""Commands that are not in `CASES`, and why."""


def write_inputs(folder: Path, url: str) -> None:
    """An agent, questions for a batch, and a conversation of elsewhere that holds the key."""
    box = {"provider": "openai", "base_url": f"{url}/v1", "api_key": "${BOX_KEY}", "model": "m"}
    spec = {
        "chart": "approval",
        "llms": {"box": {**box, "record": "tape.yaml"}},
        "tools": {"registry": [{"name": "echo", "requires_approval": True}]},
        "responses": [{"llm": "box", "tools": {"enabled": True}}],
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(spec), "utf-8")
    messages = [{"role": "user", "content": f"use {KEY}"}, {"role": "assistant", "content": f"I used {KEY}"}]
    (folder.parent / "chat.json").write_text(json.dumps(messages), "utf-8")
    (folder / "batch.jsonl").write_text(json.dumps({"message": "hello"}) + "\n", "utf-8")


FORMATS = ("openai", "jsonl", "otel", "xes", "evidence")

CASES: tuple[tuple[str, ...], ...] = (
    ("run", "agent.yaml", "hello", "--conversation", "a"),
    ("run", "agent.yaml", "fail", "--conversation", "f", "--verbose"),
    ("run", "agent.yaml", "fail", "--json"),
    ("approve", "a", "c1", "--spec", "agent.yaml"),
    ("migrate", "a", "--spec", "agent.yaml", "--json"),
    ("run", "agent.yaml", "hello", "--conversation", "open"),
    ("cancel", "open", "--spec", "agent.yaml"),
    ("recover", "agent.yaml", "--json"),
    ("resume", "a", "--spec", "agent.yaml", "--json"),
    ("fork", "a", "--spec", "agent.yaml", "--json"),
    ("fork", "a", "--offline", "--json"),
    ("batch", "agent.yaml", "batch.jsonl"),
    ("rerun", "--spec", "agent.yaml"),
    ("rerun", "--offline"),
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
    ("coverage", "agent.yaml"),
    ("diff", "a", "f"),
    ("prune", "--older-than", "1d"),
    ("convert", "a"),
    *(("export", "a", "--format", form) for form in FORMATS),
    ("export", "a", "--format", "otel", "--content"),
    ("tools", "list", "agent.yaml", "--json"),
    ("tools", "test", "agent.yaml", "echo", "--args", '{"text": "x"}', "--yes"),
    ("models", "list", "agent.yaml"),
    ("doctor", "agent.yaml"),
    ("doctor", "agent.yaml", "--json"),
    ("schema", "spec"),
    ("import", "../chat.json", "--conversation", "i"),
    ("show", "i"),
    ("export", "i"),
)


def test_no_command_shows_or_keeps_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files, database, cassette and every output are free of it, whatever the host quotes; a new command has
    to be added here."""
    assert set(COMMANDS.names()) - set(WITHOUT_KEY) <= {words[0] for words in CASES}
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BOX_KEY", KEY)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # an empty pipe
    outputs: list[str] = []
    with serve_web(quote_key) as web:
        write_inputs(folder, web.url)
        run = _make_runner(capsys)
        for words in CASES:
            outputs += run(words)
        chat = run_toolchart("chat", "agent.yaml", cwd=folder, stdin="hello\n", BOX_KEY=KEY)
        outputs += [chat.stdout, chat.stderr]
        assert len(web.requests) >= 4
    assert any("(secret)" in text for text in outputs)
    assert find_key(folder, *outputs) == []


def _make_runner(capsys: pytest.CaptureFixture[str]) -> Callable[[tuple[str, ...]], list[str]]:
    def run(words: tuple[str, ...]) -> list[str]:
        code = run_to_exit_code(lambda: cli.main(list(words), standalone_mode=False, prog_name="toolchart"))
        out, err = capsys.readouterr()
        assert "Traceback" not in err, (words, err)
        assert code != 70, (words, err)
        assert code != 2 or words[0] == "convert", (words, err)  # there is nothing to convert
        return [out, err]

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("show", "a"),
        ("draw", "a", "--sequence", "--format", "svg"),
        *(("export", "a", "--format", f) for f in FORMATS),
    ],
)
def test_reading_a_log_strikes_what_it_holds(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a log that was written where the key was not known, what is printed has it struck; the log stays."""
    monkeypatch.chdir(tmp_path)
    messages = [{"role": "user", "content": f"use {KEY}"}, {"role": "assistant", "content": KEY}]
    lines = import_recording(messages, "a", "2026-01-01T00:00:00Z", "chat.json")
    store = open_store("log.jsonl")
    store.append("a", 0, lines)
    store.close()
    monkeypatch.setenv("BOX_API_KEY", KEY)
    outputs = _make_runner(capsys)((*words, "--log", "log.jsonl"))
    assert find_key(tmp_path / "none", *outputs) == []
    assert find_key(tmp_path)
