"""Scripted conversations that run alike on every durable host: tools, approvals, timers, children, flows."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import msgspec
import orjson
from durable_workers import CALLING
from durable_workers import make_engine as make_paying_engine
from effort import choose_count
from flow_conversations import CONVERSATIONS
from paying_agent import read_waiting_calls, wait_until

from toolchart.engine import Engine
from toolchart.engine.durable.client import DurableClient
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import NotFound
from toolchart.states.events import Decided
from toolchart.states.messages import Reply, Request
from toolchart.states.ports import Store

PAUSING_CHART: dict[str, Any] = {
    "name": "pausing",
    "states": {
        "waiting": {
            "initial": True,
            "enter": "pause",
            "transitions": [{"event": "elapsed", "target": "finished"}],
        },
        "finished": {"final": True, "enter": "tell"},
    },
}
"""Waits as its effect `pause` says, and then answers by `tell`."""

PAUSING: dict[str, Any] = {
    "name": "pausing",
    "chart": PAUSING_CHART,
    "effects": {"pause": {"wait": "1s"}, "tell": {"answer": "done"}},
    "llms": {"model": {"provider": "scripted", "model": "m"}},
    "responses": [{"llm": "model"}],
}
"""An agent that waits longer than its worker does, and answers."""

LONGEST_WAIT_S = 0.05

FLOWS = {name: messages for name, (messages, _, _) in CONVERSATIONS.items()}
"""The messages of a user to each flow that ships."""

ROUNDS = choose_count(short=1, long=10)
"""So many conversations of each script."""


async def pay(arguments: Any) -> str:
    """A tool."""
    return f"paid {arguments['text']}"


class Script(msgspec.Struct, frozen=True):
    """An agent, and what people do in one conversation with it."""

    name: str
    make_engine: Callable[[Any], Engine]
    """From a log to an engine."""
    actions: Sequence[tuple[str, str]]
    """`say` with a message, `approve` or `deny` the call that waits, `cancel`."""


def vary_actions(script: Script, number: int) -> Sequence[tuple[str, str]]:
    """What people do in one of several conversations of a script: the first has its own actions.

    Where people decide, the others have up to four turns, each with a decision of its own.
    """
    if number == 0 or not {kind for kind, _ in script.actions} & {"approve", "deny", "cancel"}:
        return script.actions
    chance = random.Random(f"{script.name} {number}")
    decisions = [chance.choice(["approve", "deny", "cancel"]) for _ in range(chance.randint(1, 4))]
    return [
        action
        for turn, decision in enumerate(decisions)
        for action in (("say", f"bill {turn}"), (decision, "asked twice"))
    ]


def list_conversations(script: Script) -> list[tuple[str, Sequence[tuple[str, str]]]]:
    """The conversations of a script: their ids, and what people do."""
    return [(f"{script.name}-{number}", vary_actions(script, number)) for number in range(ROUNDS)]


def _make_flow_script(name: str, messages: Sequence[str]) -> Script:
    return Script(
        name,
        lambda log: Engine(name, log=log, longest_wait_s=LONGEST_WAIT_S),
        [("say", message) for message in messages],
    )


def list_scripts(flows: dict[str, list[str]]) -> list[Script]:
    """Every script; the flows with these messages."""

    def make_approving_engine(log: Any) -> Engine:
        return make_paying_engine(log, pay, approval=True)

    return [
        Script("tool", lambda log: make_paying_engine(log, pay), [("say", "one"), ("say", "two")]),
        Script(
            "called", lambda log: make_paying_engine(log, pay, **CALLING), [("say", "one"), ("say", "two")]
        ),
        Script("approval", make_approving_engine, [("say", "one"), ("approve", ""), ("say", "two")]),
        Script("denial", make_approving_engine, [("say", "one"), ("deny", "")]),
        Script("cancellation", make_approving_engine, [("say", "one"), ("cancel", "asked twice")]),
        Script(
            "timer", lambda log: Engine(PAUSING, log=log, longest_wait_s=LONGEST_WAIT_S), [("say", "go")] * 2
        ),
        *(_make_flow_script(name, messages) for name, messages in flows.items()),
    ]


# -- running -------------------------------------------------------------------------------------


async def run_in_process(engine: Engine, actions: Sequence[tuple[str, str]], conversation: str) -> None:
    """Carry out a script with the engine alone; timers fire by `arecover`."""
    for kind, text in actions:
        if kind == "say":
            await engine.arun(text, conversation=conversation)
        elif kind == "cancel":
            await engine.conversation(conversation).acancel(text)
        else:
            await engine.conversation(conversation).adecide(_build_decision(engine, conversation, kind))
        while not _has_rested(engine, conversation, 0):
            await asyncio.sleep(0.01)
            await engine.arecover()


async def run_on_host(
    engine: Engine, client: DurableClient, actions: Sequence[tuple[str, str]], conversation: str
) -> None:
    """Carry out a script through a durable host."""
    for kind, text in actions:
        newest = engine.store.read_last_line(conversation)
        work: Awaitable[Any]
        if kind == "say":
            work = client.submit(text, conversation=conversation)
        elif kind == "cancel":
            work = client.cancel(conversation, text)
        else:
            work = client.decide(conversation, _build_decision(engine, conversation, kind))
        await work
        after = newest[0] + 1 if newest is not None else 0
        await wait_until(lambda after=after: _has_rested(engine, conversation, after))  # type: ignore[misc]


async def run_all_in_process(script: Script, store: Store) -> None:
    """Carry out every conversation of a script with an engine alone."""
    async with script.make_engine(store) as engine:
        for name, actions in list_conversations(script):
            await run_in_process(engine, actions, name)


async def run_all_on_host(engine: Engine, client: DurableClient, script: Script) -> None:
    """Carry out every conversation of a script through a durable host.

    Those of a flow one after the other: their models answer from one list.
    """
    work = [run_on_host(engine, client, actions, name) for name, actions in list_conversations(script)]
    if script.name not in FLOWS:
        await asyncio.gather(*work)
        return
    for one in work:
        await one


@contextlib.contextmanager
def repeated_replies() -> Iterator[None]:
    """Lets each list of scripted replies begin again at its end: one engine runs several conversations."""
    complete, stream = ScriptedProvider.complete, ScriptedProvider.stream

    def begin_again(provider: ScriptedProvider) -> None:
        if provider._replies:
            provider._next_index %= len(provider._replies)

    async def complete_again(provider: ScriptedProvider, request: Request) -> Reply:
        begin_again(provider)
        return await complete(provider, request)

    def stream_again(provider: ScriptedProvider, request: Request) -> Any:
        begin_again(provider)
        return stream(provider, request)

    with patch.multiple(ScriptedProvider, complete=complete_again, stream=stream_again):
        yield


def _build_decision(engine: Engine, conversation: str, kind: str) -> Decided:
    (call,) = read_waiting_calls(engine, conversation)
    return Decided(call_id=call.id, approved=kind == "approve", by="a person")


def _has_rested(engine: Engine, conversation: str, after: int) -> bool:
    """Whether a conversation waits for a person or is over, with a record after a number."""
    newest = engine.store.read_last_line(conversation)
    leases = getattr(engine.store, "list_leases", list)()
    if newest is None or newest[0] < after or conversation in [lease.conversation for lease in leases]:
        return False
    try:
        turn = engine.conversation(conversation).read_turn()
    except NotFound:
        return False
    return turn.is_over or bool(turn.pending_approvals or turn.questions)


# -- comparing -----------------------------------------------------------------------------------

_TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_DIGESTS = re.compile(r"[0-9a-f]{64}")
_OWN = {"salt", "prev", "hash", "checkpoint", "execution_time_ms", "jitter", "digest", "wire_digest"}
"""Chance, times, and digests of what has times in it: a model reads how long a tool took."""


def read_comparable_log(store: Store) -> dict[str, list[Any]]:
    """Every record of a log by its conversation, without times, chance and hashes."""
    return {
        name: [_strip(orjson.loads(line)) for line in store.read_lines(name)]
        for name in sorted(store.list_conversations())
    }


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strip(part) for key, part in value.items() if key not in _OWN}
    if isinstance(value, list):
        return [_strip(part) for part in value]
    if isinstance(value, str):
        return _DIGESTS.sub("DIGEST", _TIMES.sub("TIME", value))
    return value


def check_log(store: Store) -> None:
    """Check that each conversation of a log verifies and replays."""
    for outcome in list(verify_store(store)):
        assert isinstance(outcome, VerifiedConversation), outcome
        assert list(replay_conversation(store, outcome.conversation))
