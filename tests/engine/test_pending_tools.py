"""Tools whose outcome comes later, from outside the process."""

import asyncio
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from msgspec.structs import replace as change

from toolchart import Engine, SpecError, Tool, ToolDefinition, ToolPending
from toolchart.engine.log.replay import replay_conversation

FORM = {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}


class Desk:
    """Outcomes by call id, and the tool `ask_browser` that waits for them."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Any] = {}
        definition = ToolDefinition(name="ask_browser", description="Asks the page.", parameters=FORM)
        self.tool = Tool(definition=definition, run=self._run, needs_context=True, idempotent=True)

    def _run(self, arguments: Any, context: Any) -> Any:
        if context.call_id not in self.outcomes:
            raise ToolPending
        return self.outcomes[context.call_id]


ASK = ("ask_browser", {"question": "where?"})


def make_waiting_engine(desk: Desk, replies: list[Any], log: Any = "memory") -> Engine:
    """An engine whose spec does not have the tool, with the tool."""
    return make_engine(replies, log=log).with_tools([desk.tool])


async def test_turn_rests_until_the_outcome_is_there() -> None:
    """A turn whose only open call is pending rests, says which call waits, and ends when it is resumed with
    the outcome; the log replays."""
    desk = Desk()
    engine = make_waiting_engine(desk, [reply_with_calls(ASK), "You are in Brno."])
    waiting = await engine.arun("Where am I?", conversation="c")
    assert not waiting.is_over
    assert [(call.tool, call.params) for call in waiting.waiting_calls] == [ASK]
    desk.outcomes[waiting.waiting_calls[0].id] = "Brno"
    result = await engine.conversation("c").aresume()
    assert (result.content, result.waiting_calls) == ("You are in Brno.", [])
    assert [call.value for call in result.tool_calls] == ["Brno"]
    assert len(list(replay_conversation(engine.store, "c"))) > 5


async def test_other_calls_of_the_reply_run_to_their_end() -> None:
    """A pending call stops no other call of its reply, and each call gets exactly one outcome."""
    desk = Desk()
    calls = [ASK, ("echo", {"text": "hello"}), ("ask_browser", {"question": "when?"})]
    engine = make_waiting_engine(desk, [reply_with_calls(*calls), "Done."])
    waiting = await engine.arun("go", conversation="c")
    first, second = waiting.waiting_calls
    assert [(call.tool, call.value, call.iteration) for call in waiting.tool_calls] == [("echo", "hello", 0)]
    desk.outcomes[second.id] = "now"
    partly = await engine.conversation("c").aresume()
    assert [call.id for call in partly.waiting_calls] == [first.id]
    assert sorted(str(call.value) for call in partly.tool_calls) == ["hello", "now"]
    desk.outcomes[first.id] = "here"
    result = await engine.conversation("c").aresume()
    assert result.content == "Done."
    assert sorted(str(call.value) for call in result.tool_calls) == ["hello", "here", "now"]


async def test_rest_survives_the_process(tmp_path: Any) -> None:
    """Another engine on the same log goes on with the turn, with the outcome that came meanwhile."""
    desk, path = Desk(), tmp_path / "log.db"
    first = make_waiting_engine(desk, [reply_with_calls(ASK)], str(path))
    waiting = await first.arun("Where am I?", conversation="c")
    await first.aclose()
    desk.outcomes[waiting.waiting_calls[0].id] = "Brno"
    second = make_waiting_engine(desk, ["Brno it is."], str(path))
    assert (await second.conversation("c").aresume()).content == "Brno it is."


async def test_tools_of_a_thread_and_of_a_task_may_be_pending() -> None:
    """`ToolPending` means the same in every way a tool may run."""

    async def run_async(arguments: Any) -> Any:
        raise ToolPending

    def run_in_thread(arguments: Any) -> Any:
        raise ToolPending

    for mode, run in (("async", run_async), ("thread", run_in_thread)):
        tool = change(Desk().tool, run=run, execution_mode=mode, needs_context=False)
        engine = make_engine([reply_with_calls(ASK)]).with_tools([tool])
        result = await asyncio.wait_for(engine.arun("go"), 30)
        assert [call.tool for call in result.waiting_calls] == ["ask_browser"]


async def test_cancelling_a_resting_turn_records_the_call_as_interrupted() -> None:
    """A resting turn can be cancelled; its call was begun, so its outcome is unknown and said to be so."""
    engine = make_waiting_engine(Desk(), [reply_with_calls(ASK)])
    await engine.arun("go", conversation="c")
    result = await engine.conversation("c").acancel()
    assert result is not None
    assert result.is_over
    assert [call.outcome for call in result.tool_calls] == ["interrupted"]


async def test_further_tools_are_offered_by_each_handler_alone() -> None:
    """`with_tools` adds to what a handler offers, whatever its own tools are, and changes nothing else."""
    desk = Desk()
    cases: list[tuple[Any, set[str]]] = [
        ({"enabled": True}, {"calculator", "echo", "weather", "ask_browser"}),
        ({"enabled": True, "allowed_tools": ["echo"]}, {"echo", "ask_browser"}),
        ({"enabled": False}, {"ask_browser"}),
        (None, {"ask_browser"}),
    ]
    for tools, offered in cases:
        base = make_engine([], responses=[{"llm": "model", "prompt": "p", "tools": tools}])
        planned = await base.with_tools([desk.tool])._agent.plan_turn("c", "hello", {})
        assert set(planned.settings.tools) == offered
        before = await base._agent.plan_turn("c", "hello", {})
        assert set(before.settings.tools) == offered - {"ask_browser"}


async def test_a_name_that_exists_is_refused() -> None:
    """A further tool cannot take the place of one of the agent's own."""
    tool = change(Desk().tool, definition=ToolDefinition(name="echo", description="x", parameters=FORM))
    with pytest.raises(SpecError, match="two tools 'echo'"):
        make_engine([]).with_tools([tool])
