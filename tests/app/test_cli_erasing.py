"""`toolchart erase`, `--log-key`, `convert --to`, and what other commands say about such logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show", "sum"),
    ("show", "sum", "--json"),
    ("replay", "sum"),
    ("verify",),
    ("runs",),
    ("stats",),
    ("draw", "sum"),
    ("draw", "sum", "--sequence"),
    ("export", "sum", "--format", "openai"),
    ("export", "sum", "--format", "evidence"),
    ("fork", "sum", "--offline", "--at", "1", "--name", "f"),
)


def test_every_command_says_so(run_cli: Callable[..., Any]) -> None:
    """`erase` prints what it did, and each command that reads goes on to work and shows no erased word."""
    assert run_cli("run", "quickstart", "Echo: marmalade", "--conversation", "sum").code == 0
    result = run_cli("erase", "sum", "--turn", "1", "--by", "anna", "--json")
    assert (result.code, json.loads(result.out)["is_derivable"]) == (0, True), result.err
    for words in COMMANDS:
        result = run_cli(*words)
        assert result.code == 0, (words, result.out, result.err)
        assert "marmalade" not in result.out, words
    assert "[erased]" in run_cli("show", "sum").out
    assert "was erased by anna" in run_cli("show", "sum").out
    assert run_cli("erase", "sum", "--turn", "1").code == 1
    assert run_cli("erase", "sum").code == 2
    assert run_cli("erase", "none", "--all").code == 2


def test_a_log_is_copied_and_encrypted(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    """`convert --to` copies a plain log into an encrypted one of another kind, and that with a new key, and
    back; heads, families and replay stay. Without the key each command names what is missing, with exit 2."""
    run_cli("run", "quickstart", "17 * 27", "--conversation", "sum")
    run_cli("run", "careful", "delete a.txt", "--conversation", "waits")
    heads = run_cli("verify").out
    ids = [run_cli("keys", "log", "log.keys").out.strip()]
    assert run_cli("convert", "--to", "new/", "--to-key", "log.keys").out.split() == ["sum", "waits"]
    assert run_cli("convert", "--to", "new/", "--to-key", "log.keys").out == "", (
        "again: nothing is left to copy"
    )
    assert run_cli("verify", "--log", "new/", "--log-key", "log.keys").out == heads
    ids.append(run_cli("keys", "log", "log.keys").out.strip())
    assert run_cli("convert", "--to", "newer.db", "--log", "new/", "--log-key", "log.keys").code == 0
    assert run_cli("verify", "--log", "newer.db", "--log-key", "log.keys").out == heads
    for log, key in (("new/", ids[0]), ("newer.db", ids[1])):
        for words in (
            ("verify",),
            ("show", "sum"),
            ("runs",),
            ("replay", "sum"),
            ("run", "quickstart", "1+1"),
        ):
            result = run_cli(*words, "--log", log)
            assert (result.code, key in result.err, "--log-key" in result.err) == (2, True, True), words
    copied = run_cli("convert", "--to", "plain.db", "--plain", "--log", "newer.db", "--log-key", "log.keys")
    assert (copied.code, run_cli("verify", "--log", "plain.db").out) == (0, heads)
    assert run_cli("replay", "waits", "--log", "plain.db").code == 0
    assert run_cli("convert", "--to", "x.db", "sum").code == 2
    assert run_cli("convert", "--plain").code == 2
    (tmp_path / "log.keys").chmod(0o644)
    assert "chmod 600" in run_cli("runs", "--log", "new/", "--log-key", "log.keys").err
