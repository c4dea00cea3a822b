"""Golden logs as files: one text file for each scenario, with all that it leaves.

{"conversation":"c"}                        the lines that follow belong to it
{"seq":0,...}                               its records, byte for byte
{"checkpoint":7,"sha256":"..."}             a checkpoint, by its digest
{"checkpoint":7,"data":"..."}               or whole, where the scenario is about checkpoints
{"seals":[4]}                               what a scenario notes beside its log
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from golden_scenarios import World, run_scenario

from toolchart.engine.log.stores.memory import MemoryStore

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "logs"


def encode_world(world: World) -> bytes:
    """The file of a world after its scenario."""
    return b"".join(line + b"\n" for line in _encode_lines(world))


def _encode_lines(world: World) -> Iterator[bytes]:
    for conversation in world.store.list_conversations():
        yield json.dumps({"conversation": conversation}, separators=(",", ":")).encode()
        yield from world.store.read_lines(conversation)
        for seq, data in sorted(world.store.read_checkpoints(conversation)):
            digest = {"sha256": hashlib.sha256(data).hexdigest()}
            content = {"data": data.decode()} if world.keeps_checkpoints else digest
            yield json.dumps({"checkpoint": seq, **content}, separators=(",", ":")).encode()
    if world.notes:
        yield json.dumps({"seals": world.notes}, separators=(",", ":")).encode()


@cache
def write_scenario(name: str) -> bytes:
    """The file of a scenario as this program writes it; each runs once in a process."""
    return encode_world(run_scenario(name))


def list_golden_logs() -> list[str]:
    """The names of the committed golden logs."""
    return sorted(path.name.removesuffix(".jsonl") for path in FOLDER.glob("*.jsonl"))


def read_golden_log(name: str) -> bytes:
    """The file of a golden log."""
    return (FOLDER / f"{name}.jsonl").read_bytes()


def split_conversations(data: bytes) -> dict[str, list[bytes]]:
    """The records of each conversation in the file of a golden log."""
    conversations: dict[str, list[bytes]] = {}
    lines: list[bytes] = []
    for line in data.splitlines():
        if line.startswith(b'{"conversation":'):
            lines = conversations.setdefault(json.loads(line)["conversation"], [])
        elif line.startswith(b'{"seq":'):
            lines.append(line)
    return conversations


def load_golden_store(conversations: dict[str, list[bytes]]) -> MemoryStore:
    """A store with these conversations, and without checkpoints."""
    store = MemoryStore()
    for name, lines in conversations.items():
        store.append(name, 0, lines)
    return store


def list_changed_keys(before: bytes, now: bytes) -> list[str]:
    """The keys of records, and of events, whose values differ; the chain alone is left out."""
    lines, new_lines = before.splitlines(), now.splitlines()
    if len(lines) != len(new_lines):
        return [f"{len(new_lines)} lines in place of {len(lines)}"]
    keys: set[str] = set()
    for line, new_line in zip(lines, new_lines, strict=True):
        record, new_record = json.loads(line), json.loads(new_line)
        keys |= {key for key in record | new_record if record.get(key) != new_record.get(key)}
        if "event" in record and "event" in new_record:
            event, new_event = record["event"], new_record["event"]
            keys |= {f"event/{key}" for key in event | new_event if event.get(key) != new_event.get(key)}
    return sorted(keys - {"prev", "hash", "event", "event/head"})


def describe_first_difference(golden: bytes, now: bytes) -> str:
    """Where the file of a scenario first differs from its golden log, for the message of a test."""
    golden_lines, now_lines = golden.splitlines(), now.splitlines()
    for number, (expected, actual) in enumerate(zip(golden_lines, now_lines, strict=False), 1):
        if expected != actual:
            return f"line {number}: {_describe_line_difference(expected, actual)}"
    return f"{len(now_lines)} lines in place of {len(golden_lines)}"


def _describe_line_difference(expected: bytes, actual: bytes) -> str:
    before, now = json.loads(expected), json.loads(actual)
    for key in [*before, *(key for key in now if key not in before)]:
        if before.get(key) != now.get(key):
            return f"{key!r} is {_cut(now.get(key))} in place of {_cut(before.get(key))} in {_cut(before)}"
    return f"the bytes differ, the values do not:\n{expected[:2000]!r}\n{actual[:2000]!r}"


def _cut(value: Any) -> str:
    return json.dumps(value)[:600]
