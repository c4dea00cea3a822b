"""Internal services: what a search, or an embedder, of one's own must offer to stand in Toolchart's place.

`Engine(spec, services={"search_documents": MySearch()})` is all it takes: a spec's entry of that
handler, and `{{rag_context}}` of a prompt, then ask that search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from toolchart.tools.definition import Tool

DEFAULT_COLLECTION = "documents"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A passage that was found."""

    file: str
    line: int
    title: str
    snippet: str
    """A part of it, the words that were looked for highlighted."""
    text: str
    """The whole passage."""
    score: float
    """The larger, the better; comparable within one answer only."""
    collection: str = DEFAULT_COLLECTION


@runtime_checkable
class Search(Protocol):
    """What stands behind `search_documents`; a user's own search implements it.

    It is called in a thread, so it may wait; a `ToolFailure` that it raises is told to the model.
    """

    def search(self, query: str, *, collection: str | None, limit: int) -> Sequence[Hit]:
        """The best hits, the best first."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors, for search by meaning."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector per text, all of one length."""
        ...


Service: TypeAlias = "Search | Callable[..., Any] | Tool"
"""A search, a function (its schema from its signature), or a tool as it is."""

EmbedderOf = Callable[[str, str], Embedder]
"""From the name of an `llms` entry and a model to an embedder."""
