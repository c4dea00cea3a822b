"""The last moments of a turn: a late cancellation, time that is nearly spent, replies that nobody can use."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from agents import make_engine, make_function_tool, make_spec, reply_with_calls
from msgspec.structs import replace
from web import WebAnswer, serve_web
from wire_answers import ScriptedHost
from wire_requests import ENTRIES, NETWORK_ENTRIES

from toolchart.app.cli.exit_codes import find_result_code
from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.runtime.result import Turn
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.charts import list_shipped_charts
from toolchart.states.content import HostCallPart, ImagePart
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import Decided, Event
from toolchart.states.messages import Message, Reply, Request, ToolCall, Usage
from toolchart.testing import TurnableClock


def list_types(engine: Engine) -> list[str]:
    """The types of a conversation's events, in order."""
    return [json.loads(line)["event"]["type"] for line in engine.store.read_lines("c")]


async def test_a_cancellation_after_the_last_step_changes_nothing() -> None:
    """Where the task of a turn is cancelled when its last record is made and not yet written, the record is
    written, nothing follows it, and the next turn begins as if nothing had been."""
    turns: list[asyncio.Task[Any]] = []

    def cancel_at_the_end(event: Event, step: Any) -> None:
        if step.snapshot.is_over and turns and event.TYPE == "replied":
            turns.pop().cancel()

    engine = make_engine(["One.", "Two."], observer=cancel_at_the_end)
    turns.append(asyncio.ensure_future(engine.arun("1?", conversation="c")))
    turn = turns[0]
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert list_types(engine) == ["configured", "turn_started", "replied"]
    assert (await engine.arun("2?", conversation="c")).content == "Two."
    assert "cancelled" not in list_types(engine)
    assert list(replay_conversation(engine.store, "c"))
    await engine.aclose()


@pytest.mark.parametrize(("left_s", "content"), [(0.9, "In time."), (0.001, "In time."), (0.0, None)])
async def test_the_last_part_of_a_second_is_used(left_s: float, content: str | None) -> None:
    """While anything of `max_seconds` is left the model is asked; then the limit ends the turn."""
    clock = TurnableClock()

    def work(arguments: Any) -> str:
        clock.advance(5 - left_s)
        return "worked"

    tool = make_function_tool("work", {"type": "object", "properties": {}}, work)
    replies = [reply_with_calls(("work", {})), "In time."]
    engine = make_engine(replies, chart="full", functions=[tool], clock=clock, limits={"max_seconds": 5})
    async with engine:
        result = await engine.arun("Go.", conversation="c")
    expected = (content, None) if content else (result.content, "max_seconds")
    assert (result.content, result.limit_reached) == expected


# -- all texts of a turn, and none -----------------------------------------------------------------


def say_beside_call(text: str) -> dict[str, Any]:
    """A scripted reply with a text and a call."""
    return {"content": text, **reply_with_calls(("look", {}))}


LOOK = make_function_tool("look", {"type": "object"}, lambda: "seen")


@pytest.mark.parametrize("is_endless", [False, True])
def test_all_texts_of_a_turn_are_kept_beside_the_last(is_endless: bool) -> None:
    """S3: `content` is the last text of a turn, and `combined_text` all of them in order, those of this turn
    alone, at a limit with the chart's own answer; a turn of one text says it once."""
    ends = [say_beside_call(f"Step {number}.") for number in range(9)] if is_endless else ["It is there."]
    replies = ["Hello.", say_beside_call("I look."), say_beside_call("Once more."), *ends]
    engine = make_engine(replies, functions=[LOOK], limits={"max_iterations": 3})
    first = engine.run("Hi", conversation="c")
    assert (first.content, first.combined_text) == ("Hello.", "Hello.")
    assert "combined_text" not in first.to_dict()
    second = engine.run("Look", conversation="c")
    texts = ["I look.", "Once more.", *(["Step 0."] if is_endless else [])]
    assert second.combined_text == "\n\n".join([*texts, second.content])
    assert second.to_dict()["combined_text"] == second.combined_text
    assert second.limit_reached == ("max_iterations" if is_endless else None)
    assert engine.conversation("c").read_turn().combined_text == second.combined_text


