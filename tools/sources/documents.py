"""The `search_documents` tool: full-text search over folders of documents, in an SQLite index.

Hits are ranked by BM25. Before each search the index is brought up to date: changed files are read
again, deleted files are removed. With an embedder there is a second ranking by vector similarity, and
reciprocal rank fusion merges the two. A program may supply its own search instead; see `services.py`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import sqlite3
import stat
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.reading_limits import READING, name_limit
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.services import DEFAULT_COLLECTION, Embedder, Hit, Search
from toolchart.tools.sources.document_text import UnreadableDocument, is_document, read_passages_bounded

MAX_HITS = 20
SNIPPET_WORDS = 40
HIGHLIGHT = ("**", "**")
FUSION = 60
"""The constant k of reciprocal rank fusion; a larger one gives first places less weight. Source:
Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion", SIGIR 2009."""

_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    collection TEXT, path TEXT, hash TEXT, stamp TEXT, problem TEXT, PRIMARY KEY (collection, path));
CREATE VIRTUAL TABLE IF NOT EXISTS passages USING fts5 (
    text, title, collection UNINDEXED, path UNINDEXED, line UNINDEXED, vector UNINDEXED,
    tokenize = 'unicode61 remove_diacritics 2');
"""


class DocumentIndex:
    """A search index over one or several folders, in one SQLite file.

    Args:
        folders: the folder of each collection, by the collection's name.
        file: the SQLite file. `:memory:` is not possible, since every search opens the file anew.
        embedder: adds a ranking by vector similarity; without it hits are ranked by words alone.
    """

    def __init__(self, folders: Mapping[str, Path], file: Path, *, embedder: Embedder | None = None) -> None:
        self._folders = dict(folders)
        self._file = file
        self._embedder = embedder
        embedder_name = getattr(embedder, "name", type(embedder).__name__)
        self._vector_source = hashlib.sha256(embedder_name.encode()).hexdigest()[:8] if embedder else "words"

    # -- updating --------------------------------------------------------------------------------

    def refresh_files(self) -> dict[str, int]:
        """Bring the index up to date with the folders.

        Returns:
            `{read, unchanged, gone, unreadable}`: the number of files of each kind.

        Raises:
            ToolFailure: a folder has too many documents; the index is as before.
        """
        counts = {"read": 0, "unchanged": 0, "gone": 0, "unreadable": 0}
        with closing(self._open_database()) as db, db:
            for collection, folder in self._folders.items():
                indexed_files = dict(
                    db.execute(
                        "SELECT path, stamp || ' ' || hash FROM files WHERE collection = ?", (collection,)
                    ).fetchall()
                )
                for path in _iterate_documents(folder):
                    name = path.relative_to(folder).as_posix()
                    counts[self._update_file(db, collection, path, name, indexed_files.pop(name, None))] += 1
                for name in indexed_files:
                    _delete_file_rows(db, collection, name)
                    counts["gone"] += 1
        return counts

    def _update_file(
        self, db: sqlite3.Connection, collection: str, path: Path, name: str, previous_state: str | None
    ) -> str:
        """Index one file if it has changed, judged by its time and size, then by its hash."""
        try:
            return self._update_regular_file(db, collection, path, name, previous_state)
        except OSError as error:  # one file that cannot be opened must not hide the others
            _delete_file_rows(db, collection, name)
            problem = f"cannot be opened: {error.strerror or type(error).__name__}"
            db.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?)", (collection, name, "-", "-", problem))
            return "unreadable"

    def _update_regular_file(
        self, db: sqlite3.Connection, collection: str, path: Path, name: str, previous_state: str | None
    ) -> str:
        status = path.stat()
        # Vectors of different models cannot be compared, so a new model makes every file count as changed.
        stamp = f"{status.st_mtime_ns}:{status.st_size}:{self._vector_source}"
        if previous_state is not None and previous_state.split(" ")[0] == stamp:
            return "unchanged"
        data = _read_regular_file(path)
        digest = f"{hashlib.sha256(data).hexdigest()}:{self._vector_source}"
        if previous_state is not None and previous_state.split(" ")[1] == digest:
            db.execute(
                "UPDATE files SET stamp = ? WHERE collection = ? AND path = ?", (stamp, collection, name)
            )
            return "unchanged"
        _delete_file_rows(db, collection, name)
        problem = self._index_file(db, collection, path, name, data)
        row = (collection, name, digest, stamp, problem)
        db.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?)", row)
        return "unreadable" if problem else "read"

    def _index_file(
        self, db: sqlite3.Connection, collection: str, path: Path, name: str, data: bytes
    ) -> str | None:
        if len(data) > READING.document_bytes:
            return f"larger than {READING.document_bytes} bytes {name_limit('document_bytes')}"
        try:
            passages = read_passages_bounded(path, data)
        except UnreadableDocument as problem:
            return str(problem)
        vectors = self._embed_texts([passage.text for passage in passages])
        db.executemany(
            "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?)",
            [
                (row_passage.text, row_passage.title, collection, name, row_passage.line, vector)
                for row_passage, vector in zip(passages, vectors, strict=True)
            ],
        )
        return None

    def _embed_texts(self, texts: Sequence[str]) -> Iterable[bytes | None]:
        if self._embedder is None or not texts:
            return [None] * len(texts)
        return [_pack_vector(vector) for vector in self._embedder.embed(texts)]

    def _open_database(self) -> sqlite3.Connection:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self._file, timeout=30)
        db.executescript(_TABLES)
        return db

    # -- searching -------------------------------------------------------------------------------

    def search(self, query: str, *, collection: str | None = None, limit: int = 5) -> list[Hit]:
        """Find the passages that fit a question best, the best first.

        Every word of the question adds to the score; no word is required.

        Args:
            collection: the one collection to search; None searches all of them.

        Raises:
            ToolFailure: there is no such collection, or its folder has too many documents.
        """
        if collection is not None and collection not in self._folders:
            known_names = ", ".join(self._folders)
            raise ToolFailure(f"there is no collection {collection!r} (known: {known_names})")
        self.refresh_files()
        with closing(self._open_database()) as db:
            word_hits = _find_by_words(db, query, collection, max(limit, 50))
            meaning_hits = self._find_by_meaning(db, query, collection)
        hits = _fuse_rankings(word_hits, meaning_hits) if meaning_hits else word_hits
        return hits[: max(1, min(limit, MAX_HITS))]

    def _find_by_meaning(self, db: sqlite3.Connection, query: str, collection: str | None) -> list[Hit]:
        if self._embedder is None:
            return []
        query_vector = _normalize_vector(self._embedder.embed([query])[0])
        rows = db.execute(
            "SELECT path, line, title, text, collection, vector FROM passages "
            "WHERE vector IS NOT NULL AND (? IS NULL OR collection = ?)",
            (collection, collection),
        )
        hits = []
        for path, line, title, text, hit_collection, vector_bytes in rows:
            similarity = sum(map(float.__mul__, query_vector, _unpack_vector(vector_bytes)))
            hits.append(
                Hit(
                    file=path,
                    line=line,
                    title=title,
                    snippet=text[:200],
                    text=text,
                    score=similarity,
                    collection=hit_collection,
                )
            )
        return sorted(hits, key=lambda hit: -hit.score)[:50]


def _iterate_documents(folder: Path) -> Iterator[Path]:
    """Documents under a folder, in a stable order; hidden files and links are skipped.

    Raises:
        ToolFailure: they are more than `documents`.
    """
    count = 0
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(directory, name)
            if name.startswith(".") or path.is_symlink() or not is_document(path):
                continue
            count += 1
            if count > READING.documents:  # a search of a part would look like one of the whole
                problem = f"{folder} has more than {READING.documents:,} documents: name a smaller folder"
                raise ToolFailure(f"{problem} {name_limit('documents')}")
            yield path


def _read_regular_file(path: Path) -> bytes:
    """At most one byte more than `document_bytes` of a file.

    Raises:
        OSError: it cannot be opened, or is a pipe, a device or a link; none of them is waited for.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(READING.document_bytes + 1)


