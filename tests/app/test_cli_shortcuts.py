"""Words that may be left out: the only call that waits, and the conversation that was worked on last."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolchart.app.cli.newest_conversation import find_newest_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.sqlite import SqliteStore

RunCli = Callable[..., Any]
AGENT = """\
chart: approval
llms:
  m:
    provider: scripted
    model: tiny
    rules: [{match: go, call: {name: pay, arguments: {n: 1}}, reply: paid}]
tools:
  registry:
    - {name: pay, requires_approval: true, implementation: {type: mock, mock_response: {ok: true}}}
responses: [{name: main, llm: m, prompt: p, tools: {enabled: true}}]
"""


@pytest.fixture(autouse=True)
def agent(work_dir: Path) -> None:
    """An agent whose calls wait for a person: one call, or two."""
    (work_dir / "one.yaml").write_text(AGENT, "utf-8")
    calls = "{name: pay, arguments: {n: 1}}, {name: pay, arguments: {n: 2}}"
    two = re.sub("rules: .*", f"replies: [{{tool_calls: [{calls}]}}]", AGENT)
    (work_dir / "two.yaml").write_text(two, "utf-8")


def test_the_only_call_that_waits_needs_no_id(run_cli: RunCli) -> None:
    """Issue 16: `approve CONVERSATION` decides the one call that waits, and says which one that is."""
    assert run_cli("run", "one.yaml", "--conversation", "c", "go").code == 1
    done = run_cli("approve", "c", "--spec", "one.yaml")
    assert (done.code, done.out) == (0, "paid\n")
    assert 'pay {"n":1}' in done.err
    again = run_cli("approve", "c", "--spec", "one.yaml")
    assert again.code == 2
    assert "no call" in again.err


def test_of_several_calls_one_must_be_named(run_cli: RunCli) -> None:
    """Where two calls wait, nothing is decided without an id, and the message lists both."""
    assert run_cli("run", "two.yaml", "--conversation", "c", "go").code == 1
    done = run_cli("approve", "c", "--spec", "two.yaml")
    assert done.code == 2
    waiting = json.loads(run_cli("show", "c", "--json").out.splitlines()[-1])
    ids = [call["call_id"] for call in waiting["event"]["verdicts"]]
    assert len(ids) == 2
    assert all(name in done.err for name in ids)


def test_tail_finds_the_newest_without_reading_every_conversation(
    run_cli: RunCli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: the conversation with the newest record is found from a bounded part of the log."""
    for name in ("old", "middle", "new"):
        run_cli("run", "quickstart", "--conversation", name, "1+1")
    run_cli("run", "quickstart", "--conversation", "old", "2+2")
    monkeypatch.setattr("toolchart.engine.log.stores.sql.LISTED_AT_ONCE", 1)
    reads: list[str] = []
    read_last_line = SqliteStore.read_last_line

    def watch(store: SqliteStore, conversation: str) -> Any:
        reads.append(conversation)
        return read_last_line(store, conversation)

    monkeypatch.setattr(SqliteStore, "read_last_line", watch)
    store = open_store(str(work_dir / ".toolchart" / "log.db"), create=False)
    reads.clear()  # opening looks at a few conversations, whatever the size of the log
    try:
        assert find_newest_conversation(store) == "old"
    finally:
        store.close()
    assert sorted(reads) == ["new", "old"]
