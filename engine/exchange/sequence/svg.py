"""SVG renderer. Every message and note has the class `record-SEQ`, with the number of its record.

<g class="message|note|entered record-SEQ" data-seq="SEQ">   an arrow with its text, or a note
<g class="participant participant-KIND">             a box with its lifeline
<g class="separator">                                 a turn begins, or entries are left out
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement

from toolchart.engine.exchange.sequence.model import Divider, Message, Note, SequenceDiagram
from toolchart.states.diagram.picture.content import measure_text
from toolchart.states.diagram.picture.png import rasterize_svg
from toolchart.states.diagram.picture.svg import add_box, add_text, build_image, encode_image, format_number

_MARGIN = 16.0
_HEAD = 30.0
_ROW = 30.0
_MIN_GAP = 90.0


def render(sequence: SequenceDiagram) -> bytes:
    """The sequence as an SVG image; the middle of a long one is left out."""
    return _SvgBuilder(sequence.fold()).build()


def render_png(sequence: SequenceDiagram) -> bytes:
    """The sequence as a PNG image.

    Raises:
        SpecError: the package that makes it is not installed, or it failed.
    """
    return rasterize_svg(render(sequence))


class _SvgBuilder:
    def __init__(self, sequence: SequenceDiagram) -> None:
        self._sequence = sequence
        self._places = {p.key: index for index, p in enumerate(sequence.participants)}
        self._columns, self._width = _place_columns(sequence, self._places)
        self._height = 2 * _MARGIN + _HEAD + _ROW * (len(sequence.entries) + 1)

    def build(self) -> bytes:
        """The image: lifelines first, then the entries from top to bottom."""
        root = build_image(self._sequence.title, self._width, self._height)
        for participant, x in zip(self._sequence.participants, self._columns, strict=True):
            self._add_participant(root, participant.label, participant.kind, x)
        y = _MARGIN + _HEAD
        for entry in self._sequence.entries:
            y += _ROW
            match entry:
                case Message():
                    self._add_message(root, entry, y)
                case Note():
                    self._add_note(root, entry, y)
                case Divider():
                    self._add_divider(root, entry.text, y)
        return encode_image(root)

    def _add_participant(self, root: Element, label: str, kind: str, x: float) -> None:
        group = SubElement(root, "g", {"class": f"participant participant-{kind}"})
        _add_line(group, (x, _MARGIN + _HEAD), (x, self._height - _MARGIN), "lifeline")
        width = measure_text(label)
        add_box(group, (x - width / 2 - 10, _MARGIN, width + 20, _HEAD), "box", 6)
        add_text(group, label, x - width / 2, _MARGIN + 19, "text")

    def _add_message(self, root: Element, message: Message, y: float) -> None:
        group = _add_record_group(root, "message", message.seq)
        start, end = (self._columns[self._places[key]] for key in (message.source, message.target))
        width = measure_text(message.text)
        style_class = "arrow answer" if message.is_answer else "arrow"
        if start == end:
            shape = f"M{_n(start)} {_n(y - 8)}h22v12h-20"
            _add_arrow(group, shape, style_class)
            add_text(group, message.text, start + 28, y + 2, "text")
            return
        _add_arrow(group, f"M{_n(start)} {_n(y)}L{_n(end)} {_n(y)}", style_class)
        add_text(group, message.text, (start + end) / 2 - width / 2, y - 5, "text")

    def _add_note(self, root: Element, note: Note, y: float) -> None:
        group = _add_record_group(root, "entered" if note.is_state else "note", note.seq)
        x, width = self._columns[self._places[note.participant]], measure_text(note.text)
        add_box(group, (x - width / 2 - 8, y - 15, width + 16, 20), "note-box", 4)
        add_text(group, note.text, x - width / 2, y - 1, "text")

    def _add_divider(self, root: Element, text: str, y: float) -> None:
        group = SubElement(root, "g", {"class": "separator"})
        _add_line(group, (_MARGIN, y - 5), (self._width - _MARGIN, y - 5), "separator-line")
        width = measure_text(text)
        add_box(group, (_MARGIN + 8, y - 15, width + 16, 20), "separator-box", 4)
        add_text(group, text, _MARGIN + 16, y - 1, "text")


def _place_columns(sequence: SequenceDiagram, places: dict[str, int]) -> tuple[list[float], float]:
    """The x of each participant, so far apart that no text crosses a lifeline's end; and the full width."""
    count = len(places)
    gaps = [_MIN_GAP] * (count + 1)  # before the first participant, between two, and behind the last
    for participant, place in zip(sequence.participants, range(count), strict=True):
        _widen_around(gaps, place, measure_text(participant.label) + 40)
    heads = [measure_text(participant.label) + 20 for participant in sequence.participants]
    for place in range(1, count):
        gaps[place] = max(gaps[place], (heads[place - 1] + heads[place]) / 2 + _MARGIN)
    messages = [entry for entry in sequence.entries if isinstance(entry, Message)]
    for entry in sequence.entries:
        if isinstance(entry, Note):
            _widen_around(gaps, places[entry.participant], measure_text(entry.text) + 30)
    for low, high, width in sorted(_list_spans(messages, places), key=lambda span: span[1] - span[0]):
        missing = width + 24 - sum(gaps[low + 1 : high + 1])
        if missing > 0:
            gaps[high] += missing
    columns = [_MARGIN + sum(gaps[: place + 1]) for place in range(count)]
    return columns, columns[-1] + gaps[-1] + _MARGIN


def _widen_around(gaps: list[float], place: int, width: float) -> None:
    """Let a text of this width stand centred on a participant."""
    gaps[place] = max(gaps[place], width / 2)
    gaps[place + 1] = max(gaps[place + 1], width / 2)


def _list_spans(messages: Iterable[Message], places: dict[str, int]) -> Iterable[tuple[int, int, float]]:
    """The first and last participant of each message, and the width of its text."""
    for message in messages:
        low, high = sorted((places[message.source], places[message.target]))
        width = measure_text(message.text)
        yield (low, high, width) if low < high else (low, low + 1, width + 28)


def _add_record_group(root: Element, kind: str, seq: int) -> Element:
    return SubElement(root, "g", {"class": f"{kind} record-{seq}", "data-seq": str(seq)})


def _add_arrow(group: Element, shape: str, style_class: str) -> None:
    SubElement(group, "path", {"d": shape, "class": style_class})


def _add_line(group: Element, start: tuple[float, float], end: tuple[float, float], style_class: str) -> None:
    ends = {"x1": _n(start[0]), "y1": _n(start[1]), "x2": _n(end[0]), "y2": _n(end[1])}
    SubElement(group, "line", {**ends, "class": style_class})


_n = format_number
