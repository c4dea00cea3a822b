"""Conversations that end their workers are parked: the fleet goes on, and `resume` has them tried again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import START
from postgres_database import create_database

from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store

pytestmark = pytest.mark.slow

RunCli = Callable[..., Any]

AGENT = """
name: miner
chart: tool_loop
llms:
  model:
    provider: scripted
    model: m
    rules:
      - match: "(?P<what>poison|water)"
        call: {name: drink, arguments: {what: "{what}"}}
        reply: "Done: {result}"
tools:
  registry:
    - name: drink
      description: Drink.
      parameters: {type: object, properties: {what: {type: string}}, required: [what]}
      implementation: {type: python, handler: "cups:drink"}
      idempotent: true
responses:
  - llm: model
    tools: {enabled: true}
"""

TOOL = """
import os, signal

def drink(what: str) -> str:
    with open("marks", "a") as marks:
        marks.write(what + "\\n")
    if what == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    return "drunk"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the agent and its tool."""
    (tmp_path / "miner.yaml").write_text(AGENT)
    (tmp_path / "cups.py").write_text(TOOL)
    return tmp_path


def run(folder: Path, *words: str) -> tuple[int, str]:
    """Run a command in a process of its own; its exit code and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, "-c", START, *words]
    ended = subprocess.run(command, cwd=folder, env=environment, timeout=120, check=False, **streams)
    return ended.returncode, ended.stdout


def read_marks(folder: Path) -> list[str]:
    """What the tool was called with."""
    return (folder / "marks").read_text().split()


def test_recover_parks_a_conversation_that_ends_it_again_and_again(folder: Path) -> None:
    """Issue 37: a turn whose idempotent tool ends its process ends three, of `run` and of `recover`. Then
    `recover` parks it, says so once, and goes on with others; `runs` shows it. `resume` has it tried once
    more, and one more death parks it at once. `cancel` ends it without a call. The log replays."""
    log = ("--log", str(folder / "log.db"))
    spec = ("--spec", "miner.yaml")
    assert run(folder, "run", "miner.yaml", "poison", "--conversation", "p", *log)[0] == -signal.SIGKILL
    for _ in range(2):
        assert run(folder, "recover", "miner.yaml", *log)[0] == -signal.SIGKILL
    code, printed = run(folder, "recover", "miner.yaml", *log)
    assert (code, read_marks(folder)) == (1, ["poison"] * 3), printed
    assert "parked: 3 workers in a row ended at the same place" in printed
    assert run(folder, "recover", "miner.yaml", *log) == (0, "")
    assert run(folder, "run", "miner.yaml", "water", "--conversation", "w", *log) == (0, "Done: drunk\n")
    assert "(parked)" in run(folder, "runs", *log)[1]
    rows = [json.loads(line) for line in run(folder, "runs", "--json", *log)[1].splitlines()]
    assert {row["conversation"]: "parked" in row for row in rows} == {"p": True, "w": False}
    assert run(folder, "resume", "p", *spec, *log)[0] == -signal.SIGKILL
    assert run(folder, "recover", "miner.yaml", *log)[0] == 1
    assert read_marks(folder).count("poison") == 4
    assert run(folder, "cancel", "p", *spec, *log)[0] == 0
    assert read_marks(folder).count("poison") == 4
    store = open_store(str(folder / "log.db"))
    *_, last = replay_conversation(store, "p")
    assert last.step.snapshot.is_over
    store.close()


@contextlib.contextmanager
def keep_working(folder: Path, address: str) -> Iterator[Callable[[], list[int]]]:
    """Start a worker again whenever one has died, as a service manager does, ten times at most; what is
    yielded does so, and gives the ends of those that have died."""
    words = ("worker", "miner.yaml", "--dsn", address, "--supervise", "--grace", "1")
    workers: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "PYTHONPATH": str(folder)}

    def look() -> list[int]:
        if len(workers) < 10 and (not workers or workers[-1].poll() is not None):
            with (folder / "worker.txt").open("ab") as output:
                command = [sys.executable, "-c", START, *words]
                streams: dict[str, Any] = {"stdout": output, "stderr": output}
                workers.append(subprocess.Popen(command, cwd=folder, env=environment, **streams))
        return [worker.returncode for worker in workers if worker.returncode is not None]

    try:
        yield look
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()


def wait_until(look: Callable[[], list[int]], is_reached: Callable[[], bool]) -> None:
    """Return when something holds; workers are kept working meanwhile."""
    until = time.monotonic() + 60
    while not is_reached():
        ends = look()
        assert time.monotonic() < until, ends
        time.sleep(0.1)


def test_a_fleet_parks_what_ends_its_workers(
    run_cli: RunCli, folder: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 37: of two conversations the poisonous one ends three workers of DBOS and is parked, with one
    warning; the other one ends, and the next worker lives. `resume` hands it over, which ends one worker
    more; `cancel` has a worker end it without a call."""
    pytest.importorskip("dbos", reason="needs the extra `durable`")
    address = create_database(postgres, folder)
    monkeypatch.setenv("TOOLCHART_LOG", address)

    def submit(message: str, key: str) -> bool:
        return run_cli("submit", "miner.yaml", message, "--dsn", address, "--key", key).code == 0

    def read_rows() -> dict[str, dict[str, Any]]:
        rows = map(json.loads, run_cli("runs", "--json").out.splitlines())
        return {row["conversation"]: row for row in rows}

    def is_parked(deaths: int) -> bool:
        return len(look()) == deaths and "parked" in read_rows().get("p", {})

    with keep_working(folder, address) as look:
        wait_until(look, lambda: submit("poison", "p"))
        assert submit("water", "w")
        wait_until(look, lambda: is_parked(3))
        wait_until(look, lambda: read_rows()["w"]["state"] == "finished")
        assert run_cli("resume", "p", "--spec", "miner.yaml").code == 0
        wait_until(look, lambda: is_parked(4))
        assert run_cli("cancel", "p", "--spec", "miner.yaml").code == 0
        wait_until(look, lambda: read_rows()["p"]["state"] not in ("", read_rows()["w"]["state"], "running"))
        assert submit("water", "last")
        wait_until(look, lambda: read_rows().get("last", {}).get("state") == "finished")
        assert look() == [-signal.SIGKILL] * 4
    assert read_marks(folder).count("poison") == 4
    assert (folder / "worker.txt").read_text().count("is parked: 3 workers in a row") == 2
