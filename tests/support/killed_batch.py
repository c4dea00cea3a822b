"""Runs a batch in a process that is killed several times, and checks that each input is answered once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import verify_store
from toolchart.states.errors import LogDamaged

AGENT = """\
llms: {m: {provider: scripted, model: m, rules: [{match: '(?P<n>.*)', reply: 'answer to {n}'}]}}
responses: [{llm: m, prompt: p}]
"""


def write_batch(folder: Path, count: int) -> None:
    """Write an agent and its inputs into a folder."""
    (folder / "agent.yaml").write_text(AGENT, "utf-8")
    rows = [json.dumps({"key": f"k{number}", "message": f"question {number}"}) for number in range(count)]
    (folder / "inputs.jsonl").write_text("\n".join(rows) + "\n", "utf-8")


def start_batch(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start the batch in a process of its own."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r}); import conftest\n"
        "from toolchart.app.cli import main; main()"
    )
    words = ["batch", "agent.yaml", "inputs.jsonl", "--output", "results.jsonl", "--json", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code, *words], cwd=folder, stdout=pipe, stderr=pipe)


def count_lines(folder: Path) -> int:
    """Lines in the results file so far."""
    path = folder / "results.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_after(folder: Path, lines: int, limit_s: float = 120.0) -> None:
    """Run the batch until its results have so many lines, and kill it."""
    process = start_batch(folder)
    until = time.monotonic() + limit_s
    while count_lines(folder) < lines and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def run_to_the_end(folder: Path, *options: str) -> dict[str, Any]:
    """Run the batch until it ends; its report."""
    out, err = start_batch(folder, *options).communicate(timeout=600)
    assert out, err.decode()
    report: dict[str, Any] = json.loads(out)
    return report


def check_answers(folder: Path, count: int) -> None:
    """Each input has one result, one conversation and one turn, and the log is whole."""
    results = [json.loads(line) for line in (folder / "results.jsonl").read_text("utf-8").splitlines()]
    assert Counter(result["key"] for result in results) == {f"k{number}": 1 for number in range(count)}
    for result in results:
        assert result["ok"], result
        assert result["content"] == f"answer to question {result['key'][1:]}"
    store = open_store(folder / ".toolchart" / "log.db", create=False)
    try:
        names = list(store.list_conversations())
        assert sorted(names) == sorted(f"inputs:k{number}" for number in range(count))
        for name in names:
            events = Counter(json.loads(line)["event"]["type"] for line in store.read_lines(name))
            assert events["turn_started"] == 1, name
        assert not [one for one in verify_store(store) if isinstance(one, LogDamaged)]
    finally:
        store.close()


def kill_and_finish(folder: Path, count: int, kills: int, seed: int = 1) -> dict[str, Any]:
    """Kill a batch at chosen places, let it end, and check every answer; the last report."""
    write_batch(folder, count)
    chance = random.Random(seed)
    for number in range(kills):
        kill_after(folder, int(count * (number + chance.random()) / (kills + 1)) + 1)
    report = run_to_the_end(folder)
    check_answers(folder, count)
    return report
