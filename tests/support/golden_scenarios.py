"""The conversations of the golden logs: each drives the real engine with scripted hosts, tools and people.

`SCENARIOS` has them by name. A scenario is a coroutine function of a `World`; what it leaves in the world's
store, and notes beside it, is its golden log.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from child_agents import FunctionModel, make_parent_chart
from flow_conversations import CONVERSATIONS
from golden_feeds import FedClock, run_fed

from toolchart.engine import Engine
from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.migration import migrate_conversation
from toolchart.providers.adapter import HostAdapter, encode_plain_request
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.providers.text_calls.provider import TextCallProvider, accept_text_calls
from toolchart.providers.transport.batches import BatchAnswer, BatchApi, BatchCall, BatchJob
from toolchart.providers.transport.raw_answers import find_capture
from toolchart.specs.loader import load_spec
from toolchart.states.content import ImagePart
from toolchart.states.errors import ProviderError
from toolchart.states.events import Decided, UserSaid
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.tools.definition import Tool, ToolFailure, ToolPending
from toolchart.tools.sources.effect_functions import effect

Scenario = Callable[["World"], Awaitable[None]]

SCENARIOS: dict[str, Scenario] = {}


class World:
    """What a scenario works with.

    Args:
        clock: the fed clock.
    """

    def __init__(self, clock: FedClock) -> None:
        self.clock = clock
        self.store: Any = MemoryStore()
        """The store that the engine writes to."""
        self.notes: list[Any] = []
        """What a scenario notes beside its log, as JSON data; golden logs have it as `seals`."""
        self.keeps_checkpoints = False
        """Whether the golden log has its checkpoints whole, and not only their digests."""

    def open(self, spec: Any, replies: Sequence[Any] | None = None, **options: Any) -> Engine:
        """An engine on the world's store; `replies` are those of the model `model`."""
        loaded = load_spec(spec)
        providers: dict[str, Any] = {
            name: SlowProvider.from_config(config, str)
            for name, config in loaded.llms.items()
            if config.provider == "scripted"
        }
        if replies is not None:
            providers["model"] = SlowProvider(replies)
        providers |= options.pop("providers", {})
        return Engine(spec, log=self.store, clock=self.clock, providers=providers, **options)


class SlowProvider(ScriptedProvider):
    """A script whose answers take time, and each question another one."""

    async def complete(self, request: Request) -> Reply:
        """The next reply, after a while."""
        await asyncio.sleep(_choose_latency(request))
        return await super().complete(request)

    async def stream(self, request: Request) -> Any:
        """The pieces of the next reply, after a while."""
        await asyncio.sleep(_choose_latency(request))
        async for item in super().stream(request):
            yield item


def _choose_latency(request: Request) -> float:
    """Seconds until an answer comes: they depend on the request alone."""
    texts = [message.content or "" for message in request.messages]
    return round(0.25 + sum(len(text) * place for place, text in enumerate(texts, 1)) % 97 * 0.011, 3)


def golden(name: str) -> Callable[[Scenario], Scenario]:
    """Add a scenario to the table."""

    def add(scenario: Scenario) -> Scenario:
        assert name not in SCENARIOS, name
        SCENARIOS[name] = scenario
        return scenario

    return add


# -- flows and agents that ship ------------------------------------------------------------------


def _add_flow(name: str) -> None:
    async def run(world: World) -> None:
        async with world.open(name) as engine:
            for message in CONVERSATIONS[name][0]:
                await engine.arun(message, conversation="c")

    golden(f"flow-{name}")(run)


for _name in CONVERSATIONS:
    _add_flow(_name)


# -- tools and specs of the other scenarios ------------------------------------------------------

WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
AMOUNT = {
    "type": "object",
    "properties": {"amount": {"type": "number", "maximum": 500}, "to": {"type": "string"}},
    "required": ["amount"],
    "additionalProperties": False,
}


def make_tools() -> list[Tool]:
    """Tools whose results are of several kinds, and that take time."""

    async def look_up(arguments: Mapping[str, Any]) -> Any:
        await asyncio.sleep(0.1 + 0.02 * len(arguments["word"]))
        return {"word": arguments["word"], "length": len(arguments["word"]), "rare": None, "share": 0.125}

    async def pay(arguments: Mapping[str, Any]) -> Any:
        await asyncio.sleep(0.3)
        return f"paid {arguments['amount']}"

    async def fail(arguments: Mapping[str, Any]) -> Any:
        await asyncio.sleep(0.05)
        raise ToolFailure("the shelf is empty")

    async def crash(arguments: Mapping[str, Any]) -> Any:
        raise KeyError(arguments["word"])

    async def hang(arguments: Mapping[str, Any]) -> Any:
        await asyncio.sleep(1000)

    async def list_words(arguments: Mapping[str, Any]) -> Any:
        return [f"{arguments['word']} {number}" for number in range(300)]

    async def draw(arguments: Mapping[str, Any]) -> Any:
        return [arguments["word"], ImagePart(media_type="image/png", data=_DOT)]

    def make(name: str, schema: dict[str, Any], run: Any, **options: Any) -> Tool:
        definition = ToolDefinition(name=name, description=f"To {name}.", parameters=schema)
        return Tool(definition=definition, run=run, execution_mode="async", **options)

    return [
        make("look_up", WORD, look_up, idempotent=True),
        make("pay", AMOUNT, pay, requires_approval=True, risk="high"),
        make("fail", WORD, fail),
        make("crash", WORD, crash),
        make("hang", WORD, hang, timeout_s=2),
        make("list_words", WORD, list_words),
        make("draw", WORD, draw),
    ]


_DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
"""A PNG of one point."""


def make_spec(chart: Any, **changes: Any) -> dict[str, Any]:
    """An agent on a chart; the model is scripted."""
    return {
        "name": "golden",
        "chart": chart,
        "llms": {"model": {"provider": "scripted", "model": "m", "context_limit": 4000}},
        "responses": [{"name": "main", "llm": "model", "prompt": "Be brief.", "tools": {"enabled": True}}],
        **changes,
    }


