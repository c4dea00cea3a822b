"""Benchmark of going on: a conversation of 100,000 records compared with a new one.

    python benchmarks/going_on.py [--records 100000]

The long conversation is written event by event through the core and the journal, in turns of two iterations.
Then the log is opened in a state as after a restart, and the time is measured

- until the next turn can begin (`load_conversation`), which needs no messages;
- until all messages are read, which a model request needs;
- for the same with a conversation of one turn, which is the cost of a new one.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from written_logs import WrittenLog

from toolchart.engine.log.replay import load_conversation
from toolchart.engine.log.stores import open_store

ROUNDS = 7
ITERATIONS = 2


def write_records(address: str, name: str, count: int) -> None:
    """Write a conversation of at least so many records."""
    store = open_store(address, durable=False)
    log = WrittenLog(store, name)
    log.configure()
    while log.journal.next_seq < count:
        log.start_turn()
        for index in range(ITERATIONS):
            log.call_tool(f"c{log.journal.next_seq}_{index}", commit=False)
        asyncio.run(log.journal.commit())
        log.end_turn()
    store.close()


def measure_ms(work: Callable[[], object]) -> float:
    """The median time of a function, in milliseconds."""
    times = []
    for _ in range(ROUNDS):
        start_s = time.perf_counter()
        work()
        times.append((time.perf_counter() - start_s) * 1000)
    return statistics.median(times)


def print_times(address: str) -> None:
    """Print the times of a log."""

    def load(name: str, *, reads_messages: bool = False) -> None:
        store = open_store(address)
        conversation = load_conversation(store, name)
        assert conversation is not None
        assert conversation.snapshot.is_over
        if reads_messages:
            list(conversation.snapshot.messages)
        assert store.read_last_line(name) is not None
        store.close()

    load("short")  # compiles the chart once, as an engine has done before it goes on
    short, long = measure_ms(lambda: load("short")), measure_ms(lambda: load("long"))
    read = measure_ms(lambda: load("long", reads_messages=True))
    print(
        f"one turn {short:6.1f} ms, long {long:6.1f} ms ({long - short:+.1f} ms), "
        f"with all messages {read:7.1f} ms"
    )


def main() -> None:
    """Write and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    records = parser.parse_args().records
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/log.db"
        write_records(address, "short", 10)
        write_records(address, "long", records)
        print_times(address)


if __name__ == "__main__":
    main()
