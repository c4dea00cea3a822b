"""Writes the committed logs anew: one per shipped chart from the simulator, and one that must not replay.

    PYTHONPATH=tests/support python tests/logs/write.py

Only for a deliberate change of the log's form. Logs that were committed must go on replaying: a new form
gets new files beside them.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conftest  # noqa: F401  makes a checkout importable
from simulation import simulate

from toolchart.engine.log.record import FORMAT, GENESIS
from toolchart.specs.charts import shipped

HERE = Path(__file__).resolve().parent

SEEDS = 600
LONGEST = 40
"""Records of one committed log."""


def kinds(lines: list[bytes]) -> set[str]:
    """What happens in a log: events with their outcomes, and where they led."""
    found = set()
    for line in lines:
        record = orjson.loads(line)
        event = record["event"]
        found.add(event["type"] + event.get("outcome", ""))
        found.add(f"{record['source']} -> {record['target']}")
    return found


def richest() -> dict[str, list[bytes]]:
    """For each chart the log in which most happens."""
    best: dict[str, list[bytes]] = {}
    for seed in range(SEEDS):
        world, lines = simulate(seed)
        chart = world.told[0].split("chart ")[1].split(",")[0]
        if len(lines) <= LONGEST and len(kinds(lines)) > len(kinds(best.get(chart, []))):
            best[chart] = lines
    return best


def diverging(lines: list[bytes]) -> list[bytes]:
    """The log with its chart changed and every hash made right again: it verifies and does not replay."""
    prev, made = GENESIS, []
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
        made.append(body[:-1] + b',"hash":"' + prev.encode() + b'"}')
    return made


def main() -> None:
    """Write the files."""
    logging.disable(logging.CRITICAL)
    logs = richest()
    assert set(logs) == set(shipped())
    logs["diverges"] = diverging(logs["tool_loop"])
    for name, lines in logs.items():
        path = HERE / f"{name}.{FORMAT}.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        print(f"{path.name}: {len(lines)} records")


if __name__ == "__main__":
    main()