def call(*calls: tuple[str, Any], content: str | None = None, **more: Any) -> dict[str, Any]:
    """A scripted reply with calls."""
    tool_calls = [{"name": name, "arguments": arguments} for name, arguments in calls]
    usage = {"input": 20 + len(calls), "output": 3 * len(calls)}
    return {"tool_calls": tool_calls, "usage": usage, "content": content, **more}


def fail(kind: str, **more: Any) -> dict[str, Any]:
    """A scripted failure of a model call."""
    return {"fail": {"kind": kind, "message": f"{kind} on purpose", **more}}


LOOK = ("look_up", {"word": "tide"})
MIXED = call(
    LOOK,
    ("fail", {"word": "a"}),
    ("crash", {"word": "b"}),
    ("look_up", {"word": 7}),
    ("look_up", "{not json"),
    ("look_upp", {"word": "moon"}),
    content="Several at once.",
)
OTHERS = call(("hang", {"word": "c"}), ("list_words", {"word": "leaf"}), ("draw", {"word": "dot"}))


def _add_chart(chart: str, name: str, replies: Sequence[Any], *messages: str, **changes: Any) -> None:
    async def run(world: World) -> None:
        async with world.open(make_spec(chart, **changes), replies, functions=make_tools()) as engine:
            for message in messages:
                await engine.arun(message, conversation="c")

    golden(f"{chart}-{name}")(run)


CHARTS = ("tool_loop", "planner", "full", "forced_answer", "compacting", "budgeted", "approval", "resilient")
for _name in CHARTS:
    _replies = [
        MIXED,
        *([OTHERS] if _name in ("tool_loop", "full") else []),
        call(LOOK),
        "Here it is.",
        "And more.",
    ]
    _add_chart(_name, "tools", _replies, "Look around.", "And then?")
for _name in ("tool_loop", "planner", "full", "forced_answer", "compacting"):
    _limits = {"max_iterations": 2}
    _replies = [call(LOOK), call(("look_up", {"word": "ebb"})), call(LOOK), "In short: tides."]
    _add_chart(_name, "limit", _replies, "Look three times.", limits=_limits)
for _name in ("planner", "full", "forced_answer"):
    _add_chart(_name, "repeats", [call(LOOK)] * 4 + ["The same again."], "Look again and again.")
for _name in ("budgeted", "full"):
    _add_chart(_name, "tokens", [call(LOOK)] * 3, "Spend.", limits={"max_tokens": 40})
    _add_chart(
        _name,
        "calls",
        [call(LOOK), call(LOOK, ("fail", {"word": "z"}))],
        "Call.",
        limits={"max_tool_calls": 2},
    )
    _add_chart(
        _name,
        "seconds",
        [{**call(LOOK), "latency_s": 2}, {"content": "late", "latency_s": 9}],
        "Wait.",
        limits={"max_seconds": 4},
    )
_add_chart(
    "budgeted",
    "cost",
    [call(LOOK), call(LOOK), "no"],
    "Spend.",
    limits={"max_cost": 0.0001},
    prices={"currency": "USD", "models": {"m": {"input": 2.5, "output": 10}}},
)

# -- failures and retries ------------------------------------------------------------------------

_RETRIES = {"max_attempts": 5, "first_wait_s": 0.7, "max_wait_s": 3.0}
_FAILURES = [
    fail("overloaded", status=503, retryable=True),
    fail("connection", retryable=True),
    fail("server", status=500, retryable=True),
    fail("rate_limited", status=429, retryable=True, retry_after_s=4.5),
]
for _name in ("resilient", "full"):
    _replies = [
        *_FAILURES,
        call(LOOK),
        fail("timeout", retryable=True),
        fail("connection", retryable=True),
        "At last.",
    ]
    _add_chart(
        _name,
        "retries",
        [*_replies, *_FAILURES, fail("overloaded", retryable=True)],
        "Try.",
        "Again.",
        limits=_RETRIES,
    )
    _replies = [fail("tools_unsupported"), '[look_up(word="tide")]', "As text.", call(LOOK), "Text again."]
    _add_chart(_name, "tools-as-text", _replies, "Look.", "Again.")
    _replies = [
        fail("bad_request", status=400),
        fail("overloaded", retryable=True),
        "Without tools.",
        fail("auth", status=401),
    ]
    _add_chart(_name, "without-tools", _replies, "Look.", "Again.")
for _name in ("tool_loop", "planner", "approval", "budgeted", "forced_answer", "compacting"):
    _replies = [call(LOOK), fail("overloaded", retryable=True), {"content": "cut", "finish_reason": "length"}]
    _add_chart(_name, "failures", _replies, "Fail.", "Again.")
_add_chart(
    "full",
    "pauses",
    [
        {"content": "Wait", "finish_reason": "paused"},
        {"content": "and see", "finish_reason": "paused"},
        "Now.",
        {"content": "", "finish_reason": "stop"},
        "Once more.",
        {"content": "no", "finish_reason": "content_filter"},
    ],
    "Go.",
    "On.",
    "And on.",
)


# -- people --------------------------------------------------------------------------------------

PAYMENTS = call(("pay", {"amount": 20, "to": "Ann"}), LOOK, ("pay", {"amount": 30}))


def _decide(result: Any, place: int = 0, **fields: Any) -> Decided:
    """A decision about a call that a result waits for."""
    return Decided(**{"call_id": result.pending_approvals[place].id, "approved": True, "by": "ann", **fields})


async def run_approvals(world: World, chart: Any) -> None:
    """Two calls wait; one is changed and approved after an hour, the other denied; a message waits too."""
    engine = world.open(make_spec(chart), [PAYMENTS, "One of two.", PAYMENTS], functions=make_tools())
    async with engine:
        result = await engine.arun("Pay both.", conversation="c")
        await world.clock.sleep(3600)
        await engine.arun("Hurry!", conversation="c")
        await engine.conversation("c").aresume(_decide(result, 1, approved=False, reason="too much"))
    async with world.open(make_spec(chart), ["One of two.", PAYMENTS], functions=make_tools()) as engine:
        await engine.conversation("c").aresume(_decide(result, arguments={"amount": 19.5, "to": "Ann"}))
        await engine.arun("Pay both again.", conversation="c")
        await engine.conversation("c").acancel("not today")


