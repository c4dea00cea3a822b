"""Reads a document file (Markdown, plain text, HTML, PDF) and splits it into passages.

Each passage carries its line number, or its page number for a PDF. `_READERS` lists the file types.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec

from toolchart.states.errors import format_install
from toolchart.states.reading_limits import READING
from toolchart.workers.pool import BoundExceeded, Work, WorkFailed, run_bounded

MAX_PASSAGE_LENGTH = 1200
"""Characters. A passage is the unit that a search finds and shows: a few paragraphs."""
TIMEOUT_S = 10.0
MEMORY_MB = 600
"""Limits of reading one document."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a document, long enough to answer a question."""

    text: str
    line: int
    """Its first line, counted from 1; for a PDF the page number."""
    title: str = ""
    """The nearest heading above it, or the document's title."""


class UnreadableDocument(Exception):
    """A document cannot be read; the text gives the reason."""


def read_passages(path: Path, data: bytes) -> list[Passage]:
    """Split a document into passages, in their order.

    Args:
        path: its suffix selects the reader; the file itself is not opened.
        data: the content of the file.

    Raises:
        UnreadableDocument: the file type is unknown, the file is damaged, or a library is missing.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UnreadableDocument(f"not a document of a known kind ({', '.join(_READERS)})")
    return list(reader(data))


def read_passages_bounded(path: Path, data: bytes) -> list[Passage]:
    """As `read_passages`, in a worker: a document may come from anywhere, and take any time and memory.

    Raises:
        UnreadableDocument: also where a limit was reached.
    """
    work = Work(
        module=__name__,
        function="list_passages",
        arguments={"name": path.name, "data": data},
        preload=(__name__,),
        memory_mb=MEMORY_MB,
        max_answer_bytes=4 * READING.document_bytes,
    )
    try:
        rows = run_bounded(work, timeout_s=TIMEOUT_S)
    except BoundExceeded as error:
        raise UnreadableDocument(f"it needs too much {error.limit}") from None
    except WorkFailed as failure:
        text = failure.text if failure.kind == UnreadableDocument.__name__ else str(failure)
        raise UnreadableDocument(text) from None
    return [Passage(text=text, line=line, title=title) for text, line, title in rows]


def list_passages(name: str, data: bytes) -> list[list[Any]]:
    """The passages as plain lists; runs in the worker."""
    return [[part.text, part.line, part.title] for part in read_passages(Path(name), data)]


def is_document(path: Path) -> bool:
    """Whether the suffix of the file name is one of the known file types."""
    return path.suffix.lower() in _READERS


def _decode_text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _read_plain_text(data: bytes) -> Iterator[Passage]:
    yield from _split_passages(list(enumerate(_decode_text(data).splitlines(), 1)), lambda line: None)


def _read_markdown(data: bytes) -> Iterator[Passage]:
    def find_heading(line: str) -> str | None:
        """The text of a Markdown heading, or None."""
        match = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        return match.group(1) if match else None

    yield from _split_passages(list(enumerate(_decode_text(data).splitlines(), 1)), find_heading)


def _split_passages(
    lines: list[tuple[int, str]], find_heading: Callable[[str], str | None]
) -> Iterator[Passage]:
    """Group numbered lines into passages of whole paragraphs that never cross a heading."""
    title, start, size = "", 1, 0
    passage_lines: list[str] = []
    for number, line in lines:
        heading = find_heading(line)
        is_full = size + len(line) > MAX_PASSAGE_LENGTH or (
            size > MAX_PASSAGE_LENGTH // 2 and not line.strip()
        )
        if (heading is not None or is_full) and passage_lines:
            yield from _make_passages(passage_lines, start, title)
            passage_lines, size = [], 0
        title = heading if heading is not None else title
        if not passage_lines:
            start = number
        passage_lines.append(line)
        size += len(line) + 1
    yield from _make_passages(passage_lines, start, title)


def _make_passages(lines: list[str], start: int, title: str) -> Iterator[Passage]:
    """One passage without the empty lines around it; an overlong line gives several passages."""
    while lines and not lines[0].strip():
        lines, start = lines[1:], start + 1
    text = "\n".join(lines).strip()
    for offset in range(0, len(text), 4 * MAX_PASSAGE_LENGTH):
        yield Passage(text=text[offset : offset + 4 * MAX_PASSAGE_LENGTH], line=start, title=title)


_HIDDEN_TAGS = frozenset({"script", "style", "template", "noscript", "svg"})
_BLOCK_TAGS = frozenset(
    {
        "p",
        "div",
        "li",
        "tr",
        "br",
        "section",
        "article",
        "table",
        "ul",
        "ol",
        "pre",
        "blockquote",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "title",
        "dt",
        "dd",
    }
)


class _HtmlLines(HTMLParser):
    """Collects the visible text of an HTML page line by line; a heading begins with a null character."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[tuple[int, str]] = []
        self._line = ""
        self._start = 1
        self._open_hidden_tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a line at a block element, and skip the text of hidden elements."""
        if tag in _HIDDEN_TAGS:
            self._open_hidden_tags.append(tag)
        if tag in _BLOCK_TAGS:
            self.end_line()
        if re.fullmatch(r"h[1-6]|title", tag):
            self._line = "\x00"

    def handle_endtag(self, tag: str) -> None:
        """End the line of a block element, or the part that is hidden."""
        if tag in self._open_hidden_tags:
            self._open_hidden_tags.remove(tag)
        if tag in _BLOCK_TAGS:
            self.end_line()

    def handle_data(self, data: str) -> None:
        """Add visible text to the current line."""
        if self._open_hidden_tags or not data.strip():
            self._line += " " if data and self._line and not self._open_hidden_tags else ""
            return
        if not self._line.strip("\x00 "):
            self._start = self.getpos()[0]
        self._line += re.sub(r"\s+", " ", data)

    def end_line(self) -> None:
        """Store the current line, if it has text, and begin a new one."""
        if self._line.strip("\x00 "):
            self.lines.append((self._start, self._line.strip(" ")))
        self._line = ""


def _read_html(data: bytes) -> Iterator[Passage]:
    page = _HtmlLines()
    page.feed(_decode_text(data))
    page.close()
    page.end_line()

    def find_heading(line: str) -> str | None:
        """The text of a heading that `_HtmlLines` marked, or None."""
        return line[1:].strip() if line.startswith("\x00") else None

    for passage in _split_passages(page.lines, find_heading):
        text = passage.text.replace("\x00", "")
        yield Passage(text=text, line=passage.line, title=passage.title)


def _read_pdf(data: bytes) -> Iterator[Passage]:
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        raise UnreadableDocument(f"PDF needs a library: {format_install('pdf')}") from None

    try:
        for number, page in enumerate(PdfReader(io.BytesIO(data)).pages, 1):
            lines = (page.extract_text() or "").splitlines()
            for passage in _split_passages([(number, line) for line in lines], lambda line: None):
                yield Passage(text=passage.text, line=number, title=f"page {number}")
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableDocument(f"the PDF cannot be read: {type(error).__name__}") from None


_READERS: dict[str, Callable[[bytes], Iterator[Passage]]] = {
    ".md": _read_markdown,
    ".markdown": _read_markdown,
    ".txt": _read_plain_text,
    ".rst": _read_plain_text,
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": _read_pdf,
}
