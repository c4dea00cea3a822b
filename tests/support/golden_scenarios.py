"""The conversations of the golden logs: each drives the real engine with scripted hosts, tools and people.

`SCENARIOS` has them by name. A scenario is a coroutine function of a `World`; what it leaves in the world's
store, seals included, is its golden log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from flow_conversations import CONVERSATIONS
from golden_feeds import FedClock, run_fed

from toolchart.engine import Engine
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.loader import load_spec
from toolchart.states.content import ImagePart
from toolchart.states.messages import Reply, Request, ToolDefinition
from toolchart.tools.definition import Tool, ToolFailure

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
        self.kept: Any = self.store
        """The store whose lines are the golden log; another one where the first only encrypts."""
        self.seals: list[Any] = []
        """What a scenario keeps beside its log, as JSON data."""
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
        {"content": "no", "finish_reason": "content_filter"},
    ],
    "Go.",
    "On.",
    "And on.",
)


def run_scenario(name: str) -> World:
    """The world after a scenario."""

    async def work(clock: FedClock) -> World:
        world = World(clock)
        await SCENARIOS[name](world)
        return world

    return run_fed(work)