def _add_approvals(chart: str) -> None:
    async def run(world: World) -> None:
        await run_approvals(world, chart)

    golden(f"{chart}-approvals")(run)


for _name in ("tool_loop", "planner", "full", "approval"):
    _add_approvals(_name)


@golden("approver-and-policy")
async def run_approver(world: World) -> None:
    """An approver answers at once; a policy allows one tool, denies another and asks about the third."""

    async def approve(tool_call: ToolCall) -> Decided:
        await asyncio.sleep(1.5)
        is_small = (tool_call.arguments or {})["amount"] < 25
        return Decided(
            call_id=tool_call.id, approved=is_small, by="the desk", reason=None if is_small else "no"
        )

    rules = [{"tools": "look_up", "decision": "never"}, {"tools": "pay", "decision": "ask"}]
    spec = make_spec("full", approval=rules)
    replies = [call(LOOK, ("fail", {"word": "a"}), *[("pay", {"amount": n}) for n in (20, 30)]), "Done."]
    async with world.open(spec, replies, functions=make_tools(), approver=approve) as engine:
        await engine.arun("Do it.", conversation="c")


@golden("deadline-of-approval")
async def run_deadline(world: World) -> None:
    """A day passes before the decision: the calls expire, and the decision is recorded as late."""
    chart = {
        "name": "day",
        "extends": "approval",
        "states": {"awaiting_approval": {"after": {"24h": "executing"}}},
    }
    async with world.open(make_spec(chart), [PAYMENTS, "Too late."], functions=make_tools()) as engine:
        result = await engine.arun("Pay both.", conversation="c")
        await world.clock.sleep(25 * 3600)
        await engine.conversation("c").aresume(_decide(result))


EDITOR_FORM = {
    "type": "object",
    "properties": {"publish": {"type": "boolean"}, "channel": {"enum": ["blog", "mail"], "default": "blog"}},
    "required": ["publish"],
}


@golden("question-to-a-person")
async def run_question(world: World) -> None:
    """A question is answered, then one that nobody answers in time, then one that is answered too late."""
    states = {
        "asking": {
            "initial": True,
            "enter": "ask_editor",
            "after": {"24h": "expired"},
            "transitions": [
                {"event": "answered", "target": "published", "cond": "verdict.publish"},
                {"event": "answered", "target": "expired"},
            ],
        },
        "published": {"final": True, "enter": "say_published"},
        "expired": {"final": True, "enter": "say_expired"},
    }
    effects = {
        "ask_editor": {
            "ask_person": {"question": "Publish {{user_message}}?", "form": EDITOR_FORM, "as": "verdict"}
        },
        "say_published": {"answer": "published in {{verdict.channel}}"},
        "say_expired": {"answer": "not published"},
    }
    async with world.open(make_spec({"name": "editor", "states": states}, effects=effects), []) as engine:
        await engine.arun("tides", conversation="c")
        await engine.conversation("c").aanswer({"publish": True, "channel": "mail"}, by="ann")
        await engine.arun("ebbs", conversation="c")
        await world.clock.sleep(25 * 3600)
        await engine.conversation("c").aresume()
        await engine.arun("floods", conversation="c")
        await engine.conversation("c").aanswer({"publish": False})


# -- time, cancellation, what comes late ---------------------------------------------------------

_ENDS = {
    "finished": {"final": True, "enter": "answer"},
    "error": {"final": True, "enter": "answer_with_error"},
}


