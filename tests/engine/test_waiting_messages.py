"""Messages of the user while a turn waits for a person: they are kept, and delivered once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from agents import make_engine, make_function_tool, make_spec, reply_with_calls
from child_agents import FunctionModel
from paying_agent import make_engine as make_paying_engine
from paying_agent import wait_until

from toolchart.engine import Engine
from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.performing import LocalHost
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.result import Turn
from toolchart.engine.turns.items import Item, encode_item
from toolchart.specs.charts import read_shipped_chart
from toolchart.states.content import ImagePart, TextPart
from toolchart.states.errors import LogConflict, NotFound
from toolchart.states.events import Decided, UserSaid
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.states.ports import InboxEntry
from toolchart.testing import TurnableClock

ECHO = reply_with_calls(("echo", {"text": "a"}))

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(99)

RISKY = {"registry": [{"name": "echo", "requires_approval": True}]}

CHARTS = ("tool_loop", "approval", "full", "compacting", "planner", "resilient", "budgeted", "forced_answer")


def make_waiting_engine(*replies: Any, **changes: Any) -> Engine:
    """An engine whose model first calls `echo`, which needs approval."""
    return make_engine([ECHO, *replies], **{"tools": RISKY, **changes})


def list_types(engine: Engine, conversation: str = "c") -> list[str]:
    """The types of a conversation's events, in order."""
    return [orjson.loads(line)["event"]["type"] for line in engine.store.read_lines(conversation)]


def list_requests(engine: Engine) -> list[Request]:
    """The requests that the model has had."""
    requests: list[Request] = engine.hosts.providers["model"].requests  # type: ignore[attr-defined]
    return requests


def read_request(engine: Engine) -> list[tuple[str, str | None]]:
    """Role and text of each message of the newest request, without the prompt."""
    messages = list_requests(engine)[-1].messages
    return [(message.role, message.content) for message in messages if message.role != "system"]


def approve(result: Turn) -> Decided:
    """The approval of the call that a result waits for."""
    return Decided(call_id=result.pending_approvals[0].id, approved=True)


# -- at rest -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chart", CHARTS)
def test_a_message_while_a_call_waits_is_kept_and_is_part_of_the_next_request(chart: str) -> None:
    """S5.5: under every shipped chart the result says what the message waits for. After the decision the
    model reads it once, behind the result of the call; replay derives the same."""
    llms = {"model": {"provider": "scripted", "model": "m", "context_limit": 100_000}}
    with make_waiting_engine("both done", chart=chart, llms=llms) as engine:
        first = engine.run("go", conversation="c")
        kept = engine.run("and hurry", conversation="c")
        assert (kept.is_over, kept.ok, kept.state) == (False, False, first.state)
        assert kept.pending_approvals == first.pending_approvals
        assert kept.waiting_messages == ["and hurry"]
        data = kept.to_dict()
        assert (data["is_over"], data["waiting_messages"]) == (False, ["and hurry"])
        assert "the message waits for the decision on 'echo'" in kept.warnings[-1]
        assert len(list_requests(engine)) == 1, "nothing was asked again"
        result = engine.conversation("c").resume(approve(kept))
        assert (result.content, result.waiting_messages) == ("both done", [])
        assert [role for role, _ in read_request(engine)] == ["user", "assistant", "tool", "user"]
        assert read_request(engine)[-1] == ("user", "and hurry")
        assert list_types(engine).count("user_said") == 1
        assert "waiting_messages" not in result.to_dict()
        list(replay_conversation(engine.store, "c"))


def test_messages_are_kept_in_their_order_by_several_processes(tmp_path: Path) -> None:
    """S5.5: each engine on the log may take a message; the model reads all of them, in order, once."""
    log = tmp_path / "log.db"
    with make_waiting_engine(log=log) as engine:
        first = engine.run("go", conversation="c")
    for text in ("one", "two"):
        with make_waiting_engine(log=log) as engine:
            kept = engine.run(text, conversation="c")
    assert kept.waiting_messages == ["one", "two"]
    with make_engine(["done"], tools=RISKY, log=log) as engine:
        assert engine.conversation("c").read_turn().waiting_messages == ["one", "two"]
        assert engine.conversation("c").resume(approve(first)).content == "done"
        assert read_request(engine)[-2:] == [("user", "one"), ("user", "two")]
        list(replay_conversation(engine.store, "c"))


