"""`search_documents`: a folder of documents in an SQLite index, ranked by BM25.

The index follows the folder: a file whose content has not changed is not read again, one that is gone
is forgotten. With an embedder the ranking of words and that of meaning are joined by reciprocal rank
fusion. A search of one's own plugs in by one line: anything with `search` can stand here.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.sources.document_text import MOST_BYTES, Unreadable, is_document, passages
from toolchart.tools.sources.services import DEFAULT_COLLECTION, Embedder, Hit, Search

MOST_FILES = 20_000
MOST_HITS = 20
SNIPPET_WORDS = 40
HIGHLIGHT = ("**", "**")
FUSION = 60
"""Weakens the lead of first places when rankings are joined. Source: Cormack, Clarke and Buettcher,
"Reciprocal Rank Fusion", SIGIR 2009."""

_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    collection TEXT, path TEXT, hash TEXT, stamp TEXT, problem TEXT, PRIMARY KEY (collection, path));
CREATE VIRTUAL TABLE IF NOT EXISTS passages USING fts5 (
    text, title, collection UNINDEXED, path UNINDEXED, line UNINDEXED, vector UNINDEXED,
    tokenize = 'unicode61 remove_diacritics 2');
"""


class DocumentIndex:
    """One or several folders, each a collection, in one SQLite file.

    Args:
        folders: folder of each collection.
        file: where the index is kept; `:memory:` for one that is made anew each time is not possible,
            since every search opens the file for itself.
    """

    def __init__(
        self, folders: Mapping[str, Path], file: Path, *, embedder: Embedder | None = None
    ) -> None:
        self._folders = dict(folders)
        self._file = file
        self._embedder = embedder
        named = getattr(embedder, "name", type(embedder).__name__)
        self._made_with = hashlib.sha256(named.encode()).hexdigest()[:8] if embedder else "words"

    # -- keeping up ------------------------------------------------------------------------------

    def refresh(self) -> dict[str, int]:
        """Follow the folders; `{read, unchanged, gone, unreadable}` counts files."""
        counts = {"read": 0, "unchanged": 0, "gone": 0, "unreadable": 0}
        with closing(self._open()) as db, db:
            for collection, folder in self._folders.items():
                known = dict(
                    db.execute(
                        "SELECT path, stamp || ' ' || hash FROM files WHERE collection = ?",
                        (collection,),
                    ).fetchall()
                )
                for path in _documents(folder):
                    name = path.relative_to(folder).as_posix()
                    counts[self._follow(db, collection, path, name, known.pop(name, None))] += 1
                for name in known:
                    _forget(db, collection, name)
                    counts["gone"] += 1
        return counts

    def _follow(
        self, db: sqlite3.Connection, collection: str, path: Path, name: str, known: str | None
    ) -> str:
        """Read one file if it has changed; by its time and size first, then by its content."""
        found = path.stat()
        # Vectors of another model cannot be compared: such a file counts as changed.
        stamp = f"{found.st_mtime_ns}:{found.st_size}:{self._made_with}"
        if known is not None and known.split(" ")[0] == stamp:
            return "unchanged"
        data = path.read_bytes()[: MOST_BYTES + 1]
        digest = f"{hashlib.sha256(data).hexdigest()}:{self._made_with}"
        if known is not None and known.split(" ")[1] == digest:
            db.execute(
                "UPDATE files SET stamp = ? WHERE collection = ? AND path = ?",
                (stamp, collection, name),
            )
            return "unchanged"
        _forget(db, collection, name)
        problem = self._read(db, collection, path, name, data)
        row = (collection, name, digest, stamp, problem)
        db.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?)", row)
        return "unreadable" if problem else "read"

    def _read(
        self, db: sqlite3.Connection, collection: str, path: Path, name: str, data: bytes
    ) -> str | None:
        if len(data) > MOST_BYTES:
            return f"larger than {MOST_BYTES} bytes"
        try:
            found = passages(path, data)
        except Unreadable as problem:
            return str(problem)
        vectors = self._vectors([passage.text for passage in found])
        db.executemany(
            "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?)",
            [
                (one.text, one.title, collection, name, one.line, vector)
                for one, vector in zip(found, vectors, strict=True)
            ],
        )
        return None

    def _vectors(self, texts: Sequence[str]) -> Iterable[bytes | None]:
        if self._embedder is None or not texts:
            return [None] * len(texts)
        return [_packed(vector) for vector in self._embedder.embed(texts)]

    def problems(self) -> list[tuple[str, str]]:
        """Files that could not be read, and why."""
        with closing(self._open()) as db:
            rows = db.execute(
                "SELECT path, problem FROM files WHERE problem IS NOT NULL ORDER BY 1"
            )
            return [(str(path), str(problem)) for path, problem in rows]

    def _open(self) -> sqlite3.Connection:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self._file, timeout=30)
        db.executescript(_TABLES)
        return db

    # -- searching -------------------------------------------------------------------------------

    def search(self, query: str, *, collection: str | None = None, limit: int = 5) -> list[Hit]:
        """The best hits for a question in words; every one of its words counts, none must be there.

        Raises:
            ToolFailure: there is no such collection.
        """
        if collection is not None and collection not in self._folders:
            known = ", ".join(self._folders)
            raise ToolFailure(f"there is no collection {collection!r} (known: {known})")
        self.refresh()
        with closing(self._open()) as db:
            by_words = _by_words(db, query, collection, max(limit, 50))
            by_meaning = self._by_meaning(db, query, collection)
        ranked = _fused(by_words, by_meaning) if by_meaning else by_words
        return ranked[: max(1, min(limit, MOST_HITS))]

    def _by_meaning(self, db: sqlite3.Connection, query: str, collection: str | None) -> list[Hit]:
        if self._embedder is None:
            return []
        asked = _normal(self._embedder.embed([query])[0])
        rows = db.execute(
            "SELECT path, line, title, text, collection, vector FROM passages "
            "WHERE vector IS NOT NULL AND (? IS NULL OR collection = ?)",
            (collection, collection),
        )
        hits = []
        for path, line, title, text, where, packed in rows:
            near = sum(map(float.__mul__, asked, _unpacked(packed)))
            hits.append(
                Hit(
                    file=path,
                    line=line,
                    title=title,
                    snippet=text[:200],
                    text=text,
                    score=near,
                    collection=where,
                )
            )
        return sorted(hits, key=lambda hit: -hit.score)[:50]


