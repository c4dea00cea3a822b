"""Writes seal journals as an operator would with a shell."""

from __future__ import annotations

from pathlib import Path


def append_seal(path: Path, line: bytes) -> None:
    """Append a line to a journal file."""
    with path.open("ab") as file:
        file.write(line + b"\n")
