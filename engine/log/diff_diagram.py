"""A diff as one Mermaid diagram: the common path grey, the two branches coloured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolchart.engine.log.diff import Diff
from toolchart.engine.log.record import Record

_EDGE = 4
"""Common steps that are shown at either end; those between are told as a number."""

_STYLES = (
    "classDef common fill:#e5e5e5,stroke:#999,color:#333",
    "classDef left fill:#cfe3ff,stroke:#2563eb,color:#1e3a8a",
    "classDef right fill:#ffe3c7,stroke:#ea7317,color:#7a3a05",
)


def mermaid(found: Diff) -> str:
    """The flowchart; one node a step, named by its record and the state in which it left the chart."""
    lines = ["flowchart TD"]
    common = list(_common(found.common))
    lines += [line for line, _ in common]
    tail = common[-1][1] if common else None
    for side, rest in (("left", found.left_rest), ("right", found.right_rest)):
        lines += _path(side, rest, tail)
    names = ((found.left, "left"), (found.right, "right"))
    lines += [f'    {side}_name(["{_safe(name)}"]):::{side}' for name, side in names]
    return "\n".join([*lines, *(f"    {style}" for style in _STYLES), ""])


def _common(records: tuple[Record, ...]) -> Iterator[tuple[str, str]]:
    """Lines of the common path, each with the node that it ends at."""
    shown: list[Record | int] = list(records)
    if len(records) > 2 * _EDGE + 1:
        shown = [*records[:_EDGE], len(records) - 2 * _EDGE, *records[-_EDGE:]]
    before = None
    for place, one in enumerate(shown):
        node = f"c{place}"
        label = f"... {one} steps ..." if isinstance(one, int) else _label(one)
        event = "" if isinstance(one, int) else one.event["type"]
        yield _line(before, event, node, label, "common"), node
        before = node


def _path(side: str, records: Iterable[Record], before: str | None) -> Iterator[str]:
    for place, record in enumerate(records):
        node = f"{side[0]}{place}"
        yield _line(before, record.event["type"], node, _label(record), side)
        before = node


def _line(before: str | None, event: str, node: str, label: str, side: str) -> str:
    box = f'{node}["{_safe(label)}"]:::{side}'
    if before is None:
        return f"    {box}"
    return f"    {before} -->|{_safe(event)}| {box}" if event else f"    {before} --> {box}"


def _label(record: Record) -> str:
    return f"{record.seq} {record.target or record.event['type']}"


def _safe(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("|", "/")