@golden("deadline-of-a-model-call")
async def run_model_deadline(world: World) -> None:
    """A timer beside a model call cancels it; the next one is in time, and its timer is cancelled."""
    states = {
        "asking": {
            "initial": True,
            "enter": "call_model",
            "after": {"2s": "shorter"},
            "transitions": [
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        "shorter": {
            "enter": "call_model",
            "after": {"90s": "error"},
            "transitions": [
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        **_ENDS,
    }
    replies = [{"content": "slow", "latency_s": 60}, "quick"]
    async with world.open(make_spec({"name": "deadline", "states": states}), replies) as engine:
        await engine.arun("Be quick.", conversation="c")


@golden("timer-waits-in-the-log")
async def run_timer(world: World) -> None:
    """A long wait leaves the turn at rest; another engine lets it run out later."""
    states = {
        "waiting": {
            "initial": True,
            "enter": "pause",
            "transitions": [{"event": "elapsed", "target": "asking"}],
        },
        "asking": {
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        **_ENDS,
    }
    spec = make_spec({"name": "waits", "states": states}, effects={"pause": {"wait": "17:00"}})
    async with world.open(spec, [], longest_wait_s=10) as engine:
        await engine.arun("Later.", conversation="c")
        await world.clock.sleep(600)
        await engine.conversation("c").aresume()
    await world.clock.sleep(6 * 3600)
    async with world.open(spec, ["Now."], longest_wait_s=10) as engine:
        await engine.conversation("c").aresume()


async def _begin(work: Any, seconds: float, world: World) -> asyncio.Future[Any]:
    """Begin a turn and let it work for some seconds."""
    turn = asyncio.ensure_future(work)
    await world.clock.sleep(seconds)
    return turn


@golden("cancellations")
async def run_cancellations(world: World) -> None:
    """A turn is cancelled in a model call, while tools run, and by the end of its task."""
    slow = {"content": "never", "latency_s": 50}
    replies = [slow, call(LOOK, ("hang", {"word": "x"})), slow, "Well."]
    async with world.open(make_spec("tool_loop"), replies, functions=make_tools()) as engine:
        turn = await _begin(engine.arun("One.", conversation="c"), 3, world)
        await engine.conversation("c").acancel("enough")
        await turn
        turn = await _begin(engine.arun("Two.", conversation="c"), 1.4, world)
        await engine.conversation("c").acancel()
        await turn
        turn = await _begin(engine.arun("Three.", conversation="c"), 3, world)
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        await engine.arun("Four.", conversation="c")


@golden("cancelled-stream")
async def run_cancelled_stream(world: World) -> None:
    """Words that were streamed before the end are kept: at a cancellation, and at a cut connection."""
    stream = {"pieces": ["The ", "sea ", "rises ", "twice."], "pause_s": 1}
    replies: list[Any] = [{"stream": stream}, {"stream": stream, "cut": True}, {"stream": stream}]
    async with world.open(make_spec("full", log_deltas=True), replies, functions=make_tools()) as engine:
        texts: list[Any] = []
        turn = await _begin(engine.arun("Tides?", conversation="c", on_delta=texts.append), 3, world)
        await engine.conversation("c").acancel("enough")
        await turn
        await engine.arun("Tides!", conversation="c", on_delta=texts.append)
        world.notes = [len(texts)]


@golden("suspended-and-resumed")
async def run_suspended(world: World) -> None:
    """Where the chart has no row for it a cancellation suspends the turn, and a crash leaves calls open."""
    states = {
        "prompting": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "reviewing", "cond": "finish_reason == 'tool_calls'"},
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        "reviewing": {"enter": "review_calls", "transitions": [{"event": "reviewed", "target": "executing"}]},
        "executing": {
            "enter": "run_tools",
            "transitions": [
                {"event": "tool_finished", "cond": "pending_calls > 0"},
                {"event": "tool_finished", "target": "prompting"},
            ],
        },
        **_ENDS,
    }
    spec = make_spec({"name": "steadfast", "states": states})
    replies = [
        call(LOOK, ("hang", {"word": "x"}), ("list_words", {"word": "y"})),
        {"content": "no", "latency_s": 60},
    ]
    async with world.open(spec, replies, functions=make_tools()) as engine:
        turn = await _begin(engine.arun("Go.", conversation="c"), 1.2, world)
        await engine.conversation("c").acancel("wait")
        await turn
    async with world.open(spec, [{"content": "no", "latency_s": 60}], functions=make_tools()) as engine:
        turn = await _begin(engine.conversation("c").aresume(), 9, world)
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
    async with world.open(spec, ["Back."], functions=make_tools()) as engine:
        await engine.conversation("c").aresume()


def _add_crash(name: str, records: int) -> None:
    async def run(world: World) -> None:
        replies = [call(LOOK, ("pay", {"amount": 4}), ("list_words", {"word": "q"})), "After all."]
        async with world.open(make_spec("approval"), replies, functions=make_tools()) as engine:
            await engine.arun("Go.", conversation="c")
        lines = list(world.store.read_lines("c"))[:records]
        world.store = MemoryStore()
        world.store.append("c", 0, lines)
        await world.clock.sleep(60)
        async with world.open(make_spec("approval"), replies[1:], functions=make_tools()) as engine:
            result = await engine.conversation("c").aresume()
            await engine.conversation("c").aresume(_decide(result))

    golden(f"crash-{name}")(run)


_add_crash("before-review", 3)
_add_crash("before-decision", 4)


_add_chart(
    "full",
    "last-second",
    [{**call(LOOK), "latency_s": 2}, {"content": "late", "latency_s": 90}],
    "Wait.",
    limits={"max_seconds": 3},
)


@golden("nothing-to-run")
async def run_nothing(world: World) -> None:
    """A chart enters `run_tools` and `review_calls` without a call, and runs calls that nobody reviewed."""
    states = {
        "executing": {
            "initial": True,
            "enter": "run_tools",
            "transitions": [
                {"event": "tool_finished", "target": "prompting", "cond": "pending_calls == 0"},
                {"event": "tool_finished"},
            ],
        },
        "prompting": {
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "executing", "cond": "finish_reason == 'tool_calls'"},
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        **_ENDS,
    }
    replies = [call(LOOK, ("pay", {"amount": 2})), "Done."]
    async with world.open(
        make_spec({"name": "rash", "states": states}), replies, functions=make_tools()
    ) as engine:
        await engine.arun("Go.", conversation="c")


@golden("message-during-a-turn")
async def run_message(world: World) -> None:
    """A message while the model answers is in its next request; one while tools run too."""
    replies = [{**call(LOOK), "latency_s": 4}, call(("hang", {"word": "z"})), "Noted.", "Hello."]
    async with world.open(make_spec("full"), replies, functions=make_tools()) as engine:
        turn = await _begin(engine.arun("Look.", conversation="c"), 2, world)
        await engine.conversation("c").apost(UserSaid(message="And listen.", at=""))
        await world.clock.sleep(4)
        await engine.conversation("c").apost(UserSaid(message="And wait."))
        await turn
        await engine.arun("Again.", conversation="c")


@golden("picture-during-a-turn")
async def run_picture(world: World) -> None:
    """A message with a picture comes while the model answers: its next request shows it."""
    replies = [{**call(LOOK), "latency_s": 4}, "Seen."]
    picture = ImagePart(media_type="image/png", data=_DOT, name="dot.png")
    async with world.open(make_spec("full"), replies, functions=make_tools()) as engine:
        turn = await _begin(engine.arun("Look.", conversation="c"), 2, world)
        await engine.conversation("c").apost(UserSaid(message="At this.", parts=(picture,)))
        await turn


@golden("stream-cut-by-a-limit")
async def run_cut_stream(world: World) -> None:
    """The seconds of a turn end while the model streams: the answer at the limit keeps its words."""
    stream = {"pieces": ["The ", "sea ", "rises ", "twice."], "pause_s": 1}
    spec = make_spec("full", limits={"max_seconds": 3})
    async with world.open(spec, [{"stream": stream}], functions=make_tools()) as engine:
        await engine.arun("Tides?", conversation="c", on_delta=lambda _: None)


@golden("interrupted-by-the-user")
async def run_interruption(world: World) -> None:
    """Where a row of the chart says so, a message stops the model call and asks again."""
    states = {
        "asking": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
                {"event": "user_said", "target": "asking"},
            ],
        },
        **_ENDS,
    }
    replies = [{"content": "never", "latency_s": 30}, "Both answered."]
    async with world.open(make_spec({"name": "listener", "states": states}), replies) as engine:
        turn = await _begin(engine.arun("One?", conversation="c"), 2, world)
        await engine.conversation("c").apost(UserSaid(message="And two?"))
        await turn


class AnsweringProvider(SlowProvider):
    """A script whose answers have bytes, as those of a host have: so records have their digest."""

    async def complete(self, request: Request) -> Reply:
        """The next reply, after its bytes."""
        reply = await super().complete(request)
        capture = find_capture()
        assert capture is not None, "a model call captures its answer"
        capture.begin(200)(json.dumps({"content": reply.content}).encode())
        return reply


@golden("digests-of-answers")
async def run_answer_digests(world: World) -> None:
    """Each answer of a host has the digest of its bytes in the log."""
    providers = {"model": AnsweringProvider([call(LOOK), "Tides."])}
    async with world.open(make_spec("tool_loop"), providers=providers, functions=make_tools()) as engine:
        await engine.arun("Tides?", conversation="c")


@golden("views-of-the-history")
async def run_views(world: World) -> None:
    """Model calls with parts of the history, also while calls are open, and the turn is answered twice."""
    views = {"two": 2, "four": 4, "whole": "all", "nothing": "none"}
    judge = {"finish_reason": "stop"}
    states: dict[str, Any] = {
        "prompting": {
            "initial": True,
            "enter": "ask",
            "transitions": [
                {"event": "replied", "target": "two", "cond": "finish_reason == 'tool_calls'"},
                {"event": "replied", "target": "said"},
                {"event": "failed", "target": "error"},
            ],
        },
        "reviewing": {"enter": "review_calls", "transitions": [{"event": "reviewed", "target": "executing"}]},
        "executing": {
            "enter": "run_tools",
            "transitions": [
                {"event": "tool_finished", "cond": "pending_calls > 0"},
                {"event": "tool_finished", "target": "prompting"},
            ],
        },
        "said": {"enter": "say", "transitions": [{"target": "finished"}]},
        **_ENDS,
    }
    for name, after in zip(views, [*list(views)[1:], "reviewing"], strict=True):
        rows = [{"event": event, "target": after} for event in ("replied", "failed")]
        states[name] = {"enter": f"judge_{name}", "transitions": rows}
    effects: dict[str, Any] = {
        f"judge_{name}": {"call_model": {"as": name, "prompt": "Judge.", "history": view}}
        for name, view in views.items()
    }
    effects |= {"ask": {"call_model": {"prompt": "Go on."}}, "say": {"answer": "{{two}}, {{four}}"}}
    judgements = [{"content": f"good {number}", **judge} for number in range(4)]
    replies = [call(LOOK), *judgements, call(LOOK, LOOK), *judgements, "Done.", "Again."]
    spec = make_spec({"name": "views", "states": states}, effects=effects)
    async with world.open(spec, replies, functions=make_tools()) as engine:
        await engine.arun("Look.", conversation="c")
        await engine.arun("And now?", conversation="c")


@golden("two-regions")
async def run_regions(world: World) -> None:
    """Two regions work at the same time, and one answer is late because its region has ended."""
    region = {
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask_left",
                "transitions": [
                    {"event": "replied.ask_left", "target": "done"},
                    {"event": "failed.ask_left", "target": "done"},
                ],
            },
            "done": {"final": True},
        }
    }
    other = json.loads(
        json.dumps(region)
        .replace("ask_left", "ask_right")
        .replace("asking", "asking_too")
        .replace('done"', 'done_too"')
    )
    states = {
        "working": {
            "initial": True,
            "parallel": True,
            "after": {"20s": "finished"},
            "states": {"left": region, "right": other},
            "transitions": [{"event": "done.state.working", "target": "finished"}],
        },
        "finished": {"final": True, "enter": "say"},
    }
    effects = {
        "ask_left": {"call_model": {"as": "left", "prompt": "Left of {{user_message}}"}},
        "ask_right": {"call_model": {"as": "right", "prompt": "Right of {{user_message}}, please"}},
        "say": {"answer": "{{left}} and {{right}}"},
    }
    replies = ["one", {"content": "two", "latency_s": 1}, "three", {"content": "four", "latency_s": 60}]
    async with world.open(
        make_spec({"name": "regions", "states": states}, effects=effects), replies
    ) as engine:
        await engine.arun("the sea", conversation="c")
        await engine.arun("the shore", conversation="c")


