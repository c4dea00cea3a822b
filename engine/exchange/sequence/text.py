"""Text renderer: one line per message, complete however long the conversation is."""

from __future__ import annotations

from toolchart.engine.exchange.sequence.model import Divider, Entry, Message, Note, SequenceDiagram
from toolchart.states.diagram.labels import measure_width


def render(sequence: SequenceDiagram) -> str:
    """Record number, sender, receiver and text of each message; states between them."""
    return _render(sequence, "→", "⇠", "─")


def render_ascii(sequence: SequenceDiagram) -> str:
    """The same with ASCII signs; names and texts keep their characters."""
    return _render(sequence, "->", "<-", "-")


def _render(sequence: SequenceDiagram, arrow: str, answer: str, bar: str) -> str:
    labels = {participant.key: participant.label for participant in sequence.participants}
    width = max((measure_width(label) for label in labels.values()), default=0)
    lines = [sequence.title, ""]
    lines += [_render_entry(entry, labels, width, (arrow, answer, bar)) for entry in sequence.entries]
    return "\n".join(lines) + "\n"


def _render_entry(entry: Entry, labels: dict[str, str], width: int, signs: tuple[str, str, str]) -> str:
    arrow, answer, bar = signs
    match entry:
        case Divider():
            return f"{bar * 4} {entry.text} {bar * 4}"
        case Note():
            return f"{entry.seq:>5}  {_pad(labels[entry.participant], width)}     {entry.text}"
        case Message(is_answer=True):
            # An answer is written from its receiver's side, so that one column is always the chart.
            ends = (labels[entry.target], answer, labels[entry.source])
        case Message():
            ends = (labels[entry.source], arrow, labels[entry.target])
    return f"{entry.seq:>5}  {_pad(ends[0], width)} {ends[1]:<2} {_pad(ends[2], width)}  {entry.text}"


def _pad(label: str, width: int) -> str:
    return label + " " * (width - measure_width(label))