def test_who_speaks_to_an_open_turn_is_recorded() -> None:
    """A message to an open turn has its sender in the log, by `run` and by `say`, and so has a cancellation
    of a turn at rest."""
    with make_waiting_engine(chart="tool_loop") as engine:
        engine.run("go", conversation="c", author="anna")
        engine.run("and hurry", conversation="c", author="ben")
        engine.conversation("c").say("please", author="cleo")
        engine.conversation("c").cancel("enough", author="dora")
        events = [orjson.loads(line)["event"] for line in engine.store.read_lines("c")]
        assert [event["author"] for event in events if event.get("author")] == ["anna", "ben", "cleo", "dora"]


def test_options_that_an_open_turn_does_not_take_are_named() -> None:
    """S5.5: the turn goes on as it began. A warning names what of the message has no effect, and says nothing
    where it asks for what the turn has."""
    with make_waiting_engine() as engine:
        engine.run("go", conversation="c")
        kept = engine.run("more", conversation="c", variables={"tone": "dry"}, model="other")
        assert "variables, model of this message have no effect" in kept.warnings[-1]
        again = engine.run("more", conversation="c", llm="model", model="m")
        assert again.warnings == kept.warnings[:-1]


ASKING = {
    "name": "asking",
    "extends": "approval",
    "states": {"awaiting_approval": {"transitions": [{"event": "user_said", "target": "prompting"}]}},
}
"""A chart in which a message takes the question back: the model is asked again."""


def test_a_row_of_the_chart_takes_the_message_at_once() -> None:
    """S5.5: where a row leaves the state for a message, the turn goes on at once: the call that waited is
    `skipped`, and the model answers the message."""
    with make_waiting_engine("never mind then", chart=ASKING) as engine:
        first = engine.run("go", conversation="c")
        result = engine.run("leave it", conversation="c")
        assert (result.content, result.is_over, result.waiting_messages) == ("never mind then", True, [])
        assert read_request(engine)[-1] == ("user", "leave it")
        assert [call.outcome for call in result.tool_calls] == ["skipped"]
        assert list_types(engine).count("turn_started") == 1
        taken = list_types(engine).index("user_said")
        assert list_types(engine)[taken - 1] == "resumed", "whoever goes on says so before anything else"
        assert engine.conversation("c").resume().content == "never mind then"
        assert first.pending_approvals
        list(replay_conversation(engine.store, "c"))


def test_a_message_that_no_request_of_the_turn_has_is_part_of_the_next_turn() -> None:
    """S5.5: where the turn ends without another request, the result says that the message still waits; the
    first request of the next turn has it, before the new message."""
    with make_waiting_engine("hello", limits={"max_iterations": 1}) as engine:
        first = engine.run("go", conversation="c")
        engine.run("and hurry", conversation="c")
        ended = engine.conversation("c").resume(approve(first))
        assert (ended.limit_reached, ended.waiting_messages) == ("max_iterations", ["and hurry"])
        result = engine.run("hello?", conversation="c")
        assert (result.content, result.waiting_messages) == ("hello", [])
        assert read_request(engine)[-2:] == [("user", "and hurry"), ("user", "hello?")]
        list(replay_conversation(engine.store, "c"))


async def test_a_streamed_message_yields_its_step_and_the_result() -> None:
    """S5.5: `stream` yields the step of the message and the result of the open turn."""
    async with make_waiting_engine() as engine:
        await engine.arun("go", conversation="c")
        pieces = [piece async for piece in engine.stream("more", conversation="c")]
        assert [getattr(piece, "event", None) and piece.event.TYPE for piece in pieces] == ["user_said", None]  # type: ignore[union-attr]
        assert isinstance(pieces[-1], Turn)
        assert pieces[-1].waiting_messages == ["more"]
        with pytest.raises(NotFound, match="there is no conversation 'd'"):
            await engine.conversation("d").asay("more")