def _delete_file_rows(db: sqlite3.Connection, collection: str, name: str) -> None:
    for table in ("files", "passages"):
        db.execute(f"DELETE FROM {table} WHERE collection = ? AND path = ?", (collection, name))


def _find_by_words(db: sqlite3.Connection, query: str, collection: str | None, limit: int) -> list[Hit]:
    # Each word is quoted, so that SQLite does not read a word of the question as query syntax.
    words = re.findall(r"\w+", query)[:40]
    if not words:
        return []
    match_expression = " OR ".join(f'"{word}"' for word in words)
    rows = db.execute(
        "SELECT path, line, title, text, collection, -bm25(passages, 1.0, 2.0), "
        "snippet(passages, 0, ?, ?, '...', ?) FROM passages "
        "WHERE passages MATCH ? AND (? IS NULL OR collection = ?) ORDER BY 6 DESC LIMIT ?",
        (*HIGHLIGHT, SNIPPET_WORDS, match_expression, collection, collection, limit),
    )
    return [
        Hit(
            file=path,
            line=line,
            title=title,
            text=text,
            collection=hit_collection,
            score=round(score, 4),
            snippet=snippet,
        )
        for path, line, title, text, hit_collection, score, snippet in rows
    ]


def _fuse_rankings(*rankings: list[Hit]) -> list[Hit]:
    """Merge rankings by reciprocal rank fusion: a good rank in both beats the best rank in one."""
    scores: dict[tuple[str, str, int], float] = {}
    hits: dict[tuple[str, str, int], Hit] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, 1):
            key = (hit.collection, hit.file, hit.line)
            scores[key] = scores.get(key, 0.0) + 1 / (FUSION + rank)
            hits.setdefault(key, hit)
    best = sorted(scores, key=lambda key: -scores[key])
    return [replace(hits[key], score=round(scores[key], 4)) for key in best]


