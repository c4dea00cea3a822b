"""Messages with an idempotency key: each is said once in its conversation, whoever sends it again."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, make_spec, reply_with_calls
from killed_process import die, run_forked

from toolchart.engine import Engine
from toolchart.engine.durable.fleet.fleet_engine import FleetEngine
from toolchart.engine.durable.performing import LocalHost
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.core.encoding import read_json
from toolchart.states.errors import LogConflict, NotFound, ProviderError, SpecError, TurnChanged
from toolchart.states.events import UserSaid
from toolchart.states.messages import Reply, Request


class CountingModel:
    """Answers with the number of its request; the first requests fail, and each takes some time.

    Args:
        failures: how many fail.
        gate: what each waits for; None waits for nothing.
    """

    name = "counting"

    def __init__(self, failures: int = 0, gate: asyncio.Event | None = None) -> None:
        self.requests = 0
        self._failures = failures
        self._gate = gate

    async def complete(self, request: Request) -> Reply:
        """The next answer."""
        self.requests += 1
        number = self.requests
        await asyncio.sleep(0.001)
        if self._gate is not None:
            await self._gate.wait()
        if number <= self._failures:
            raise ProviderError("refused", kind="other", retryable=False)
        return Reply(content=f"answer {number}", finish_reason="stop")

    async def aclose(self) -> None:
        """Nothing to close."""


def open_engine(log: Any, model: Any, **changes: Any) -> Engine:
    """An engine on a log with this model."""
    return Engine(make_spec(**changes), log=log, providers={"model": model})


def list_messages(engine: Engine, conversation: str = "c") -> list[str]:
    """What was said to a conversation, in order."""
    events = [read_json(line)["event"] for line in engine.store.read_lines(conversation)]
    return [event["message"] for event in events if event["type"] in ("turn_started", "user_said")]


async def test_a_message_that_comes_again_is_read(tmp_path: Path) -> None:
    """Sent again with its key, in the same process or after a restart, a message gives the result of its own
    turn and is not said again; also where later turns have come. Other keys, other conversations and no key
    make other messages."""
    async with open_engine(tmp_path / "log.db", CountingModel()) as engine:
        first = await engine.arun("hi", conversation="c", key="k1")
        assert await engine.arun("hi", conversation="c", key="k1") == first
        assert (await engine.arun("hi", conversation="c", key="k2")).content == "answer 2"
        assert (await engine.arun("hi", conversation="d", key="k1")).content == "answer 3"
        assert (await engine.arun("hi", conversation="c")).content == "answer 4"
    async with open_engine(tmp_path / "log.db", CountingModel()) as engine:
        for key, content in (("k1", "answer 1"), ("k2", "answer 2")):
            assert (await engine.arun("hi", conversation="c", key=key)).content == content
        assert list_messages(engine) == ["hi"] * 3


async def test_a_key_has_one_message() -> None:
    """Another message with a known key is refused, whether its turn is over or runs; nothing is written. A
    key is a text, and not too long."""
    gate, begun = asyncio.Event(), asyncio.Event()
    async with open_engine("memory", CountingModel(gate=gate)) as engine:
        engine.watch_records(lambda _: begun.set())
        turn = asyncio.create_task(engine.arun("hi", conversation="c", key="k"))
        await begun.wait()
        handle = engine.conversation("c")
        for is_over in (False, True):
            for send in (engine.arun("ho", conversation="c", key="k"), handle.asay("ho", key="k")):
                with pytest.raises(TurnChanged, match="key 'k' was used with another message"):
                    await send
            if not is_over:
                gate.set()
                await turn
        for wrong in ("x" * 513, 7):
            said = UserSaid(message="ho", key=wrong)  # type: ignore[arg-type]
            for send in (
                engine.arun("ho", conversation="c", key=wrong),  # type: ignore[arg-type]
                handle.asay("ho", key=wrong),  # type: ignore[arg-type]
                handle.apost(said),
            ):
                with pytest.raises(SpecError, match="the key of a message is a text of at most 512"):
                    await send
        assert list_messages(engine) == ["hi"]


async def test_a_key_is_asked_for_the_owner_alone() -> None:
    """Whoever knows the key of somebody else's message does not read its turn."""
    async with open_engine("memory", CountingModel()) as engine:
        await engine.arun("hi", conversation="c", key="k", owner="ada")
        with pytest.raises(NotFound):
            await engine.arun("hi", conversation="c", key="k", owner="ben")


