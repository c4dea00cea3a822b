"""The commands over a log with a witness: what was rolled back is refused, declared, and then said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import pytest
import strangers_verifier as stranger

from toolchart.engine import Engine
from toolchart.engine.log.sealing.keys import SealSigner, SealVerifier
from toolchart.engine.log.sealing.restoring import list_losses
from toolchart.engine.log.sealing.witness import Witness
from toolchart.engine.log.stores import open_store
from toolchart.states.errors import LogDamaged

RunCli = Callable[..., Any]


def make_engine() -> Engine:
    """An engine whose witness is a file beside the log."""
    return agents.make_engine(["one", "two", "three"], log="log.db", witness={"to": "seals.jsonl"})


def copy_log(log: str, to: str) -> None:
    """Copy a SQLite file as a backup does; what was there goes, with its WAL."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{to}{suffix}").unlink(missing_ok=True)
    shutil.copy(log, to)


def test_the_commands_of_an_operator(run_cli: RunCli, work_dir: Path) -> None:
    """`run` and `resume` exit with 5 on a rolled back log, `verify --spec` too; `restore` shows and declares
    what is lost, and then all three go on and `verify` says it."""
    rules = [{"match": r"[\s\S]*", "reply": "ok"}]
    spec = {
        "chart": "tool_loop",
        "llms": {"m": {"provider": "scripted", "model": "m", "rules": rules}},
        "responses": [{"llm": "m"}],
        "witness": {"to": "seals.jsonl"},
    }
    Path("agent.json").write_text(json.dumps(spec), "utf-8")
    words = ("agent.json", "hello", "--conversation", "talk", "--log", "log.db")
    assert run_cli("run", *words).code == 0
    copy_log("log.db", "copy.db")
    assert run_cli("run", *words).code == 0
    assert run_cli("verify", "--spec", "agent.json", "--log", "log.db").code == 0
    copy_log("copy.db", "log.db")
    for command in (("run", *words), ("resume", "talk", "--spec", "agent.json", "--log", "log.db")):
        refused = run_cli(*command)
        assert (refused.code, "records 3 to 4 are missing" in refused.err) == (5, True)
    verified = run_cli("verify", "--spec", "agent.json", "--log", "log.db")
    assert (verified.code, "records 3 to 4 are missing" in verified.err) == (5, True)
    restore = ("restore", "talk", "--spec", "agent.json", "--log", "log.db", "--reason", "disk")
    assert run_cli(*restore, "--dry-run").code == 0
    assert run_cli("verify", "--spec", "agent.json", "--log", "log.db").code == 5
    shown = run_cli(*restore, "--by", "ann")
    assert (shown.code, "records 3 to 4 are missing" in shown.out) == (0, True)
    assert run_cli(*restore).code == 2, "there is nothing to declare any more"
    assert run_cli("run", *words).code == 0
    assert run_cli("replay", "talk", "--log", "log.db").code == 0
    verified = run_cli("verify", "--spec", "agent.json", "--log", "log.db")
    assert (verified.code, "records 3 to 4 of before are lost" in verified.err) == (0, True)
    assert "witness" not in run_cli("export", "talk", "--log", "log.db").out
    Path("log.db").unlink()
    assert run_cli("verify", "--spec", "agent.json", "--log", "copy.db").code == 5


def test_pruned_erased_and_forked_conversations_are_no_losses(run_cli: RunCli, work_dir: Path) -> None:
    """Tombstones, stand-ins, forks and children agree with the witness, and an id may begin anew."""
    for number in range(2):
        with make_engine() as engine:
            engine.run(f"message {number}", conversation="talk")
    with make_engine() as engine:
        fork = engine.fork("talk", 2, name="fork")
    assert run_cli("erase", "talk", "--text", "message", "--log", "log.db").code == 0
    with make_engine() as engine:
        assert engine.run("go on", conversation="talk").ok
        assert engine.run("go on", conversation=fork.result.conversation).ok
    pruned = run_cli("prune", "--keep", "0", "--log", "log.db", "--seals", "seals.jsonl")
    assert (pruned.code, len(pruned.out.split())) == (0, 2), pruned.err
    store = open_store("log.db")
    assert list_losses(store, Witness("seals.jsonl", SealSigner(), SealVerifier())) == []
    store.close()
    with make_engine() as engine:
        assert engine.run("anew", conversation="talk").ok
    copy_log("log.db", "copy.db")
    with make_engine() as engine:
        engine.run("more", conversation="talk")
    stranger.check_journal(Path("seals.jsonl").read_bytes().splitlines())
    copy_log("copy.db", "log.db")
    with make_engine() as engine, pytest.raises(LogDamaged):
        engine.run("go on", conversation="talk")