# -- children ------------------------------------------------------------------------------------


def _make_fan_out(parallel: int, *rows: Any, **changes: Any) -> dict[str, Any]:
    agent = {
        "chart": "tool_loop",
        "for_each": "items",
        "at_most": 10,
        "parallel": parallel,
        "message": "do {{item}}",
    }
    effects = {"work": {"run_agent": {**agent, "as": "outcome"}}, "publish": {"answer": "{{outcome}}"}}
    return make_spec(make_parent_chart(**_name_rows(rows)), effects=effects, **changes)


def _name_rows(rows: Sequence[Any]) -> dict[str, Any]:
    return {f"row_{number}": row for number, row in enumerate(rows)}


def _rule(match: str, reply: str, **more: Any) -> dict[str, Any]:
    return {"match": match, "reply": reply, **more}


@golden("children-that-fail")
async def run_failing_children(world: World) -> None:
    """Of four children, two at a time, one fails and one calls a tool."""

    def answer(said: str, request: Request) -> Any:
        if said == "do b":
            return ProviderError(kind="not_found", message="no such model", status=404)
        is_first = said == "do c" and request.messages[-1].role != "tool"
        tool_calls = (ToolCall(name="look_up", arguments={"word": "c"}),) if is_first else ()
        usage = Usage(input=6, output=4, total=10)
        reason: Any = "tool_calls" if is_first else "stop"
        return Reply(content=said.upper(), tool_calls=tool_calls, finish_reason=reason, usage=usage)

    providers = {"model": FunctionModel(answer)}
    async with world.open(_make_fan_out(2), providers=providers, functions=make_tools()) as engine:
        await engine.arun("go", conversation="c", variables={"items": ["a", "b", "c", "d"]})


@golden("children-of-nothing")
async def run_no_children(world: World) -> None:
    """A list without items is answered at once, and no child begins."""
    providers = {"model": FunctionModel(lambda said, request: "done")}
    async with world.open(_make_fan_out(2), providers=providers) as engine:
        await engine.arun("go", conversation="c", variables={"items": []})


