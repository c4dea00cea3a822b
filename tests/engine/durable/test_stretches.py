"""The port of durable hosts, in process: a stretch is performed once, and what follows it is one decision."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from durable_scripts import PAUSING_CHART
from durable_workers import submit_message
from killed_process import append_mark, die, run_forked
from paying_agent import make_engine, read_waiting_calls, wait_until

from toolchart.engine import Engine
from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.performing import WITHDRAWN, LocalHost, list_submitted, perform_stretch
from toolchart.engine.durable.stretches import (
    Rest,
    Stretch,
    Submission,
    compute_version,
    decode_stretch,
    encode_rest,
    encode_stretch,
    plan_next,
)
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import SpecError, TurnChanged
from toolchart.states.events import Decided
from toolchart.states.ports import InboxEntry, RecordBatch
from toolchart.testing import TurnableClock

TURN = Stretch(conversation="c", key="turn/1", version="v")
WAKE = Stretch(conversation="c", key="wake/1", version="v")

PAUSE = {
    "name": "pausing",
    "chart": PAUSING_CHART,
    "effects": {"pause": {"wait": "3d"}, "tell": {"answer": "done"}},
    "llms": {"model": {"provider": "scripted", "model": "m"}},
    "responses": [{"llm": "model"}],
}
"""An agent that waits for three days, and answers."""


def make_pausing_engine(store: Any, clock: TurnableClock) -> Engine:
    """An engine of `PAUSE` that leaves long waits to its host."""
    return Engine(PAUSE, log=store, clock=clock, longest_wait_s=30.0)


def list_types(engine: Engine, conversation: str = "c") -> list[str]:
    """The types of a conversation's events, in order."""
    return [step.record.event["type"] for step in replay_conversation(engine.store, conversation)]


# -- what follows --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stretch", "rest", "follows"),
    [
        (TURN, Rest(outcome="over"), None),
        (TURN, Rest(outcome="waits"), None),
        (TURN, Rest(outcome="failed", error="no"), None),
        (TURN, Rest(outcome="waits", due="2027-01-05T09:00:00Z", next_seq=7, version="w"), ("c/due/7", "w")),
        (WAKE, Rest(outcome="waits", due="2027-01-05T09:00:00Z", next_seq=7), ("c/due/7", "v")),
        (TURN, Rest(outcome="held"), ("c/turn/1/1", "v")),
        (WAKE, Rest(outcome="held"), ("c/wake/1/1", "v")),
        (WAKE, Rest(outcome="stopped"), ("c/wake/1/1", "v")),
        (WAKE, Rest(outcome="unavailable"), ("c/wake/1/1", "v")),
    ],
)
def test_what_follows_a_stretch(stretch: Stretch, rest: Rest, follows: tuple[str, str] | None) -> None:
    """A timer is followed by a stretch that is due, what could not be done now by another try, and a
    conversation that waits for somebody by nothing. The ids follow from the log, so they are equal on every
    host."""
    successor = plan_next(stretch, rest)
    assert (successor and (successor.id, successor.version)) == follows
    if successor is not None:
        assert decode_stretch(encode_stretch(successor)) == successor
        assert successor.due == rest.due


def test_a_message_is_tried_until_it_runs_and_a_look_is_given_up() -> None:
    """A message for a conversation that another worker holds is never dropped; a mere look at it is, after
    more than the time of a lease. Pauses grow to half a minute."""
    turn, wake, pauses = TURN, WAKE, []
    for _ in range(30):
        turn = plan_next(turn, Rest(outcome="held")) or pytest.fail("the message was dropped")
        pauses.append(turn.pause_s)
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(pauses) == 30.0
    looks = []
    while (successor := plan_next(wake, Rest(outcome="held"))) is not None:
        wake = successor
        looks.append(wake.pause_s)
    assert sum(looks) > 60.0


