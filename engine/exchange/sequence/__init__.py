"""Sequence pictures of a conversation: who said what to whom, step by step.

`reading.py` makes one neutral model from the records, and each renderer draws it.
"""

from __future__ import annotations

from collections.abc import Callable

from toolchart.engine.exchange.sequence import mermaid, svg, text
from toolchart.engine.exchange.sequence.model import SequenceDiagram
from toolchart.engine.exchange.sequence.reading import read_sequence
from toolchart.states.errors import SpecError

__all__ = ["SequenceDiagram", "draw_sequence", "read_sequence"]

_RENDERERS: dict[str, Callable[[SequenceDiagram], str | bytes]] = {
    "text": text.render,
    "ascii": text.render_ascii,
    "mermaid": mermaid.render,
    "svg": svg.render,
    "png": svg.render_png,
}


def draw_sequence(sequence: SequenceDiagram, format_name: str) -> str | bytes:
    """The sequence in a format.

    Raises:
        SpecError: the format has no sequences, or it needs a package that is not installed.
    """
    render = _RENDERERS.get(format_name)
    if render is None:
        raise SpecError(
            f"a sequence cannot be drawn as {format_name!r}", hint=f"choose one of: {', '.join(_RENDERERS)}"
        )
    return render(sequence)
