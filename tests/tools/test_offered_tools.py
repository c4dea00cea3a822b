"""The tools offered to a model under a host's limit, and the documents inserted into its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from hypothesis import given
from hypothesis import strategies as st

from toolchart.specs.turn_plan import cap_tools
from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply, Request
from toolchart.tools.definition import ToolFailure
from toolchart.tools.services import Hit

TOOLS = {"registry": [{"name": name} for name in ("calculator", "echo", "generate_uuid")]}


class RecordingModel:
    """A scripted model that records the requests it answers."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Reply:
        self.requests.append(request)
        return Reply(content="done", finish_reason="stop")

    @property
    def names(self) -> list[str]:
        """Names of the tools in the latest request."""
        return [tool.name for tool in self.requests[-1].tools]

    @property
    def system(self) -> str:
        """The system prompt of the latest request."""
        return self.requests[-1].messages[0].content or ""


def build_llms(**settings: Any) -> dict[str, Any]:
    """An `llms` section with one host."""
    return {"model": {"provider": "scripted", "model": "m", "replies": ["unused"], **settings}}


def test_a_host_is_offered_at_most_max_tools() -> None:
    """S3.8: `max_tools` of an llms entry limits the tools; essential ones stay, a warning names the rest."""
    model = RecordingModel()
    llms = build_llms(max_tools=2, essential_tools=["generate_*", "missing"])
    with make_engine([model], llms=llms, tools=TOOLS) as engine:
        result = engine.run("go")
    assert model.names == ["calculator", "generate_uuid"]
    assert "2 tools at most (max_tools): echo not offered" in result.warnings
    assert any("essential_tools names 'missing'" in warning for warning in result.warnings)


def test_a_tool_beyond_the_cap_does_not_run() -> None:
    """S3.8, DESIGN 11: a call of a tool that the limit left out is denied."""
    llms = build_llms(max_tools=1)
    with make_engine([reply_with_calls(("echo", {"text": "x"})), "done"], llms=llms, tools=TOOLS) as engine:
        (call,) = engine.run("go").tool_calls
    assert not call["result"]["success"]
    assert "not allowed here; allowed: calculator" in call["result"]["error"]


def test_the_smaller_of_two_caps_holds() -> None:
    """S3.8: the smaller `max_tools` of host and tools section holds; essential tools of both stay."""
    model = RecordingModel()
    tools_section = {**TOOLS, "max_tools": 1, "essential_tools": ["echo"]}
    with make_engine([model], llms=build_llms(max_tools=2), tools=tools_section) as engine:
        result = engine.run("go")
    assert model.names == ["echo"]
    assert not any("does not use" in warning for warning in result.warnings)


def test_lists_may_use_the_spec_s_own_names() -> None:
    """Issue 6: every list accepts the spec's own name of a tool whose name was made portable."""
    model = RecordingModel()
    tools_section = {
        "registry": [
            {"name": "echo"},
            {"name": "geo.lookup", "implementation": {"type": "mock", "mock_response": "Brno"}},
        ]
    }
    responses = [{"llm": "model", "tools": {"enabled": True, "allowed_tools": ["geo.*", "echo"]}}]
    llms = build_llms(max_tools=1, essential_tools=["geo.lookup"])
    replies = [reply_with_calls(("geo.lookup", {})), model]
    with make_engine(replies, llms=llms, tools=tools_section, responses=responses) as engine:
        result = engine.run("go")
    assert model.names == ["geo_lookup"]
    assert result.tool_calls[0]["result"]["result"] == "Brno"
    assert not any("allowed_tools" in warning or "essential" in warning for warning in result.warnings)


@given(
    names=st.lists(st.sampled_from("abcdefgh"), unique=True),
    max_tools=st.integers(1, 9) | st.none(),
    essential=st.lists(st.sampled_from("abcdefgh*"), max_size=4),
)
def test_max_tools_splits_the_tools(names: list[str], max_tools: int | None, essential: list[str]) -> None:
    """S3.8: offered and omitted are all tools, in order; essential tools are offered first."""
    offered_names, omitted_names = cap_tools({name: name for name in names}, max_tools, essential)
    assert sorted([*offered_names, *omitted_names]) == sorted(names)
    assert list(offered_names) == [name for name in names if name in offered_names]
    assert len(offered_names) == min(len(names), max_tools if max_tools is not None else len(names))
    expected_names = {name for name in names if name in essential or "*" in essential}
    assert not (expected_names & set(omitted_names)) or set(offered_names) <= expected_names