# -- replies that nobody can use -------------------------------------------------------------------

EMPTY = {
    "nothing": Reply(finish_reason="stop"),
    "blanks": Reply(content=" \n", finish_reason="stop"),
    "thoughts alone": Reply(content="", reasoning="I should call the tool.", finish_reason="stop"),
    "a search alone": Reply(parts=(HostCallPart(tool="web_search"),), finish_reason="stop"),
    "nothing, for an unknown reason": Reply(content="", finish_reason="unknown"),
}
MALFORMED = {
    "a malformed call": Reply(
        finish_reason="malformed_call",
        native_reason="MALFORMED_FUNCTION_CALL",
        finish_message="Malformed function call: look(",
    ),
    "a malformed call beside text": Reply(content="I look.", finish_reason="malformed_call"),
    "a malformed call beside a whole one": Reply(
        tool_calls=(ToolCall(name="look", arguments={}),), finish_reason="malformed_call"
    ),
}
UNUSABLE = {**EMPTY, **MALFORMED}
LLMS = {"model": {"provider": "scripted", "model": "m", "context_limit": 100_000}}
RETRYING_CHARTS = ("resilient", "full", "compacting")
CALL_LOOK = reply_with_calls(("look", {}))


async def run_turn(
    replies: list[Any], chart: str, is_streamed: bool = False, **changes: Any
) -> tuple[Turn, Sequence[Request], Sequence[Message]]:
    """The result of one turn of a chart, the requests of its model, and the messages of the conversation."""
    if chart in RETRYING_CHARTS:
        changes = {"retry": {"first_wait_s": 0}, **changes}
    provider, spec = ScriptedProvider(replies), make_spec(chart=chart, llms=LLMS, **changes)
    async with Engine(spec, log="memory", functions=[LOOK], providers={"model": provider}) as engine:
        if is_streamed:
            result = [item async for item in engine.stream("Go.", conversation="c")][-1]
        else:
            result = await engine.arun("Go.", conversation="c")
        assert isinstance(result, Turn)
        assert len([*replay_conversation(engine.store, "c")]) == len([*engine.store.read_lines("c")])
        return result, provider.requests, engine.conversation("c").messages


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("chart", list_shipped_charts())
@pytest.mark.parametrize("name", UNUSABLE)
async def test_a_reply_that_cannot_be_used_is_asked_for_again(
    name: str, chart: str, is_streamed: bool
) -> None:
    """S1.15: in every chart an empty reply, or one with a call that cannot be carried out, is asked for
    again, at once and after a tool's result. The model reads why, and the conversation goes on without that
    reply: no call of it runs, and its text is no part of the answer."""
    for before in ([], [CALL_LOOK]):
        replies = [*before, UNUSABLE[name], "done"]
        result, requests, messages = await run_turn(replies, chart, is_streamed)
        assert (result.content, result.ok, result.state) == ("done", True, "finished")
        assert (len(requests), len(result.tool_calls)) == (len(replies), len(before))
        reason = requests[-1].messages[-1]
        assert reason.role == "user"
        assert "could not be used" in str(reason.content)
        assert (UNUSABLE[name].finish_message or "") in str(reason.content)
        assert [m.content for m in messages if m.role == "assistant"] == [*(None for _ in before), "done"]
        assert [m.content for m in messages if m.role == "user"] == ["Go."]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("chart", list_shipped_charts())
@pytest.mark.parametrize("name", EMPTY)
async def test_a_second_empty_reply_ends_the_turn_in_error(name: str, chart: str, is_streamed: bool) -> None:
    """S1.15: a model that says nothing twice in a row is not asked a third time, and not a second time where
    `max_attempts` is 1: the turn is no success, and state, reason, text and exit code say so."""
    for limits, asked in (({}, 2), ({"max_attempts": 1}, 1)):
        result, requests, _ = await run_turn([EMPTY[name]] * 5, chart, is_streamed, limits=limits)
        assert (result.state, result.ok, len(requests)) == ("error", False, asked)
        assert result.failure == "empty_reply: the reply is empty: it has neither text nor calls"
        assert result.content.startswith("I encountered an issue while answering: the reply is empty")
        assert (find_result_code(result), result.is_retryable) == (1, True)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("chart", list_shipped_charts())
