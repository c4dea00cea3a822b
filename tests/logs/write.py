"""Writes the committed logs: one per shipped chart from the simulator, and one that must not replay.

    PYTHONPATH=tests/support python tests/logs/write.py

Run it only after a deliberate change of the log format. Committed logs must still replay then: a new
format gets new files beside them.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conftest  # noqa: F401  makes a checkout importable
from simulation import run_simulation

from toolchart.engine.log.record import FORMAT, GENESIS
from toolchart.specs.charts import list_shipped_charts

HERE = Path(__file__).resolve().parent

SEEDS = 600
MAX_RECORDS = 40
"""Maximum number of records of a committed log."""


def list_features(lines: list[bytes]) -> set[str]:
    """The events with their outcomes, and the transitions of a log."""
    features = set()
    for line in lines:
        record = orjson.loads(line)
        event = record["event"]
        features.add(event["type"] + event.get("outcome", ""))
        features.add(f"{record['source']} -> {record['target']}")
    return features


def find_richest_logs() -> dict[str, list[bytes]]:
    """For each chart the log with the most features."""
    best: dict[str, list[bytes]] = {}
    for seed in range(SEEDS):
        world, lines = run_simulation(seed)
        chart = world.story[0].split("chart ")[1].split(",")[0]
        if len(lines) <= MAX_RECORDS and len(list_features(lines)) > len(list_features(best.get(chart, []))):
            best[chart] = lines
    return best


def change_chart(lines: list[bytes]) -> list[bytes]:
    """The log with a changed chart and valid hashes: it verifies and does not replay."""
    prev, changed_lines = GENESIS, []
    for line in lines:
        data = orjson.loads(line)
        del data["hash"]
        if "chart" in data["event"]:
            data["event"]["chart"] = data["event"]["chart"].replace(
                "iteration >= max_iterations", "iteration > max_iterations"
            )
        data["prev"] = prev
        body = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
        prev = hashlib.sha256(body).hexdigest()
        changed_lines.append(body[:-1] + b',"hash":"' + prev.encode() + b'"}')
    return changed_lines


def main() -> None:
    """Write all files."""
    logging.disable(logging.CRITICAL)
    logs = find_richest_logs()
    assert set(logs) == set(list_shipped_charts())
    logs["diverges"] = change_chart(logs["tool_loop"])
    for name, lines in logs.items():
        path = HERE / f"{name}.{FORMAT}.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        print(f"{path.name}: {len(lines)} records")


if __name__ == "__main__":
    main()
