"""Long results of tools are summed up by a model; the log keeps them whole, and everything replays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolchart.engine import Engine
from toolchart.engine.log import record as records
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.runtime.result import Turn
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.loader import load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.flows.compaction import build_compaction
from toolchart.states.flows.parameters import CompactParameters
from toolchart.states.message_list import ContextView, MessageList, ShownMessages
from toolchart.states.messages import Message, Reply, Request, ToolCall
from toolchart.states.snapshot import SnapshotBuilder
from toolchart.tools.sources.python import tool

SIZES = {"short": 50, "long": 300, "longer": 900}


@tool(name="read", idempotent=True, isolation="inline")
def read_text(name: str) -> str:
    """Read a text."""
    return name[0] * SIZES[name]


def make_engine(names: list[str], summaries: list[Any]) -> tuple[Engine, list[Request]]:
    """An engine whose model reads these texts in one reply, and whose second model answers with the
    summaries; and the requests of the first model."""
    requests: list[Request] = []

    def answer(request: Request) -> Reply:
        requests.append(request)
        if request.iteration:
            return Reply(content="done", finish_reason="stop")
        calls = tuple(ToolCall(id=name, name="read", arguments={"name": name}) for name in names)
        return Reply(tool_calls=calls, finish_reason="tool_calls")

    spec = {
        "chart": "long_results",
        "limits": {"long_result_size": 200},
        "llms": {name: {"provider": "scripted", "model": "m"} for name in ("main", "summariser")},
        "tools": {},
        "responses": [{"llm": "main", "tools": {"enabled": True}}],
    }
    providers = {"main": ScriptedProvider([answer] * 9), "summariser": ScriptedProvider(summaries)}
    return Engine(spec, log="memory", functions=[read_text], providers=providers), requests


def read_results(request: Request) -> dict[str, dict[str, Any]]:
    """What a request shows of each call's result."""
    tools = [message for message in request.messages if message.role == "tool"]
    return {str(message.tool_call_id): json.loads(message.content or "") for message in tools}


def assert_whole_log(engine: Engine) -> None:
    """The log verifies, and replays with every request."""
    assert all(isinstance(verdict, VerifiedConversation) for verdict in verify_store(engine.store))
    assert list(replay_conversation(engine.store, "c"))


def run_turn(engine: Engine) -> Turn:
    """The turn of the conversation `c`."""
    result = engine.run("read them", conversation="c")
    assert (result.content, result.error) == ("done", None)
    return result


def test_the_shipped_flow_reads_a_summary() -> None:
    """Issue 16, to build 4: the model reads the words of the second one, and the result says so."""
    with Engine(load_spec("long_results"), log="memory") as engine:
        result = engine.run("Which room is free on Monday?", conversation="c")
        assert result.content == (
            "The calendar of Monday says: Room 4 is free from 10:00 to 11:00; all other rooms are taken."
        )
        assert any("a summary of the result of 'read_calendar'" in warning for warning in result.warnings)
        assert result.tool_calls[0].value.startswith("Room 1")
        assert_whole_log(engine)


def test_each_long_result_is_summed_up_once() -> None:
    """The longest one first, short ones not at all; `summary_of` names size and handle of the whole."""
    seen: list[str] = []

    def sum_up(request: Request) -> Reply:
        seen.append(str(request.messages[-1].content))
        return Reply(content=f"summary {len(seen)}", finish_reason="stop")

    engine, requests = make_engine(["short", "long", "longer"], [sum_up] * 9)
    with engine:
        result = run_turn(engine)
        assert ["l" * 900 in text for text in seen] == [True, False]
        assert all("read them" in text for text in seen)
        shown = read_results(requests[-1])
        assert shown["short"]["result"] == "s" * 50
        assert shown["longer"]["result"] == "summary 1"
        assert shown["longer"]["summary_of"] == {"characters": 900, "handle": "longer"}
        assert shown["long"]["result"] == "summary 2"
        assert [len(call.value) for call in result.tool_calls] == [50, 300, 900]
        assert len(result.warnings) == 2
        engine.run("and now?", conversation="c")
        assert read_results(requests[-1])["long"]["result"] == "summary 2", "a summary holds in later turns"
        assert_whole_log(engine)


