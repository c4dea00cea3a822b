"""docs/providers.md is correct: its examples are `llms` entries, and each table row names a source."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from toolchart.providers.hosts import HOSTS
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig

ROOT = Path(__file__).resolve().parents[2]
DOC = (ROOT / "docs" / "providers.md").read_text("utf-8")


def list_host_rows() -> list[list[str]]:
    """The cells of each row in the tables of what hosts do differently; other tables have other columns."""
    rows, is_host_table = [], False
    for previous, line in pairwise(["", *DOC.splitlines()]):
        if line.startswith("| ") and not previous.startswith("|"):
            is_host_table = line.startswith("| provider")
        elif line.startswith("| ") and is_host_table and "---" not in line:
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


ROWS = list_host_rows()


def test_the_examples_are_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry of the example creates its provider, without a request to a host."""
    for name in ("OPENAI", "AZURE_OPENAI", "GEMINI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "x")
    (example,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
    entries = yaml.safe_load(example)["llms"]
    for entry in entries.values():
        wire = {"azure": "openai"}.get(entry["provider"], entry["provider"])
        assert create_provider(LLMConfig(**entry), resolve=str).name == wire
    remote_hosts = {row.name for row in HOSTS.builtin_rows if row.needs_network}
    assert {entry["provider"] for entry in entries.values()} == remote_hosts


def test_every_row_has_its_source() -> None:
    """Each table row has four cells (provider, behaviour, what Toolchart does, source), none empty."""
    assert len(ROWS) > 40
    for row in ROWS:
        assert len(row) == 4, row
        assert all(row), row


def test_files_that_are_named_are_there() -> None:
    """Every repository path in the text exists."""
    paths = re.findall(r"`((?:providers|states|tests|docs)/[\w/.]+\.(?:py|md))`", DOC)
    assert len(paths) > 4
    for path in paths:
        if not path.startswith("docs/api/"):  # of a server's own repository
            assert (ROOT / path).is_file(), path