@pytest.mark.parametrize("name", MALFORMED)
async def test_calls_that_cannot_be_carried_out_end_the_turn(
    name: str, chart: str, is_streamed: bool
) -> None:
    """S3.3: a model that writes one malformed call after the other is asked twice; by charts with retries as
    often as `max_attempts` says, and then without tools. No call runs. An answer without tools counts; where
    there is none, the turn ends in error and keeps what was said."""
    retries, reply = chart in RETRYING_CHARTS, MALFORMED[name]
    asked = 3 if retries else 2
    result, requests, _ = await run_turn([reply] * 9, chart, is_streamed)
    assert (result.state, result.ok, result.tool_calls) == ("error", False, [])
    assert (result.error is not None and result.error.kind, find_result_code(result)) == ("malformed_call", 1)
    assert len(requests) == asked + retries
    assert reply.content is None or result.content == reply.content
    if retries:
        result, requests, _ = await run_turn([*[reply] * asked, "done"], chart, is_streamed)
        assert (result.content, result.ok, len(requests[-1].tools)) == ("done", True, 0)


@pytest.mark.parametrize("chart", list_shipped_charts())
async def test_what_failed_before_is_no_empty_reply(chart: str) -> None:
    """S3.10: an empty reply after another failure is asked for again while `max_attempts` allows it, and so
    is one after a usable reply."""
    busy = {"fail": {"kind": "overloaded", "message": "busy", "retryable": True}}
    for replies in (
        *([[busy, EMPTY["nothing"], "done"]] if chart in RETRYING_CHARTS else []),
        [EMPTY["nothing"], CALL_LOOK, EMPTY["nothing"], "done"],
    ):
        result, requests, _ = await run_turn(replies, chart)
        assert (result.content, result.ok, len(requests)) == ("done", True, len(replies))


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("chart", ["forced_answer", *RETRYING_CHARTS, "planner"])
async def test_a_reply_without_tools_is_asked_for_again_too(chart: str, is_streamed: bool) -> None:
    """S3.2, S3.3: where the last request has no tools, an unusable reply to it is asked for once more."""
    for reply in UNUSABLE.values():
        failed = {"fail": {"kind": "bad_request", "message": "no", "status": 400}}
        before = [failed] if chart == "resilient" else [CALL_LOOK]
        replies = [*before, reply, "done"]
        result, requests, _ = await run_turn(replies, chart, is_streamed, limits={"max_iterations": 1})
        assert (result.content, result.ok, len(requests)) == ("done", True, 3)
        assert [bool(request.tools) for request in requests] == [True, False, False]


SPEAKING: dict[str, dict[str, Any]] = {
    "a refusal": {"refusal": "I will not.", "finish_reason": "content_filter"},
    "a picture": {"parts": (ImagePart(media_type="image/png", data="aGk="),), "finish_reason": "stop"},
    "a call of the host": {"parts": (HostCallPart(tool="mcp"),), "finish_reason": "stop"},
    "a filtered answer": {"finish_reason": "content_filter"},
    "an answer that was cut": {"finish_reason": "length"},
}


@pytest.mark.parametrize("chart", list_shipped_charts())
@pytest.mark.parametrize("name", SPEAKING)
async def test_a_reply_without_text_may_say_something(name: str, chart: str) -> None:
    """S1.15: a refusal, a picture, or what the host did itself is no empty reply, and what was cut or
    filtered would come the same again: none is asked for a second time."""
    result, requests, _ = await run_turn([Reply(**SPEAKING[name])], chart)
    assert len(requests) == 1
    assert result.error is None or result.error.kind == "finish_reason"


async def test_a_reply_that_goes_on_may_add_nothing() -> None:
    """After a pause the model goes on with its own words, and may have said all: the answer is what it said.
    Where it had said nothing, it is asked again."""
    replies: list[Any] = [Reply(content="Well.", finish_reason="paused"), EMPTY["nothing"]]
    result, requests, _ = await run_turn(replies, "full")
    assert (result.content, result.ok, len(requests)) == ("Well.", True, 2)
    replies = [Reply(finish_reason="paused"), EMPTY["nothing"], "done"]
    result, requests, _ = await run_turn(replies, "full")
    assert (result.content, len(requests)) == ("done", 3)


