"""Commands that go on with a conversation of workers leave what a person says for them; nothing runs here."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import START
from postgres_database import create_database

from toolchart.engine.log.stores import open_store

pytest.importorskip("dbos", reason="needs the extra `durable`")

pytestmark = pytest.mark.slow

RunCli = Callable[..., Any]

AGENT = """
name: payer
chart: approval
llms:
  model:
    provider: scripted
    model: m
    rules:
      - match: "pay"
        call: {name: pay, arguments: {}}
        reply: "Done: {result}"
        on_error: "Not done: {error}"
tools:
  registry:
    - name: pay
      description: Pay.
      parameters: {type: object, properties: {}}
      implementation: {type: python, handler: "payments:pay"}
      requires_approval: true
responses:
  - llm: model
    tools: {enabled: true}
"""

TOOL = """
import os

def pay() -> str:
    with open("marks", "a") as marks:
        marks.write(f"{os.getpid()}\\n")
    return "paid"
"""

ASKING = """
name: asker
chart:
  name: asks
  states:
    resting:
      initial: true
      enter: ask
      transitions: [{event: answered, target: done}, {event: cancelled, target: stopped}]
    done: {final: true, enter: say_done}
    stopped: {final: true, enter: answer_with_error}
effects:
  ask: {ask_person: {question: "Go?", as: verdict, form: {type: object, properties: {go: {type: boolean}}}}}
  say_done: {answer: done}
llms: {model: {provider: scripted, model: m, replies: [unused]}}
responses: [{llm: model}]
"""


@pytest.fixture
def address(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a database for the log and the queue; the agents and their tool are in the folder."""
    (tmp_path / "payer.yaml").write_text(AGENT)
    (tmp_path / "asker.yaml").write_text(ASKING)
    (tmp_path / "payments.py").write_text(TOOL)
    monkeypatch.syspath_prepend(str(tmp_path))
    address = create_database(postgres, tmp_path)
    monkeypatch.setenv("TOOLCHART_LOG", address)
    return address


@contextlib.contextmanager
def work(folder: Path, agent: str, address: str) -> Iterator[int]:
    """Let a worker of its own process work within the block; its process id."""
    words = [sys.executable, "-c", START, "worker", agent, "--dsn", address, "--supervise", "--grace", "1"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with (folder / "worker.txt").open("ab") as output:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def wait_for_state(address: str, conversation: str, state: str) -> None:
    """Return when the newest record of a conversation leads to a state."""
    store, until = open_store(address), time.monotonic() + 120
    try:
        while True:
            newest = store.read_last_line(conversation)
            if newest is not None and json.loads(newest[1])["target"] == state:
                return
            assert time.monotonic() < until, newest
            time.sleep(0.05)
    finally:
        store.close()


def test_an_approval_of_a_fleets_call_runs_on_a_worker(run_cli: RunCli, address: str, tmp_path: Path) -> None:
    """Issue 37: `approve` of a call of a submitted conversation leaves the decision, says so, and runs
    nothing here; a worker runs the call. `--run-here` runs it here."""
    spec = ("--spec", "payer.yaml")
    with work(tmp_path, "payer.yaml", address):
        wait_for_queue(run_cli, address)
        for name in ("a", "b", "c"):
            assert run_cli("submit", "payer.yaml", "pay", "--dsn", address, "--key", name).code == 0
            wait_for_state(address, name, "awaiting_approval")
    handed = run_cli("approve", "a", *spec)
    assert (handed.code, handed.out) == (0, ""), handed.err
    assert "handed over to the workers of 'payer'" in handed.err
    assert "nothing runs here" in handed.err
    assert not (tmp_path / "marks").exists()
    as_json = run_cli("approve", "b", *spec, "--deny", "--json")
    assert json.loads(as_json.out) == {"conversation": "b", "handed_over_to": "payer"}
    here = run_cli("approve", "c", *spec, "--run-here")
    assert (here.code, here.out) == (0, "Done: paid\n"), here.err
    assert (tmp_path / "marks").read_text() == f"{os.getpid()}\n"
    with work(tmp_path, "payer.yaml", address) as worker:
        for name in ("a", "b"):
            wait_for_state(address, name, "finished")
    assert (tmp_path / "marks").read_text() == f"{os.getpid()}\n{worker}\n"


def test_answers_cancellations_and_resumptions_are_handed_over(
    run_cli: RunCli, address: str, tmp_path: Path
) -> None:
    """`resume --answer`, `resume` and `cancel` leave their message for the workers, and write no record."""
    spec = ("--spec", "asker.yaml")
    with work(tmp_path, "asker.yaml", address):
        wait_for_queue(run_cli, address, "asker.yaml")
        for name in ("a", "b", "c"):
            assert run_cli("submit", "asker.yaml", "go", "--dsn", address, "--key", name).code == 0
            wait_for_state(address, name, "resting")
    store = open_store(address)
    before = {name: list(store.read_lines(name)) for name in ("a", "b", "c")}
    for words in (("resume", "a", "--answer", '{"go": true}'), ("cancel", "b"), ("resume", "c")):
        result = run_cli(*words, *spec)
        assert (result.code, "handed over" in result.err) == (0, True), (words, result.err)
    wrong = run_cli("resume", "c", *spec, "--answer", '{"go": 3}')
    assert (wrong.code, "handed over" in wrong.err) == (2, False)
    assert {name: list(store.read_lines(name)) for name in ("a", "b", "c")} == before
    store.close()
    with work(tmp_path, "asker.yaml", address):
        wait_for_state(address, "a", "done")
        wait_for_state(address, "b", "stopped")


def test_a_conversation_of_no_fleet_goes_on_here(run_cli: RunCli, address: str, tmp_path: Path) -> None:
    """In a database that also has a queue, a conversation that nobody submitted goes on here, as ever. A
    queue that cannot be asked is an error, and nothing runs."""
    with work(tmp_path, "payer.yaml", address):
        wait_for_queue(run_cli, address)
        assert run_cli("submit", "payer.yaml", "pay", "--dsn", address, "--key", "a").code == 0
        wait_for_state(address, "a", "awaiting_approval")
    assert run_cli("run", "payer.yaml", "pay", "--conversation", "own").code == 1
    away = run_cli("approve", "own", "--spec", "payer.yaml", "--dsn", "postgresql://nobody@127.0.0.1:1/none")
    assert (away.code, "cannot be read" in away.err) == (2, True)
    assert not (tmp_path / "marks").exists()
    approved = run_cli("approve", "own", "--spec", "payer.yaml")
    assert (approved.code, approved.out) == (0, "Done: paid\n"), approved.err


def wait_for_queue(run_cli: RunCli, address: str, agent: str = "payer.yaml") -> None:
    """Return when a worker has prepared the database: `submit` succeeds."""
    until = time.monotonic() + 120
    while run_cli("submit", agent, "pay", "--dsn", address, "--key", "first").code != 0:
        assert time.monotonic() < until
        time.sleep(0.2)
