"""What `stats` costs on a large log: seconds and memory, by the totals of turns and without them.

    python benchmarks/turn_totals.py [RECORDS] [--folder FOLDER]

The log is written once: copies of one conversation of ten turns, with their totals. Each way of reading runs
in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from toolchart.engine import Engine
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.figures import count_turns, read_figures, read_turns
from toolchart.states.ports import RecordBatch

TURNS = 10


def write_log(path: Path, count: int) -> None:
    """A SQLite log with so many records, or a few more."""
    source = MemoryStore()
    call = {"tool_calls": [{"name": "calculator", "arguments": {"expression": "1+1"}}]}
    model = {"provider": "scripted", "model": "m", "replies": [call, "done"] * TURNS}
    spec = {
        "chart": "tool_loop",
        "llms": {"m": model},
        "tools": {"registry": [{"name": "calculator"}]},
        "responses": [{"llm": "m", "tools": {"enabled": True}}],
    }
    with Engine(spec, log=source) as engine:
        for _ in range(TURNS):
            engine.run("go", conversation="c")
    lines, totals = list(source.read_lines("c")), list(source.read_totals("c"))
    store = open_store(str(path), durable=False)
    names = [f"c{number}" for number in range(-(-count // len(lines)))]
    for start in range(0, len(names), 500):
        batches = [RecordBatch(name, 0, lines, totals=totals) for name in names[start : start + 500]]
        assert not any(store.append_many(batches))
    store.close()


def measure(path: Path, way: str) -> None:
    """Print what summing up all turns costs in this process."""
    store = open_store(str(path), create=False)
    read = read_turns if way == "totals" else lambda store, name: read_figures(store, name).turns
    start = time.perf_counter()
    _, total = count_turns(((name, read(store, name)) for name in store.list_conversations()), "day")
    seconds = time.perf_counter() - start
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{way:8} {total.turns:8d} turns {seconds:7.2f} s {mib:6.0f} MiB")
    store.close()


def main() -> None:
    """Write the log where it is not there, and measure both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("records", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--way", choices=["totals", "records"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    path = folder / f"{options.records}.db"
    if options.way:
        measure(path, options.way)
        return
    if not path.exists():
        write_log(path, options.records)
    for way in ("totals", "records"):
        words = [sys.executable, __file__, str(options.records), "--folder", str(folder), "--way", way]
        subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