def test_a_message_comes_after_the_work_that_a_crash_has_left() -> None:
    """S5.5: a message to a conversation whose turn a crash has left is accepted: that turn goes on to its
    end, and the message begins the next one."""
    store = MemoryStore()

    class Cut(BaseException):
        """The end of the process."""

    async def stop(request: Request) -> Reply:
        raise Cut

    model = FunctionModel(lambda said, request: "x")
    model.complete = stop  # type: ignore[method-assign]
    engine = Engine(
        {"llms": {"model": {"provider": "scripted", "model": "m"}}, "responses": [{"llm": "model"}]},
        log=store,
        providers={"model": model},
    )
    with pytest.raises(Cut):
        asyncio.run(engine.arun("go", conversation="c"))
    with make_engine(["first", "second"], log=store) as other:
        assert other.run("more", conversation="c").content == "second"
        assert read_request(other) == [("user", "go"), ("assistant", "first"), ("user", "more")]
        assert list_types(other).count("turn_started") == 2
        list(replay_conversation(store, "c"))


# -- while somebody is asked, in this process or in another one --------------------------------------


@pytest.mark.parametrize("is_same", [True, False], ids=["same worker", "another worker"])
async def test_a_message_while_an_approver_is_asked_goes_to_the_running_turn(
    is_same: bool, tmp_path: Path
) -> None:
    """S5.5: the turn runs and its call waits for the program's approver. A message to the conversation, in
    the same worker or by way of the inbox of another one, is kept for that turn, whose next request has it;
    its result says so at once."""
    asked, may_end = asyncio.Event(), asyncio.Event()

    async def decide(call: ToolCall) -> Decided:
        asked.set()
        await may_end.wait()
        return Decided(call_id=call.id, approved=True)

    log = tmp_path / "log.db"
    async with (
        make_waiting_engine("both", approver=decide, log=log) as worker,
        make_waiting_engine(log=log) as other,
    ):
        turn = asyncio.create_task(worker.arun("go", conversation="c"))
        await asked.wait()
        kept = await (worker if is_same else other).arun("and hurry", conversation="c")
        assert not kept.is_over
        assert "the message waits for the decision on 'echo'" in kept.warnings[-1]
        await wait_until(lambda: "user_said" in list_types(other))
        may_end.set()
        assert (await turn).content == "both"
        assert read_request(worker)[-1] == ("user", "and hurry")
        assert list_types(worker).count("user_said") == 1
        list(replay_conversation(worker.store, "c"))


class HeldStore(MemoryStore):
    """A store whose reading of inboxes waits while it is held, and so do the records that come behind it."""

    commits_at_once = False

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on, self.is_waiting = threading.Event(), threading.Event()
        self.may_go_on.set()

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """Wait, then read."""
        if not self.may_go_on.is_set():
            self.is_waiting.set()
            assert self.may_go_on.wait(60)
        return super().read_inbox(conversations)


def make_deaf_chart() -> dict[str, Any]:
    """The chart `tool_loop` without its rows for a cancellation."""
    chart = yaml.safe_load(read_shipped_chart("tool_loop"))
    for state in chart["states"].values():
        rows = state.get("transitions", ())
        if rows:
            state["transitions"] = [row for row in rows if row["event"] != "cancelled"]
    return chart


