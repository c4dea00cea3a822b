"""Finds the recorded traffic that tests replay: our own corpus, and the large one where it is present.

Our own corpus (`tests/corpus`) is part of the repository. The large one lies beside the repository
(`../shared/recorded`); the tests that need it are skipped where it is absent.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
RECORDED = SHARED / "recorded"
OWN = Path(__file__).resolve().parents[1] / "corpus"

CORPORA = ("own", "recorded") if RECORDED.is_dir() else ("own",)
"""Names of the corpora that are present: `own` always, `recorded` for the large one."""

needs_recorded = pytest.mark.skipif(
    not RECORDED.is_dir(), reason="the recorded traffic (../shared/recorded) is not here"
)


def get_root(corpus: str) -> Path:
    """The folder of a corpus."""
    return {"own": OWN, "recorded": RECORDED}[corpus]


def read_index(corpus: str | None = None) -> list[dict[str, Any]]:
    """One entry per file of a corpus, as its index lists them; without a name, of all that are present.

    The index of a corpus that is not here is empty.
    """
    names = [name for name in CORPORA if corpus in (None, name)]
    return [
        json.loads(line)
        for name in names
        for line in (get_root(name) / "INDEX.jsonl").read_text("utf-8").splitlines()
        if line.strip()
    ]


def list_cassette_paths(corpus: str | None = None) -> list[str]:
    """The paths of the cassettes of a corpus; without a name, of all that are present."""
    return [entry["file"] for entry in read_index(corpus) if entry["kind"] == "cassette"]


def list_streamed_cassettes(corpus: str) -> list[str]:
    """The cassettes of a corpus that have streams."""
    return [
        entry["file"]
        for entry in read_index(corpus)
        if entry["kind"] == "cassette" and {"sse", "ndjson"} & set(entry.get("features", ()))
    ]


def find_recording(path: str) -> Path:
    """The file with that path in the index of a corpus. No path is in both."""
    return next(file for name in CORPORA if (file := get_root(name) / path).exists())


def read_expectations() -> dict[str, list[dict[str, Any]]]:
    """The content that a reader must find in each exchange of our own cassettes, by cassette."""
    expectations: dict[str, list[dict[str, Any]]] = {}
    for line in (OWN / "EXPECTED.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        expectations.setdefault(row["file"], []).append(row)
    return expectations


def load_cassette_server() -> ModuleType:
    """The module beside the large corpus that reads and serves cassettes without our own reader."""
    spec = importlib.util.spec_from_file_location("serve_cassettes", SHARED / "serve_cassettes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
