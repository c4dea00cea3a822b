"""A small real use of each command, for tests that must hold for every command.

A test that uses the table names the commands that it leaves out, so a new command fails until it is added.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import yaml
from planted_key import KEY

from toolchart.app.cli import COMMANDS, cli


def list_command_words() -> list[str]:
    """Every command, and for a group each of its commands."""
    words: list[str] = []
    context = click.Context(cli, **cli.context_settings)  # a command keeps its help options
    for name in COMMANDS:
        command = cli.get_command(context, name)
        parts = command.commands if isinstance(command, click.Group) else None
        words += [f"{name} {part}" for part in parts] if parts else [name]
    return words


def write_inputs(folder: Path, url: str) -> None:
    """An agent, questions for a batch, and a conversation of elsewhere that holds the key."""
    box = {"provider": "openai", "base_url": f"{url}/v1", "api_key": "${BOX_KEY}", "model": "m"}
    spec = {
        "chart": "approval",
        "llms": {"box": box},
        "tools": {"registry": [{"name": "echo", "requires_approval": True}]},
        "responses": [{"llm": "box", "tools": {"enabled": True}}],
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(spec), "utf-8")
    messages = [{"role": "user", "content": f"use {KEY}"}, {"role": "assistant", "content": f"I used {KEY}"}]
    (folder.parent / "chat.json").write_text(json.dumps(messages), "utf-8")
    (folder / "batch.jsonl").write_text(json.dumps({"message": "hello"}) + "\n", "utf-8")


FORMATS = ("openai", "calls", "jsonl")

CASES: tuple[tuple[str, ...], ...] = (
    ("run", "agent.yaml", "hello", "--conversation", "a"),
    ("run", "agent.yaml", "fail", "--conversation", "f", "--verbose"),
    ("run", "agent.yaml", "fail", "--json"),
    ("approve", "a", "c1", "--spec", "agent.yaml"),
    ("migrate", "a", "--spec", "agent.yaml", "--json"),
    ("run", "agent.yaml", "hello", "--conversation", "open"),
    ("cancel", "open", "--spec", "agent.yaml", "--reason", f"it held {KEY}"),
    ("recover", "agent.yaml", "--json"),
    ("resume", "a", "--spec", "agent.yaml", "--json"),
    ("fork", "a", "--spec", "agent.yaml", "--json"),
    ("fork", "a", "--offline", "--json"),
    ("fork", "a", "--offline", "--tool-result", f"c1={json.dumps(KEY)}"),
    ("batch", "agent.yaml", "batch.jsonl"),
    ("rerun", "--spec", "agent.yaml"),
    ("rerun", "--offline"),
    ("show", "a"),
    ("show", "f", "--json"),
    ("show", "a", "-n", "9", "--json"),
    ("runs", "--json"),
    ("stats",),
    ("stats", "--json"),
    ("verify", "--spec", "agent.yaml"),
    ("replay", "a"),
    ("replay", "a", "--no-wire"),
    ("check", "agent.yaml"),
    ("init", "--list", "--json"),
    ("draw", "a"),
    ("draw", "agent.yaml"),
    ("check", "agent.yaml", "--coverage"),
    ("diff", "a", "f"),
    ("diff", "a", "full"),
    ("diff", "a", "agent.yaml", "--format", "markdown"),
    ("prune", "--older-than", "1d"),
    *(("export", "a", "--format", form) for form in FORMATS),
    ("share", "a", "--yes"),
    ("tools", "list", "agent.yaml", "--json"),
    ("tools", "test", "agent.yaml", "echo", "--args", '{"text": "x"}', "--yes"),
    ("tools", "pin", "agent.yaml"),
    ("models", "list", "agent.yaml"),
    ("models", "validate", "agent.yaml"),
    ("emulate",),
    ("emulate", "--json"),
    ("watch", "--", "true"),
    ("mine",),
    ("mine", "a", "--json"),
    ("database", "upgrade"),
    ("doctor", "agent.yaml"),
    ("doctor", "agent.yaml", "--json"),
    ("schema", "spec"),
    ("import", "../chat.json", "--conversation", "i"),
    ("show", "i"),
    ("export", "i"),
    ("verify",),
)