@pytest.mark.parametrize("chart", ["full", "budgeted", "compacting"])
async def test_a_spent_budget_comes_before_another_question(chart: str) -> None:
    """S2.8: where the tokens are spent, no unusable reply is asked for again: the budget ends the turn."""
    for reply in UNUSABLE.values():
        paid = replace(reply, usage=Usage(total=50))
        result, requests, _ = await run_turn([paid, "done"], chart, limits={"max_tokens": 40})
        assert (result.limit_reached, result.ok, len(requests)) == ("max_tokens", False, 1)


@pytest.mark.parametrize("entry", NETWORK_ENTRIES)
def test_an_empty_answer_of_each_host_is_asked_for_again(entry: str) -> None:
    """S1.15: over every wire format an answer without text, after a tool's result, is asked for again, and
    twice in a row it ends the turn in error."""
    host = ScriptedHost()
    with serve_web(host.make_answer) as server:
        llm = {**ENTRIES[entry], "model": "m", "api_key": "k"}
        llm["base_url"] = server.url + llm.get("base_url", "")
        spec = {"llms": {"main": llm}, "responses": [{"llm": "main", "tools": {"enabled": True}}]}
        with Engine(spec, log="memory", functions=[LOOK]) as engine:
            host.answers += [{"calls": [("look", {})]}, {"text": ""}, {"text": "done"}]
            result = engine.run("Go.", conversation="c")
            assert (result.content, result.ok, len(server.requests)) == ("done", True, 3), result.failure
            host.answers += [{"text": ""}, {"text": ""}]
            result = engine.run("On.", conversation="c")
            assert str(result.failure).startswith("empty_reply")
            host.answers += [{"text": "here"}]
            assert engine.run("Well?", conversation="c").content == "here"


FAILED_ENDS = {
    "gemini": ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "OTHER"),
    "bedrock": ("malformed_tool_use", "malformed_model_output"),
    "openai": ("network_error", "abort"),
    "openai responses": ("cancelled",),
}
"""By wire format: words for the end of an answer that is none."""


@pytest.mark.parametrize(
    ("entry", "word"), [(entry, word) for entry, words in FAILED_ENDS.items() for word in words]
)
def test_an_answer_that_its_host_gave_up_is_asked_for_again(entry: str, word: str) -> None:
    """S1.15, S3.3: over every wire format, where the host says that it could not read a call or broke its
    answer off, no call of that answer runs, it is asked for again, and its words are in the next request or
    in the log."""
    host, finish_words = ScriptedHost(), iter([word])

    def answer(request: dict[str, Any]) -> WebAnswer:
        status, headers, data = host.make_answer(request)
        body = json.loads(data)
        if end := next(finish_words, None):
            place = body.get("candidates", body.get("choices", [body]))[0]
            keys = {"gemini": "finishReason", "bedrock": "stopReason", "openai": "finish_reason"}
            place[keys.get(entry, "status")] = end
        return status, headers, json.dumps(body).encode()

    with serve_web(answer) as server:
        llm = {**ENTRIES[entry], "model": "m", "api_key": "k"}
        llm["base_url"] = server.url + llm.get("base_url", "")
        responses = [{"llm": "main", "tools": {"enabled": True}}]
        spec = {"llms": {"main": llm}, "responses": responses, "retry": {"first_wait_s": 0}}
        with Engine(spec, log="memory", functions=[LOOK]) as engine:
            host.answers += [{"calls": [("look", {})]}, {"text": "done"}]
            result = engine.run("Go.", conversation="c")
            assert (result.content, result.ok, result.tool_calls) == ("done", True, []), result.failure
            assert len(server.requests) == 2
            events = [json.loads(line)["event"] for line in engine.store.read_lines("c")]
    (failed,) = [event for event in events if event["type"] == "failed"]
    assert word in failed["message"]
    assert (failed["message"].encode() in server.requests[1]["body"]) == (failed["kind"] == "malformed_call")


