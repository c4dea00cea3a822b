"""Mermaid renderer: a `sequenceDiagram`."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.engine.exchange.sequence.model import Divider, Entry, Message, Note, SequenceDiagram
from toolchart.states.diagram.mermaid import escape_mermaid

_PEOPLE = ("user", "person")

_MAX_CHARACTERS = 50_000
"""Mermaid refuses a longer text. Source: Mermaid 11, `maxTextSize`."""


def render(sequence: SequenceDiagram) -> str:
    """The sequence as Mermaid; the middle of a long one is left out."""
    for max_entries in (240, 120, 60):
        text = _render(sequence.fold(max_entries))
        if len(text) <= _MAX_CHARACTERS:
            break
    return text


def _render(folded: SequenceDiagram) -> str:
    ids = {participant.key: f"p{index}" for index, participant in enumerate(folded.participants)}
    lines = ["sequenceDiagram"]
    for participant in folded.participants:
        word = "actor" if participant.kind in _PEOPLE else "participant"
        lines.append(f"    {word} {ids[participant.key]} as {escape_mermaid(participant.label) or '-'}")
    for entry in folded.entries:
        lines += _render_entry(entry, ids)
    return "\n".join(lines) + "\n"


def _render_entry(entry: Entry, ids: dict[str, str]) -> Iterator[str]:
    text = escape_mermaid(entry.text) or "-"
    match entry:
        case Message():
            arrow = "-->>" if entry.is_answer else "->>"
            yield f"    {ids[entry.source]}{arrow}{ids[entry.target]}: {text}"
        case Note():
            yield f"    Note over {ids[entry.participant]}: {text}"
        case Divider():
            first, *_, last = ids.values()
            yield f"    Note over {first},{last}: {text}"
