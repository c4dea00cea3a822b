"""Tests of document search: reading of documents, updates of the index, and ranking."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_calls import make_call, make_executor, run_calls

from toolchart.tools.definition import ToolFailure
from toolchart.tools.sources.document_text import MAX_PASSAGE_LENGTH, UnreadableDocument, read_passages
from toolchart.tools.sources.documents import DocumentIndex, build_rag_context, make_index, make_search_tool


def write_files(folder: Path, **files: str | bytes) -> Path:
    """A folder with these files; `__` in a name stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def build_index(folder: Path, **options: Any) -> DocumentIndex:
    """The index of a folder."""
    return DocumentIndex({"documents": folder}, folder.parent / "index.db", **options)


def make_pdf(*pages: str) -> bytes:
    """A small PDF with one line of text per page."""
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
    folder = write_files(
        tmp_path / "docs",
        guide__md="# Guide\n\nIntro.\n\n## Cooling pumps\n\nThe pump needs oil each year.\n",
        other__txt="Nothing of the kind here.",
    )
    hit = build_index(folder).search("pump oil")[0]
    assert (hit.file, hit.line, hit.title) == ("guide.md", 5, "Cooling pumps")
    assert "**oil**" in hit.snippet


def test_html_is_read_as_a_reader_sees_it(tmp_path: Path) -> None:
    """Issue 6: scripts and styles are skipped, headings become titles, entities become characters."""
    page = """<html><head><title>Shop</title><style>p{}</style></head><body>
    <script>var secret = 1;</script><h2>Opening &amp; closing</h2>
    <p>We open at <b>nine</b>.</p><p>Second.</p></body></html>"""
    page_passages = read_passages(Path("a.html"), page.encode())
    text = "\n".join(passage.text for passage in page_passages)
    assert "We open at nine." in text
    assert "secret" not in text
    assert page_passages[-1].title == "Opening & closing"
    assert page_passages[-1].line == 2


def test_pdf_is_read_by_page() -> None:
    """Issue 6: the passages of a PDF name their page; a damaged PDF raises `UnreadableDocument`."""
    page_passages = read_passages(Path("a.pdf"), make_pdf("First page", "Second page"))
    assert [(passage.text, passage.line, passage.title) for passage in page_passages] == [
        ("First page", 1, "page 1"),
        ("Second page", 2, "page 2"),
    ]
    with pytest.raises(UnreadableDocument):
        read_passages(Path("a.pdf"), b"%PDF-1.4 nonsense")


@settings(max_examples=choose_count(short=40, long=150), deadline=None)
@given(data=st.binary(max_size=3000), suffix=st.sampled_from([".md", ".txt", ".html", ".pdf"]))
def test_no_document_crashes_the_reader(data: bytes, suffix: str) -> None:
    """Issue 6: any content is read or raises `UnreadableDocument`."""
    try:
        found_passages = read_passages(Path(f"x{suffix}"), data)
    except UnreadableDocument:
        return
    assert all(passage.text and len(passage.text) <= 4 * MAX_PASSAGE_LENGTH + 4 for passage in found_passages)


@settings(max_examples=choose_count(short=40, long=100), deadline=None)
@given(lines=st.lists(st.text(alphabet="ab #\n", max_size=80), max_size=60))
def test_no_line_of_a_text_is_lost(lines: list[str]) -> None:
    """Issue 6: the passages of a text hold every word of it, in order, and name their first line."""
    text = "\n".join(lines)
    found_passages = read_passages(Path("x.md"), text.encode())
    assert " ".join(" ".join(passage.text for passage in found_passages).split()) == " ".join(text.split())
    source = text.splitlines()
    for passage in found_passages:
        assert passage.text.splitlines()[0].strip() == source[passage.line - 1].strip()


def test_the_index_follows_the_folder(tmp_path: Path) -> None:
    """Issue 6: unchanged files are not read again, changed files are, deleted files are removed."""
    folder = write_files(tmp_path / "docs", a__md="alpha", b__md="beta", c__bin="x")
    index = build_index(folder)
    assert index.refresh_files() == {"read": 2, "unchanged": 0, "gone": 0, "unreadable": 0}
    write_files(folder, a__md="gamma")
    os.utime(folder / "b.md", (1, 1))
    (folder / ".hidden.md").write_text("hidden")
    assert index.refresh_files() == {"read": 1, "unchanged": 1, "gone": 0, "unreadable": 0}
    assert index.search("alpha") == []
    assert index.search("gamma")[0].file == "a.md"
    (folder / "b.md").unlink()
    assert index.refresh_files() == {"read": 0, "unchanged": 1, "gone": 1, "unreadable": 0}
    assert index.search("beta hidden") == []


def test_unreadable_documents_are_counted(tmp_path: Path) -> None:
    """Issue 6: an unreadable document is counted, and the others are still found."""
    folder = write_files(tmp_path / "docs", bad__pdf=b"%PDF-1.4 nope", good__md="good")
    index = build_index(folder)
    assert index.refresh_files()["unreadable"] == 1
    assert index.search("good")[0].file == "good.md"


@settings(max_examples=choose_count(short=40, long=150), deadline=None)
@given(query=st.text(max_size=60))
def test_questions_are_never_query_syntax(query: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Issue 6: quotes, operators and column names in a question are words, never syntax."""
    base = tmp_path_factory.getbasetemp() / "query"
    folder = write_files(base / "docs", a__md='NEAR AND "title:" - * text OR NOT')
    build_index(folder).search(query + ' AND title: "x* NEAR(a b) OR -')


def test_collections_are_searched_separately(tmp_path: Path) -> None:
    """S2.12: a search can be limited to one collection; an unknown collection is an error."""
    first_folder = write_files(tmp_path / "one", a__md="shared apple")
    second_folder = write_files(tmp_path / "two", a__md="shared pear")
    index = DocumentIndex({"one": first_folder, "two": second_folder}, tmp_path / "index.db")
    assert {hit.collection for hit in index.search("shared")} == {"one", "two"}
    assert [hit.text for hit in index.search("shared", collection="two")] == ["shared pear"]
    (event,) = run_calls(
        make_executor(make_search_tool("search", index)),
        make_call("search", {"query": "x", "collection": "three"}),
    )
    assert "known: one, two" in event.result["error"]
    with pytest.raises(ToolFailure):
        index.search("x", collection="three")


def test_word_and_vector_rankings_are_merged(tmp_path: Path) -> None:
    """Issue 6: with an embedder, a similar passage is found without a common word."""

    class Topics:
        """Vectors by topic."""

        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return [[float("cat" in t or "feline" in t), float("car" in t), 0.01] for t in texts]

    folder = write_files(tmp_path / "docs", a__md="a feline sleeps", b__md="a car drives")
    index = build_index(folder, embedder=Topics())
    assert index.search("cat")[0].file == "a.md"
    assert build_index(write_files(tmp_path / "p" / "docs", a__md="a feline sleeps")).search("cat") == []


def test_the_prompt_can_be_filled_from_the_documents(tmp_path: Path) -> None:
    """S1.1: `{{rag_context}}` holds the best passages, each with its file and line."""
    folder = write_files(tmp_path / "docs", a__md="# T\n\nThe answer is 42.")
    index = make_index({"folder": "docs"}, "search_documents", tmp_path)
    assert build_rag_context(index, "what is the answer") == "[a.md:1] # T\n\nThe answer is 42."
    assert folder.is_dir()
