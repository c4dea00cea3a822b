"""One rule for what people send: states of a turn, doors, and messages, decisions and cancellations.

A row of the chart takes an event at once, or it waits in the log and becomes one when the chart can take it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
from agents import make_spec, reply_with_calls
from paying_agent import wait_until

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from served import make_site, open_client

from toolchart.app.server.openai_api.response_ids import ResponseName
from toolchart.engine import Engine
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.clock import SystemClock
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import IllegalEvent, ProviderError, SpecError
from toolchart.states.events import Cancelled, Decided, UserSaid
from toolchart.states.messages import Delta, Reply, Request, TextDelta

TEXT = "and hurry"

LONGEST_S = 60.0
"""Seconds after which a case that hangs fails."""

# -- the states of a turn ----------------------------------------------------------------------------


class GatedModel(ScriptedProvider):
    """Gives scripted replies; the first request waits at a gate where it is closed.

    Args:
        is_closed: whether it is, for a request or, with `says`, for the rest of a streamed reply.
    """

    def __init__(self, replies: list[Any], *, is_closed: bool = False, says: str = "") -> None:
        super().__init__([*replies, *(f"reply {number}" for number in range(20))])
        self.gate, self.has_begun = asyncio.Event(), asyncio.Event()
        self._says = says
        if not is_closed:
            self.gate.set()

    async def complete(self, request: Request) -> Reply:
        """The next reply, when the gate is open."""
        self.has_begun.set()
        await self.gate.wait()
        return await super().complete(request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Say something, then as `complete`."""
        if self._says:
            yield TextDelta(text=self._says)
        yield await self.complete(request)


class GatedClock(SystemClock):
    """A clock on which waits end when a gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.has_begun = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait for the gate."""
        self.has_begun.set()
        await self.gate.wait()


def fail_once(request: Request) -> Reply:
    """A failure that may pass."""
    raise ProviderError(kind="overloaded", message="busy", status=503, retryable=True)


class Cut(BaseException):
    """The end of a process."""


def cut_off(request: Request) -> Reply:
    """The process ends while the model is asked."""
    raise Cut


