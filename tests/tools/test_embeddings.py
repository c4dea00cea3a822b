"""Search by meaning: vectors from a model host, joined with the ranking by words."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import calls, engine
from web import Answer, web

from toolchart.providers.embeddings import MOST_AT_ONCE, HostEmbedder
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError
from toolchart.tools.sources.documents import DocumentIndex

THEMES = (("cat", "feline", "purr"), ("car", "drive", "engine"))


def meaning(text: str) -> list[float]:
    """A vector of two themes, so that a cat is near a feline."""
    return [float(any(word in text.lower() for word in theme)) for theme in THEMES] + [0.01]


def host(asked: dict[str, Any]) -> Answer:
    """A host that embeds in the three providers' forms."""
    body = json.loads(asked["body"])
    if asked["path"].endswith("/embeddings"):
        rows = [{"index": n, "embedding": meaning(text)} for n, text in enumerate(body["input"])]
        return _json({"data": rows[::-1]})  # their order is not promised
    if asked["path"].endswith("/api/embed"):
        return _json({"embeddings": [meaning(text) for text in body["input"]]})
    texts = [one["content"]["parts"][0]["text"] for one in body["requests"]]
    return _json({"embeddings": [{"values": meaning(text)} for text in texts]})


def _json(value: Any) -> Answer:
    return 200, {"content-type": "application/json"}, json.dumps(value).encode()


def embedder(provider: str, url: str, model: str = "e") -> HostEmbedder:
    """The embedder of a host on this machine."""
    config = LLMConfig.model_validate({"provider": provider, "base_url": url, "api_key": "k"})
    return HostEmbedder(config, model, lambda text: text)


@pytest.mark.parametrize("provider", ["openai", "ollama", "gemini"])
def test_every_provider_gives_vectors_in_order(provider: str) -> None:
    """Issue 6: texts become vectors in each host's own form, in bounded requests, in their order."""
    texts = ["a cat", "a car"] * MOST_AT_ONCE
    with web(host) as server:
        assert embedder(provider, server.url).embed(texts) == [meaning(text) for text in texts]
        assert len(server.asked) == 2
        assert embedder(provider, server.url).embed([]) == []


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"data": []},
        {"data": [{}]},
        {"data": [{"embedding": ["x"]}]},
        {"data": [{"embedding": []}]},
    ],
)
def test_what_is_no_vector_is_refused(answer: Any) -> None:
    """Issue 6: an answer without as many vectors as texts is a failure that says so."""
    with web(lambda asked: _json(answer)) as server, pytest.raises(ProviderError, match="answer"):
        embedder("openai", server.url).embed(["x"])


def test_a_provider_that_embeds_nothing_is_refused() -> None:
    """Issue 6: only hosts that embed can be named."""
    with pytest.raises(SpecError, match="makes no embeddings"):
        HostEmbedder(LLMConfig(provider="scripted"), "e", lambda text: text)


def section(folder: Path, **embeddings: Any) -> dict[str, Any]:
    """A tools section with a search by meaning over two documents."""
    folder.mkdir(exist_ok=True)
    (folder / "a.md").write_text("A feline sleeps.", "utf-8")
    (folder / "b.md").write_text("Please drive on the left.", "utf-8")
    entry = {"name": "search_documents", "folder": str(folder), "index": str(folder / ".index.db")}
    return {"registry": [{**entry, "embeddings": embeddings}]}


def test_an_agent_finds_what_no_word_names(tmp_path: Path) -> None:
    """Issue 6: an entry's `embeddings` names an llms entry; a search finds what its words do not."""
    with web(host) as server:
        llms = {
            "model": {"provider": "scripted", "model": "m", "replies": ["unused"]},
            "box": {"provider": "ollama", "base_url": server.url},
        }
        tools = section(tmp_path / "docs", llm="box", model="e")
        replies = [calls(("search_documents", {"query": "cat"})), "done"]
        with engine(replies, llms=llms, tools=tools) as made:
            result = made.run("Where is the cat?")
    assert not result.warnings
    hits = result.tool_calls[0]["result"]["result"]["hits"]
    assert hits[0]["file"] == "a.md"


@pytest.mark.parametrize(
    ("embeddings", "told"),
    [
        ({"llm": "bux", "model": "e"}, "there is no llm 'bux'"),
        ({"llm": "model", "model": "e"}, "makes no embeddings"),
        ({"llm": "model"}, "embeddings name a host and its embedding model"),
    ],
)
def test_mistakes_in_the_entry(tmp_path: Path, embeddings: Any, told: str) -> None:
    """Issue 6: a host that is not there, one that embeds nothing, a model that is not named."""
    with pytest.raises(SpecError, match=told):
        engine(["x"], tools=section(tmp_path / "docs", **embeddings))


def test_a_host_that_is_down_is_a_failed_search(tmp_path: Path) -> None:
    """Issue 6: without its host a search fails as data for the model, and the turn goes on."""
    llms = {
        "model": {"provider": "scripted", "model": "m", "replies": ["unused"]},
        "box": {"provider": "ollama", "base_url": "http://127.0.0.1:9"},
    }
    tools = section(tmp_path / "docs", llm="box", model="e")
    replies = [calls(("search_documents", {"query": "cat"})), "done"]
    with engine(replies, llms=llms, tools=tools) as made:
        result = made.run("go")
    assert result.content == "done"
    assert not result.tool_calls[0]["result"]["success"]


class Counting:
    """An embedder that counts, under a name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += len(texts)
        return [meaning(text) for text in texts]


def test_another_model_makes_the_index_anew(tmp_path: Path) -> None:
    """Issue 6: vectors of two models are never compared; an unchanged file is embedded once each."""
    folder = tmp_path / "docs"
    section(folder)
    for name, expected in (("one", 2), ("one", 0), ("two", 2)):
        counting = Counting(name)
        DocumentIndex({"documents": folder}, tmp_path / "i.db", embedder=counting).refresh()
        assert counting.texts == expected, name
    os.utime(folder / "a.md", ns=(1, 1))  # touched, not changed
    counting = Counting("two")
    DocumentIndex({"documents": folder}, tmp_path / "i.db", embedder=counting).refresh()
    assert counting.texts == 0
