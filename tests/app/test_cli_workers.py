"""Commands that share a log with other workers: `recover`, `cancel`, signals, `--durability`, full disks."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import START
from worker_names import ALIVE

from toolchart.app.cli.exit_codes import CANCELLED
from toolchart.engine import Engine
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime import engine as engine_module
from toolchart.testing.clock import TurnableClock

RunCli = Callable[..., Any]

AGENT = """
chart:
  name: waits
  states:
    resting:
      initial: true
      enter: ask
      after: {24h: expired}
      transitions: [{event: answered, target: done}, {event: cancelled, target: stopped}]
    done: {final: true, enter: say_done}
    expired: {final: true, enter: say_expired}
    stopped: {final: true, enter: answer_with_error}
effects:
  ask: {ask_person: {question: "Go?", as: verdict, form: {type: object, properties: {go: {type: boolean}}}}}
  say_done: {answer: done}
  say_expired: {answer: nobody answered}
llms: {model: {provider: scripted, model: m, replies: [unused]}}
responses: [{llm: model}]
"""


# -- durability --------------------------------------------------------------------------------------


def test_every_writing_command_takes_the_durability_of_the_agent(
    run_cli: RunCli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run`, `resume`, `approve`, `cancel`, `fork`, `migrate` and `batch` write as the spec says, or as
    `--durability` says."""
    opened: list[bool] = []

    def open_and_note(address: Any, **options: Any) -> Any:
        opened.append(options["durable"])
        return open_store(address, **options)

    monkeypatch.setattr(engine_module, "open_store", open_and_note)
    (work_dir / "agent.yaml").write_text(AGENT + "durability: normal\n", "utf-8")
    (work_dir / "inputs.jsonl").write_text('"go"\n', "utf-8")
    run_cli("run", "agent.yaml", "go", "--conversation", "c")
    spec = ("--spec", "agent.yaml")
    for words in (
        ("resume", "c", *spec),
        ("migrate", "c", *spec),
        ("fork", "c", *spec, "--name", "f"),
        ("cancel", "c", *spec),
        ("batch", "agent.yaml", "inputs.jsonl"),
    ):
        opened.clear()
        normal, full = run_cli(*words), run_cli(*words, "--durability", "full")
        assert opened[:1] == [False], (words, normal.err)
        assert opened[-1:] == [True], (words, full.err)
    run_cli("run", "careful", "delete a.txt", "--conversation", "d")
    call = open_store(None).read_last_line("d")
    assert call is not None
    opened.clear()
    call_id = json.loads(run_cli("resume", "d", "--json").out)["pending_approvals"][0]["id"]
    assert run_cli("approve", "d", call_id, "--deny", "--durability", "normal").code == 0
    assert opened == [True, False]


# -- turns of others ---------------------------------------------------------------------------------


def test_recover_lets_timers_run_out(run_cli: RunCli, work_dir: Path) -> None:
    """`recover` fires a timer whose time has come, leaves one that runs, and has nothing to do then."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    with Engine("agent.yaml", log="log.db", clock=TurnableClock("2026-01-04T09:00:00Z")) as engine:
        engine.run("go", conversation="overdue")
    run_cli("run", "agent.yaml", "go", "--conversation", "waits", "--log", "log.db")
    first = run_cli("recover", "agent.yaml", "--json", "--log", "log.db")
    row = {"conversation": "overdue", "state": "expired", "error": None}
    assert (first.code, json.loads(first.out)) == (0, row)
    assert run_cli("recover", "agent.yaml", "--log", "log.db").out == ""


def test_cancel_ends_a_turn_that_rests_and_tells_a_worker(run_cli: RunCli, work_dir: Path) -> None:
    """`cancel` ends a turn that nobody works on. Of another one `runs` shows the worker, and an entry waits
    in its inbox."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    words = ("--spec", "agent.yaml", "--log", "log.db", "--reason", "asked twice")
    for name in ("rests", "held"):
        run_cli("run", "agent.yaml", "go", "--conversation", name, "--log", "log.db")
    result = run_cli("cancel", "rests", *words)
    assert (result.code, result.out) == (0, "rests: stopped\n")
    assert "asked twice" in run_cli("show", "rests", "--json", "--log", "log.db").out
    store: Any = open_store("log.db")
    store.acquire_lease("held", ALIVE, 600)
    assert " since " in run_cli("runs", "--log", "log.db").out, "it shows who works on a conversation"
    result = run_cli("cancel", "held", *words)
    assert (result.code, "is told to stop" in result.err) == (0, True)
    (entry,) = store.read_inbox(["held"])
    assert b"asked twice" in entry.data
    store.close()