@pytest.mark.parametrize("chart", ["tool_loop", "deaf"])
@pytest.mark.parametrize("comes", ["message", "cancellation"])
async def test_nothing_begins_that_is_not_recorded_or_was_cancelled(comes: str, chart: str) -> None:
    """DESIGN 7.2: an event from outside comes beside the last result of a reply's calls, while their records
    are written. A message: the next request begins when the record that asks for it is durable, not with the
    record of the message. A cancellation, whether the chart has a row for it or not: no request begins."""
    ends = {name: asyncio.Event() for name in (("a", "b") if comes == "message" else ("a",))}
    begun, asked, store = list[str](), list[int](), HeldStore()

    async def look_up(arguments: dict[str, Any]) -> str:
        begun.append(arguments["text"])
        await ends[arguments["text"]].wait()
        return "done"

    def answer(said: str, request: Request) -> Reply:
        records = [orjson.loads(line) for line in store.read_lines("c")]
        asks = [ask["effect"] for record in records for ask in record.get("asks", ())]
        asked.append(asks.count("call_model"))
        if len(model.requests) > 1:
            return Reply(content="both done", finish_reason="stop")
        calls = tuple(ToolCall(id=name, name="look_up", arguments={"text": name}) for name in ends)
        return Reply(tool_calls=calls, finish_reason="tool_calls")

    model = FunctionModel(answer)
    engine = Engine(
        make_spec(chart=make_deaf_chart() if chart == "deaf" else chart),
        log=store,
        functions=[make_function_tool("look_up", {"type": "object"}, look_up)],
        providers={"model": model},
    )
    async with engine, asyncio.timeout(60):
        turn = asyncio.create_task(engine.arun("go", conversation="c"))
        await wait_until(lambda: sorted(begun) == [*ends])
        store.may_go_on.clear()
        await wait_until(store.is_waiting.is_set)
        ends["a"].set()
        await asyncio.sleep(0.05)  # the record of its result is handed over, and waits
        if comes == "message":
            said = asyncio.create_task(engine.conversation("c").asay("and hurry"))
            await asyncio.sleep(0.05)
            ends["b"].set()
        else:
            said = asyncio.create_task(engine.conversation("c").acancel("enough"))
        await asyncio.sleep(0.05)
        store.may_go_on.set()
        await said
        result = await turn
        assert asked == ([1, 2] if comes == "message" else [1]), "the log asks for each request"
        assert list_types(engine).count("user_said" if comes == "message" else "cancelled") == 1
        assert (result.content == "both done") is (comes == "message")
        list(replay_conversation(engine.store, "c"))


async def test_a_message_in_the_inbox_of_a_turn_that_has_ended_begins_the_next_turn() -> None:
    """S5.5: a message that was left for a running turn and came too late for it is not dropped; it begins the
    next turn when the conversation is given back, and is answered once. That turn has who sent it, and
    what is attached to it."""
    store = MemoryStore()
    may_end = asyncio.Event()

    def answer(said: str, request: Request) -> Any:
        return may_end if said == "go" else "second"

    model = FunctionModel(answer)
    spec = {
        "chart": "tool_loop",
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "responses": [{"llm": "model"}],
    }
    async with Engine(spec, log=store, providers={"model": model}) as engine:

        def leave_message(event: Any, step: Any) -> None:
            if step.snapshot.is_over and not model.asked.count("too late"):
                parts = (TextPart(text="too late"), TextPart(text=""))
                event = UserSaid(message="too late", parts=parts, author="anna")
                store.post("c", "user_said/1", encode_item(Item(conversation="c", event=event)))

        turn = asyncio.create_task(engine.arun("go", conversation="c", observer=leave_message))
        await model.wait_for_requests(1)
        may_end.set()
        assert (await turn).content == "done", "the caller gets the answer to its own message"
        assert engine.conversation("c").read_turn().content == "second"
        assert model.asked == ["go", "too late"]
        events = [orjson.loads(line)["event"] for line in store.read_lines("c")]
        _, begun = [event for event in events if event["type"] == "turn_started"]
        assert (begun["author"], len(begun["parts"])) == ("anna", 2)
        assert store.read_inbox(["c"]) == []
        list(replay_conversation(store, "c"))