@golden("children-are-cancelled")
async def run_cancelled_children(world: World) -> None:
    """The parent leaves the state after one answer: the other children are cancelled, and come late."""
    row = {"event": "agent_finished", "target": "finished", "cond": "outcome.count >= 1"}
    stuck = asyncio.Event()
    model = FunctionModel(lambda said, request: "fast" if said == "do b" else stuck)
    async with world.open(_make_fan_out(3, row), providers={"model": model}) as engine:
        await engine.arun("go", conversation="c", variables={"items": ["a", "b", "c", "d"]})


@golden("children-with-budgets")
async def run_budgeted_children(world: World) -> None:
    """Children share what is left of each budget of the turn, and hear part of the conversation."""
    spent = {"event": "agent_finished", "target": "finished", "cond": "budget_spent or calls_over_budget"}
    spec = _make_fan_out(
        2,
        spent,
        limits={"max_tokens": 400, "max_cost": 0.02, "max_seconds": 60, "max_tool_calls": 9},
        prices={"currency": "USD", "models": {"m": {"input": 2.5, "output": 10}}},
    )
    spec["effects"]["work"]["run_agent"]["history"] = 3
    usage = Usage(input=6, output=4, total=10)
    model = FunctionModel(lambda said, _: Reply(content=said.upper(), finish_reason="stop", usage=usage))
    async with world.open(spec, providers={"model": model}) as engine:
        await engine.arun("go", conversation="c", variables={"items": ["a", "b", "c"]})
        await engine.arun("on", conversation="c", variables={"items": ["d"]})


@golden("children-ask")
async def run_asking_children(world: World) -> None:
    """A call of a child waits for a person and is decided through the parent."""

    def answer(said: str, request: Request) -> Any:
        if request.messages[-1].role == "tool":
            return str(request.messages[-1].content)
        tool_calls = (ToolCall(id=f"call {said[-1]}", name="pay", arguments={"amount": len(said)}),)
        return Reply(finish_reason="tool_calls", tool_calls=tool_calls)

    spec = _make_fan_out(1)
    async with world.open(spec, providers={"model": FunctionModel(answer)}, functions=make_tools()) as engine:
        await engine.arun("go", conversation="c", variables={"items": ["a", "b"]})
        await engine.conversation("c").aresume(Decided(call_id="call a", approved=True))
        await engine.conversation("c").aresume(Decided(call_id="call b", approved=False))


# -- what a flow does beside -----------------------------------------------------------------------


@dataclass
class Stats:
    """What `count_words` returns."""

    words: int
    first: str


@effect(isolation="inline")
def count_words(text: str) -> Stats:
    """Count the words of a text."""
    if not text.strip():
        raise ValueError("no words")
    return Stats(words=len(text.split()), first=text.split()[0])