@pytest.mark.parametrize("words", ["", None])
def test_a_result_without_a_summary_is_read_whole(words: str | None) -> None:
    """Where the second model fails or says nothing, nothing is replaced and the turn goes on."""

    def refuse(_: Request) -> Reply:
        if words is None:
            raise ProviderError(kind="server", message="down")
        return Reply(content=words, finish_reason="stop")

    engine, requests = make_engine(["long"], [refuse] * 30)
    with engine:
        result = run_turn(engine)
        assert read_results(requests[-1])["long"]["result"] == "l" * 300
        assert not result.warnings
        assert_whole_log(engine)


def test_a_turn_goes_on_from_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork at any record, from a checkpoint or from the records, sends the requests of its parent: also
    where the summary is being written."""
    for every in (1, 1000):
        monkeypatch.setattr(records, "CHECKPOINT_EVERY", every)
        summaries = [Reply(content=f"summary {n}", finish_reason="stop") for n in (1, 2)]
        engine, requests = make_engine(["long", "longer"], [*summaries, *summaries] * 12)
        with engine:
            run_turn(engine)
            expected = read_results(requests[-1])
            count = len(list(engine.store.read_lines("c")))
            for seq in range(1, count - 1):
                forked = engine.conversation("c").fork(seq, name=f"f{seq}", from_log=True)
                assert forked.stopped is None
                snapshot = load_conversation(engine.store, f"f{seq}").snapshot  # type: ignore[union-attr]
                request = Request(model="m", messages=tuple(snapshot.request_messages))
                assert read_results(request) == expected
                assert list(replay_conversation(engine.store, f"f{seq}"))


def test_a_compaction_keeps_the_summaries_that_are_still_shown() -> None:
    """Summaries of results that are left out go with them; pictures beside a result stay."""
    messages = [Message(role="user", content="q")]
    for name in ("a", "b"):
        call = ToolCall(id=name, name="read", arguments={})
        messages.append(Message(role="assistant", tool_calls=(call,)))
        messages.append(Message(role="tool", content="x" * 400, tool_call_id=name, name="read"))
    view = ContextView(summaries=(("a", "sum a"), ("b", "sum b")))
    whole = MessageList(messages)
    builder = SnapshotBuilder(messages=whole, shown=ShownMessages.from_view(view, whole))
    build_compaction(CompactParameters(keep=1), builder, "compact", 1, "s")
    assert builder.shown is not None
    assert builder.shown.view.summaries == (("b", "sum b"),)
    assert [message.content for message in builder.shown] == ["q", None, "sum b"]


def test_a_limit_that_no_chart_reads_is_refused() -> None:
    """`long_result_size` in an agent whose chart asks for no summary names what would read it."""
    spec = {"limits": {"long_result_size": 50}, **load_spec("quickstart").model_dump(exclude_unset=True)}
    with pytest.raises(SpecError, match="long_result_size") as raised:
        load_agent_chart(load_spec({**spec, "chart": "full", "limits": {"long_result_size": 50}}))
    assert "long_results" in str(raised.value.hint)


def test_a_summary_needs_a_name_and_a_host_that_exists() -> None:
    """`as` is required, and `llm` names an entry of `llms`."""
    spec = load_spec("long_results").model_dump(exclude_unset=True)
    with pytest.raises(SpecError, match="needs a result"):
        load_agent_chart(load_spec({**spec, "effects": {"sum_up": {"summarise_result": {"as": ""}}}}))
    with pytest.raises(SpecError, match="there is no llm 'nobody'"):
        load_agent_chart(load_spec({**spec, "effects": {"sum_up": {"summarise_result": {"llm": "nobody"}}}}))