def _normalize_vector(vector: Sequence[float]) -> list[float]:
    length = sum(value * value for value in vector) ** 0.5 or 1.0
    return [float(value) / length for value in vector]


def _pack_vector(vector: Sequence[float]) -> bytes:
    return array("f", _normalize_vector(vector)).tobytes()


def _unpack_vector(vector_bytes: bytes) -> array[float]:
    vector = array("f")
    vector.frombytes(vector_bytes)
    return vector


# -- as a tool -----------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "description": "What to look for, in words."},
        "collection": {"type": "string", "description": "Where to look; everywhere if left out."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "description": "Hits."},
    },
    "required": ["query"],
}

SEARCH_SETTINGS = ("folder", "folders", "index", "limit", "embeddings")


def make_search_tool(name: str, search: Search, *, limit: int = 5) -> Tool:
    """Make the tool that calls a search.

    Args:
        limit: number of hits when the model names none.
    """

    def run_search(arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Search with the arguments of one call."""
        hits = search.search(
            arguments["query"], collection=arguments.get("collection"), limit=arguments.get("limit", limit)
        )
        return {"hits": [_encode_hit(hit) for hit in hits]}

    definition = ToolDefinition(name=name, description="Search the documents.", parameters=SCHEMA)
    return Tool(
        definition=definition,
        run=run_search,
        execution_mode="thread",
        kind="internal",
        idempotent=True,
        listing=True,
        search=search,
    )


def _encode_hit(hit: Hit) -> dict[str, Any]:
    return {
        "file": hit.file,
        "line": hit.line,
        "title": hit.title,
        "snippet": hit.snippet,
        "collection": hit.collection,
        "score": hit.score,
    }


def make_index(
    settings: Mapping[str, Any], name: str, base_folder: Path, *, embedder: Embedder | None = None
) -> DocumentIndex:
    """Make the index that an entry of the spec describes.

    Args:
        settings: `folder`, or `folders` by collection name; `index` is the file of the index.
        name: name of the tool, for errors and for the default file name.
        base_folder: the folder that relative paths start from.

    Raises:
        SpecError: no folder is named, or a folder does not exist.
    """
    folders = settings.get("folders") or {DEFAULT_COLLECTION: settings.get("folder")}
    if not isinstance(folders, Mapping) or not all(isinstance(f, str) for f in folders.values()):
        raise SpecError(f"tool {name!r} needs a folder of documents", hint="folder: docs   (beside name)")
    resolved_folders = {
        str(collection): (base_folder / str(folder)).resolve() for collection, folder in folders.items()
    }
    for folder in resolved_folders.values():
        if not folder.is_dir():
            raise SpecError(f"tool {name!r}: there is no folder {str(folder)!r}")
    default = f".toolchart/{name}.db"
    return DocumentIndex(resolved_folders, base_folder / settings.get("index", default), embedder=embedder)


def build_rag_context(search: Search, query: str, *, limit: int = 5) -> str:
    """The value of `{{rag_context}}` in a prompt: the best passages, each with its file and line."""
    hits = search.search(query, collection=None, limit=limit)
    return "\n\n".join(f"[{hit.file}:{hit.line}] {hit.text}" for hit in hits)