def test_the_version_is_that_of_the_chart_and_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of another chart, or of a release whose core steps otherwise, have another version."""
    version = compute_version("name: a")
    assert version == compute_version("name: a") != compute_version("name: b")
    monkeypatch.setattr("toolchart.engine.durable.stretches.SEMANTICS", 99)
    assert compute_version("name: a") != version


# -- once ----------------------------------------------------------------------------------------


async def test_a_stretch_that_is_performed_twice_changes_nothing() -> None:
    """A host that performs a stretch again, because it died before it noted the end, finds the answer in the
    log: no second turn, no second payment."""
    payments: list[str] = []
    async with make_engine(MemoryStore(), lambda arguments: payments.append("paid")) as engine:
        submit_message(engine.store, TURN, "the bill")
        first = await perform_stretch(engine, TURN)
        again = await perform_stretch(engine, TURN)
        types = list_types(engine)
    assert first == again
    assert (first.outcome, payments, types.count("turn_started")) == ("over", ["paid"], 1)


async def test_a_stopped_stretch_goes_on_in_another_worker() -> None:
    """A worker that is stopped in the middle of a turn gives the stretch back. Another one goes on with the
    turn, and the message is not asked twice. The payment that was stopped may have taken effect: it is not
    repeated."""
    store, begun, payments = MemoryStore(), asyncio.Event(), []

    async def hang(arguments: Any) -> str:
        payments.append("begun")
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with make_engine(store, hang) as engine:
        submit_message(store, TURN, "the bill")
        work = asyncio.create_task(perform_stretch(engine, TURN))
        await begun.wait()
        await engine.astop(0.0)
        rest = await work
    successor = plan_next(TURN, rest)
    assert rest.outcome == "stopped"
    assert successor is not None
    async with make_engine(store, hang) as other:
        rest = await perform_stretch(other, successor)
        types = list_types(other)
    assert (rest.outcome, payments, types.count("turn_started")) == ("over", ["begun"], 1)
    assert list(replay_conversation(store, "c"))


async def test_a_message_waits_for_a_conversation_that_is_worked_on() -> None:
    """Two messages for one conversation at once, in one worker: one runs, the other one is tried again and
    runs afterwards. None is lost."""
    may_end = asyncio.Event()

    async def wait(arguments: Any) -> str:
        await may_end.wait()
        return "paid"

    async with make_engine(MemoryStore(), wait, clock=TurnableClock(skips=True)) as engine:
        submit_message(engine.store, TURN, "the bill")
        first = asyncio.create_task(perform_stretch(engine, TURN))
        await wait_until(lambda: engine.leases.is_claimed("c"))
        second = Stretch(conversation="c", key="turn/2", version="v", first_seq=2)
        submit_message(engine.store, second, "another bill")
        held = await perform_stretch(engine, second)
        assert held.outcome == "held"
        may_end.set()
        assert (await first).outcome == "over"
        successor = plan_next(second, held)
        assert successor is not None
        assert (await perform_stretch(engine, successor)).outcome == "over"
        assert list_types(engine).count("turn_started") == 2


async def test_a_message_that_another_one_overtook_is_reported() -> None:
    """Where another turn began since the message was handed over, the stretch fails and says so; the turn of
    the other message is not taken for its own, and the message goes."""
    async with make_engine(MemoryStore(), lambda arguments: "paid") as engine:
        submit_message(engine.store, TURN, "the bill")
        await engine.arun("another bill", conversation="c")
        rest = await perform_stretch(engine, TURN)
        assert engine.store.read_submission("c", TURN.key) == b""
    assert rest.outcome == "failed"
    assert "came first" in str(rest.error)


# -- waiting -------------------------------------------------------------------------------------


async def test_a_long_wait_is_left_to_the_host_and_costs_nothing() -> None:
    """A conversation that waits for three days rests with its time. Looking at it before writes nothing. The
    stretch that is due then ends it, and so does the same stretch performed again."""
    store, clock = MemoryStore(), TurnableClock("2027-01-04T09:00:00Z")
    async with make_pausing_engine(store, clock) as engine:
        submit_message(store, TURN, "go")
        rest = await perform_stretch(engine, TURN)
        assert (rest.outcome, rest.due) == ("waits", "2027-01-07T09:00:00.000Z")
        before = list_types(engine)
        assert await perform_stretch(engine, WAKE) == rest
        assert list_types(engine) == before
        successor = plan_next(TURN, rest)
        assert successor is not None
        assert successor.compute_delay_s(clock.now()) == 3 * 86400
        clock.advance("3d")
        for _ in range(2):
            assert (await perform_stretch(engine, successor)).outcome == "over"
        assert list_types(engine) == [*before, "resumed", "elapsed"]
    assert list(replay_conversation(store, "c"))


async def test_the_host_in_process_runs_a_conversation_to_its_end() -> None:
    """The smallest host runs the turn, waits as long as the conversation does, and goes on. A message that is
    submitted twice under one key is run once; another message under it is an error."""
    clock = TurnableClock(skips=True)
    async with make_pausing_engine(MemoryStore(), clock) as engine:
        host = LocalHost(engine)
        client = DurableClient(engine, host)
        for _ in range(2):
            name = await client.submit("go", key="k")
        rests = await host.join()
        assert (name, [rest.outcome for rest in rests.values()]) == ("k", ["waits", "over"])
        assert list_types(engine, "k").count("turn_started") == 1
        assert await client.submit("go", key="k") == "k"
        with pytest.raises(TurnChanged, match="key 'k' was used with another message: 'go' then, 'stop' now"):
            await client.submit("stop", key="k")


@pytest.mark.parametrize("conversation", [None, "c"])
@pytest.mark.parametrize("has_ended", [False, True])
async def test_another_message_under_a_known_key_is_refused(
    conversation: str | None, has_ended: bool
) -> None:
    """The same message under one key is run once, before a worker has begun and after its turn. Another one
    is refused at once, in a conversation of the key's own and in a named one; it begins no turn."""
    async with make_pausing_engine(MemoryStore(), TurnableClock(skips=True)) as engine:
        host = LocalHost(engine)
        client = DurableClient(engine, host)
        await client.submit("go", conversation=conversation, key="k")
        if has_ended:
            await host.join()
        with pytest.raises(TurnChanged, match="key 'k' was used with another message"):
            await client.submit("stop", conversation=conversation, key="k")
        await client.submit("go", conversation=conversation, key="k")
        await host.join()
        assert list_types(engine, conversation or "k").count("turn_started") == 1


