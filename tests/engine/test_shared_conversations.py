"""Several threads, workers and people on the same conversations."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agents import make_function_tool, make_spec
from anyio.from_thread import start_blocking_portal
from durable_workers import SETTLING
from durable_workers import make_engine as make_durable_engine
from paying_agent import EchoModel, make_engine, read_waiting_calls
from worker_names import ALIVE, DEAD

from toolchart.engine import Engine, Turn
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.migration import migrate_conversation
from toolchart.engine.turns.inbox import HANDED_OVER
from toolchart.engine.turns.parking import PARK_AFTER, count_losses
from toolchart.states.errors import IllegalEvent, LeaseHeld, LeaseLost, SpecError, TurnChanged
from toolchart.states.events import Decided, Replied, UserSaid
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.states.ports import Lease

KINDS = ("memory", "sqlite")


def make_approving_engine(log: Any, **changes: Any) -> Engine:
    """An engine whose payments wait for an approval."""

    async def pay(arguments: Any) -> str:
        return "paid"

    return make_durable_engine(log, pay, approval=True, **changes)


def make_address(kind: str, folder: Path) -> Any:
    """The address of a log, or the store itself in memory."""
    return open_store("memory") if kind == "memory" else str(folder / "log.db")


def call_in_threads(engine: Engine, call: Callable[[str, str], Any]) -> dict[int, str]:
    """Call the engine from fifty threads at once, each for a conversation of its own; the answers."""
    answers: dict[int, str] = {}
    faults: list[BaseException] = []
    start = threading.Barrier(50)

    def run(number: int) -> None:
        start.wait()
        try:
            answers[number] = call(f"bill {number}", f"c{number}").content
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    return answers


@pytest.mark.parametrize("way", ["run", "portal"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_fifty_threads_on_one_engine(kind: str, way: str, tmp_path: Path) -> None:
    """Each of fifty threads that call `run` at once, or `arun` by the blocking portal of anyio, gets its own
    answer, and each tool runs once."""
    payments: Counter[str] = Counter()
    engine = make_engine(make_address(kind, tmp_path), lambda arguments: payments.update([arguments["text"]]))
    if way == "run":
        answers = call_in_threads(engine, lambda words, name: engine.run(words, conversation=name))
        engine.close()
    else:
        with start_blocking_portal() as portal:
            answers = call_in_threads(
                engine, lambda words, name: portal.call(partial(engine.arun, words, conversation=name))
            )
            portal.call(engine.aclose)
    assert answers == {number: f"paid bill {number}" for number in range(50)}
    assert payments == {f"bill {number}": 1 for number in range(50)}


class SlowPayment:
    """A tool that waits until it is let go on."""

    def __init__(self) -> None:
        self.count = 0
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, arguments: Any) -> str:
        """Pay, slowly."""
        self.count += 1
        self.has_begun.set()
        await self.may_end.wait()
        return "paid"


@pytest.mark.parametrize("kind", KINDS)
async def test_of_two_calls_at_once_on_one_engine_one_is_refused(kind: str, tmp_path: Path) -> None:
    """Two decisions about one call that reach an engine at the same moment: one counts and keeps its lease,
    the other is refused, and the payment is made once. So also where taking the lease waits for the disk."""
    payments: list[str] = []
    address = make_address(kind, tmp_path)
    async with make_engine(address, lambda arguments: payments.append("paid"), approval=True) as engine:
        await engine.arun("go", conversation="c")
        (call,) = read_waiting_calls(engine, "c")
        decided = Decided(call_id=call.id, approved=True)
        outcomes = await asyncio.gather(
            *(engine.conversation("c").aresume(decided) for _ in range(2)), return_exceptions=True
        )
    refusals = [outcome for outcome in outcomes if isinstance(outcome, (SpecError, IllegalEvent))]
    answers = [outcome.content for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert (len(refusals), answers, payments) == (1, ["paid go"], ["paid"]), outcomes


@pytest.mark.parametrize("kind", KINDS)
async def test_resume_is_refused_while_another_worker_works(kind: str, tmp_path: Path) -> None:
    """`resume` on a conversation that is worked on is refused with who works on it; the worker's call keeps
    its result, and the payment is made once."""
    address, payment = make_address(kind, tmp_path), SlowPayment()

    async def pay(arguments: Any) -> str:
        return await payment(arguments)

    first, second = make_engine(address, pay), make_engine(address, pay)
    turn = asyncio.ensure_future(first.arun("go", conversation="c"))
    await payment.has_begun.wait()
    with pytest.raises(LeaseHeld, match=r"is worked on by .*since"):
        await second.conversation("c").aresume()
    payment.may_end.set()
    result = await turn
    assert (result.content, payment.count) == ("paid go", 1)
    assert (await second.arun("more", conversation="c")).content == "paid go"
    assert (await first.arun("once more", conversation="c")).is_over, "its memory of the conversation is old"
    await first.aclose()
    await second.aclose()


async def test_a_worker_that_lost_its_lease_stops(tmp_path: Path) -> None:
    """Where another worker takes a conversation over, the first one appends nothing more and says so; the
    call that it ran becomes `interrupted`, and is not repeated."""
    store: Any = open_store("memory")
    payment = SlowPayment()

    async def pay(arguments: Any) -> str:
        return await payment(arguments)

    first, second = make_engine(store, pay), make_engine(store, pay)
    turn = asyncio.ensure_future(first.arun("go", conversation="c"))
    await payment.has_begun.wait()
    lease = store.find_lease("c")
    store.renew_leases([lease], 0.0)
    result = await second.conversation("c").aresume()
    assert [call.outcome for call in result.tool_calls] == ["interrupted"]
    count = len(list(store.read_lines("c")))
    payment.may_end.set()
    with pytest.raises(LeaseLost):
        await turn
    assert (len(list(store.read_lines("c"))), payment.count) == (count, 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_decision_reaches_the_worker_that_holds_the_conversation(kind: str, tmp_path: Path) -> None:
    """A decision for a turn that another worker runs waits in its inbox and becomes an event there, once."""
    address, asked = make_address(kind, tmp_path), asyncio.Event()
    payments: list[str] = []

    async def wait_for_ever(call: ToolCall) -> Decided | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    holder = make_engine(
        address, lambda arguments: payments.append("paid"), approval=True, approver=wait_for_ever
    )
    other = make_engine(address, lambda arguments: payments.append("by another"), approval=True)
    turn = asyncio.ensure_future(holder.arun("go", conversation="c"))
    await asked.wait()
    (call_id,) = [call.id for call in (await asyncio.to_thread(read_waiting_calls, other, "c"))]
    result = await other.conversation("c").aresume(Decided(call_id=call_id, approved=True, by="ann"))
    assert HANDED_OVER in result.warnings or result.is_over
    assert (await turn).content == "paid go"
    assert payments == ["paid"]
    lines = list(other.store.read_lines("c"))
    assert sum(b'"type":"decided"' in line for line in lines) == 1
    assert len(list(replay(lines, "c"))) == len(lines)
    await holder.aclose()
    await other.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_reaches_the_worker_that_holds_the_conversation(kind: str, tmp_path: Path) -> None:
    """`asay` to a turn that another worker runs becomes one `user_said` there, and a key counts once."""
    address, payment = make_address(kind, tmp_path), SlowPayment()
    arrived = asyncio.Event()

    async def pay(arguments: Any) -> str:
        return await payment(arguments)

    def observe(event: Any, step: Any) -> None:
        if event.TYPE == "user_said":
            arrived.set()

    holder, other = make_engine(address, pay, observer=observe), make_engine(address, pay)
    turn = asyncio.ensure_future(holder.arun("go", conversation="c"))
    await payment.has_begun.wait()
    for _ in range(2):
        await other.conversation("c").asay("be quick", key="k")
    await arrived.wait()
    payment.may_end.set()
    assert (await turn).content == "paid go"
    lines = list(other.store.read_lines("c"))
    assert sum(b'"type":"user_said"' in line for line in lines) == 1
    assert len(list(replay(lines, "c"))) == len(lines)
    await holder.aclose()
    await other.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_another_message_under_a_key_that_waits_is_an_error(kind: str, tmp_path: Path) -> None:
    """A message that waits in the inbox keeps its key: the same one again is kept once, another one is an
    error and nothing is written."""
    engine = make_engine(make_address(kind, tmp_path), lambda arguments: "paid", approval=True)
    await engine.arun("go", conversation="c")
    for _ in range(2):
        await engine.conversation("c").apost(UserSaid(message="be quick", key="k"))
    with pytest.raises(TurnChanged, match="key 'k' was used with another message"):
        await engine.conversation("c").apost(UserSaid(message="be slow", key="k"))
    await engine.conversation("c").apost(UserSaid(message="be slow", key="l"))
    assert len(engine.store.read_inbox(["c"])) == 2
    await engine.aclose()


class HangingModel(EchoModel):
    """A model that takes the result of the payment when it may, and says that it was asked to."""

    def __init__(self) -> None:
        self.was_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def complete(self, request: Request) -> Reply:
        """The next reply, by and by."""
        if request.messages[-1].role != "user":
            self.was_asked.set()
            await self.may_answer.wait()
        return await super().complete(request)

    async def lose_worker(self, engine: Engine, turn: Awaitable[Turn], conversation: str = "c") -> None:
        """Let a turn ask this model; its worker dies then."""
        self.was_asked.clear()
        task = asyncio.ensure_future(turn)
        await self.was_asked.wait()
        lease = engine.store.find_lease(conversation)
        assert lease is not None
        engine.store.renew_leases([lease], 0.0)
        engine.store.acquire_lease(
            conversation, DEAD, 3600
        )  # what is done in the task from now on counts no more
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class VanishingHolder(MemoryStore):
    """A store in which the lease of `c` ends when somebody leaves an entry for its holder."""

    held: Lease | None = None

    def post(self, conversation: str, key: str, data: bytes, taken: Sequence[str] = ()) -> bool:
        """Keep the entry."""
        is_new = super().post(conversation, key, data, taken)
        if self.held is not None:
            assert self.renew_leases([self.held], 0.0) == [True]
        return is_new


async def hand_message_over(engine: Engine, store: VanishingHolder, model: HangingModel) -> None:
    """A message is left for a worker that ends just then."""
    store.held = store.acquire_lease("c", ALIVE, 3600)
    result = await engine.arun("be quick", conversation="c")
    assert not result.is_over


async def record_late_reply(engine: Engine, store: VanishingHolder, model: HangingModel) -> None:
    """A reply comes that nobody waits for."""
    reply = Replied(effect=1, reply=Reply(content="late", finish_reason="stop"))  # of the first request
    await engine._inbox.record_late_reply("c", reply)


async def say_where_it_is_parked(engine: Engine, store: VanishingHolder, model: HangingModel) -> None:
    """A message is left for a conversation that has lost three workers, and is left alone."""
    model.may_answer.clear()
    for _ in range(2):
        await model.lose_worker(engine, engine.conversation("c").aresume())
    model.may_answer.set()
    (turn,) = await engine.arecover()
    assert turn.error is not None
    assert turn.error.startswith("parked: 3 workers")
    assert await engine.arecover() == []
    await engine.conversation("c").apost(UserSaid(message="be quick"))
    await engine.arecover()


@pytest.mark.parametrize("meddle", [hand_message_over, record_late_reply, say_where_it_is_parked])
async def test_who_takes_an_entry_leaves_the_work_of_a_dead_worker_to_the_next(meddle: Any) -> None:
    """A conversation whose worker has died has a model call to make. Who only brings a message or a reply to
    it gives it back so that `recover` goes on with it, and does not leave it as one that waits for a person.
    """
    store, model = VanishingHolder(), HangingModel()
    engine = make_engine(store, lambda arguments: "paid", providers={"model": model})
    await model.lose_worker(engine, engine.arun("go", conversation="c"))
    model.may_answer.set()
    await meddle(engine, store, model)
    results = [turn.result for turn in await engine.arecover()]
    assert [result and result.content for result in results] == ["paid go"]
    assert await engine.arecover() == []
    await engine.aclose()


async def test_what_is_parked_is_left_alone_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever tries a parked conversation again hears why it is left alone; its lease stays as it is, and the
    log of the program says so once. A message to it does not make it go on, nor say so again."""
    store, model = VanishingHolder(), HangingModel()
    engine = make_engine(store, lambda arguments: "paid", providers={"model": model})
    await model.lose_worker(engine, engine.arun("go", conversation="c"))
    for _ in range(2):
        await model.lose_worker(engine, engine.conversation("c").aresume())
    result, error = await engine.recovery.go_on("c")
    assert (result, error and error[:17]) == (None, "parked: 3 workers")
    lease = store.find_lease("c")
    assert await engine.recovery.go_on("c") == (None, error)
    assert store.find_lease("c") == lease
    await engine.conversation("c").apost(UserSaid(message="be quick"))
    await engine.recovery.go_on("c")
    assert [record.getMessage() for record in caplog.records if "is parked" in record.getMessage()] == [
        "conversation c is parked: 3 workers in a row ended at the same place, without one more record; "
        "`toolchart resume c` has it tried once more"
    ]
    await engine.aclose()


