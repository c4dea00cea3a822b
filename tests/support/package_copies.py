"""Copies of the package that differ from it, run in processes of their own: other releases, for a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

ROOMS = ("workers", "states", "specs", "tools", "providers", "engine", "testing", "app")
"""The folders of the package."""


def copy_package(folder: Path) -> Path:
    """A copy of the package; the folder for `PYTHONPATH` is its parent."""
    package = folder / "toolchart"
    package.mkdir()
    for room in ROOMS:
        shutil.copytree(ROOT / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("__init__.py", "__main__.py", "late_names.py", "py.typed"):
        shutil.copy(ROOT / file, package / file)
    return package


def change_texts(package: Path) -> None:
    """Give a copy other texts of the core."""
    replace_in_file(package / "states/events.py", "I reached the maximum", "I came to the maximum")
    replace_in_file(package / "states/events.py", "This call was not executed", "Nobody ran this call")


def append_to_module(package: Path, module: str, code: str) -> None:
    """Let a module of a copied package end with more code, which may bind its names anew.

    Whatever stands in the module may change: nothing of its text is named.

    Args:
        module: its name below the package, for instance `states.core.step`.
    """
    path = package / f"{module.replace('.', '/')}.py"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n\n{code}\n")


OTHER_SEMANTICS = "SEMANTICS += 94"
"""Code for the end of `states.core.step`: another number of semantics, however this release counts."""


def replace_in_file(path: Path, old: str, new: str) -> None:
    """Replace a text in a file of a copied package; the text must be there."""
    text = path.read_text("utf-8")
    assert old in text, (path, old)
    path.write_text(text.replace(old, new), "utf-8")


def run_python(folder: Path, log: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of Python with the package in this folder."""
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(folder), "TOOLCHART_LOG": str(log), "COLUMNS": "100"},
        capture_output=True,
        cwd=log.parent,
        timeout=120,
    )
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def run_release(folder: Path, log: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of a command of the package in this folder."""
    return run_python(folder, log, "-c", "from toolchart.app.cli import main; main()", *words)