@golden("functions")
async def run_functions(world: World) -> None:
    """A function returns, and a function raises."""
    states = {
        "counting": {
            "initial": True,
            "enter": "count",
            "transitions": [
                {"event": "returned", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "say"},
        "error": {"final": True, "enter": "answer_with_error"},
    }
    effects = {
        "count": {
            "call_function": {
                "function": "count_words",
                "as": "stats",
                "arguments": {"text": "{{user_message}}"},
            }
        },
        "say": {"answer": "counted {{stats.words}} from {{stats.first}}"},
    }
    spec = make_spec({"name": "counter", "states": states}, effects=effects)
    async with world.open(spec, [], functions=[count_words]) as engine:
        await engine.arun("the sea rises", conversation="c")
        await engine.arun("   ", conversation="c")


@golden("schema-and-repair")
async def run_schema(world: World) -> None:
    """An answer that breaks its form is asked for again; the value that fits decides."""
    states = {
        "judging": {
            "initial": True,
            "enter": "judge",
            "transitions": [
                {"event": "replied", "target": "finished"},
                {
                    "event": "failed",
                    "target": "judging",
                    "cond": "verdict.error_kind == 'bad_output' and verdict.failures < 3",
                },
                {"event": "failed", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "say"},
        "error": {"final": True, "enter": "answer_with_error"},
    }
    schema = {
        "type": "object",
        "required": ["score"],
        "properties": {"score": {"type": "integer", "maximum": 5}},
    }
    effects = {
        "judge": {"call_model": {"as": "verdict", "prompt": "Judge {{user_message}}", "schema": schema}},
        "say": {"answer": "score {{verdict.score}}"},
    }
    spec = make_spec({"name": "judge", "states": states}, effects=effects)
    async with world.open(spec, ['{"score": 9}', "not json", '{"score": 4}', '{"score": 1}']) as engine:
        await engine.arun("tides", conversation="c")
        await engine.arun("ebbs", conversation="c")


@golden("output-type")
async def run_output_type(world: World) -> None:
    """A turn of the chart `full` whose answer must fit a type: one attempt fails."""
    async with world.open(make_spec("full"), ["many", '{"number": 4}'], functions=make_tools()) as engine:
        await engine.arun("How many?", conversation="c", output_type=Number)


@dataclass
class Number:
    """The answer of `output-type`."""

    number: int


@golden("compaction")
async def run_compaction(world: World) -> None:
    """Old results are cleared, old messages summed up, tokens counted."""
    chart = {
        "extends": "tool_loop",
        "states": {
            "counting": {
                "initial": True,
                "enter": "count_tokens",
                "transitions": [
                    {"event": "counted", "target": "clearing", "cond": "context_tokens > 60"},
                    {"event": "counted", "target": "prompting"},
                ],
            },
            "clearing": {"enter": "clear", "transitions": [{"target": "prompting"}]},
            "prompting": {"initial": None},
        },
    }
    effects = {"clear": {"compact": {"keep": 1, "clear_results": True}}}
    replies = [call(LOOK), call(LOOK), "One.", call(LOOK), "Two.", "Three."]
    async with world.open(make_spec(chart, effects=effects), replies, functions=make_tools()) as engine:
        for message in ("Look.", "Look again, and " + "tell me more " * 20, "And on."):
            await engine.arun(message, conversation="c")


@golden("compacting-long")
async def run_long_conversation(world: World) -> None:
    """The chart `compacting` in a small context: it makes room, and again when the host refuses."""
    llms = {"model": {"provider": "scripted", "model": "m", "context_limit": 120}}
    replies = [
        *[f"Answer {n}, and {'more of it ' * 9}" for n in range(3)],
        fail("context_too_long"),
        "Short.",
        "End.",
    ]
    async with world.open(make_spec("compacting", llms=llms), replies, functions=make_tools()) as engine:
        for number in range(5):
            await engine.arun(f"Question {number}: {'why and how ' * 6}", conversation="c")


class BatchAdapter(HostAdapter):
    """A host whose batch API ends the first job without an answer, and answers the second one."""

    name = "scripted"
    host, max_calls, max_bytes, gather_s, poll_s = "golden", 10, 10_000, 0.0, 0.001

    def __init__(self) -> None:
        self._jobs: list[Sequence[BatchCall]] = []

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        return encode_plain_request(request)

    def find_batch_api(self, body: Mapping[str, Any]) -> BatchApi:
        return self

    async def send_body(self, body: dict[str, Any]) -> Reply:
        raise AssertionError("every call goes by batch")

    def decode_raw(self, body: dict[str, Any], content: bytes, *, is_streamed: bool) -> Reply:
        return Reply(content=content.decode(), finish_reason="stop", usage=Usage(input=40, output=4))

    async def create_job(self, key: str, calls: Sequence[BatchCall]) -> BatchJob:
        self._jobs.append(calls)
        return BatchJob(id=f"job_{len(self._jobs)}", is_over=True)

    async def find_job(self, key: str, calls: int, since: str, others: frozenset[str]) -> BatchJob | None:
        raise AssertionError("no worker takes over")

    async def read_job(self, job: str) -> BatchJob:
        raise AssertionError("the job is over at once")

    async def read_answers(self, job: BatchJob) -> AsyncIterator[BatchAnswer]:
        for call in self._jobs[-1] if job.id == "job_2" else ():
            yield BatchAnswer(custom_id=call.custom_id, status=200, content=b"Within a day.")

    async def aclose(self) -> None:
        """Nothing to close."""


@golden("batch-jobs")
async def run_batch_jobs(world: World) -> None:
    """A model call that waits in a batch job, and in the next one where the first ended without an answer."""
    handler = {"name": "main", "llm": "model", "prompt": "Be brief.", "batch": True}
    prices = {"models": {"m": {"input": 10, "output": 100}}}
    spec = make_spec("tool_loop", responses=[handler], prices=prices)
    async with world.open(spec, providers={"model": BatchAdapter()}) as engine:
        await engine.arun("How long does it take?", conversation="c")


# -- one conversation, several ways to write it ----------------------------------------------------


@golden("history-and-variables")
async def run_history(world: World) -> None:
    """A conversation with a history, variables, parts and other hosts; texts beyond ASCII."""
    spec = make_spec("tool_loop")
    spec["responses"][0]["prompt"] = "You serve {{place}} on {{day}}."
    spec["llms"]["other"] = {"provider": "scripted", "model": "n", "temperature": 0.25}
    history = [
        {"role": "user", "content": "Dobr\u00fd den \U0001f30a"},
        {"role": "assistant", "content": "\u00bfQu\u00e9 tal?"},
    ]
    other = SlowProvider(["Another host.", {"content": "lone \ud800 half", "finish_reason": "stop"}])
    replies = [{"content": None}, "It is one.", "Line\u2028break"]
    async with world.open(spec, replies, providers={"other": other}, functions=make_tools()) as engine:
        variables = {"place": "Brno", "day": "Monday", "count": 10**20, "share": 1e16, "none": None}
        await engine.arun("A picture.", conversation="c", history=history, variables=variables)
        parts = [ImagePart(media_type="image/png", data=_DOT, name="dot.png")]
        await engine.arun("And this?", conversation="c", attachments=parts)
        await engine.arun("You?", conversation="c", llm="other")
        await engine.arun("Still you?", conversation="c", llm="other", model="n2")


@golden("agent-changes")
async def run_changed_agent(world: World) -> None:
    """The next turn has another prompt and other tools; an open turn moves to a changed chart."""
    async with world.open(make_spec("tool_loop"), ["One."], functions=make_tools()) as engine:
        await engine.arun("One?", conversation="c")
    spec = make_spec("approval")
    async with world.open(spec, [PAYMENTS], functions=make_tools()[:2]) as engine:
        result = await engine.arun("Pay.", conversation="c")
    chart = {
        "name": "longer",
        "extends": "approval",
        "states": {"awaiting_approval": {"after": {"48h": "executing"}}},
    }
    async with world.open(make_spec(chart), ["Paid."], functions=make_tools()[:2]) as engine:
        report = await migrate_conversation(engine, "c", is_recorded=True)
        assert report is not None
        assert report.is_approved, report
        await engine.conversation("c").aresume(_decide(result))
        await engine.conversation("c").aresume(_decide(result, 1, approved=False))
        world.keeps_checkpoints = True


@golden("another-release")
async def run_other_release(world: World) -> None:
    """Another release, which may derive the same records, goes on with an open turn and with the next one."""
    async with world.open(make_spec("approval"), [PAYMENTS], functions=make_tools()) as engine:
        result = await engine.arun("Pay.", conversation="c")
    world.clock.release = "golden, a year later"
    async with world.open(make_spec("approval"), ["Paid.", "Bye."], functions=make_tools()) as engine:
        await engine.conversation("c").aresume(_decide(result))
        await engine.conversation("c").aresume(_decide(result, 1))
        await engine.arun("Bye?", conversation="c")


FORKED = [
    call(LOOK, ("list_words", {"word": "z"})),
    call(("look_up", {"word": "ebb"})),
    "Tides.",
    "Bye.",
    "Other.",
    "New.",
]


@golden("forks")
async def run_forks(world: World) -> None:
    """Forks with another result, settings and prompt; a fork of a fork; one from the log alone."""
    async with world.open(make_spec("tool_loop"), FORKED, functions=make_tools()) as engine:
        await engine.arun("Tides?", conversation="c")
        await engine.arun("Bye?", conversation="c")
        lines = [orjson.loads(line)["event"] for line in world.store.read_lines("c")]
        call_id = next(event["call_id"] for event in lines if event["type"] == "tool_finished")
        await engine.conversation("c").afork(
            changes=ForkChanges(results={call_id: {"length": 99}}), name="result"
        )
        settings = {"temperature": 0.5, "limits.max_iterations": 1}
        await engine.conversation("c").afork(
            1, ForkChanges(settings=settings, system="Be long."), name="settings"
        )
        await engine.conversation("result").afork(0, name="again")
        await engine.conversation("c").afork(4, name="recorded", from_log=True)


def _make_private_replies() -> list[Any]:
    return [
        call(("look_up", {"word": "hunter2secret"}), ("pay", {"amount": 3, "to": "ada@example.org"})),
        "Mail ada@example.org about ID-7781, 4111 1111 1111 1111.",
        "hunter2secret, once more.",
    ]


@golden("redaction")
async def run_redaction(world: World) -> None:
    """A redacted log: marks for secrets, keyed digests of what was sent."""
    rules = {"keys": ["password", "word"], "patterns": ["email", "card", "/ID-\\d+/"]}
    spec = make_spec("tool_loop", redact=rules)
    async with world.open(spec, _make_private_replies(), functions=make_tools()) as engine:
        result = await engine.arun("I am ada@example.org, ID-7781", conversation="c")
        await engine.conversation("c").aresume(
            _decide(result, approved=False, reason="not to ada@example.org")
        )
        await engine.arun("Again?", conversation="c", variables={"password": "hunter2secret"})


@golden("checkpoints")
async def run_checkpoints(world: World) -> None:
    """Turns of one conversation in several engines: each goes on from the newest checkpoint."""
    world.keeps_checkpoints = True
    for replies in ([call(LOOK), "Tides."], [call(("list_words", {"word": "w"})), "Words."], ["Bye."]):
        async with world.open(make_spec("full"), replies, functions=make_tools()) as engine:
            await engine.arun("On.", conversation="c")


@golden("pending-tool")
async def run_pending_tool(world: World) -> None:
    """A call whose outcome comes from outside the process, later."""
    outcomes: dict[str, Any] = {}

    def ask(arguments: Any, context: Any) -> Any:
        if context.call_id not in outcomes:
            raise ToolPending
        return outcomes[context.call_id]

    definition = ToolDefinition(name="ask_page", description="Asks the page.", parameters=WORD)
    tool = Tool(definition=definition, run=ask, needs_context=True, idempotent=True, execution_mode="inline")
    replies = [call(("ask_page", {"word": "where"}), LOOK), "In Brno."]
    async with world.open(make_spec("tool_loop"), replies, functions=[*make_tools(), tool]) as engine:
        waiting = await engine.arun("Where?", conversation="c")
        await world.clock.sleep(30)
        outcomes[waiting.waiting_calls[0].id] = {"town": "Brno"}
        await engine.conversation("c").aresume()


@golden("text-calls")
async def run_text_calls(world: World) -> None:
    """A model that writes its calls as text, in a format of its own, with a repair and a broken one."""
    llms = {"model": {"provider": "scripted", "model": "m", "tool_format": "hermes", "context_limit": 4000}}
    replies = [
        'Look.\n<tool_call>{"name": "look_up", "arguments": {"word": "tide"}}</tool_call>',
        '<tool_call>{"name": "look_up", "arguments": {"word": "ebb"}</tool_call>',
        "Done.",
    ]
    provider = accept_text_calls(TextCallProvider(SlowProvider(replies), "hermes"))
    spec = make_spec("full", llms=llms)
    async with world.open(spec, providers={"model": provider}, functions=make_tools()) as engine:
        result = await engine.arun("Look.", conversation="c")
        while result.pending_approvals:
            result = await engine.conversation("c").aresume(_decide(result))


@golden("tools-as-text-for-one-model")
async def run_text_switch(world: World) -> None:
    """A model that refuses tools gets them as text in the next turn too; another model does not."""
    replies = [fail("tools_unsupported"), "As text.", "Text again."]
    spec = make_spec("resilient")
    spec["llms"]["other"] = {"provider": "scripted", "model": "n"}
    other = SlowProvider(["Native."])
    async with world.open(spec, replies, providers={"other": other}, functions=make_tools()) as engine:
        await engine.arun("Look.", conversation="c")
        await engine.arun("Again.", conversation="c")
        await engine.arun("And you?", conversation="c", llm="other")


@golden("strict-policy")
async def run_strict(world: World) -> None:
    """`policy: strict` ends a turn at its first warning."""
    # No comma at the end: Python 3.13 words that mistake otherwise.
    replies = [call(("look_up", '{word: "tide"}')), "no"]
    async with world.open(make_spec("full", policy="strict"), replies, functions=make_tools()) as engine:
        await engine.arun("Look.", conversation="c")


# -- agents that ship ------------------------------------------------------------------------------

AGENTS = {
    "careful": ["delete report.txt"],
    "informed": ["weather in Rome", "17 * 27"],
    "planful": ["How much is it?"],
    "quickstart": ["What is 17 * (23 + 4)?", "echo hello", "1/0"],
    "steadfast": ["hello"],
    "talkative": ["look everywhere"],
    "thrifty": ["count"],
}


def _add_agent(name: str) -> None:
    async def run(world: World) -> None:
        async with world.open(name) as engine:
            for message in AGENTS[name]:
                result = await engine.arun(message, conversation="c")
            if result.pending_approvals:
                await engine.conversation("c").aresume(_decide(result))

    golden(f"agent-{name}")(run)


for _name in AGENTS:
    _add_agent(_name)


@golden("agent-production")
async def run_production(world: World) -> None:
    """The agent for production, with its host scripted: tools, retries, an answer at a limit."""
    sum_up = call(("calculator", {"expression": "2 + 3"}))
    replies = [sum_up, fail("overloaded", retryable=True), "It is 5."]
    async with world.open("production", providers={"ollama": SlowProvider(replies)}) as engine:
        await engine.arun("2 + 3?", conversation="c")


def run_scenario(name: str) -> World:
    """The world after a scenario."""

    async def work(clock: FedClock) -> World:
        world = World(clock)
        await SCENARIOS[name](world)
        return world

    return run_fed(work)