async def test_a_failed_turn_is_no_answer(tmp_path: Path) -> None:
    """A message whose turn ended in an error is said again under its key, also where another turn followed;
    its success is read from then on."""
    async with open_engine(tmp_path / "log.db", CountingModel(failures=2), chart="tool_loop") as engine:
        failed = [await engine.arun("hi", conversation="c", key="k") for _ in range(2)]
        assert [turn.error is None for turn in failed] == [False, False]
        assert (await engine.arun("other", conversation="c")).ok
        said = await engine.arun("hi", conversation="c", key="k")
        assert said.content == "answer 4"
        assert await engine.arun("hi", conversation="c", key="k") == said
        assert list_messages(engine) == ["hi", "hi", "other", "hi"]


async def test_a_message_of_a_redacted_log_is_found(tmp_path: Path) -> None:
    """Of a log without secrets, a message is found and compared without its secrets; the key stays as it is,
    also where it looks like one."""
    redact = {"patterns": ["email"]}
    key = "order of ada@example.org"
    for _ in range(2):
        async with open_engine(tmp_path / "log.db", CountingModel(), redact=redact) as engine:
            turn = await engine.arun("write to ada@example.org", conversation="c", key=key)
            assert turn.content == "answer 1"
            with pytest.raises(TurnChanged):
                await engine.arun("phone ada@example.org", conversation="c", key=key)
            assert len(list_messages(engine)) == 1
            assert "ada" not in list_messages(engine)[0]


async def test_what_a_killed_process_has_said_goes_on(tmp_path: Path) -> None:
    """A process is killed while the model is asked. The message that comes again goes on with its turn, whose
    model is asked once more, and is said once."""
    log = tmp_path / "log.db"

    class DyingModel(CountingModel):
        async def complete(self, request: Request) -> Reply:
            die()
            raise AssertionError("the process is gone")

    def run() -> None:
        with open_engine(log, DyingModel()) as engine:
            engine.run("hi", conversation="c", key="k")

    assert run_forked(run)
    model = CountingModel()
    async with open_engine(log, model) as engine:
        turns = await asyncio.gather(*(engine.arun("hi", conversation="c", key="k") for _ in range(3)))
        assert [turn.content for turn in turns] == ["answer 1"] * 3
        assert (model.requests, list_messages(engine)) == (1, ["hi"])


async def test_a_message_to_an_open_turn_is_said_once() -> None:
    """A message that an open turn has got, which waits for a person, is not said to it again, whichever
    method sends it; the result is that of the turn as it stands, and its answer in the end."""
    risky = {"registry": [{"name": "echo", "requires_approval": True}]}
    replies = [reply_with_calls(("echo", {"text": "x"})), "done"]
    async with make_engine(replies, chart="approval", tools=risky) as engine:
        handle = engine.conversation("c")
        open_turn = await engine.arun("go", conversation="c")
        assert open_turn.pending_approvals
        for _ in range(2):
            turn = await engine.arun("and hurry", conversation="c", key="k")
            assert (turn.is_over, turn.waiting_messages) == (False, ["and hurry"])
            await handle.asay("and hurry", key="k")
        answer = await handle.aapprove()
        assert answer.content == "done"
        assert (await engine.arun("and hurry", conversation="c", key="k")).content == "done"
        assert list_messages(engine) == ["go", "and hurry"]


async def test_a_running_turn_gets_a_message_once(tmp_path: Path) -> None:
    """A message that is sent ten times at the same moment to a turn that runs is said to it once; whoever
    waits for a result gets the answer of that turn."""
    gate, begun = asyncio.Event(), asyncio.Event()
    async with open_engine(tmp_path / "log.db", CountingModel(gate=gate)) as engine:
        engine.watch_records(lambda _: begun.set())
        turn = asyncio.create_task(engine.arun("go", conversation="c"))
        await begun.wait()
        handle = engine.conversation("c")
        asking = [asyncio.create_task(engine.arun("hurry", conversation="c", key="k")) for _ in range(5)]
        await asyncio.gather(*(handle.asay("hurry", key="k") for _ in range(5)))
        gate.set()
        answers = {
            result.content for result in [await turn, *await asyncio.gather(*asking)] if result.is_over
        }
        assert list_messages(engine) == ["go", "hurry"]
        assert len(answers) == 1