async def test_requests_and_replies_are_logged_with_their_numbers(caplog: pytest.LogCaptureFixture) -> None:
    """S1.7, S1.9: at level DEBUG a line in `logging` says which iteration is asked, and another one how many
    calls the reply has and of which tools; no line has arguments."""
    caplog.set_level(logging.DEBUG, logger="toolchart.engine")
    await run_turn([reply_with_calls(("look", {}), ("find\nit", {"secret": "s3"})), "done"], "full")
    lines = [record.getMessage() for record in caplog.records]
    requests = [line for line in lines if line.startswith("request (turn 1, iteration ")]
    replies = [line for line in lines if line.startswith("reply (turn 1, iteration ")]
    assert len(requests) == len(replies) == 2
    assert "iteration 0): 2 calls; tools: look, find" in replies[0]
    assert "iteration 1): 0 calls; tools: none; finish reason: stop" in replies[1]
    assert not [line for line in (*requests, *replies) if "s3" in line or "\n" in line]


async def test_a_defect_of_an_adapter_ends_the_turn_and_is_told() -> None:
    """An error that no adapter should raise is a failed model call of kind `bad_response`, in the log with
    its words: the turn ends, and the next message can come."""

    class Defective(ScriptedProvider):
        async def complete(self, request: Request) -> Reply:
            raise ZeroDivisionError("the adapter counted nothing")

    engine = Engine(make_spec(), log="memory", providers={"model": Defective([])})
    result = await engine.arun("1?", conversation="c")
    assert result.state == "error"
    assert list_types(engine) == ["configured", "turn_started", "failed"]
    failed = json.loads(list(engine.store.read_lines("c"))[-1])["event"]
    assert failed["kind"] == "bad_response"
    assert "the adapter counted nothing" in failed["message"]
    await engine.aclose()


class Watcher:
    """Notes the ends of turns, and where a turn comes to rest without one."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def record_step(self, conversation: str, event: Event, step: Any) -> None:
        """Note an end."""
        if step.ends_turn:
            self.seen.append((conversation, event.TYPE))

    def note_rest(self, conversation: str, *, waits: bool) -> None:
        """Note a rest."""
        self.seen.append((conversation, "waits" if waits else "stopped"))


class HangingModel(ScriptedProvider):
    """A model that has no answer to one message."""

    def __init__(self, replies: Sequence[Any]) -> None:
        super().__init__(replies)
        self.is_asked = asyncio.Event()

    async def complete(self, request: Request) -> Reply:
        """The next reply, unless it is asked for one that never comes."""
        if request.messages[-1].content == "hang":
            self.is_asked.set()
            await asyncio.Event().wait()
        return await super().complete(request)


async def test_a_watcher_sees_every_end_and_every_rest() -> None:
    """A watcher that comes when the engine is open sees how each turn ends, also in its `with_tools`, and
    each rest of one that stays open: whether it waits for somebody or was stopped. A decision that is refused
    is no rest."""
    model = HangingModel(["One.", reply_with_calls(("echo", {"text": "a"})), "Two.", "Three."])
    spec = make_spec(chart="approval", approval={"default": "ask"})
    engine, watcher = Engine(spec, log="memory", providers={"model": model}), Watcher()
    await engine.arun("0", conversation="before")
    engine.watch_turns(watcher)
    (waiting,) = (await engine.arun("1", conversation="c")).pending_approvals
    with pytest.raises(IllegalEvent):
        await engine.adecide("c", Decided(call_id="none", approved=True))
    await engine.adecide("c", Decided(call_id=waiting.id, approved=True))
    other = engine.with_tools([make_function_tool("more", {"type": "object"}, lambda _: "more")])
    await other.arun("2", conversation="d")
    stopped = asyncio.create_task(engine.arun("hang", conversation="e"))
    await model.is_asked.wait()
    await engine.astop(0.0)
    await asyncio.wait((stopped,))
    assert watcher.seen == [("c", "waits"), ("c", "replied"), ("d", "replied"), ("e", "stopped")]
    await other.aclose()
    await engine.aclose()
