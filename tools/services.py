"""Interfaces that a program implements to supply its own document search or embedder.

`Engine(spec, services={"search_documents": MySearch()})` installs a search. The spec's entry with that
handler and `{{rag_context}}` in a prompt then use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from toolchart.states.content import Value

DEFAULT_COLLECTION = "documents"


class Hit(Value, frozen=True, kw_only=True):
    """One result of a search: a passage and where it stands."""

    file: str
    line: int
    title: str
    snippet: str
    """A part of the passage, with the words of the query highlighted."""
    text: str
    """The whole passage."""
    score: float
    """Higher is better; comparable only among the hits of one search."""
    collection: str = DEFAULT_COLLECTION


@runtime_checkable
class Search(Protocol):
    """The interface behind `search_documents`; a program's own search implements it.

    It is called in a thread, so it may block. The model receives the text of a `ToolFailure` it raises.
    """

    def search(self, query: str, *, collection: str | None, limit: int) -> Sequence[Hit]:
        """Return at most `limit` hits, the best first; `collection` None searches all collections."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors, for a search by similarity."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector per text, in the same order and all of one length."""
        ...


EmbedderFactory = Callable[[str, str], Embedder]
"""Makes an embedder from the name of an `llms` entry and the name of an embedding model."""
