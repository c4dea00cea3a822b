"""Benchmark of `rerun`: a thousand recorded turns run again offline, beside reading them.

    python benchmarks/rerun.py [--turns 1000]

The turns have two model calls and two tool calls each, four turns to a conversation, in one SQLite file. The
floor is reading and replaying every record of the same file. The gate is 10 seconds for 1,000 turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import agents

from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.rerun.campaign import rerun

TURNS_OF_A_CONVERSATION = 4
GATE_S = 10.0


def write_log(path: Path, turns: int) -> None:
    """Write a log with so many turns."""
    store = open_store(str(path), durable=False)
    for number in range(turns // TURNS_OF_A_CONVERSATION):
        replies = [
            reply
            for turn in range(TURNS_OF_A_CONVERSATION)
            for reply in (
                agents.reply_with_calls(
                    ("echo", {"text": f"{number} {turn}"}), ("weather", {"city": f"city {turn}"})
                ),
                f"Answer {turn} of {number}.",
            )
        ]
        with agents.make_engine(replies, log=store) as engine:
            for turn in range(TURNS_OF_A_CONVERSATION):
                engine.run(f"question {turn}", conversation=f"c{number}")
    store.close()


def main() -> None:
    """Print both times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=1000)
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        write_log(path, turns)
        store = open_store(str(path))
        start_s = time.perf_counter()
        records = sum(1 for name in store.list_conversations() for _ in replay_conversation(store, name))
        floor_s = time.perf_counter() - start_s
        start_s = time.perf_counter()
        report = rerun(store, offline=True)
        rerun_s = time.perf_counter() - start_s
        store.close()
    assert report.totals.statuses["same"] == report.totals.conversations, report.totals
    print(
        f"{report.totals.turns} turns, {records} records: rerun {rerun_s:.2f} s, replay {floor_s:.2f} s "
        f"({rerun_s / floor_s:.1f} times), gate {GATE_S * turns / 1000:.1f} s"
    )


if __name__ == "__main__":
    main()
