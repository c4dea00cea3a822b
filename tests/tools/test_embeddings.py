"""Tests of document search with embeddings from a model host."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from web import WebAnswer, serve_web

from toolchart.providers.catalogs import BATCH_SIZE, HostEmbedder
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError
from toolchart.tools.sources.documents import DocumentIndex

THEMES = (("cat", "feline", "purr"), ("car", "drive", "engine"))


def embed_theme(text: str) -> list[float]:
    """A vector of two themes, in which a cat and a feline are similar."""
    return [float(any(word in text.lower() for word in theme)) for theme in THEMES] + [0.01]


def answer_embedding(request: dict[str, Any]) -> WebAnswer:
    """Answers embedding requests in the wire formats of the three providers."""
    body = json.loads(request["body"])
    if request["path"].endswith("/embeddings"):
        rows = [{"index": n, "embedding": embed_theme(text)} for n, text in enumerate(body["input"])]
        return make_response({"data": rows[::-1]})  # their order is not promised
    if request["path"].endswith("/api/embed"):
        return make_response({"embeddings": [embed_theme(text) for text in body["input"]]})
    texts = [item["content"]["parts"][0]["text"] for item in body["requests"]]
    return make_response({"embeddings": [{"values": embed_theme(text)} for text in texts]})


def make_response(value: Any) -> WebAnswer:
    return 200, {"content-type": "application/json"}, json.dumps(value).encode()


def build_embedder(provider: str, url: str, model: str = "e") -> HostEmbedder:
    """The embedder of a host on this machine."""
    config = LLMConfig.model_validate({"provider": provider, "base_url": url, "api_key": "k"})
    return HostEmbedder(config, model, lambda text: text)


@pytest.mark.parametrize("provider", ["openai", "ollama", "gemini"])
def test_every_provider_gives_vectors_in_order(provider: str) -> None:
    """Issue 6: each provider embeds texts in bounded batches and returns vectors in their order."""
    texts = ["a cat", "a car"] * BATCH_SIZE
    with serve_web(answer_embedding) as server:
        assert build_embedder(provider, server.url).embed(texts) == [embed_theme(text) for text in texts]
        assert len(server.requests) == 2
        assert build_embedder(provider, server.url).embed([]) == []


@pytest.mark.parametrize(
    "answer",
    [{}, {"data": []}, {"data": [{}]}, {"data": [{"embedding": ["x"]}]}, {"data": [{"embedding": []}]}],
)
def test_responses_without_vectors_are_refused(answer: Any) -> None:
    """Issue 6: a response without one vector per text is an error with a reason."""
    with (
        serve_web(lambda request: make_response(answer)) as server,
        pytest.raises(ProviderError, match="answer"),
    ):
        build_embedder("openai", server.url).embed(["x"])


def test_a_provider_that_embeds_nothing_is_refused() -> None:
    """Issue 6: a provider without embeddings is refused."""
    with pytest.raises(SpecError, match="makes no embeddings"):
        HostEmbedder(LLMConfig(provider="scripted"), "e", lambda text: text)


def make_tools_section(folder: Path, **embeddings: Any) -> dict[str, Any]:
    """A `tools` section with a vector search over two documents."""
    folder.mkdir(exist_ok=True)
    (folder / "a.md").write_text("A feline sleeps.", "utf-8")
    (folder / "b.md").write_text("Please drive on the left.", "utf-8")
    entry = {"name": "search_documents", "folder": str(folder), "index": str(folder / ".index.db")}
    return {"registry": [{**entry, "embeddings": embeddings}]}


def test_an_agent_finds_documents_without_common_words(tmp_path: Path) -> None:
    """Issue 6: with `embeddings` in the entry, a search finds a document without common words."""
    with serve_web(answer_embedding) as server:
        llms = {
            "model": {"provider": "scripted", "model": "m", "replies": ["unused"]},
            "box": {"provider": "ollama", "base_url": server.url},
        }
        tools = make_tools_section(tmp_path / "docs", llm="box", model="e")
        replies = [reply_with_calls(("search_documents", {"query": "cat"})), "done"]
        with make_engine(replies, llms=llms, tools=tools) as engine:
            result = engine.run("Where is the cat?")
    assert not result.warnings
    hits = result.tool_calls[0]["result"]["result"]["hits"]
    assert hits[0]["file"] == "a.md"


@pytest.mark.parametrize(
    ("embeddings", "words"),
    [
        ({"llm": "bux", "model": "e"}, "there is no llm 'bux'"),
        ({"llm": "model", "model": "e"}, "makes no embeddings"),
        ({"llm": "model"}, "embeddings name a host and its embedding model"),
    ],
)
def test_mistakes_in_the_entry(tmp_path: Path, embeddings: Any, words: str) -> None:
    """Issue 6: an unknown host, a host without embeddings and a missing model are errors."""
    with pytest.raises(SpecError, match=words):
        make_engine(["x"], tools=make_tools_section(tmp_path / "docs", **embeddings))


def test_a_host_that_is_down_is_a_failed_search(tmp_path: Path) -> None:
    """Issue 6: if the host is down, the search is a failed call and the turn continues."""
    llms = {
        "model": {"provider": "scripted", "model": "m", "replies": ["unused"]},
        "box": {"provider": "ollama", "base_url": "http://127.0.0.1:9"},
    }
    tools = make_tools_section(tmp_path / "docs", llm="box", model="e")
    replies = [reply_with_calls(("search_documents", {"query": "cat"})), "done"]
    with make_engine(replies, llms=llms, tools=tools) as engine:
        result = engine.run("go")
    assert result.content == "done"
    assert not result.tool_calls[0]["result"]["success"]


class CountingEmbedder:
    """An embedder with a name that counts its texts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += len(texts)
        return [embed_theme(text) for text in texts]


def test_another_model_rebuilds_the_index(tmp_path: Path) -> None:
    """Issue 6: vectors of two models are never compared; an unchanged file is embedded once each."""
    folder = tmp_path / "docs"
    make_tools_section(folder)
    for name, expected in (("one", 2), ("one", 0), ("two", 2)):
        counting = CountingEmbedder(name)
        DocumentIndex({"documents": folder}, tmp_path / "i.db", embedder=counting).refresh_files()
        assert counting.texts == expected, name
    os.utime(folder / "a.md", ns=(1, 1))  # touched, not changed
    counting = CountingEmbedder("two")
    DocumentIndex({"documents": folder}, tmp_path / "i.db", embedder=counting).refresh_files()
    assert counting.texts == 0
