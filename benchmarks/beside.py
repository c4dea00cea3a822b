"""Runs the measurements of a benchmark in processes of their own, beside another tree, by turns."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def make_parser(document: str | None) -> argparse.ArgumentParser:
    """A parser with the options of all comparisons."""
    parser = argparse.ArgumentParser(description=(document or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="the root folder of another checkout")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    return parser


def list_trees(beside: Path | None) -> list[Path]:
    """This tree, and the other one where there is one."""
    return [ROOT, *([beside.resolve()] if beside else [])]


def run_apart(
    script: str, tree: Path, name: str, wrapper: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a measurement of a script with the package of a tree, in a process of its own.

    Args:
        wrapper: a program that runs it, with its options.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree / ".typing"), "PYTHONHASHSEED": "0"}
    command = [*wrapper, sys.executable, str(Path(script).resolve()), "--run", name]
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    if process.returncode:
        sys.exit(process.stderr)
    return process


def measure_medians(script: str, names: Sequence[str], options: argparse.Namespace) -> dict[str, float]:
    """Measure the names in rounds, one after the other and the trees by turns, and print the medians.

    Returns:
        The medians of this tree, by name.
    """
    trees = list_trees(options.beside)
    width = max(map(len, names)) + 2
    print(" " * width + "".join(f"{name:>12}" for name in ("this tree", "beside")[: len(trees)]))
    rounds = [
        {name: [float(run_apart(script, tree, name).stdout) for tree in trees] for name in names}
        for _ in range(options.rounds)
    ]
    medians = {
        name: [statistics.median(costs) for costs in zip(*(costs[name] for costs in rounds), strict=True)]
        for name in names
    }
    for name, costs in medians.items():
        print(f"{name:{width}}" + "".join(f"{cost:>12.3f}" for cost in costs))
    return {name: costs[0] for name, costs in medians.items()}


Measurement = Callable[[], float]