def _documents(folder: Path) -> Iterator[Path]:
    """Documents under a folder; hidden ones and links are passed over."""
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            if name.startswith(".") or path.is_symlink() or not is_document(path):
                continue
            count += 1
            if count > MOST_FILES:
                return
            yield path


def _forget(db: sqlite3.Connection, collection: str, name: str) -> None:
    for table in ("files", "passages"):
        db.execute(f"DELETE FROM {table} WHERE collection = ? AND path = ?", (collection, name))


def _by_words(db: sqlite3.Connection, query: str, collection: str | None, limit: int) -> list[Hit]:
    # Each word is quoted, so that nothing in a question is taken for the index's query language.
    words = re.findall(r"\w+", query)[:40]
    if not words:
        return []
    asked = " OR ".join(f'"{word}"' for word in words)
    rows = db.execute(
        "SELECT path, line, title, text, collection, -bm25(passages, 1.0, 2.0), "
        "snippet(passages, 0, ?, ?, '...', ?) FROM passages "
        "WHERE passages MATCH ? AND (? IS NULL OR collection = ?) ORDER BY 6 DESC LIMIT ?",
        (*HIGHLIGHT, SNIPPET_WORDS, asked, collection, collection, limit),
    )
    return [
        Hit(
            file=path,
            line=line,
            title=title,
            text=text,
            collection=where,
            score=round(score, 4),
            snippet=snippet,
        )
        for path, line, title, text, where, score, snippet in rows
    ]


def _fused(*rankings: list[Hit]) -> list[Hit]:
    """Rankings joined by place: good in both is better than best in one."""
    scores: dict[tuple[str, str, int], float] = {}
    hits: dict[tuple[str, str, int], Hit] = {}
    for ranking in rankings:
        for place, hit in enumerate(ranking, 1):
            key = (hit.collection, hit.file, hit.line)
            scores[key] = scores.get(key, 0.0) + 1 / (FUSION + place)
            hits.setdefault(key, hit)
    best = sorted(scores, key=lambda key: -scores[key])
    return [replace(hits[key], score=round(scores[key], 4)) for key in best]


def _normal(vector: Sequence[float]) -> list[float]:
    length = sum(value * value for value in vector) ** 0.5 or 1.0
    return [float(value) / length for value in vector]


def _packed(vector: Sequence[float]) -> bytes:
    return array("f", _normal(vector)).tobytes()


def _unpacked(packed: bytes) -> array[float]:
    vector = array("f")
    vector.frombytes(packed)
    return vector


# -- as a tool -----------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "description": "What to look for, in words."},
        "collection": {"type": "string", "description": "Where to look; everywhere if left out."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST_HITS, "description": "Hits."},
    },
    "required": ["query"],
}

SETTINGS = ("folder", "folders", "index", "limit", "embeddings")


def search_tool(name: str, search: Search, *, limit: int = 5) -> Tool:
    """A tool that searches."""

    def run(arguments: Mapping[str, Any]) -> dict[str, Any]:
        hits = search.search(
            arguments["query"],
            collection=arguments.get("collection"),
            limit=arguments.get("limit", limit),
        )
        return {"hits": [_told(hit) for hit in hits]}

    definition = ToolDefinition(name=name, description="Search the documents.", parameters=SCHEMA)
    return Tool(
        definition=definition,
        run=run,
        way="thread",
        kind="internal",
        idempotent=True,
        listing=True,
        search=search,
    )


def _told(hit: Hit) -> dict[str, Any]:
    return {
        "file": hit.file,
        "line": hit.line,
        "title": hit.title,
        "snippet": hit.snippet,
        "collection": hit.collection,
        "score": hit.score,
    }


def index_of(
    settings: Mapping[str, Any], name: str, beside: Path, *, embedder: Embedder | None = None
) -> DocumentIndex:
    """The index that an entry's settings describe: `folder`, or `folders` by collection; `index`.

    Raises:
        SpecError: no folder is named, or it is not there.
    """
    folders = settings.get("folders") or {DEFAULT_COLLECTION: settings.get("folder")}
    if not isinstance(folders, Mapping) or not all(isinstance(f, str) for f in folders.values()):
        raise SpecError(
            f"tool {name!r} needs a folder of documents", hint="folder: docs   (beside name)"
        )
    found = {str(collection): (beside / folder).resolve() for collection, folder in folders.items()}
    for folder in found.values():
        if not folder.is_dir():
            raise SpecError(f"tool {name!r}: there is no folder {str(folder)!r}")
    default = f".toolchart/{name}.db"
    return DocumentIndex(found, beside / settings.get("index", default), embedder=embedder)


def rag_context(search: Search, query: str, *, limit: int = 5) -> str:
    """What `{{rag_context}}` of a prompt is filled with: the best passages, each with its place."""
    hits = search.search(query, collection=None, limit=limit)
    return "\n\n".join(f"[{hit.file}:{hit.line}] {hit.text}" for hit in hits)
