"""Counts what a turn costs, and compares with the committed table: `python tests/counts/gate.py [COUNT ...]`.

A count says the same on a busy machine as on a quiet one. Each is measured on a path as users write it (see
`workload.py`), in a process of its own. The gate exits with 1 where a count is above the table by more than
its margin; that needs a reason in the commit that changes the table. It also does where a count is below by
more, so that what was won stays won. `--write` writes the table anew, with the counts of this tree. `--worse`
seeds a regression of each count: then the gate must fail for each.

Instructions are counted by Valgrind and given as a ratio to a plain loop with four SQLite commits (the floor
of `benchmarks/loop.py`), because another build of Python has other instructions for both. Syncs are counted
by a small library in C. The gate needs `valgrind` and `cc`, and exits with 2 without them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

FOLDER = Path(__file__).resolve().parent
TABLE = FOLDER / "table.json"


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the gate: what is counted, and how far it may be from the table."""

    name: str
    unit: str
    sizes: tuple[int, ...]
    """The sizes of the work; with two, the difference for one more is counted."""
    margin_percent: float
    divisor: float = 1
    command: Callable[[str, int, bool], float]


def run_workload(name: str, size: int, is_worse: bool) -> float:
    """What the workload prints."""
    return float(_run([sys.executable, *_list_words(name, size, is_worse)]).stdout)


def count_instructions(name: str, size: int, is_worse: bool) -> float:
    """The instructions of the whole process, of two runs the smaller number: what else the machine does, or a
    file that is compiled once, can only add to them."""
    return min(_count_instructions_once(name, size, is_worse) for _ in range(2))


def _count_instructions_once(name: str, size: int, is_worse: bool) -> float:
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    process = _run([*tool, sys.executable, *_list_words(name, size, is_worse)], PYTHONHASHSEED="0")
    match = re.search(r"I\s+refs:\s+([\d,]+)", process.stderr)
    assert match is not None, process.stderr
    return float(match[1].replace(",", ""))


def count_syncs(name: str, size: int, is_worse: bool) -> float:
    """The calls of fsync and fdatasync of the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        library, result = f"{folder}/syncs.so", f"{folder}/syncs"
        _run(["cc", "-shared", "-fPIC", "-o", library, str(FOLDER / "syncs.c"), "-ldl"])
        _run([sys.executable, *_list_words(name, size, is_worse)], LD_PRELOAD=library, SYNCS=result)
        return float(Path(result).read_text())


def _list_words(name: str, size: int, is_worse: bool) -> list[str]:
    return [str(FOLDER / "workload.py"), name, str(size), *(["--worse"] if is_worse else [])]


def _run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    process = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if process.returncode:
        sys.exit(f"{' '.join(command)}\n{process.stdout}{process.stderr}")
    return process


COUNTS = (
    Count(
        name="instructions",
        unit="times the plain loop, an iteration",
        sizes=(30, 80),
        # The log's writer thread takes part, so a busy machine counts a few percent otherwise.
        margin_percent=8,
        command=count_instructions,
    ),
    Count(
        name="calls",
        unit="calls of Python functions, an iteration",
        sizes=(1, 3),
        margin_percent=1,
        command=run_workload,
    ),
    Count(
        name="bytes",
        unit="bytes of records, an iteration",
        sizes=(20, 40),
        margin_percent=0.5,
        command=run_workload,
    ),
    Count(name="syncs", unit="fsyncs, an iteration", sizes=(5, 15), margin_percent=0, command=count_syncs),
    Count(
        name="connections",
        unit="connections of six turns, whole and streamed by turns",
        sizes=(6,),
        margin_percent=0,
        command=run_workload,
    ),
    Count(
        name="memory",
        unit="KiB an idle conversation",
        sizes=(60, 160),
        margin_percent=8,
        divisor=1024,
        command=run_workload,
    ),
    Count(
        name="modules",
        unit="modules of the package that a quickstart imports",
        sizes=(1,),
        margin_percent=1,
        command=run_workload,
    ),
    Count(
        name="other modules",
        unit="other modules that a quickstart imports",
        sizes=(1,),
        margin_percent=6,
        command=run_workload,
    ),
)


def measure(count: Count, is_worse: bool = False) -> float:
    """One count: of the work itself, or of one more of what its size says."""
    if count.name == "instructions":
        plain = _measure_growth(count, "floor", False)
        return round(_measure_growth(count, count.name, is_worse) / plain, 2)
    return round(_measure_growth(count, count.name, is_worse) / count.divisor, 2)


def _measure_growth(count: Count, name: str, is_worse: bool) -> float:
    values = [count.command(name, size, is_worse) for size in count.sizes]
    if len(values) == 1:
        return values[0]
    return (values[1] - values[0]) / (count.sizes[1] - count.sizes[0])


def judge(count: Count, value: float, committed: float | None) -> str:
    """What is wrong with a count; empty where nothing is."""
    if committed is None:
        return "the table has no such row: --write adds it"
    margin = committed * count.margin_percent / 100
    if value > committed + margin:
        return "more than the table: make it cheaper, or change the table and say why in the commit"
    if value < committed - margin:
        return "less than the table: lower the table (--write), so that it stays so"
    return ""


def main() -> int:
    """Count, print, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("counts", nargs="*", metavar="COUNT", help=", ".join(count.name for count in COUNTS))
    parser.add_argument("--write", action="store_true", help="write the table anew")
    parser.add_argument("--worse", action="store_true", help="seed a regression of each count")
    options = parser.parse_args()
    unknown = set(options.counts) - {count.name for count in COUNTS}
    if unknown:
        parser.error(f"unknown counts: {', '.join(sorted(unknown))}")
    for tool in ("valgrind", "cc"):
        if shutil.which(tool) is None:
            parser.error(f"{tool} is missing: apt-get install valgrind gcc")
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    problems = 0
    for count in COUNTS:
        if options.counts and count.name not in options.counts:
            continue
        value, committed = measure(count, options.worse), table.get(count.name)
        fault = judge(count, value, committed)
        problems += bool(fault)
        table[count.name] = value
        print(f"{count.name:14} {value:10,.2f} {count.unit}; table {committed}. {fault}", flush=True)
    if options.write:
        TABLE.write_text(json.dumps(table, indent=2) + "\n")
        return 0
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
