"""Runs `toolchart batch --economy` in a process that is killed, against a batch host of this process.

Some calls expire, and some are missing in the results. At the end each input has one answer at half
the price, no call was charged twice, and every conversation replays with equal bodies and answers.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from batch_host import BatchHost, Fate, build_answer
from killed_batch import run_to_the_end, start_batch

from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import verify_store
from toolchart.engine.runtime.wire_replay import WireComparison
from toolchart.specs.loader import load_spec
from toolchart.states.errors import LogDamaged

HALF_PRICE = (100 * 10.0 + 10 * 100.0) / 1_000_000 / 2
"""Half of what 100 tokens in and 10 out cost by the table below."""


def write_agent(folder: Path, host: BatchHost, provider: str, count: int) -> None:
    """Write an agent and its inputs into a folder."""
    entry: dict[str, Any] = {"provider": provider, "base_url": host.url, "model": "claude-haiku-4-5"}
    if provider == "openai":
        entry |= {"base_url": f"{host.url}/v1", "model": "gpt-4.1-mini", "batches": True}
    entry |= {"api_key": "k-123456789", "batch_gather_s": 0.1, "batch_poll_s": 0.1}
    spec = {
        "llms": {"m": entry},
        "responses": [{"llm": "m", "prompt": "p", "max_tokens": 20}],
        "prices": {"models": {"*": {"input": 10.0, "output": 100.0}}},
        "log_answers": True,
        "lease_s": 2,
    }
    (folder / "agent.yaml").write_text(json.dumps(spec), "utf-8")
    rows = [json.dumps({"key": f"k{number}", "message": f"question {number}"}) for number in range(count)]
    (folder / "inputs.jsonl").write_text("\n".join(rows) + "\n", "utf-8")


def choose_fate(path: str, body: Mapping[str, Any], seen: int) -> Fate:
    """One call in ten expires in its first job, and one has no line there."""
    place = sha256(json.dumps(body, sort_keys=True).encode()).digest()[0] % 10
    fates: dict[int, Fate] = {0: "expired", 1: "missing"}
    return "answered" if seen else fates.get(place, "answered")


def answer_question(path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Answer `question N` with `answer N`."""
    number = json.dumps(body).rpartition("question ")[2].partition('"')[0]
    return 200, build_answer(path, body, f"answer {number}")


def kill_when(folder: Path, is_time: Callable[[], bool], limit_s: float = 120.0) -> bool:
    """Run the batch until something is seen, and kill it; whether it was still running."""
    process = start_batch(folder, "--economy")
    until = time.monotonic() + limit_s
    while not is_time() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    was_running = process.poll() is None
    process.kill()
    process.communicate()
    time.sleep(2.2)  # its leases
    return was_running


def kill_and_finish(folder: Path, provider: str, count: int, kills: int, seed: int = 1) -> dict[str, Any]:
    """Kill the batch at chosen places, let it end, and check everything; the report."""
    chance = random.Random(seed)
    with BatchHost(answer_question, choose_fate=choose_fate, looks=4) as host:
        write_agent(folder, host, provider, count)
        killed = 0
        for number in range(kills):
            jobs, looks = len(host.jobs), chance.randrange(3)
            if number % 2 == 0:  # a job was just created, and perhaps nobody knows its id

                def is_time(jobs: int = jobs) -> bool:
                    return len(host.jobs) > jobs

            else:  # its answers are being handed out

                def is_time(jobs: int = jobs, looks: int = looks) -> bool:
                    return sum(job["looks"] for job in host.jobs.values()) > 4 * jobs + looks

            killed += kill_when(folder, is_time)
        report = run_to_the_end(folder, "--economy")
        check_everything(folder, host, count)
        return {**report, "kills": killed, "jobs": len(host.jobs), "charged": host.answered}


def check_everything(folder: Path, host: BatchHost, count: int) -> None:
    """Each input was answered once, at half the price, and charged once; the log is whole and replays."""
    results = [json.loads(line) for line in (folder / "results.jsonl").read_text("utf-8").splitlines()]
    assert Counter(result["key"] for result in results) == {f"k{number}": 1 for number in range(count)}
    for result in results:
        assert result["ok"], result
        assert result["content"] == f"answer {result['key'][1:]}"
        assert abs(result["usage"]["cost"] - HALF_PRICE) < 1e-9
    assert host.answered == count
    spec = load_spec(folder / "agent.yaml")
    store = open_store(folder / ".toolchart" / "log.db", create=False)
    try:
        names = list(store.list_conversations())
        assert sorted(names) == sorted(f"inputs:k{number}" for number in range(count))
        comparison = WireComparison(spec)
        for name in names:
            events = Counter(json.loads(line)["event"]["type"] for line in store.read_lines(name))
            assert (events["turn_started"], events["replied"]) == (1, 1), name
            for _ in comparison.compare_steps(replay_conversation(store, name)):
                pass
        assert (comparison.bodies, comparison.answers) == (count, count)
        assert not [one for one in verify_store(store) if isinstance(one, LogDamaged)]
    finally:
        store.close()
