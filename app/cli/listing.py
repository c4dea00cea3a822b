"""Lists agents and charts: those that ship, and the files of the present folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.text import escape_controls
from toolchart.specs.charts import list_shipped_charts, read_shipped_chart
from toolchart.specs.document_files import read_document, read_text
from toolchart.specs.loader import list_shipped_agents, read_shipped_agent
from toolchart.states.errors import SpecError


class ListedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One agent or chart."""

    name: str
    """Its name, as commands take it: that of a shipped one, or a path."""
    kind: str
    """`agent` or `chart`."""
    summary: str
    """The first sentence of its first comment."""
    is_shipped: bool


def list_files() -> Iterator[ListedFile]:
    """The agents that ship and the files of this folder that have `llms`; then the charts that ship and the
    files that have `states`."""
    for kind, key, names, read in (
        ("agent", "llms", list_shipped_agents(), read_shipped_agent),
        ("chart", "states", list_shipped_charts(), read_shipped_chart),
    ):
        for name in names:
            yield ListedFile(name=name, kind=kind, summary=_read_summary(read(name)), is_shipped=True)
        for path in _list_own_files(key):
            summary = _read_summary(read_text(path))
            yield ListedFile(name=str(path), kind=kind, summary=summary, is_shipped=False)


def print_listing(*, as_json: bool) -> None:
    """Print one line for each agent and chart."""
    rows = list(list_files())
    if as_json:
        for row in rows:
            print_json(msgspec.to_builtins(row), lines=True)
        return
    width = max(len(row.name) for row in rows)
    for kind in ("agent", "chart"):
        echo(f"{kind}s:")
        for row in rows:
            if row.kind == kind:
                echo(escape_controls(f"  {row.name:<{width}}  {row.summary}".rstrip()))


def _list_own_files(key: str) -> Iterator[Path]:
    """The YAML and JSON files of the present folder that have a key at the top."""
    for path in sorted(Path().iterdir()):
        if path.suffix not in (".yaml", ".yml", ".json") or not path.is_file():
            continue
        try:
            if key in read_document(path).data:
                yield path
        except SpecError:
            continue  # some other file


def _read_summary(text: str) -> str:
    """The first sentence of the comment at the beginning."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    sentence = " ".join(lines).partition(". ")[0].rstrip(".")
    return sentence if len(sentence) <= 100 else sentence[:97] + "..."