class RecordingHost:
    """A host that keeps what it is asked to start, and performs nothing."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []

    async def start(self, stretch: Stretch) -> None:
        """Keep it."""
        self.stretches.append(stretch)


async def test_a_host_gets_no_content() -> None:
    """The message of a turn and its options lie in the log, and the host gets the key alone. The record that
    begins the turn takes the message out; another one under the key is refused for good, whatever the host
    has forgotten, and the stretch that is performed again does nothing."""
    payments: list[str] = []
    host, store = RecordingHost(), MemoryStore()
    async with make_engine(store, lambda arguments: payments.append("paid")) as engine:
        client = DurableClient(engine, host)
        await client.submit("planted", conversation="c", key="k", options={"variables": {"a": "planted"}})
        (stretch,) = host.stretches
        assert b"planted" in (store.read_submission("c", "turn/k") or b"")
        assert [entry.key for entry in store.list_submissions()] == ["turn/k"]
        rests = [await perform_stretch(engine, stretch) for _ in range(2)]
        assert (store.read_submission("c", "turn/k"), list(store.list_submissions())) == (b"", [])
        with pytest.raises(TurnChanged, match="key 'k' was used with another message"):
            await client.submit("planted", conversation="c", key="k")
        assert host.stretches == [stretch]
        assert (payments, list_types(engine).count("turn_started")) == (["paid"], 1)
        assert rests[0] == rests[1]
        assert "planted" not in encode_stretch(stretch) + encode_rest(rests[0])


LONG_ID = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9_000))


@pytest.mark.parametrize("names", [{"conversation": LONG_ID}, {"key": LONG_ID}])
async def test_an_id_that_is_too_long_is_refused_before_anything_is_kept(names: dict[str, str]) -> None:
    """No store and no host has to take it: the error says how long it may be, and what to do."""
    host, store = RecordingHost(), MemoryStore()
    async with make_engine(store, lambda arguments: "paid") as engine:
        with pytest.raises(SpecError, match="at most 512 characters, and this one has 9,000") as refused:
            await DurableClient(engine, host).submit("go", **names)
        assert "use a shorter one" in str(refused.value)
        with pytest.raises(SpecError, match="at most 512 characters"):
            await engine.arun("go", conversation=LONG_ID)
    assert (host.stretches, list(store.list_submissions()), list(store.list_conversations())) == ([], [], [])


async def test_a_message_that_its_host_never_takes_is_not_kept() -> None:
    """Nobody would start its stretch, so the log does not have it either."""

    class RefusingHost(RecordingHost):
        async def start(self, stretch: Stretch) -> None:
            raise SpecError("not such a name")

    store = MemoryStore()
    async with make_engine(store, lambda arguments: "paid") as engine:
        with pytest.raises(SpecError, match="not such a name"):
            await DurableClient(engine, RefusingHost()).submit("go", key="k")
    assert list(store.list_submissions()) == []


async def test_a_message_that_waits_can_be_withdrawn() -> None:
    """A message that no worker has taken is taken back: its stretch fails and says so, its key is refused,
    and nothing runs. One that its worker has read already, without its lease, is not run either."""
    payments: list[str] = []
    host, store = RecordingHost(), MemoryStore()
    async with make_engine(store, lambda arguments: payments.append("paid")) as engine:
        client = DurableClient(engine, host)
        for name in ("a", "b"):
            await client.submit("go", key=name)
        assert (await client.withdraw("a"), await client.withdraw("a")) == (True, False)
        with pytest.raises(TurnChanged, match="with a message that was cancelled"):
            await client.submit("go", key="a")
        first, second = host.stretches
        read = store.read_submission

        def read_just_before(conversation: str, key: str) -> bytes | None:
            data = read(conversation, key)
            store.withdraw_submissions(conversation)
            return data

        with patch.object(store, "read_submission", read_just_before):
            assert (await perform_stretch(engine, second)).outcome == "held"
        for stretch in (first, second):
            rest = await perform_stretch(engine, stretch)
            assert (rest.outcome, rest.error) == ("failed", WITHDRAWN)
        assert (store.is_withdrawn("a", "turn/a"), store.is_withdrawn("b", "turn/b")) == (True, True)
    assert (payments, list(store.list_conversations()), list(store.list_unfinished())) == ([], [], [])


async def test_who_withdraws_waits_for_a_worker_that_begins() -> None:
    """A worker that holds the conversation takes the message: nothing is withdrawn; its turn has begun."""
    store = MemoryStore()
    async with make_engine(store, lambda arguments: "paid") as engine:
        host = RecordingHost()
        client = DurableClient(engine, host)
        await client.submit("go", key="c")
        lease = store.acquire_lease("c", "elsewhere:1", 60)
        withdrawal = asyncio.create_task(client.withdraw("c"))
        await asyncio.sleep(0.2)
        store.release_lease(lease, is_open=False)
        lease = store.acquire_lease("c", "elsewhere:1", 60)
        store.append_many([RecordBatch("c", 0, [b"{}"], lease=lease, taken=["turn/c"])])
        assert await withdrawal is False


@pytest.mark.parametrize("option", ["variable", "observer", "dependencies"])
async def test_an_option_that_no_worker_takes_is_refused(option: str) -> None:
    """A misspelt option, or one that cannot reach a worker, is an error before anything is kept."""
    host, store = RecordingHost(), MemoryStore()
    async with make_engine(store, lambda arguments: "paid") as engine:
        with pytest.raises(SpecError, match=f"a turn has no option '{option}'"):
            await DurableClient(engine, host).submit("go", key="k", options={option: None})
    assert (host.stretches, list(store.list_submissions())) == ([], [])


class DyingHost:
    """A host whose process is killed when it is asked for the first stretch."""

    def __init__(self, engine: Engine, *, starts: bool) -> None:
        self._engine, self._starts = engine, starts

    async def start(self, stretch: Stretch) -> None:
        """Start it, or do not, and die."""
        if self._starts:
            await perform_stretch(self._engine, stretch)
        die()


@pytest.mark.parametrize("starts", [False, True])
async def test_a_message_whose_sender_is_killed_is_run_once(starts: bool, tmp_path: Path) -> None:
    """The process of the sender is killed between keeping the message and asking the host for its stretch, or
    right after that. The same message under the same key runs one turn."""
    log, marks = str(tmp_path / "log.db"), tmp_path / "marks"
    marks.touch()

    def pay(arguments: Any) -> str:
        append_mark(marks, arguments["text"])
        return "paid"

    async def submit() -> None:
        async with make_engine(log, pay) as engine:
            await DurableClient(engine, DyingHost(engine, starts=starts)).submit("the bill", key="k")

    assert run_forked(lambda: Thread(target=asyncio.run, args=(submit(),)).start() or time.sleep(60))
    assert marks.read_text() == ("the bill\n" if starts else "")
    async with make_engine(log, pay) as engine:
        waiting = [entry.key for entry in engine.store.list_submissions()]
        assert waiting == ([] if starts else ["turn/k"])
        host = LocalHost(engine)
        for _ in range(2):
            await DurableClient(engine, host).submit("the bill", key="k")
        await host.join()
        assert (list(engine.store.list_submissions()), list_types(engine, "k").count("turn_started")) == (
            [],
            1,
        )
    assert marks.read_text() == "the bill\n"


async def test_a_message_whose_sender_never_comes_again_is_run(tmp_path: Path) -> None:
    """The sender is killed between keeping the message, which has no key, and asking the host. The next host
    on the log starts its stretch by itself, however often it looks: one turn."""
    log = str(tmp_path / "log.db")

    def pay(arguments: Any) -> str:
        return "paid"

    async def submit() -> None:
        async with make_engine(log, pay) as engine:
            await DurableClient(engine, DyingHost(engine, starts=False)).submit("the bill")

    assert run_forked(lambda: Thread(target=asyncio.run, args=(submit(),)).start() or time.sleep(60))
    async with make_engine(log, pay) as engine:
        (stretch,) = list_submitted(engine.store)
        assert (list_submitted(engine.store, stretch.version), list_submitted(engine.store, "v")) == (
            [stretch],
            [],
        )
        host = LocalHost(engine)
        for _ in range(2):
            await host.start_submitted()
        await host.join()
        await host.start_submitted()
        assert list_types(engine, stretch.conversation).count("turn_started") == 1
        assert list_submitted(engine.store) == []


def test_an_unreadable_message_keeps_no_other_one_back(caplog: pytest.LogCaptureFixture) -> None:
    """A message for workers that is none is named in the log of the process, and the others are started."""
    store = MemoryStore()
    store.submit("broken", "turn/1", "digest", b"{")
    store.submit("whole", "turn/1", "digest", msgspec.json.encode(Submission(stretch=TURN, message="go")))
    assert list_submitted(store) == [TURN]
    assert "conversation broken: a message for its workers is unreadable" in caplog.text


async def test_a_message_of_a_deleted_conversation_is_not_run() -> None:
    """Deleting a conversation deletes the message that waits for a worker too: its stretch fails, and says
    why."""
    host, store = RecordingHost(), MemoryStore()
    async with make_engine(store, lambda arguments: "paid") as engine:
        await engine.arun("first", conversation="c")
        await DurableClient(engine, host).submit("planted", conversation="c", key="k")
        store.delete("c")
        assert list(store.list_submissions()) == []
        for _ in range(2):
            rest = await perform_stretch(engine, host.stretches[0])
            assert (rest.outcome, rest.error) == (
                "failed",
                "its message is not in the log any more: the conversation was deleted",
            )
        assert store.read_last_line("c") is None


async def test_a_message_is_moved_to_the_inbox_of_the_worker_that_holds_its_conversation() -> None:
    """Where another worker runs a turn of the conversation, that turn gets the message. It leaves its first
    place in the commit that brings it to the second, so nobody says it twice."""
    store, begun, may_end = MemoryStore(), asyncio.Event(), asyncio.Event()

    async def wait(arguments: Any) -> str:
        begun.set()
        await may_end.wait()
        return "paid"

    async with make_engine(store, wait) as holder, make_engine(store, wait) as engine:
        turn = asyncio.create_task(holder.arun("first", conversation="c"))
        await begun.wait()
        host = RecordingHost()
        await DurableClient(engine, host).submit("second", conversation="c", key="k")
        for _ in range(2):
            await perform_stretch(engine, host.stretches[0])
            assert store.read_submission("c", "turn/k") == b""
        may_end.set()
        await turn
        await wait_until(lambda: not store.list_leases())
        assert (await perform_stretch(engine, host.stretches[0])).outcome == "over"
        messages = [message.content for message in engine.conversation("c").messages]
        assert messages.count("second") == 1


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_decision_is_handed_over_through_the_inbox(kind: str, tmp_path: Path) -> None:
    """What a person decides in one process is left in the inbox, where nothing runs; the stretch that is
    started with it goes on with the turn. The same decision twice counts once."""
    payments: list[str] = []
    store: Any = MemoryStore() if kind == "memory" else str(tmp_path / "log.db")
    async with make_engine(store, lambda arguments: payments.append("paid"), approval=True) as engine:
        host = LocalHost(engine)
        client = DurableClient(engine, host)
        await client.submit("the bill", conversation="c")
        await host.join()
        (call,) = read_waiting_calls(engine, "c")
        decision = Decided(call_id=call.id, approved=True)
        await asyncio.gather(client.decide("c", decision), client.decide("c", decision))
        assert payments == []
        await host.join()
        assert (payments, engine.conversation("c").read_turn().content) == (["paid"], "paid the bill")


class LateStore(MemoryStore):
    """A store whose readings of an inbox are late: each also has what the one before it had."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = 0
        self._earlier: list[InboxEntry] = []

    def read_inbox(self, conversations: Sequence[str]) -> list[InboxEntry]:
        """Read, and count it."""
        entries = list(super().read_inbox(conversations))
        late = [entry for entry in self._earlier if entry not in entries]
        self._earlier, self.readings = [*entries, *late], self.readings + 1
        return [*late, *entries]