async def test_a_message_that_is_submitted_while_a_call_waits_goes_to_the_inbox() -> None:
    """S5.5: `submit` leaves the message to the workers; the turn has it after the decision, once."""
    async with make_paying_engine(MemoryStore(), lambda arguments: "paid", approval=True) as engine:
        host = LocalHost(engine)
        client = DurableClient(engine, host)
        await client.submit("the bill", conversation="c")
        await host.join()
        assert await client.submit("and a receipt", conversation="c") == "c"
        await host.join()
        waiting = engine.conversation("c").read_turn()
        assert (waiting.is_over, waiting.waiting_messages) == (False, ["and a receipt"])
        await client.decide("c", approve(waiting))
        await host.join()
        assert engine.conversation("c").read_turn().waiting_messages == []
        assert list_types(engine).count("user_said") == 1
        list(replay_conversation(engine.store, "c"))


# -- children ----------------------------------------------------------------------------------------


HANDING_OVER = {
    "name": "handing_over",
    "states": {
        "working": {
            "initial": True,
            "enter": "hand_over",
            "transitions": [
                {"event": "agent_finished", "target": "finished"},
                {"event": "agent_failed", "target": "error"},
                {"event": "user_said"},
            ],
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}


def hand_over(chart: Any, depth: int) -> dict[str, Any]:
    """The effects of a chart that hands its conversation over, so many times until that chart has it."""
    for _ in range(depth - 1):
        chart = {**HANDING_OVER, "effects": hand_over(chart, 1)}
    return {"hand_over": {"run_agent": {"chart": chart, "history": "all"}}}


@pytest.mark.parametrize("depth", [1, 2])
def test_a_message_while_a_call_of_a_sub_agent_waits_reaches_the_sub_agent(
    depth: int, tmp_path: Path
) -> None:
    """S5.5: a sub-agent, or one of that, has taken the conversation over and waits for a decision. Its next
    request has the message, once; the conversation itself keeps it too, as for a turn that runs."""
    effects = hand_over("approval", depth)
    with make_waiting_engine("both", chart=HANDING_OVER, effects=effects, log=tmp_path / "log.db") as engine:
        first = engine.run("go", conversation="c")
        kept = engine.run("and hurry", conversation="c")
        assert "the message waits for the decision on 'echo'" in kept.warnings[-1]
        assert kept.pending_approvals == first.pending_approvals
        assert engine.conversation("c").resume(approve(first)).content == "both"
        assert read_request(engine)[-1] == ("user", "and hurry")
        names = list(engine.store.list_conversations())
        assert [list_types(engine, name).count("user_said") for name in names] == [1] * (depth + 1)
        for name in names:
            list(replay_conversation(engine.store, name))


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_running_sub_agent_gets_the_whole_message(depth: int) -> None:
    """A sub-agent, or one of that, that has taken the conversation over runs a tool. Its next
    request has the message that comes meanwhile, with its attachments, once."""
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def look_up(arguments: Any, context: Any = None) -> str:
        has_begun.set()
        await may_end.wait()
        return "found"

    engine = make_engine(
        [reply_with_calls(("look_up", {})), "both"],
        chart=HANDING_OVER,
        effects=hand_over("tool_loop", depth),
        functions=[make_function_tool("look_up", {"type": "object"}, look_up)],
    )
    async with engine, asyncio.timeout(60):
        turn = asyncio.create_task(engine.arun("go", conversation="c"))
        await has_begun.wait()
        await engine.conversation("c").asay("see this", attachments=[PICTURE])
        may_end.set()
        assert (await turn).content == "both"
        newest = list_requests(engine)[-1].messages[-1]
        assert (newest.content, [type(part) for part in newest.parts]) == ("see this", [TextPart, ImagePart])
        counts = [list_types(engine, name).count("user_said") for name in engine.store.list_conversations()]
        assert counts == [1] * (depth + 1)


# -- timers that run out before the message -----------------------------------------------------------


LISTENING = {
    "name": "listening",
    "states": {
        "replying": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "listening"},
                {"event": "failed", "target": "error"},
            ],
        },
        "listening": {
            "enter": "listen",
            "after": {"1h": "asking"},
            "transitions": [{"event": "user_said", "target": "replying"}],
        },
        "asking": {"enter": "ask_owner", "transitions": [{"event": "answered", "target": "replying"}]},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}
"""A conversation whose user is silent for an hour: somebody else is asked."""


