"""Documents: extraction, the index that follows its folder, and the ranking."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_calls import call, executor, ran

from toolchart.tools.definition import ToolFailure
from toolchart.tools.sources.document_text import LONGEST_PASSAGE, Unreadable, passages
from toolchart.tools.sources.documents import DocumentIndex, index_of, rag_context, search_tool


def written(folder: Path, **files: str | bytes) -> Path:
    """A folder with these files; `__` in a name stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def index(folder: Path, **options: Any) -> DocumentIndex:
    """The index of a folder."""
    return DocumentIndex({"documents": folder}, folder.parent / "index.db", **options)


def pdf(*pages: str) -> bytes:
    """A small PDF with one line of text a page."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    for text in pages:
        page = writer.add_blank_page(300, 300)
        font = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Font"),
                NameObject("/Subtype"): NameObject("/Type1"),
                NameObject("/BaseFont"): NameObject("/Helvetica"),
            }
        )
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    import io

    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def test_hits_name_file_line_and_heading(tmp_path: Path) -> None:
    """S2.12, issue 6: a hit has file, line, heading and a snippet with the words highlighted."""
    folder = written(
        tmp_path / "docs",
        guide__md="# Guide\n\nIntro.\n\n## Cooling pumps\n\nThe pump needs oil each year.\n",
        other__txt="Nothing of the kind here.",
    )
    hit = index(folder).search("pump oil")[0]
    assert (hit.file, hit.line, hit.title) == ("guide.md", 5, "Cooling pumps")
    assert "**oil**" in hit.snippet


def test_html_is_read_as_a_reader_sees_it(tmp_path: Path) -> None:
    """Issue 6: scripts and styles are not text; headings are headings; entities are letters."""
    page = """<html><head><title>Shop</title><style>p{}</style></head><body>
    <script>var secret = 1;</script><h2>Opening &amp; closing</h2>
    <p>We open at <b>nine</b>.</p><p>Second.</p></body></html>"""
    found = passages(Path("a.html"), page.encode())
    text = "\n".join(one.text for one in found)
    assert "We open at nine." in text
    assert "secret" not in text
    assert found[-1].title == "Opening & closing"
    assert found[-1].line == 2


def test_pdf_is_read_by_page() -> None:
    """Issue 6: a PDF's passages name their page; a damaged one is unreadable, not a crash."""
    found = passages(Path("a.pdf"), pdf("First page", "Second page"))
    assert [(one.text, one.line, one.title) for one in found] == [
        ("First page", 1, "page 1"),
        ("Second page", 2, "page 2"),
    ]
    with pytest.raises(Unreadable):
        passages(Path("a.pdf"), b"%PDF-1.4 nonsense")


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=3000), suffix=st.sampled_from([".md", ".txt", ".html", ".pdf"]))
def test_no_document_crashes_the_reader(data: bytes, suffix: str) -> None:
    """Issue 6: whatever a file holds, it is read or it is unreadable."""
    try:
        found = passages(Path(f"x{suffix}"), data)
    except Unreadable:
        return
    assert all(one.text and len(one.text) <= 4 * LONGEST_PASSAGE + 4 for one in found)


@settings(max_examples=100, deadline=None)
@given(lines=st.lists(st.text(alphabet="ab #\n", max_size=80), max_size=60))
def test_no_line_of_a_text_is_lost(lines: list[str]) -> None:
    """Issue 6: the passages of a text hold every word of it, in order, and name their first line."""
    text = "\n".join(lines)
    found = passages(Path("x.md"), text.encode())
    assert " ".join(" ".join(one.text for one in found).split()) == " ".join(text.split())
    source = text.splitlines()
    for one in found:
        assert one.text.splitlines()[0].strip() == source[one.line - 1].strip()


def test_the_index_follows_the_folder(tmp_path: Path) -> None:
    """Issue 6: unchanged files are not read again, changed ones are, gone ones are forgotten."""
    folder = written(tmp_path / "docs", a__md="alpha", b__md="beta", c__bin="x")
    made = index(folder)
    assert made.refresh() == {"read": 2, "unchanged": 0, "gone": 0, "unreadable": 0}
    written(folder, a__md="gamma")
    os.utime(folder / "b.md", (1, 1))
    (folder / ".hidden.md").write_text("hidden")
    assert made.refresh() == {"read": 1, "unchanged": 1, "gone": 0, "unreadable": 0}
    assert made.search("alpha") == []
    assert made.search("gamma")[0].file == "a.md"
    (folder / "b.md").unlink()
    assert made.refresh() == {"read": 0, "unchanged": 1, "gone": 1, "unreadable": 0}
    assert made.search("beta hidden") == []


def test_unreadable_documents_are_named(tmp_path: Path) -> None:
    """Issue 6: a document that cannot be read is listed with its reason, and read no further."""
    folder = written(tmp_path / "docs", bad__pdf=b"%PDF-1.4 nope", good__md="good")
    made = index(folder)
    assert made.refresh()["unreadable"] == 1
    assert made.problems()[0][0] == "bad.pdf"
    assert made.search("good")[0].file == "good.md"


@settings(max_examples=150, deadline=None)
@given(query=st.text(max_size=60))
def test_no_question_is_taken_for_a_query_language(
    query: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Issue 6: quotes, operators and column names in a question are words, never syntax."""
    base = tmp_path_factory.getbasetemp() / "query"
    folder = written(base / "docs", a__md='NEAR AND "title:" - * text OR NOT')
    index(folder).search(query + ' AND title: "x* NEAR(a b) OR -')


def test_collections_are_kept_apart(tmp_path: Path) -> None:
    """S2.12: one tool with a `collection` parameter; an unknown one is named."""
    one = written(tmp_path / "one", a__md="shared apple")
    two = written(tmp_path / "two", a__md="shared pear")
    made = DocumentIndex({"one": one, "two": two}, tmp_path / "index.db")
    assert {hit.collection for hit in made.search("shared")} == {"one", "two"}
    assert [hit.text for hit in made.search("shared", collection="two")] == ["shared pear"]
    (event,) = ran(
        executor(search_tool("search", made)), call("search", {"query": "x", "collection": "three"})
    )
    assert "known: one, two" in event.result["error"]
    with pytest.raises(ToolFailure):
        made.search("x", collection="three")


def test_meaning_and_words_are_joined(tmp_path: Path) -> None:
    """Issue 6: with an embedder, what is near in meaning is found without a common word."""

    class Topics:
        """Vectors by topic."""

        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return [[float("cat" in t or "feline" in t), float("car" in t), 0.01] for t in texts]

    folder = written(tmp_path / "docs", a__md="a feline sleeps", b__md="a car drives")
    made = index(folder, embedder=Topics())
    assert made.search("cat")[0].file == "a.md"
    assert index(written(tmp_path / "p" / "docs", a__md="a feline sleeps")).search("cat") == []


def test_the_prompt_can_be_filled_from_the_documents(tmp_path: Path) -> None:
    """S1.1: `{{rag_context}}` holds the best passages, each with its place."""
    folder = written(tmp_path / "docs", a__md="# T\n\nThe answer is 42.")
    made = index_of({"folder": "docs"}, "search_documents", tmp_path)
    assert rag_context(made, "what is the answer") == "[a.md:1] # T\n\nThe answer is 42."
    assert folder.is_dir()