# -- signals -----------------------------------------------------------------------------------------

CALL = "- {tool_calls: [{name: pay, arguments: {}}]}"

SLOW = f"""
chart: tool_loop
llms:
  model:
    provider: scripted
    model: m
    replies:
      {CALL}
      - paid
tools:
  enabled: true
  registry:
    - name: pay
      parameters: {{type: object, properties: {{}}}}
      implementation: {{type: python, handler: "payments:pay"}}
responses: [{{llm: model, tools: {{enabled: true}}}}]
"""

PAYMENTS = """
import pathlib, time

def pay() -> str:
    "Pay."
    with open("marks", "a") as marks:
        marks.write("paid\\n")
    while not pathlib.Path("may_end").exists():
        time.sleep(0.01)
    return "done"
"""


def test_a_signal_lets_a_call_end_and_gives_the_turn_back(run_cli: RunCli, work_dir: Path) -> None:
    """SIGTERM during `run`: the running call ends and is recorded, the model is not asked again, and
    `recover` ends the turn without repeating the call."""
    (work_dir / "agent.yaml").write_text(SLOW, "utf-8")
    (work_dir / "payments.py").write_text(PAYMENTS, "utf-8")
    words = ["run", "agent.yaml", "go", "--conversation", "c", "--log", "log.db"]
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words], cwd=work_dir, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        while not (work_dir / "marks").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert "SIGTERM" in process.stderr.readline()
        (work_dir / "may_end").touch()
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == CANCELLED, errors
    assert "resume c" in errors
    (work_dir / "agent.yaml").write_text(SLOW.replace(CALL, ""), "utf-8")  # the script begins anew
    assert run_cli("recover", "agent.yaml", "--log", "log.db").out == "c: finished\n"
    assert (work_dir / "marks").read_text("utf-8") == "paid\n"


# -- files -------------------------------------------------------------------------------------------


def run_limited(words: list[str], cwd: Path, size: int) -> Any:
    """Run the command line in a process whose files may not grow beyond a size."""

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [sys.executable, "-c", START, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        # Python would cut the bytecode of modules too, and other processes would read it.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=limit_files,
    )


def test_a_full_disk_ends_with_70(run_cli: RunCli, work_dir: Path) -> None:
    """A disk that is full ends a command with exit code 70 and one message; what was written is intact."""
    log = "log.db"
    run_cli("run", "quickstart", "2+2", "--conversation", "c", "--log", log)
    result = run_limited(["run", "quickstart", "3+3", "--conversation", "d", "--log", log], work_dir, 40_000)
    assert result.returncode == 70, result.stderr
    assert "Traceback" not in result.stderr
    assert "cannot be" in result.stderr
    assert run_cli("verify", "c", "--log", log).code == 0


def test_a_log_is_readable_for_its_owner_only(run_cli: RunCli, work_dir: Path) -> None:
    """Files that a log creates have mode 0600 and folders 0700, whatever the mask; long ids work alike."""
    log, mask = "private/log.db", os.umask(0)
    try:
        for name in ("c", "x" * 300):
            assert run_cli("run", "quickstart", "2+2", "--conversation", name, "--log", log).code == 0
    finally:
        os.umask(mask)
    places = [work_dir / "private", *(work_dir / "private").rglob("*")]
    for place in places:
        assert stat.S_IMODE(place.stat().st_mode) == (0o700 if place.is_dir() else 0o600), place
    rows = run_cli("runs", "--json", "--log", log).out.splitlines()
    assert {json.loads(row)["conversation"] for row in rows} == {"c", "x" * 300}
    assert run_cli("verify", "--log", log).code == 0