@pytest.mark.parametrize("door", ["run", "say", "inbox", "inbox, recover"])
async def test_a_message_after_a_deadline_that_opened_the_turn_is_kept(door: str) -> None:
    """S5.5: the timer ran out before the message, and its row asks a person. Whoever takes the message lets
    the timer fire first; the turn that is open again keeps the message, and its next request has it, once."""
    clock = TurnableClock()
    effects = {"listen": {"await_user": "More?"}, "ask_owner": {"ask_person": "May it?"}}
    async with make_engine(
        ["hello", "both"], chart=LISTENING, effects=effects, clock=clock, limits={"unbounded": True}
    ) as engine:
        await engine.arun("go", conversation="c")
        handle = engine.conversation("c")
        if door.startswith("inbox"):
            await handle.apost(UserSaid(message="and hurry"))
        clock.advance("2h")
        match door:
            case "run":
                kept = await engine.arun("and hurry", conversation="c")
                assert "the message waits for the answer to 'ask_owner'" in kept.warnings[-1]
            case "say":
                await handle.asay("and hurry")
            case "inbox":
                await handle.acontinue()
            case _:
                await engine.arecover()
        waiting = handle.read_turn()
        assert (waiting.state, waiting.waiting_messages) == ("asking", ["and hurry"])
        assert engine.store.read_inbox(["c"]) == []
        assert (await handle.aanswer({"content": "yes"})) is not None
        assert read_request(engine)[-1] == ("user", "and hurry")
        assert list_types(engine).count("user_said") == 1
        list(replay_conversation(engine.store, "c"))


# -- turns that begin right after a record, or not at all -----------------------------------------------


class GatedModel:
    """A model that answers at once, but waits for a word where the message asks for it."""

    name = "gated"

    def __init__(self) -> None:
        self.asked, self.gate = asyncio.Event(), asyncio.Event()

    async def complete(self, request: Any) -> Any:
        """The reply."""
        if request.messages[-1].content == "slow":
            self.asked.set()
            await self.gate.wait()
        return Reply(content="done", finish_reason="stop")

    async def aclose(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("when", ["it runs here", "it runs elsewhere", "it has ended"])
async def test_a_turn_begins_after_the_record_that_was_read_or_not_at_all(when: str, tmp_path: Any) -> None:
    """Of two senders that have read the same record one begins a turn, whatever engine the other one has; its
    message goes to no other turn, and nothing is written."""
    path, model = str(tmp_path / "log.db"), GatedModel()
    spec = make_spec()
    async with (
        Engine(spec, log=path, providers={"model": model}) as first,
        Engine(spec, log=path, providers={"model": GatedModel()}) as second,
    ):
        await first.arun("hi", conversation="c")
        read = first.store.read_last_line("c")
        assert read is not None
        stream = first.conversation("c").stream("slow", follows=read[0])
        turn = asyncio.ensure_future(collect(stream))
        await model.asked.wait()
        if when == "it has ended":
            model.gate.set()
            await turn
        engine = first if when == "it runs here" else second
        with pytest.raises(LogConflict):
            await collect(engine.conversation("c").stream("late", follows=read[0]))
        model.gate.set()
        pieces = await turn
        assert pieces[-1].content == "done"
        assert first.store.read_inbox(["c"]) == []
        events = [step.record.event for step in replay_conversation(first.store, "c")]
    said = [event["message"] for event in events if event["type"] in ("turn_started", "user_said")]
    assert said == ["hi", "slow"]


@pytest.mark.parametrize("follows", [None, 3])
async def test_a_streamed_turn_refuses_an_option_that_does_not_exist(follows: int | None) -> None:
    """An option that is misspelt is an error that names it, whatever record the turn must follow."""
    async with make_engine(["hello"]) as engine:
        options: dict[str, Any] = {"modle": "other"}
        with pytest.raises(TypeError, match="modle"):
            await collect(engine.conversation("c").stream("hi", follows=follows, **options))
        assert list(engine.store.list_conversations()) == []


async def collect(stream: Any) -> list[Any]:
    """All pieces of a stream."""
    return [piece async for piece in stream]
