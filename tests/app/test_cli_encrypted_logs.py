"""Commands and the server on encrypted logs that hold something plain, and with some of the keys only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolchart.engine.log.secrecy.keys import LogKeys, read_key_file
from toolchart.engine.log.stores import open_store, open_store_for_reading

RunCli = Callable[..., Any]


def write_runs(run_cli: RunCli, log: str, key: str, *names: str) -> None:
    """Run one turn in each of these conversations."""
    for name in names:
        result = run_cli(
            "run", "quickstart", "17 * 27", "--conversation", name, "--log", log, "--log-key", key
        )
        assert result.code == 0, result.err


def plant_conversation(log: str, keys: LogKeys) -> None:
    """Write a plain copy of a conversation beside it, as somebody without the key could write any."""
    store: Any = open_store(log, keys=keys)
    lines = list(store.read_lines("a"))
    store.inner.append("planted", 0, lines)
    store.inner.append("b", len(list(store.read_lines("b"))), lines[:1])
    store.close()


@pytest.mark.parametrize("log", ["log.db", "logs/"])
def test_commands_refuse_what_is_not_encrypted(run_cli: RunCli, tmp_path: Path, log: str) -> None:
    """Each command that reads a plain record exits with 5 and names conversation and record; lists show all
    other conversations. `verify` exits with 5 without the key too."""
    run_cli("keys", "log", "log.keys")
    write_runs(run_cli, log, "log.keys", "a", "b", "c")
    plant_conversation(log, read_key_file(tmp_path / "log.keys"))
    recovered = run_cli("recover", "quickstart", "--log", log, "--log-key", "log.keys")
    assert (recovered.code, "conversation planted, record" in recovered.err) == (1, True)
    for words in (
        ("show", "planted"),
        ("replay", "planted"),
        ("replay", "b"),
        ("export", "b", "--format", "openai"),
        ("draw", "planted"),
        ("tail", "planted"),
        ("run", "quickstart", "1+1", "--conversation", "planted"),
        ("run", "quickstart", "1+1", "--conversation", "b"),
        ("resume", "planted", "--spec", "quickstart"),
        ("fork", "planted", "--offline"),
        ("cancel", "planted", "--spec", "quickstart"),
        ("erase", "b", "--all"),
    ):
        result = run_cli(*words, "--log", log, "--log-key", "log.keys")
        assert (result.code, "is not encrypted" in result.err) == (5, True), (words, result.err)
        assert f"conversation {'b' if 'b' in words else 'planted'}, record" in result.err, words
    for words in (("runs",), ("stats",), ("verify",)):
        result = run_cli(*words, "--json", "--log", log, "--log-key", "log.keys")
        assert result.code == 5, (words, result.err)
        assert "conversation planted, record" in result.out + result.err
    rows = run_cli("runs", "--json", "--log", log, "--log-key", "log.keys").out.splitlines()
    assert {"a", "c"} <= {json.loads(row)["conversation"] for row in rows}
    unkeyed = run_cli("verify", "--log", log)
    assert unkeyed.code == 5
    assert "conversation planted, record 0" in unkeyed.err
    assert "conversation b, record" in unkeyed.err
    newest = run_cli("tail", "--log", log, "--log-key", "log.keys")
    assert (newest.code, "planted" in newest.err) == (0, True), "the newest one that can be read"


def test_a_mixed_log_is_converted_with_a_word(run_cli: RunCli, tmp_path: Path) -> None:
    """`convert --to` refuses a log that holds both and names the option; with `--accept-plain` the copy
    verifies. A plain log is copied while a key is set, too."""
    run_cli("keys", "log", "log.keys")
    write_runs(run_cli, "log.db", "log.keys", "a", "b")
    keys = read_key_file(tmp_path / "log.keys")
    store: Any = open_store("log.db", keys=keys)
    store.inner.append("copy", 0, list(store.read_lines("a")))
    store.close()
    refused = run_cli("convert", "--to", "new.db", "--log", "log.db", "--log-key", "log.keys")
    assert (refused.code, "--accept-plain" in refused.err) == (5, True)
    words = ("convert", "--to", "whole.db", "--accept-plain", "--log", "log.db", "--log-key", "log.keys")
    assert run_cli(*words).out.split() == ["a", "b", "copy"]
    assert run_cli("runs", "--json", "--log", "whole.db", "--log-key", "log.keys").code == 0
    run_cli("run", "quickstart", "1+1", "--conversation", "p", "--log", "plain.db")
    words = ("run", "quickstart", "1+1", "--log", "plain.db", "--log-key", "log.keys")
    assert "--accept-plain" in run_cli(*words).err
    words = ("convert", "--to", "p.db", "--accept-plain", "--log", "plain.db", "--log-key", "log.keys")
    assert run_cli(*words).code == 0
    assert run_cli("verify", "--log", "p.db", "--log-key", "log.keys").code == 0
    assert run_cli("convert", "--accept-plain").code == 2


def test_lists_with_half_of_the_keys(run_cli: RunCli, tmp_path: Path) -> None:
    """With a key file that lacks the older key, lists show what can be read and exit with 2; stderr says
    which conversation needs which key. New turns go on, `prune` refuses, and ids complete."""
    old = run_cli("keys", "log", "log.keys").out.strip()
    write_runs(run_cli, "log.db", "log.keys", "a", "b")
    new = run_cli("keys", "log", "log.keys").out.strip()
    write_runs(run_cli, "log.db", "log.keys", "c", "d")
    words = (tmp_path / "log.keys").read_text("utf-8").splitlines()
    (tmp_path / "half.keys").write_text(words[1] + "\n", "utf-8")
    (tmp_path / "half.keys").chmod(0o600)
    for command in (("runs",), ("runs", "--usage"), ("stats",), ("verify",)):
        result = run_cli(*command, "--log", "log.db", "--log-key", "half.keys")
        assert result.code == 2, (command, result.err)
        for name in ("a", "b"):
            assert f"conversation {name} is encrypted with the key {old}, and the given keys are {new}" in (
                result.err
            )
        assert "c" in result.out
    rows = run_cli("runs", "--json", "--log", "log.db", "--log-key", "half.keys").out.splitlines()
    assert [json.loads(row)["conversation"] for row in rows] == ["c", "d"]
    write_runs(run_cli, "log.db", "half.keys", "e")
    pruned = run_cli("prune", "--keep", "0", "--log", "log.db", "--log-key", "half.keys")
    assert (pruned.code, old in pruned.err, pruned.out) == (2, True, "")
    store = open_store_for_reading("log.db", keys=read_key_file(tmp_path / "half.keys"))
    assert list(store.list_conversations()) == ["a", "b", "c", "d", "e"]
    store.close()


def test_the_server_lists_what_it_can_read(run_cli: RunCli, tmp_path: Path) -> None:
    """The list of conversations, over the API and on the page, marks what is not encrypted and what needs
    another key, and shows all else; what waits for people is listed too."""
    pytest.importorskip("starlette", reason="the server needs the extra `serve`")
    old = run_cli("keys", "log", "log.keys").out.strip()
    write_runs(run_cli, "log.db", "log.keys", "x")
    run_cli("keys", "log", "log.keys")
    write_runs(run_cli, "log.db", "log.keys", "a", "b", "c")
    plant_conversation("log.db", read_key_file(tmp_path / "log.keys"))
    words = (tmp_path / "log.keys").read_text("utf-8").splitlines()
    (tmp_path / "log.keys").write_text(words[1] + "\n", "utf-8")
    asyncio.run(look_at_lists(tmp_path, old))


async def look_at_lists(folder: Path, missing_key: str) -> None:
    """Ask a server on the log of the test above for its lists."""
    from agents import make_engine
    from served import make_site, open_client

    engine = make_engine(["hello"], log=str(folder / "log.db"), log_key={"file": str(folder / "log.keys")})
    async with open_client(make_site(engine)) as client:
        rows = (await client.get("/api/conversations?figures=true")).json()["conversations"]
        by_name = {row["conversation"]: row for row in rows}
        assert "is not encrypted" in by_name["planted"]["damaged"]
        assert missing_key in by_name["x"]["unreadable"]
        assert {name for name, row in by_name.items() if "turns" in row} >= {"a", "c"}
        page = await client.get("/conversations")
        assert (page.status_code, "not readable: " in page.text, "damaged: " in page.text) == (
            200,
            True,
            True,
        )
        for path in ("/api/approvals", "/approvals", "/models"):
            assert (await client.get(path)).status_code == 200, path
        answer = await client.post("/api/conversations", json={"message": "hi", "conversation": "planted"})
        assert "is not encrypted" in answer.json()["error"]