class ToilingModel(HangingModel):
    """A model that calls `pay` once more each time it is gone on with, and hangs then."""

    count = 0

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        self.count += 1
        if self.count % 2:
            call = ToolCall(name="pay", arguments={"text": f"bill {self.count}"})
            return Reply(finish_reason="tool_calls", tool_calls=(call,))
        self.was_asked.set()
        await self.may_answer.wait()
        return Reply(content="done", finish_reason="stop")


async def test_a_parent_is_not_parked_while_its_child_gets_further() -> None:
    """Of a conversation that runs a sub-agent every worker dies, and each has got the sub-agent further: at
    the place where it stands now it has lost one worker, however many there were before."""
    chart = {
        "name": "handing_over",
        "states": {
            "working": {
                "initial": True,
                "enter": "hand_over",
                "transitions": [
                    {"event": "agent_finished", "target": "finished"},
                    {"event": "agent_failed", "target": "finished"},
                ],
            },
            "finished": {"final": True, "enter": "answer"},
        },
    }
    spec = make_spec(chart=chart, effects={"hand_over": {"run_agent": {"chart": "tool_loop"}}})
    store, model = MemoryStore(), ToilingModel()
    functions = [make_function_tool("pay", {"type": "object"}, lambda arguments: "paid")]
    engine = Engine(spec, log=store, functions=functions, providers={"model": model})
    await model.lose_worker(engine, engine.arun("go", conversation="c"))
    losses = [count_losses(store, "c", PARK_AFTER)]
    for _ in range(3):
        await model.lose_worker(engine, engine.conversation("c").aresume())
        losses.append(count_losses(store, "c", PARK_AFTER))
    assert losses == [1, 1, 1, 1]
    await engine.aclose()