FORM = {"type": "object", "properties": {"yes": {"type": "boolean"}}}
CALLING = [
    {"event": "replied", "target": "finished"},
    {"event": "failed", "target": "error"},
    {"event": "cancelled", "target": "error"},
]
ENDS: dict[str, Any] = {
    "finished": {"final": True, "enter": "answer"},
    "error": {"final": True, "enter": "answer_with_error"},
}
ASKING = {
    "name": "asking",
    "states": {
        "asking": {
            "initial": True,
            "enter": "ask_owner",
            "transitions": [
                {"event": "answered", "target": "replying"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "replying": {"enter": "call_model", "transitions": CALLING},
        **ENDS,
    },
}
HANDING_OVER = {
    "name": "handing_over",
    "states": {
        "working": {
            "initial": True,
            "enter": "hand_over",
            "transitions": [
                {"event": "agent_finished", "target": "finished"},
                {"event": "agent_failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
                {"event": "user_said"},
            ],
        },
        **ENDS,
    },
}
TALKING = {
    "name": "talking",
    "states": {
        "replying": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {**row, "target": row["target"].replace("finished", "listening")} for row in CALLING
            ],
        },
        "listening": {"enter": "listen", "transitions": [{"event": "user_said", "target": "replying"}]},
        "error": ENDS["error"],
    },
}

ECHO = reply_with_calls(("echo", {"text": "a"}))
RISKY = {"registry": [{"name": "echo", "requires_approval": True}]}


class World:
    """A conversation `c` in one state of a turn, on a log that two workers share.

    Args:
        spec: changes of the agent.
        model: of the first worker.
        begun: set when the turn has come to the state; None where that is when it rests.
    """

    def __init__(self, spec: dict[str, Any], model: GatedModel, **options: Any) -> None:
        self.store, self.model = MemoryStore(), model
        self.begun: asyncio.Event | None = options.pop("begun", None)
        self.gates: list[asyncio.Event] = [model.gate, *options.pop("gates", ())]
        self._spec = make_spec(**spec)
        self.engine = self._open(model, **options)
        self.other = self._open(GatedModel([]), **options)
        self.turn: asyncio.Task[Any] | None = None
        self.client: Any = None

    def _open(self, model: GatedModel, **options: Any) -> Engine:
        return Engine(self._spec, log=self.store, providers={"model": model}, **options)

    async def begin(self) -> None:
        """Bring the turn into its state."""
        self.turn = asyncio.create_task(self.engine.arun("go", conversation="c", on_delta=lambda delta: None))
        if self.begun is not None:
            await self.begun.wait()
            return
        with suppress(Cut):
            await self.turn

    def find_calls(self) -> list[str]:
        """Ids of the calls that the log has, waiting or not."""
        loaded = load_conversation(self.store, "c")
        assert loaded is not None
        calls = [call.call.id for call in loaded.snapshot.calls]
        return calls or ["call_1_0_0"]

    def count_kept(self) -> int:
        """How often the log has the message now, as an event or in the inbox: what a kill would leave."""
        events = [orjson.loads(line)["event"] for line in self.store.read_lines("c")]
        count = len([event for event in events if event.get("message") == TEXT])
        return count + sum(TEXT.encode() in entry.data for entry in self.store.read_inbox(["c"]))

    def count_events(self, kind: str) -> int:
        """How many events of a type the conversation has."""
        return sum(orjson.loads(line)["event"]["type"] == kind for line in self.store.read_lines("c"))

    async def finish(self) -> None:
        """Let the turn go on to its end, with what it waits for."""
        for gate in self.gates:
            gate.set()
        if self.turn is not None:
            await asyncio.gather(self.turn, return_exceptions=True)
        result = self.engine.conversation("c").read_turn()
        if result.pending_approvals:
            await self.engine.conversation("c").aresume(
                Decided(call_id=result.pending_approvals[0].id, approved=True)
            )
        elif result.questions:
            await self.engine.conversation("c").aanswer({"yes": True})


def make_prompting() -> World:
    model = GatedModel([], is_closed=True)
    return World({}, model, begun=model.has_begun)


def make_streaming() -> World:
    model = GatedModel([], is_closed=True, says="Well")
    return World({}, model, begun=model.has_begun)


def make_approving() -> World:
    return World({"chart": "approval", "tools": RISKY}, GatedModel([ECHO]))


def make_executing() -> World:
    gate, has_begun = asyncio.Event(), asyncio.Event()

    async def look(text: str) -> str:
        """Look."""
        has_begun.set()
        await gate.wait()
        return text

    model = GatedModel([reply_with_calls(("look", {"text": "a"}))])
    return World({"tools": {}}, model, functions=[look], begun=has_begun, gates=[gate])


def make_backing_off() -> World:
    clock = GatedClock()
    model = GatedModel([fail_once])
    return World({"chart": "resilient"}, model, clock=clock, begun=clock.has_begun, gates=[clock.gate])


def make_child() -> World:
    model = GatedModel([], is_closed=True)
    effects = {"hand_over": {"run_agent": {"chart": "tool_loop", "history": "all"}}}
    return World({"chart": HANDING_OVER, "effects": effects}, model, begun=model.has_begun)


def make_question() -> World:
    effects = {"ask_owner": {"ask_person": {"question": "May it?", "form": FORM, "as": "owner"}}}
    return World({"chart": ASKING, "effects": effects}, GatedModel([]))


def make_rested() -> World:
    effects = {"listen": {"await_user": "More?"}}
    return World({"chart": TALKING, "effects": effects, "limits": {"unbounded": True}}, GatedModel([]))


def make_ended() -> World:
    return World({}, GatedModel([]))


def make_crashed() -> World:
    return World({}, GatedModel([cut_off]))


OPEN: dict[str, Callable[[], World]] = {
    "prompting": make_prompting,
    "streaming": make_streaming,
    "awaiting approval": make_approving,
    "executing": make_executing,
    "waiting for a timer": make_backing_off,
    "child running": make_child,
    "question to a person": make_question,
}
"""States in which the turn is open and goes on, or waits."""

OVER: dict[str, Callable[[], World]] = {"rested": make_rested, "ended": make_ended}
"""States between turns."""

LEFT = {"left by a crash": make_crashed}

STATES = {**OPEN, **OVER, **LEFT}


@asynccontextmanager
async def open_world(state: str) -> AsyncIterator[World]:
    """A conversation in a state, and a server on the engine that has it."""
    world = STATES[state]()
    async with asyncio.timeout(LONGEST_S), open_client(make_site(world.engine)) as client:
        world.client = client
        await world.begin()
        yield world
        for gate in world.gates:
            gate.set()
        if world.turn is not None:
            await asyncio.gather(world.turn, return_exceptions=True)
        await world.other.aclose()


# -- the doors ---------------------------------------------------------------------------------------


async def send_by_run(world: World) -> None:
    await world.engine.arun(TEXT, conversation="c")


async def send_by_stream(world: World) -> None:
    async for _ in world.engine.stream(TEXT, conversation="c"):
        pass


async def send_by_say(world: World) -> None:
    await world.engine.conversation("c").asay(TEXT)


async def send_by_handle(world: World) -> None:
    await world.engine.conversation("c").asend(TEXT)


async def send_by_post(world: World) -> None:
    await world.other.conversation("c").apost(UserSaid(message=TEXT))


async def send_from_another_worker(world: World) -> None:
    await world.other.arun(TEXT, conversation="c")


async def say_from_another_worker(world: World) -> None:
    await world.other.conversation("c").asay(TEXT)


async def send_by_http(world: World) -> None:
    answer = await world.client.post("/api/conversations/c/messages", json={"message": TEXT})
    assert answer.status_code in (200, 202), answer.text


async def send_by_responses(world: World) -> None:
    loaded = load_conversation(world.store, "c")
    assert loaded is not None
    previous = ResponseName(conversation="c", turn=loaded.snapshot.turn, seq=1).id
    body = {"model": "agent", "input": TEXT, "previous_response_id": previous}
    answer = await world.client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text


async def send_by_ag_ui(world: World) -> None:
    message = {"id": "m", "role": "user", "content": TEXT}
    answer = await world.client.post("/ag-ui", json={"threadId": "c", "runId": "r", "messages": [message]})
    assert answer.status_code == 200, answer.text
    assert "RUN_ERROR" not in answer.text, answer.text


Door = Callable[[World], Awaitable[Any]]

MESSAGES: dict[str, Door] = {
    "run": send_by_run,
    "stream": send_by_stream,
    "say": send_by_say,
    "handle": send_by_handle,
    "inbox": send_by_post,
    "run elsewhere": send_from_another_worker,
    "say elsewhere": say_from_another_worker,
    "HTTP": send_by_http,
    "Responses": send_by_responses,
    "AG-UI": send_by_ag_ui,
}


@pytest.mark.parametrize("door", MESSAGES)
@pytest.mark.parametrize("state", STATES)
async def test_a_message_is_accepted_in_every_state_by_every_door(state: str, door: str) -> None:
    """S5.5: whatever state the turn is in and whichever door the message takes, it is no error. The log has
    it once when the door returns, so that no kill loses it: for an open turn as `user_said` or in its inbox,
    else as the next turn. Afterwards it stands once among the messages, in a log that replays."""
    async with open_world(state) as world:
        await MESSAGES[door](world)
        assert world.count_kept() == 1
        if state in OPEN and door != "inbox":
            assert world.count_events("turn_started") == 1, "no second turn begins beside the open one"
        if state in OVER and door != "inbox":
            assert world.count_events("turn_started") == 2, "the message is the next turn"
        await world.finish()
        await world.engine.arun("next", conversation="c")
        await wait_until(lambda: not world.store.read_inbox(["c"]))
        await world.finish()
        await world.engine.arun("the last one", conversation="c")
        await world.finish()
        said = [m.content for m in world.engine._conversations.read_messages("c") if m.role == "user"]
        assert said.count(TEXT) == 1
        assert said[0] == "go"
        assert said[-1] == "the last one"
        list(replay_conversation(world.store, "c"))


# -- cancellations -----------------------------------------------------------------------------------


async def cancel_by_http(world: World) -> None:
    answer = await world.client.post("/api/conversations/c/cancel", json={"reason": "enough"})
    if answer.status_code == 400:
        raise SpecError(answer.text)
    assert answer.status_code in (200, 202), answer.text


async def cancel_by_post(world: World) -> None:
    await world.other.conversation("c").apost(Cancelled(reason="enough"))
    if world.begun is None:  # nobody holds the conversation: somebody looks at it
        await world.other.conversation("c").acontinue()


CANCELLATIONS: dict[str, Door] = {
    "cancel": lambda world: world.engine.conversation("c").acancel("enough"),
    "handle": lambda world: world.engine.conversation("c").acancel("enough"),
    "elsewhere": lambda world: world.other.conversation("c").acancel("enough"),
    "inbox": cancel_by_post,
    "HTTP": cancel_by_http,
}


@pytest.mark.parametrize("door", CANCELLATIONS)
@pytest.mark.parametrize("state", STATES)
async def test_a_cancellation_ends_every_open_turn_by_every_door(state: str, door: str) -> None:
    """Whatever an open turn does, a cancellation ends it, by whichever door it comes. Between turns there is
    nothing to cancel: it is refused, and nothing is written."""
    async with open_world(state) as world:
        before = len(list(world.store.read_lines("c")))
        if state in OVER:
            with pytest.raises(SpecError, match="no turn of conversation 'c' is open"):
                await CANCELLATIONS[door](world)
            assert len(list(world.store.read_lines("c"))) == before
            return
        await CANCELLATIONS[door](world)
        await wait_until(lambda: world.engine.conversation("c").read_turn().is_over)
        result = world.engine.conversation("c").read_turn()
        assert result.error is not None
        assert result.error.kind == "cancelled"
        assert world.count_events("cancelled") == 1
        list(replay_conversation(world.store, "c"))


# -- decisions ---------------------------------------------------------------------------------------


def decide(world: World) -> Decided:
    return Decided(call_id=world.find_calls()[0], approved=True)


async def decide_by_http(world: World) -> None:
    body = {"call_id": world.find_calls()[0], "approved": True}
    answer = await world.client.post("/api/conversations/c/decisions", json=body)
    if answer.status_code == 409:
        raise IllegalEvent("decided", answer.json()["message"])
    assert answer.status_code in (200, 202), answer.text


async def decide_by_post(world: World) -> None:
    await world.other.conversation("c").apost(decide(world))
    await world.other.conversation("c").acontinue()


DECISIONS: dict[str, Door] = {
    "decide": lambda world: world.engine.conversation("c").adecide(decide(world)),
    "handle": lambda world: world.engine.conversation("c").aapprove(world.find_calls()[0]),
    "elsewhere": lambda world: world.other.conversation("c").adecide(decide(world)),
    "inbox": decide_by_post,
    "HTTP": decide_by_http,
}


@pytest.mark.parametrize("door", DECISIONS)
@pytest.mark.parametrize("state", STATES)
async def test_a_decision_is_taken_where_its_call_waits_by_every_door(state: str, door: str) -> None:
    """Where the call waits, a decision of any door lets it run. Where no call waits for it, it is refused
    with the state of the turn, and nothing is written."""
    async with open_world(state) as world:
        before = len(list(world.store.read_lines("c")))
        if state == "awaiting approval":
            await DECISIONS[door](world)
            result = world.engine.conversation("c").read_turn()
            assert (result.is_over, [call.outcome for call in result.tool_calls]) == (True, ["succeeded"])
            list(replay_conversation(world.store, "c"))
            return
        with pytest.raises((IllegalEvent, SpecError)):
            await DECISIONS[door](world)
        assert len(list(world.store.read_lines("c"))) == before
        assert not world.store.read_inbox(["c"])