class WaitingStore(MemoryStore):
    """Commits the records of messages to a running turn in another thread, each when it is told to."""

    commits_at_once = False

    def __init__(self) -> None:
        super().__init__()
        self.may_commit = threading.Semaphore(0)

    def commit(self, changes: Sequence[Any], **options: Any) -> Sequence[LogConflict | None]:
        """Make changes; those with a message to a running turn, one at a time."""
        if any(b'"type":"user_said"' in line for change in changes for line in change.lines):
            assert self.may_commit.acquire(timeout=10)
        return super().commit(changes, **options)


async def test_a_message_that_is_being_written_is_not_said_again() -> None:
    """Two equal messages come while an earlier one is being written, and go on at the same instant: each
    looks for its key in the log before the other is there. One of them is said."""
    gate, begun, store = asyncio.Event(), asyncio.Event(), WaitingStore()
    async with open_engine(store, CountingModel(gate=gate)) as engine:
        engine.watch_records(lambda _: begun.set())
        turn = asyncio.create_task(engine.arun("go", conversation="c"))
        await begun.wait()
        handle = engine.conversation("c")
        saying = [
            asyncio.create_task(handle.asay(message, key=key))
            for message, key in (("first", None), ("hurry", "k"), ("hurry", "k"))
        ]
        for _ in saying:
            await asyncio.sleep(0.05)  # each goes as far as it can
            store.may_commit.release()
        await asyncio.gather(*saying)
        gate.set()
        await turn
        assert list_messages(engine) == ["go", "first", "hurry"]


@pytest.mark.parametrize("seed", range(6))
async def test_each_key_is_said_once_whoever_sends_it(seed: int, tmp_path: Path) -> None:
    """Engines on one log, of one process, send messages with few keys to few conversations at random, many at
    the same time, some by `asay`. Each key has one message in each conversation, and those who wait for a
    result get the answer of their own message's turn, or hear that another worker runs it."""
    rng = random.Random(seed)
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(open_engine(tmp_path / "log.db", CountingModel()))
            for _ in range(3)
        ]
        for name in ("c", "d"):
            await engines[0].arun("begin", conversation=name)
        answers: dict[tuple[str, str], set[str]] = {}
        sent: set[tuple[str, str]] = set()

        async def send(engine: Engine, name: str, key: str) -> None:
            message = f"message {key}"
            await asyncio.sleep(rng.random() * 0.02)
            sent.add((name, key))
            try:
                if rng.random() < 0.3:
                    await engine.conversation(name).asay(message, key=key)
                else:
                    turn = await engine.arun(message, conversation=name, key=key)
                    if turn.is_over and not turn.warnings:
                        answers.setdefault((name, key), set()).add(turn.content)
            except LogConflict:
                sent.discard((name, key))
                await asyncio.sleep(0.01)
                await send(engine, name, key)

        choices = [(rng.choice(engines), rng.choice("cd"), f"k{rng.randrange(4)}") for _ in range(30)]
        await asyncio.gather(*(send(*choice) for choice in choices))
        for engine in engines:
            await engine.arecover()
        for name in ("c", "d"):
            said = Counter(list_messages(engines[0], name))
            expected = {f"message {key}": 1 for conversation, key in sent if conversation == name}
            assert said == {"begin": 1, **expected}
        assert {len(contents) for contents in answers.values()} == {1}


async def test_a_fleet_says_a_message_once() -> None:
    """Where workers run the turns, a message with a key is said once: sent twice at the same time, sent again
    after its turn and after later ones, and after a restart of who sends it. After a failure it is said
    again."""
    store = MemoryStore()
    async with open_engine(store, CountingModel(failures=1)) as worker:
        for _ in range(2):
            host = LocalHost(worker)
            async with FleetEngine(make_spec(), host, log=store) as fleet:
                turns = await asyncio.gather(*(fleet.arun("hi", conversation="c", key="k") for _ in range(2)))
                if any(turn.error is not None for turn in turns):
                    turns = [await fleet.arun("hi", conversation="c", key="k")]
                assert {turn.content for turn in turns} == {"answer 2"}
                await fleet.arun("later", conversation="c", key="k2")
                assert (await fleet.arun("hi", conversation="c", key="k")).content == "answer 2"
                with pytest.raises(TurnChanged):
                    await fleet.arun("ho", conversation="c", key="k")
            await host.join()
        assert list_messages(worker) == ["hi", "hi", "later"]