async def test_a_decision_that_is_read_again_while_its_call_runs_counts_once() -> None:
    """The worker looks into the inbox while the turn runs. A reading that is older than the record of the
    decision adds no second record of it."""
    store = LateStore()

    async def pay(arguments: Any) -> str:
        before = store.readings
        await wait_until(lambda: store.readings > before + 1)
        return "paid"

    async with make_engine(store, pay, approval=True) as engine:
        host = LocalHost(engine)
        client = DurableClient(engine, host)
        await client.submit("the bill", conversation="c")
        await host.join()
        (call,) = read_waiting_calls(engine, "c")
        await client.decide("c", Decided(call_id=call.id, approved=True))
        await host.join()
        assert list_types(engine).count("decided") == 1


async def test_a_turn_that_waits_is_cancelled_through_the_inbox() -> None:
    """A cancellation that is handed over ends a turn that waits for a decision; a second one is refused."""
    async with make_engine(MemoryStore(), lambda arguments: "paid", approval=True) as engine:
        host = LocalHost(engine)
        client = DurableClient(engine, host)
        await client.submit("the bill", conversation="c")
        await host.join()
        await client.cancel("c", "asked twice")
        await host.join()
        assert engine.conversation("c").read_turn().state == "error"
        with pytest.raises(SpecError, match="no turn"):
            await client.cancel("c")