async def test_conversations_have_their_last_trial_one_after_the_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of two conversations that are one lost worker from being parked, the second one goes on when the first
    has got a record further; so the one that ends workers is the one that is parked."""
    store, model = VanishingHolder(), HangingModel()
    engine = make_engine(store, lambda arguments: "paid", providers={"model": model})
    for name in ("c", "d"):
        await model.lose_worker(engine, engine.arun("go", conversation=name), name)
        await model.lose_worker(engine, engine.conversation(name).aresume(), name)
    model.was_asked.clear()
    lengths = [store.read_last_line(name) for name in ("c", "d")]
    recovery = asyncio.create_task(engine.arecover())
    await model.was_asked.wait()
    await asyncio.sleep(0.05)
    moved = [store.read_last_line(name) != length for name, length in zip("cd", lengths, strict=True)]
    assert sorted(moved) == [False, True]
    model.may_answer.set()
    results = [turn.result for turn in await recovery]
    assert [result and result.content for result in results] == ["paid go"] * 2
    assert not [record for record in caplog.records if "is parked" in record.getMessage()]
    await engine.aclose()


@pytest.mark.parametrize(
    ("door", "kind"),
    [
        (lambda engine, call: engine.arun("be quick", conversation="c"), "user_said"),
        (lambda engine, call: engine.conversation("c").asay("be quick"), "user_said"),
        (
            lambda engine, call: engine.conversation("c").adecide(Decided(call_id=call, approved=True)),
            "decided",
        ),
        (lambda engine, call: engine.conversation("c").acancel(), "cancelled"),
    ],
    ids=["run", "say", "decide", "cancel"],
)
async def test_what_is_left_for_a_worker_that_ends_just_then_is_taken_at_once(door: Any, kind: str) -> None:
    """Whoever leaves an entry for another worker looks once more, by every door: where that worker has ended
    meanwhile, the entry does not lie there until somebody comes by."""
    store = VanishingHolder()
    engine = make_engine(store, lambda arguments: "paid", approval=True)
    await engine.arun("go", conversation="c")
    (call,) = read_waiting_calls(engine, "c")
    store.held = store.acquire_lease("c", ALIVE, 3600)
    await door(engine, call.id)
    assert not store.read_inbox(["c"])
    assert sum(f'"type":"{kind}"'.encode() in line for line in store.read_lines("c")) == 1
    await engine.aclose()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("second", "is_refused"),
    [
        ({"approved": True, "by": "ada"}, False),
        ({"approved": True, "by": "bo"}, False),
        ({"approved": False, "by": "bo"}, True),
        ({"approved": True, "arguments": {"text": "less"}}, True),
    ],
    ids=["the same", "of another person", "opposite", "other arguments"],
)
async def test_a_decision_that_comes_second_is_not_dropped_without_a_word(
    kind: str, second: dict[str, Any], is_refused: bool, tmp_path: Path
) -> None:
    """While a decision waits in the inbox, another one on its call is an error that names who was first; the
    same verdict once more is none. The first one holds."""
    payments: list[str] = []
    engine = make_engine(
        make_address(kind, tmp_path), lambda arguments: payments.append("paid"), approval=True
    )
    await engine.arun("go", conversation="c")
    (call,) = read_waiting_calls(engine, "c")
    await engine.conversation("c").apost(Decided(call_id=call.id, approved=True, by="ada"))
    with (
        pytest.raises(SpecError, match="came first: approved by ada, and waits for the worker")
        if is_refused
        else contextlib.nullcontext()
    ):
        await engine.conversation("c").apost(Decided(call_id=call.id, **second))
    await engine.arecover()
    assert payments == ["paid"]
    await engine.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_recover_goes_on_with_turns_of_dead_workers(kind: str, tmp_path: Path) -> None:
    """`recover` resumes the open turn of a worker that died, leaves one that waits for a person and one that
    is held, and finds nothing to do the second time."""
    address = make_address(kind, tmp_path)
    store: Any = open_store(address) if kind != "memory" else address
    payments: list[str] = []
    engine = make_engine(store, lambda arguments: payments.append("paid"), approval=True)
    for name in ("waits", "died", "held"):
        await engine.arun("go", conversation=name)
    died: Any = store
    lease = died.acquire_lease("died", DEAD, 3600)
    assert lease.worker == DEAD
    died.post("died", "key", b'{"conversation":"died","event":%b}' % decide(engine, "died"))
    died.acquire_lease("held", ALIVE, 3600)
    turns = await engine.arecover()
    assert [(turn.conversation, turn.error) for turn in turns] == [("died", None)]
    assert turns[0].result is not None
    assert (turns[0].result.content, payments) == ("paid go", ["paid"])
    assert await engine.arecover() == []
    store.close()


async def test_recover_takes_up_a_conversation_that_was_moved_to_its_chart() -> None:
    """A conversation of another chart is left alone, until it is moved to the chart of the engine: the same
    engine then goes on with it."""
    store = open_store("memory")
    async with make_approving_engine(store) as old, make_approving_engine(store, chart=SETTLING) as new:
        await old.arun("the bill", conversation="c")
        (call,) = read_waiting_calls(old, "c")
        await old.conversation("c").apost(Decided(call_id=call.id, approved=True))
        assert await new.arecover() == []
        assert await new.arecover() == []
        await migrate_conversation(new, "c", is_recorded=True)
        (turn,) = await new.arecover()
        assert turn.result is not None
        assert turn.result.state == "settled"


async def test_who_watches_hears_which_conversation_has_no_engine() -> None:
    """Where no engine can be made that goes on with a conversation, because its tools are gone for instance,
    who watches hears why; its turn stays open, and the others go on."""
    store: Any = open_store("memory")
    payments: list[str] = []
    engine = make_engine(store, lambda arguments: payments.append("paid"), approval=True)
    for name in ("lost", "fine"):
        await engine.arun("go", conversation=name)
        entry = b'{"conversation":"%b","event":%b}' % (name.encode(), decide(engine, name))
        store.acquire_lease(name, DEAD, 3600)
        store.post(name, "key", entry)

    def find_engine(conversation: str) -> Engine:
        if conversation == "lost":
            raise SpecError("its tools cannot be offered any more")
        return engine

    turns: asyncio.Queue[Any] = asyncio.Queue()
    async with asyncio.timeout(60):
        watch = asyncio.create_task(
            engine.awatch_unfinished(turns.put_nowait, every_s=0.01, find_engine=find_engine)
        )
        seen = {}
        while len(seen) < 2:
            turn = await turns.get()
            seen[turn.conversation] = turn
        await engine.astop()
        await watch
    assert (seen["lost"].result, seen["lost"].error) == (None, "its tools cannot be offered any more")
    assert (seen["fine"].error, payments) == (None, ["paid"])
    assert engine.conversation("lost").has_open_turn
    await engine.aclose()


async def test_a_turn_that_takes_long_holds_no_recovery_up() -> None:
    """While `watch_unfinished` goes on with one turn, it goes on with others whose workers die meanwhile, and
    begins none twice; stopping the engine ends it."""
    store: Any = open_store("memory")
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def pay(arguments: Any) -> str:
        if arguments["text"] == "slow":
            begun.set()
            await may_end.wait()
        return "paid"

    engine = make_engine(store, pay, approval=True)
    for words in ("slow", "quick"):
        await engine.arun(words, conversation=words)

    def die(conversation: str) -> None:
        store.acquire_lease(conversation, DEAD, 3600)
        entry = b'{"conversation":"%b","event":%b}' % (conversation.encode(), decide(engine, conversation))
        store.post(conversation, "key", entry)

    done: asyncio.Queue[Any] = asyncio.Queue()
    die("slow")
    async with asyncio.timeout(60):
        watch = asyncio.create_task(engine.awatch_unfinished(done.put_nowait, every_s=0.01))
        await begun.wait()
        die("quick")
        first = await done.get()
        may_end.set()
        second = await done.get()
        await engine.astop()
        await watch
    assert [turn.result.content for turn in (first, second)] == ["paid quick", "paid slow"]
    assert done.empty()


def decide(engine: Engine, conversation: str) -> bytes:
    """The JSON of a decision for the call that waits."""
    (call,) = read_waiting_calls(engine, conversation)
    return b'{"type":"decided","call_id":"%b","approved":true,"by":"ann"}' % call.id.encode()


@pytest.fixture
def locked_database(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A SQLite log that another connection has locked for writing, and a function that unlocks it."""
    path = tmp_path / "log.db"
    open_store(path).close()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    def unlock() -> None:
        with contextlib.suppress(sqlite3.ProgrammingError):
            if other.in_transaction:
                other.execute("ROLLBACK")

    yield path, unlock
    unlock()
    other.close()


@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_the_event_loop_goes_on_while_another_process_writes(
    durability: str, locked_database: tuple[Path, Callable[[], None]]
) -> None:
    """While another connection holds the lock of the file, the event loop counts on; and the turn goes on
    when the lock is free."""
    path, unlock = locked_database
    engine = make_engine(open_store(path, durable=durability == "full"), lambda arguments: "paid")
    ticks = 0
    turn = asyncio.ensure_future(engine.arun("go", conversation="c"))
    for _ in range(200):
        await asyncio.sleep(0.002)
        ticks += 1
        assert not turn.done()
    unlock()
    assert (await turn).content == "paid go"
    assert ticks == 200
    await engine.aclose()
    engine.store.close()
