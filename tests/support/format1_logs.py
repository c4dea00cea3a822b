"""The committed logs of format 1, and what release 0.1 read in them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import orjson

from toolchart.engine.log.stores.memory import MemoryStore

LOGS = Path(__file__).resolve().parents[1] / "logs"

NAMES = sorted(path.name.split(".")[0] for path in LOGS.glob("*.1.jsonl") if "diverges" not in path.name)
"""Names of the committed logs that release 0.1 replays."""

EXPECTED: dict[str, Any] = json.loads((LOGS / "read_by_release_0.1.json").read_text())
"""By log: the messages, visits, rows, seconds and current states that release 0.1 derived."""


def read_log_lines(name: str) -> list[bytes]:
    """The records of a committed log."""
    return (LOGS / f"{name}.1.jsonl").read_bytes().splitlines()


def make_store(name: str = "tool_loop") -> MemoryStore:
    """A store with a committed log as conversation `c`, and its fork `f` where it is `tool_loop`."""
    store = MemoryStore()
    store.append("c", 0, read_log_lines(name))
    if name == "tool_loop":
        store.append("f", 0, read_log_lines("forks/of_tool_loop"))
    return store


def chain_lines(records: list[dict[str, Any]]) -> list[bytes]:
    """The lines of these records with valid hashes."""
    prev, lines = "0" * 64, []
    for record in records:
        data = {key: value for key, value in record.items() if key != "hash"}
        body = orjson.dumps({**data, "prev": prev}, option=orjson.OPT_SORT_KEYS)
        prev = hashlib.sha256(body).hexdigest()
        lines.append(body[:-1] + b',"hash":"' + prev.encode() + b'"}')
    return lines


def change_chart(name: str, old: str, new: str) -> list[bytes]:
    """A committed log with a changed chart and valid hashes."""
    records = [json.loads(line) for line in read_log_lines(name)]
    assert old in records[0]["event"]["chart"]
    records[0]["event"]["chart"] = records[0]["event"]["chart"].replace(old, new)
    return chain_lines(records)
