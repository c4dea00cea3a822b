"""Documents as passages: Markdown, text, HTML and PDF, each passage with its line or page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

LONGEST_PASSAGE = 1200
"""Characters; a passage is what is found and shown, a few paragraphs."""
MOST_BYTES = 20_000_000
"""Of a document that is read at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A part of a document."""

    text: str
    line: int
    """First line of it, from 1; of a PDF the page."""
    title: str = ""
    """The heading above it, or the document's title."""


class Unreadable(Exception):
    """A document that cannot be read, with the reason."""


def passages(path: Path, data: bytes) -> list[Passage]:
    """The passages of a document, in order.

    Raises:
        Unreadable: not one of the kinds, damaged, or the library for it is missing.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise Unreadable(f"not a document of a known kind ({', '.join(_READERS)})")
    return list(reader(data))


def is_document(path: Path) -> bool:
    """Whether the file's name says that it is one of the kinds."""
    return path.suffix.lower() in _READERS


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _text(data: bytes) -> Iterator[Passage]:
    yield from _chunked(list(enumerate(_decoded(data).splitlines(), 1)), lambda line: None)


def _markdown(data: bytes) -> Iterator[Passage]:
    def heading(line: str) -> str | None:
        match = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        return match.group(1) if match else None

    yield from _chunked(list(enumerate(_decoded(data).splitlines(), 1)), heading)


def _chunked(
    lines: list[tuple[int, str]], heading: Callable[[str], str | None]
) -> Iterator[Passage]:
    """Passages of whole paragraphs, never across a heading."""
    title, start, size = "", 1, 0
    held: list[str] = []
    for number, line in lines:
        found = heading(line)
        full = size + len(line) > LONGEST_PASSAGE or (
            size > LONGEST_PASSAGE // 2 and not line.strip()
        )
        if (found is not None or full) and held:
            yield from _passage(held, start, title)
            held, size = [], 0
        title = found if found is not None else title
        if not held:
            start = number
        held.append(line)
        size += len(line) + 1
    yield from _passage(held, start, title)


def _passage(lines: list[str], start: int, title: str) -> Iterator[Passage]:
    """A passage without empty lines around it; one overlong line becomes several."""
    while lines and not lines[0].strip():
        lines, start = lines[1:], start + 1
    text = "\n".join(lines).strip()
    for place in range(0, len(text), 4 * LONGEST_PASSAGE):
        yield Passage(text=text[place : place + 4 * LONGEST_PASSAGE], line=start, title=title)


_UNSEEN = frozenset({"script", "style", "template", "noscript", "svg"})
_BLOCKS = frozenset(
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


class _Page(HTMLParser):
    """Collects the text that a reader would see, line by line, and marks headings."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[tuple[int, str]] = []
        self._line = ""
        self._start = 1
        self._unseen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen.append(tag)
        if tag in _BLOCKS:
            self.flush()
        if re.fullmatch(r"h[1-6]|title", tag):
            self._line = "\x00"

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            self._unseen.remove(tag)
        if tag in _BLOCKS:
            self.flush()

    def handle_data(self, data: str) -> None:
        if self._unseen or not data.strip():
            self._line += " " if data and self._line and not self._unseen else ""
            return
        if not self._line.strip("\x00 "):
            self._start = self.getpos()[0]
        self._line += re.sub(r"\s+", " ", data)

    def flush(self) -> None:
        """End the line."""
        if self._line.strip("\x00 "):
            self.lines.append((self._start, self._line.strip(" ")))
        self._line = ""


def _html(data: bytes) -> Iterator[Passage]:
    page = _Page()
    page.feed(_decoded(data))
    page.close()
    page.flush()

    def heading(line: str) -> str | None:
        return line[1:].strip() if line.startswith("\x00") else None

    for passage in _chunked(page.lines, heading):
        text = passage.text.replace("\x00", "")
        yield Passage(text=text, line=passage.line, title=passage.title)


def _pdf(data: bytes) -> Iterator[Passage]:
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        raise Unreadable("PDF needs a library: pip install 'toolchart[pdf]'") from None
    import io

    try:
        for number, page in enumerate(PdfReader(io.BytesIO(data)).pages, 1):
            lines = (page.extract_text() or "").splitlines()
            for passage in _chunked([(number, line) for line in lines], lambda line: None):
                yield Passage(text=passage.text, line=number, title=f"page {number}")
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"the PDF cannot be read: {type(error).__name__}") from None


_READERS: dict[str, Callable[[bytes], Iterator[Passage]]] = {
    ".md": _markdown,
    ".markdown": _markdown,
    ".txt": _text,
    ".rst": _text,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
}
