"""Texts that try to become markup, statements or controls where they are drawn, and parsers that notice."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from xml.etree import ElementTree

HOSTILE_TEXTS = (
    *('quo"te', "it's", "a]b[c}{d", 'a"] --> b["c', "x|y", "`code`", "back\\slash", "tail\\"),
    *(
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "</b>",
        "<a href='//e'>",
        "<!-- -->",
    ),
    *('" onload="alert(1)', "' onload='alert(1)", "</text><script/>", "</style><script/>", "</title><svg/>"),
    *("]]>", "<![CDATA[x]]>", "<?xml version='1.0'?>", "<!DOCTYPE x [<!ENTITY e 'v'>]>", "&e;", "&lt;b&gt;"),
    *("&amp;", "&#60;b&#62;", "#35; #quot;", "javascript:alert(1)", "[text](javascript:alert(1))"),
    *("line\nend", "line\r\ttab", "line\u2028separators\u2029", "\x85next", "tabs\x0b\x0cfeeds"),
    *(
        "right\u202eleft\u2066\u200b",
        "\ufeffmark",
        "\U000e0041tag",
        "\x00\x1b[31m\x7f",
        "\x9b2J",
        "lone\ud800",
    ),
    *("a --> b: c; %%{init} #35; &amp; `code` | x \\ y", "a ->> b: c; %%{init: {}}%%", "%% comment"),
    *("end", "click a call x()", "loop x\nend", "note right of a", "state", "[*]", "--", "-", ":::left"),
    *("subgraph x", "digraph { a -> b }", "{{x}}", "${KEY}", "日本語の状態", "e\u0301" * 40, "x" * 500),
)

_SHAPES = {
    "path": {"class", "d"},
    "rect": {"class", "x", "y", "rx", "width", "height"},
    "circle": {"class", "cx", "cy", "r"},
    "line": {"class", "x1", "y1", "x2", "y2"},
    "text": {"class", "x", "y", "lengthAdjust", "textLength"},
}

PICTURE_MARKUP: Mapping[str, set[str]] = {
    "svg": {"class", "height", "role", "viewBox", "width"},
    "title": set(),
    "style": set(),
    "defs": set(),
    "marker": {
        *("id", "class", "orient", "markerUnits", "markerWidth", "markerHeight", "refX", "refY", "viewBox")
    },
    "g": {"class", "id", "data-row", "data-seq", "data-source", "data-state"},
    **_SHAPES,
}
"""Every element of our pictures with its attributes."""

PAGE_MARKUP: Mapping[str, set[str]] = {
    "html": {"lang"},
    "meta": {"charset", "http-equiv", "content"},
    **{tag: set() for tag in ("head", "title", "style", "body", "h1", "h2", "p", "table", "tr", "th")},
    **{tag: set() for tag in ("code", "details", "summary", "pre")},
    "td": {"class"},
    "strong": {"class"},
}
"""Every element of the page of a rerun with its attributes."""


def find_foreign_svg(picture: str) -> list[str]:
    """Elements and attributes of a picture that we never write.

    Raises:
        ElementTree.ParseError: it is not well-formed.
    """
    root = ElementTree.fromstring(picture)
    return [
        f"{tag} {name}".rstrip()
        for element in root.iter()
        for tag in (element.tag.removeprefix("{http://www.w3.org/2000/svg}"),)
        for name in ("", *element.attrib)
        if tag not in PICTURE_MARKUP or (name and name not in PICTURE_MARKUP[tag])
    ]


def find_foreign_html(page: str) -> list[str]:
    """Elements, attributes, comments and declarations of a page that we never write."""
    parser = _PageParser()
    parser.feed(page)
    parser.close()
    return parser.problems + [f"open: {tag}" for tag in parser.open_tags]


class _PageParser(HTMLParser):
    """Collects what a page may not have."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.open_tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check an element."""
        if tag not in PAGE_MARKUP:
            self.problems.append(tag)
        self.problems += [f"{tag} {name}" for name, _ in attrs if name not in PAGE_MARKUP.get(tag, ())]
        if tag != "meta":
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that the element which ends is the innermost one."""
        if not self.open_tags or self.open_tags.pop() != tag:
            self.problems.append(f"end of {tag}")

    def handle_comment(self, data: str) -> None:
        """There is none."""
        self.problems.append(f"comment {data}")

    def handle_decl(self, decl: str) -> None:
        """There is one, of the type."""
        if decl != "doctype html":
            self.problems.append(decl)

    def unknown_decl(self, data: str) -> None:
        """There is none."""
        self.problems.append(data)

    def handle_pi(self, data: str) -> None:
        """There is none."""
        self.problems.append(data)
