"""Draws a diff of two conversations as a Mermaid flowchart: common path grey, branches coloured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolchart.engine.log.diff import ConversationDiff
from toolchart.engine.log.reading.records import ReadRecord
from toolchart.states.diagram.mermaid import escape_mermaid

_VISIBLE_STEPS = 4
"""Common steps that are drawn at each end; the steps between appear as one node with their number."""

_STYLES = (
    "classDef common fill:#e5e5e5,stroke:#999,color:#333",
    "classDef left fill:#cfe3ff,stroke:#2563eb,color:#1e3a8a",
    "classDef right fill:#ffe3c7,stroke:#ea7317,color:#7a3a05",
)


def draw_diff(diff: ConversationDiff) -> str:
    """The flowchart as Mermaid text: one node per step, with record number and target state."""
    lines = ["flowchart TD"]
    common = list(_draw_common_path(diff.common))
    lines += [line for line, _ in common]
    tail = common[-1][1] if common else None
    for side, rest in (("left", diff.left_rest), ("right", diff.right_rest)):
        lines += _draw_branch(side, rest, tail)
    names = ((diff.left, "left"), (diff.right, "right"))
    lines += [f'    {side}_name(["{escape_mermaid(name)}"]):::{side}' for name, side in names]
    return "\n".join([*lines, *(f"    {style}" for style in _STYLES), ""])


def _draw_common_path(records: tuple[ReadRecord, ...]) -> Iterator[tuple[str, str]]:
    """Lines of the common path, each with the name of its node."""
    entries: list[ReadRecord | int] = list(records)
    if len(records) > 2 * _VISIBLE_STEPS + 1:
        entries = [*records[:_VISIBLE_STEPS], len(records) - 2 * _VISIBLE_STEPS, *records[-_VISIBLE_STEPS:]]
    previous = None
    for index, entry in enumerate(entries):
        node = f"c{index}"
        label = f"... {entry} steps ..." if isinstance(entry, int) else _build_label(entry)
        event = "" if isinstance(entry, int) else entry.event["type"]
        yield _build_node_line(previous, event, node, label, "common"), node
        previous = node


def _draw_branch(side: str, records: Iterable[ReadRecord], previous: str | None) -> Iterator[str]:
    """Lines of one branch after the common path."""
    for index, record in enumerate(records):
        node = f"{side[0]}{index}"
        yield _build_node_line(previous, record.event["type"], node, _build_label(record), side)
        previous = node


def _build_node_line(previous: str | None, event: str, node: str, label: str, side: str) -> str:
    """The line of a node and of the edge that leads to it."""
    box = f'{node}["{escape_mermaid(label)}"]:::{side}'
    if previous is None:
        return f"    {box}"
    return f'    {previous} -->|"{escape_mermaid(event)}"| {box}' if event else f"    {previous} --> {box}"


def _build_label(record: ReadRecord) -> str:
    """Record number and target state of a step."""
    return f"{record.seq} {record.target or record.event['type']}"
