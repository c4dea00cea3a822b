"""Commands that share a log with other workers: `recover`, `cancel`, signals, `--durability`, full disks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime import engine as engine_module

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