# -- documents in the prompt ---------------------------------------------------------------------

PROMPT = [{"llm": "model", "prompt": "Known: <{{rag_context}}>"}]


def build_documents_section(folder: Path) -> dict[str, Any]:
    """A tools section with a search over a folder with one document."""
    folder.mkdir()
    (folder / "ovens.md").write_text("# Ovens\n\nBread bakes at 230 degrees.\n", "utf-8")
    entry = {"name": "search_documents", "folder": str(folder), "index": str(folder / ".index.db")}
    return {"registry": [{**entry}]}


def test_a_prompt_is_filled_from_the_documents(tmp_path: Path) -> None:
    """S3.9: `{{rag_context}}` is replaced by the best passages, each with its file and line."""
    model = RecordingModel()
    tools_section = build_documents_section(tmp_path / "docs")
    with make_engine([model], tools=tools_section, responses=PROMPT) as engine:
        result = engine.run("At how many degrees does bread bake?")
    assert model.system == "Known: <[ovens.md:1] # Ovens\n\nBread bakes at 230 degrees.>"
    assert not result.warnings


def test_the_caller_s_own_context_is_not_replaced(tmp_path: Path) -> None:
    """S3.9: with the caller's own `rag_context` no document is searched."""
    model = RecordingModel()
    tools_section = build_documents_section(tmp_path / "docs")
    with make_engine([model, model], tools=tools_section, responses=PROMPT) as engine:
        engine.run("bread", variables={"rag_context": "mine"})
    assert model.system == "Known: <mine>"
    assert not (tmp_path / "docs" / ".index.db").exists()


class OwnSearch:
    """A search that a program implements itself."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.queries: list[str] = []

    def search(self, query: str, *, collection: str | None, limit: int) -> Sequence[Hit]:
        self.queries.append(query)
        if self.problem:
            raise self.problem
        return [Hit(file="own", line=1, title="", snippet=query, text=query[::-1], score=1.0)]


def test_an_own_search_serves_tool_and_prompt() -> None:
    """Issue 6: `services={"search_documents": ...}` installs a search for the tool and the prompt."""
    model, own_search = RecordingModel(), OwnSearch()
    tools_section = {"registry": [{"name": "search_documents", "implementation": {"type": "internal"}}]}
    replies = [reply_with_calls(("search_documents", {"query": "deep"})), model]
    responses = [{**PROMPT[0], "tools": {"enabled": True}}]
    services = {"search_documents": own_search}
    with make_engine(replies, tools=tools_section, responses=responses, services=services) as engine:
        result = engine.run("abc")
    assert own_search.queries == ["abc", "deep"]
    assert model.system == "Known: <[own:1] cba>"
    assert result.tool_calls[0]["result"]["result"]["hits"][0]["file"] == "own"


def test_an_async_search_is_refused() -> None:
    """A search is called in a thread: an async one would find nothing, so it is an error at load."""

    class AsyncSearch:
        async def search(self, query: str, *, collection: str | None, limit: int) -> list[Hit]:
            return []

    tools_section = {"registry": [{"name": "search_documents", "implementation": {"type": "internal"}}]}
    services: Any = {"search_documents": AsyncSearch()}
    with pytest.raises(SpecError, match=r"AsyncSearch .* is async"):
        make_engine(["done"], tools=tools_section, services=services)


def test_a_failed_search_does_not_end_the_turn() -> None:
    """S3.9: after a failed search the context is empty, there is a warning, and the model is called."""
    for problem in (OSError("no disk"), ToolFailure("no disk")):
        model = RecordingModel()
        services = {"search_documents": OwnSearch(problem)}
        with make_engine([model], responses=PROMPT, services=services) as engine:
            result = engine.run("abc")
        assert model.system == "Known: <>"
        assert result.content == "done"
        assert any("could not be searched" in warning and "no disk" in warning for warning in result.warnings)
