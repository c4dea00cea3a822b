"""What a turn offers a model: under a host's cap, and with what the documents say in its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents import calls, engine
from hypothesis import given
from hypothesis import strategies as st

from toolchart.specs.tool_limits import cap_tools
from toolchart.states.messages import Reply, Request
from toolchart.tools.definition import ToolFailure
from toolchart.tools.sources.services import Hit

TOOLS = {"registry": [{"name": name} for name in ("calculator", "echo", "generate_uuid")]}


class Listening:
    """A reply that keeps the requests it answers."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Reply:
        self.requests.append(request)
        return Reply(content="done", finish_reason="stop")

    @property
    def names(self) -> list[str]:
        """Tools that were offered last."""
        return [tool.name for tool in self.requests[-1].tools]

    @property
    def system(self) -> str:
        """The prompt that was sent last."""
        return self.requests[-1].messages[0].content or ""


def host(**settings: Any) -> dict[str, Any]:
    """An `llms` section with one host."""
    return {"model": {"provider": "scripted", "model": "m", "replies": ["unused"], **settings}}


def test_a_host_is_offered_no_more_tools_than_it_takes() -> None:
    """S3.8: `max_tools` of an llms entry holds, essential tools go first, and the others are named."""
    heard = Listening()
    capped = host(max_tools=2, essential_tools=["generate_*", "missing"])
    with engine([heard], llms=capped, tools=TOOLS) as made:
        result = made.run("go")
    assert heard.names == ["calculator", "generate_uuid"]
    assert "2 tools at most (max_tools): echo not offered" in result.warnings
    assert any("essential_tools names 'missing'" in warning for warning in result.warnings)


def test_a_tool_beyond_the_cap_does_not_run() -> None:
    """S3.8, DESIGN 11: a tool that the cap left out is denied when a model calls it all the same."""
    capped = host(max_tools=1)
    with engine([calls(("echo", {"text": "x"})), "done"], llms=capped, tools=TOOLS) as made:
        (call,) = made.run("go").tool_calls
    assert not call["result"]["success"]
    assert "not allowed here; allowed: calculator" in call["result"]["error"]


def test_the_smaller_of_two_caps_holds() -> None:
    """S3.8: the tools section may cap every host; essential to either is essential."""
    heard = Listening()
    section = {**TOOLS, "max_tools": 1, "essential_tools": ["echo"]}
    with engine([heard], llms=host(max_tools=2), tools=section) as made:
        result = made.run("go")
    assert heard.names == ["echo"]
    assert not any("does not use" in warning for warning in result.warnings)


def test_lists_may_use_the_spec_s_own_names() -> None:
    """Issue 6: a tool whose name is mapped for hosts is found by its own name in every list."""
    heard = Listening()
    section = {
        "registry": [
            {"name": "echo"},
            {"name": "geo.lookup", "implementation": {"type": "mock", "mock_response": "Brno"}},
        ]
    }
    responses = [{"llm": "model", "tools": {"allowed_tools": ["geo.*", "echo"]}}]
    capped = host(max_tools=1, essential_tools=["geo.lookup"])
    replies = [calls(("geo.lookup", {})), heard]
    with engine(replies, llms=capped, tools=section, responses=responses) as made:
        result = made.run("go")
    assert heard.names == ["geo_lookup"]
    assert result.tool_calls[0]["result"]["result"] == "Brno"
    assert [one for one in result.warnings if "allowed_tools" in one or "essential" in one] == []


@given(
    names=st.lists(st.sampled_from("abcdefgh"), unique=True),
    most=st.integers(1, 9) | st.none(),
    essential=st.lists(st.sampled_from("abcdefgh*"), max_size=4),
)
def test_a_cap_parts_the_tools(names: list[str], most: int | None, essential: list[str]) -> None:
    """S3.8: kept and left out are all tools, in order; no tool is kept before an essential one."""
    kept, left = cap_tools({name: name for name in names}, most, essential)
    assert sorted([*kept, *left]) == sorted(names)
    assert list(kept) == [name for name in names if name in kept]
    assert len(kept) == min(len(names), most if most is not None else len(names))
    wanted = {name for name in names if name in essential or "*" in essential}
    assert not (wanted & set(left)) or set(kept) <= wanted


# -- documents in the prompt ---------------------------------------------------------------------

PROMPT = [{"llm": "model", "prompt": "Known: <{{rag_context}}>"}]


def documents(folder: Path) -> dict[str, Any]:
    """A tools section that searches a folder with one document."""
    folder.mkdir()
    (folder / "ovens.md").write_text("# Ovens\n\nBread bakes at 230 degrees.\n", "utf-8")
    entry = {"name": "search_documents", "folder": str(folder), "index": str(folder / ".index.db")}
    return {"registry": [{**entry}]}


def test_a_prompt_is_filled_from_the_documents(tmp_path: Path) -> None:
    """S3.9: `{{rag_context}}` becomes the best passages, each with its file and line."""
    heard = Listening()
    section = documents(tmp_path / "docs")
    with engine([heard], tools=section, responses=PROMPT) as made:
        result = made.run("At how many degrees does bread bake?")
    assert heard.system == "Known: <[ovens.md:1] # Ovens\n\nBread bakes at 230 degrees.>"
    assert not result.warnings


def test_a_context_that_was_given_stays(tmp_path: Path) -> None:
    """S3.9: the caller's own `rag_context` is not replaced, and no document is searched for it."""
    heard = Listening()
    section = documents(tmp_path / "docs")
    with engine([heard, heard], tools=section, responses=PROMPT) as made:
        made.run("bread", variables={"rag_context": "mine"})
    assert heard.system == "Known: <mine>"
    assert not (tmp_path / "docs" / ".index.db").exists()


class Own:
    """A search of a program's own."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.asked: list[str] = []

    def search(self, query: str, *, collection: str | None, limit: int) -> Sequence[Hit]:
        self.asked.append(query)
        if self.problem:
            raise self.problem
        return [Hit(file="own", line=1, title="", snippet=query, text=query[::-1], score=1.0)]


def test_an_own_search_stands_behind_tool_and_prompt() -> None:
    """Issue 6: `services={"search_documents": ...}` is one line, for the tool and for the prompt."""
    heard, own = Listening(), Own()
    section = {"registry": [{"name": "search_documents", "implementation": {"type": "internal"}}]}
    replies = [calls(("search_documents", {"query": "deep"})), heard]
    responses = [{**PROMPT[0], "tools": {}}]
    services = {"search_documents": own}
    with engine(replies, tools=section, responses=responses, services=services) as made:
        result = made.run("abc")
    assert own.asked == ["abc", "deep"]
    assert heard.system == "Known: <[own:1] cba>"
    assert result.tool_calls[0]["result"]["result"]["hits"][0]["file"] == "own"


def test_a_search_that_fails_does_not_lose_the_turn() -> None:
    """S3.9: a search that fails leaves an empty context and a warning, and the model is asked."""
    for problem in (OSError("no disk"), ToolFailure("no disk")):
        heard = Listening()
        services = {"search_documents": Own(problem)}
        with engine([heard], responses=PROMPT, services=services) as made:
            result = made.run("abc")
        assert heard.system == "Known: <>"
        assert result.content == "done"
        assert any("could not be searched" in one and "no disk" in one for one in result.warnings)
