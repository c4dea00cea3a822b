"""A tool source: a tool that looks up one row of a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from toolchart import SpecError, Tool, ToolDefinition, ToolFailure
from toolchart.specs.models import ToolEntry
from toolchart.states.starts import Start
from toolchart.tools.sources.entry_settings import get_type_settings
from toolchart.tools.sources.registry_entries import LoadingContext
from toolchart.tools.sources.table import ToolSourceDescriptor

DESCRIPTOR = ToolSourceDescriptor(
    name="csv",
    summary="a row of a CSV file",
    load="toolchart_shop.tool_source:load_tool",
    list_starts="toolchart_shop.tool_source:list_starts",
    settings=("file", "key"),
    required=("file", "key"),
)


def load_tool(entry: ToolEntry, context: LoadingContext) -> Tool:
    """Make the tool of one entry; `file` is relative to the spec."""
    settings = get_type_settings(entry)
    path, key = context.base_folder / settings["file"], settings["key"]
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = {row[key]: row for row in csv.DictReader(file)}
    except (OSError, KeyError) as error:
        raise SpecError(f"tool {entry.name!r}: {path} cannot be used: {error!r}") from None

    def find_row(arguments: Mapping[str, str]) -> dict[str, str]:
        """The row with the key; the model reads the text of a `ToolFailure`."""
        if arguments[key] not in rows:
            raise ToolFailure(f"no such {key}; known: {', '.join(rows)}")
        return rows[arguments[key]]

    definition = ToolDefinition(
        name=entry.name,
        description=entry.description or f"Look up a row of {path.name}.",
        parameters={"type": "object", "properties": {key: {"type": "string"}}, "required": [key]},
    )
    action = {"file": settings["file"], "key": key}
    return Tool(definition=definition, run=find_row, kind="csv", idempotent=True, action=action)


def list_starts(entry: ToolEntry, base_folder: Path) -> Iterator[Start]:
    """The file that the tool reads. Nothing is opened here: a person reads this list before they agree."""
    path = base_folder / get_type_settings(entry)["file"]
    yield Start(kind="file", subject=str(path), purpose=f"is read by {entry.name}")
