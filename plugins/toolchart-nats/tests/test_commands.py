"""The commands on a log in NATS JetStream, and what they say where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nats_server import NatsServer

RunCli = Callable[..., Any]


@pytest.mark.slow
def test_every_command_reads_and_writes_a_jetstream_log(
    run_cli: RunCli, nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two turns run, and are listed, shown, verified, replayed, exported, forked, erased and pruned."""
    monkeypatch.setenv("TOOLCHART_LOG", nats_server.build_address(tmp_path))
    for question in ("2+3", "4+5"):
        assert run_cli("run", "quickstart", question, "--conversation", "c").code == 0
    (row,) = run_cli("runs", "--json").out.splitlines()
    assert json.loads(row)["conversation"] == "c"
    for words in (
        ["show", "c"],
        ["verify"],
        ["verify", "c"],
        ["replay", "c"],
        ["export", "c"],
        ["tail", "c"],
    ):
        result = run_cli(*words)
        assert result.code == 0, (words, result.err)
    assert run_cli("fork", "c", "--at", "2", "--offline").code == 0
    assert run_cli("seal", "--to", "seals.jsonl").code == 0
    assert run_cli("erase", "c", "--turn", "1", "--by", "anna", "--reason", "asked for").code == 0
    assert "2+3" not in run_cli("show", "c").out
    assert run_cli("verify", "--seal", "seals.jsonl").code == 0
    assert run_cli("prune", "--keep", "0").code == 0


@pytest.mark.parametrize("command", [["runs"], ["run", "quickstart", "1+1"], ["verify"]])
def test_a_server_that_is_away_is_one_clear_line(run_cli: RunCli, command: list[str]) -> None:
    """A wrong address ends a command with exit code 2, and its user and password are not printed."""
    result = run_cli(*command, "--log", "nats://anna:hidden@127.0.0.1:1/log")
    assert result.code == 2
    assert "nats://127.0.0.1:1/log cannot be reached" in result.err
    assert "hidden" not in result.err + result.out
    assert "Traceback" not in result.err
    unnamed = run_cli(*command, "--log", "nats://127.0.0.1:1")
    assert unnamed.code == 2
    assert "write nats://HOST:4222/NAME" in unnamed.err
