"""Deterministic simulation of several workers on one log: leases that are lost, clocks that jump.

It is the world of `simulation.py` with two workers in it, each with an engine, a model and tools of its
own, and a store with leases between them. A renewal fails, comes late or is done without its answer; a lease
expires in the middle of an effect; the clock of the store jumps; a worker dies and another one goes on. What
the engine does in its writer's thread happens in virtual time here, so the order of events follows from the
seed alone.

    PYTHONPATH=tests:tests/support python -m shared_simulation 17      # print the story of one seed
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import orjson
import simulation
from simulation import Crash, FaultyLog, FaultyModel, VirtualLoop, World, make_spec, make_tools, require

from toolchart.engine import Engine
from toolchart.engine.log import group_commit, leases
from toolchart.engine.log import record as records
from toolchart.engine.log.group_commit import finish_future
from toolchart.engine.log.replay import load_conversation, replay
from toolchart.engine.log.stores import postgres
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_conversation
from toolchart.engine.turns.parking import find_parking
from toolchart.specs.loader import load_spec
from toolchart.specs.models import AgentSpec
from toolchart.states.errors import IllegalEvent, LogBusy, LogConflict, LogUnavailable, NotFound, SpecError
from toolchart.states.events import Decided
from toolchart.states.ports import InboxEntry, Lease, RecordBatch
from toolchart.testing.invariants import check_calls_answered_once

WORKERS = 2
LEASE_S = 3.0
"""Shorter than many tools of the simulation run."""

SAFE_SHARE = 0.75
"""Share of a lease in which an effect may begin (DESIGN 7.6: more than a margin must be left)."""

MAX_ACTIONS = 25
"""Actions of each worker before the world becomes calm."""

LONGEST_ACTION_S = 150
"""Seconds after which a worker is stopped: some timers of charts take a day."""

MAX_CALM_ROUNDS = 200
"""Rounds in which a calm world must end; more are a fault."""

START = 1_700_000_000.0
"""Where the clock of the store begins: seconds since 1970."""

EXPECTED = (Crash, LogUnavailable, LogConflict, NotFound, SpecError, IllegalEvent)
"""What an action may end with: the worker has died, or was told why it may not."""


@dataclass
class Fleet:
    """What the workers of one run share."""

    seed: int
    rng: random.Random = field(init=False)
    store: Any = field(default_factory=MemoryStore)
    loop: VirtualLoop = field(default_factory=lambda: InlineLoop())
    story: list[str] = field(default_factory=list)
    run_counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    call_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    jump_s: float = 0.0
    """How far the clock of the store has jumped."""
    has_jumped: bool = False
    is_calm: bool = False
    worlds: list[World] = field(default_factory=list)
    dead_names: set[str] = field(default_factory=set)
    """Workers that are known to be dead."""
    agent: AgentSpec = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.agent = load_spec(make_spec(self.make_world()) | {"lease_s": LEASE_S})

    def make_world(self) -> World:
        """The world as one process of a worker sees it: it dies alone."""
        world = World(
            self.seed,
            story=self.story,
            call_numbers=self.call_numbers,
            run_counts=self.run_counts,
            is_calm=self.is_calm,
            loop=self.loop,
        )
        world.rng = self.rng
        self.worlds.append(world)
        return world

    def become_calm(self) -> None:
        """Let no more faults happen."""
        self.is_calm = True
        for world in self.worlds:
            world.is_calm = True

    def read_time(self) -> float:
        """The clock of the store."""
        return START + self.loop.now_s + self.jump_s


class InlineLoop(VirtualLoop):
    """A virtual loop that does the work for a thread at once."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Call the function; a future with its result."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


class SimulatedWriter:
    """The writer of a log in virtual time: one job after the other, each after a while."""

    def __init__(self, store: FaultySharedLog) -> None:
        self._store = store
        self._free_at_s = 0.0
        self.job_count = 0

    def submit(self, work: RecordBatch | Callable[[], Any]) -> asyncio.Future[Any]:
        """Add a job; a future of its result."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        delay_s = self._store.draw_delay()
        self._free_at_s = max(self._free_at_s, loop.time()) + delay_s
        self.job_count += 1
        loop.call_at(self._free_at_s, self._do_job, work, done)
        return done

    def _do_job(self, work: RecordBatch | Callable[[], Any], done: asyncio.Future[Any]) -> None:
        self.job_count -= 1
        result, fault = None, None
        try:
            if isinstance(work, RecordBatch):
                (fault,) = self._store.append_many([work])
            else:
                result = work()
        except BaseException as error:
            fault = error
        finish_future(done, result, fault)

    def drain(self) -> None:
        """Nothing: the loop does the jobs."""


class FaultySharedLog(FaultyLog):
    """The store as one process of a worker reaches it, with faults of appends and of leases.

    It keeps its own account of the lease, and fails the run where a record is appended without one, or an
    effect begins too late in it.
    """

    def __init__(self, fleet: Fleet, world: World) -> None:
        super().__init__(world, fleet.store)
        self._fleet = fleet
        self.commits_at_once = fleet.rng.random() < 0.5
        self.name = ""
        """Of the worker, in its leases."""
        self._confirmed_at_s = -1e9
        """When the store did what this worker knows to have renewed its lease."""
        inner = fleet.store
        self.find_lease, self.list_leases = inner.find_lease, inner.list_leases
        self.read_checkpoints, self.find_names = inner.read_checkpoints, inner.find_names

    def draw_delay(self) -> float:
        """How long a job waits: sometimes longer than a lease lasts."""
        if self._world.draw_fault(0.06):
            return self._world.rng.uniform(0.0, 4 * LEASE_S)
        return self._world.rng.choice([0.0, 0.001, 0.01])

    def _fail(self, words: str, chance: float = 0.02) -> None:
        """Refuse what the worker asks for, or let it die, with some probability."""
        world = self._world
        world.maybe_crash(f"at {words}", chance / 2)
        if world.draw_fault(chance):
            world.add_to_story(f"{self.name}: the log refuses {words}")
            raise LogUnavailable("the disk is full")

    # -- appends ---------------------------------------------------------------------------------

    def append_many(self, batches: Sequence[RecordBatch], *, wait: bool = True) -> Sequence[Any]:
        """Append batches, with faults before and after."""
        world = self._world
        self._fail("an append")
        if not wait and world.draw_fault(0.1):
            raise LogBusy("another process is at work")
        faults = self._inner.append_many(batches)
        for batch, fault in zip(batches, faults, strict=True):
            kinds = ", ".join(orjson.loads(line)["event"]["type"] for line in batch.lines)
            world.add_to_story(f"{self.name}: {'written' if fault is None else repr(fault)}: {kinds}")
            if fault is None:
                self._check_append(batch)
        world.maybe_crash("after it wrote")
        return faults

    def _check_append(self, batch: RecordBatch) -> None:
        """A record was appended by the worker whose lease is the newest, under its token."""
        newest = self._fleet.store.find_lease(batch.conversation)
        require(newest is not None, "invariant 6: appended without any lease")
        require(
            newest.worker == self.name, f"invariant 6: {self.name} appended, {newest.worker} has the lease"
        )
        require(batch.lease is not None, "invariant 6: appended without a token")
        assert batch.lease is not None
        require(batch.lease.token == newest.token, "invariant 6: appended under an older token")

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep a checkpoint, or refuse."""
        self._fail("a checkpoint")
        self._inner.write_checkpoint(conversation, seq, data)  # type: ignore[attr-defined]

    # -- leases ----------------------------------------------------------------------------------

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """Take the lease; it may fail, also after it was taken."""
        self.name = worker
        self._fail("to give the lease", 0.05)
        lease: Lease = self._fleet.store.acquire_lease(conversation, worker, seconds)
        self._world.add_to_story(f"{worker}: has the lease, token {lease.token}")
        self._fail("to say that it gave the lease", 0.05)
        self._confirmed_at_s = self._fleet.loop.now_s
        return lease

    def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[bool]:
        """Renew; it may fail, also after it was done."""
        self._fail("to renew", 0.15)
        answers: Sequence[bool] = self._fleet.store.renew_leases(leases, seconds)
        self._world.add_to_story(f"{self.name}: renewed: {list(answers)}")
        self._fail("to say that it renewed", 0.1)
        if all(answers):
            self._confirmed_at_s = self._fleet.loop.now_s
        return answers

    def release_lease(
        self, lease: Lease, *, is_open: bool, due: float | None = None, wait: bool = True
    ) -> bool:
        """Release; it may fail, also after it was done."""
        self._fail("to take the lease back", 0.05)
        is_released: bool = self._fleet.store.release_lease(lease, is_open=is_open, due=due)
        self._world.add_to_story(f"{self.name}: released: {is_released}, open {is_open}, due {due}")
        self._fail("to say that it took the lease back", 0.05)
        return is_released

    def list_unfinished(self) -> Any:
        """What a worker may go on with."""
        self._fail("to list what is open")
        return self._fleet.store.list_unfinished()

    # -- inbox -----------------------------------------------------------------------------------

    def post(self, conversation: str, key: str, data: bytes, taken: Sequence[str] = ()) -> bool:
        """Leave an entry; it may fail, also after it is there."""
        self._fail("an entry")
        is_new: bool = self._fleet.store.post(conversation, key, data, taken)
        # What a busy turn is told has a random key, and the story is the same in each run.
        self._world.add_to_story(f"{self.name}: left {key.partition('/')[0]}: {is_new}")
        self._fail("to say that it has the entry")
        return is_new

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries."""
        self._fail("to read the inbox")
        entries: Sequence[InboxEntry] = self._fleet.store.read_inbox(conversations)
        return entries

    def drop_entries(self, conversation: str, keys: Sequence[str]) -> None:
        """Mark entries as taken."""
        self._fail("to drop an entry")
        self._world.add_to_story(f"{self.name}: drops {len(keys)} entries")
        self._fleet.store.drop_entries(conversation, keys)

    # -- effects ---------------------------------------------------------------------------------

    def requests_effect(self, effect_type: str, text: str) -> bool:
        """Whether a record asks for this effect, which begins now: with enough of the lease left."""
        self._check_begin(effect_type)
        return any(
            effect["effect"].startswith(effect_type) and text in orjson.dumps(effect).decode()
            for line in self.read_lines("c")
            for effect in orjson.loads(line).get("asks", ())
        )

    def _check_begin(self, what: str) -> None:
        """DESIGN 7.6: an effect begins with more than a margin of the lease left."""
        age_s = self._fleet.loop.now_s - self._confirmed_at_s
        require(age_s <= SAFE_SHARE * LEASE_S + 1e-6, f"invariant 6: {what} began {age_s:.3f} s into a lease")
        if not self._fleet.has_jumped:
            newest = self._fleet.store.find_lease("c")
            is_held = newest is not None and newest.worker == self.name
            require(is_held, f"invariant 6: {what} began in {self.name}, which has no lease")


# -- workers ---------------------------------------------------------------------------------------


class Worker:
    """A worker that is started again whenever it has died."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet = fleet
        self._number = number
        self._turns = 0
        self._start()

    def _start(self) -> None:
        self._world = self._fleet.make_world()
        self._log = FaultySharedLog(self._fleet, self._world)
        self._engine = Engine(
            self._fleet.agent,
            log=self._log,  # type: ignore[arg-type]
            functions=make_tools(self._world, self._log),
            providers={"model": FaultyModel(self._world, self._log)},
            clock=self._world,
        )

    async def run(self) -> None:
        """Do things at random until the world becomes calm."""
        for _ in range(MAX_ACTIONS):
            await asyncio.sleep(self._fleet.rng.choice([0.0, 0.01, 0.3, 2.0]))
            await self.act(self._choose_action())

    async def act(self, action: Callable[[], Any]) -> None:
        """Do one thing; faults that a worker must expect are part of the story."""
        fleet = self._fleet
        work = asyncio.ensure_future(action())
        if self._world.draw_fault(0.05):
            fleet.loop.call_later(fleet.rng.choice([0.0, 0.005, 0.7, 4.0]), work.cancel)
        for _ in range(LONGEST_ACTION_S):
            if not (await asyncio.wait({work}, timeout=1.0))[1] or self._world.has_crashed:
                break
        work.cancel()  # where it still runs: its process is dead, or waits for a timer of a day
        try:
            await work
        except EXPECTED as error:
            self._world.add_to_story(f"{self._log.name}: {type(error).__name__} {error}".splitlines()[0])
        except asyncio.CancelledError:
            self._world.add_to_story(f"{self._log.name}: was cancelled")
        if self._world.has_crashed:
            await self._start_again()

    async def _start_again(self) -> None:
        """What a dead process held in memory is gone; only sometimes others know that it is dead."""
        leases = self._engine._log.leases
        assert leases is not None
        leases.abandon("c")
        if self._fleet.rng.random() < 0.5:
            self._fleet.dead_names.add(self._log.name)
        await asyncio.sleep(self._fleet.rng.choice([0.0, 0.5, 10.0]))
        self._start()

    def _choose_action(self) -> Callable[[], Any]:
        """What the worker does next."""
        actions = [self._run, self._run, self._resume, self._resume, self._recover, self._recover]
        return self._fleet.rng.choice([*actions, self._decide, self._decide, self._say, self._cancel])

    async def _run(self) -> None:
        self._turns += 1
        await self._engine.arun(f"message {self._number}.{self._turns}", conversation="c")

    async def _resume(self) -> None:
        await self._engine.conversation("c").aresume()

    async def _recover(self) -> None:
        for turn in await self._engine.arecover():
            self._world.add_to_story(f"{self._log.name}: recovered: {turn.error or turn.result}"[:200])

    async def _decide(self) -> None:
        loaded = load_conversation(self._log, "c")  # type: ignore[arg-type]
        for call in loaded.snapshot.calls if loaded is not None else ():
            if call.ruling == "needs_approval":
                is_approved = self._fleet.rng.random() < 0.6
                await self._engine.conversation("c").aresume(
                    Decided(call_id=call.call.id, approved=is_approved, by="a person")
                )
                return

    async def _say(self) -> None:
        self._turns += 1
        words = f"{self._number}.{self._turns}"
        await self._engine.conversation("c").asay(f"besides {words}", key=words)

    async def _cancel(self) -> None:
        await self._engine.conversation("c").acancel("enough")

    async def settle(self) -> bool:
        """In a calm world: go on with what is open; whether nothing is."""
        await self.act(self._recover)
        await self.act(self._decide)
        if find_parking(self._fleet.store, "c") is not None:
            await self.act(self._resume)  # nobody but a person goes on with it
        loaded = load_conversation(self._log, "c")  # type: ignore[arg-type]
        has_entries = bool(self._fleet.store.read_inbox(["c"]))
        is_over = loaded is None or loaded.snapshot.is_over
        return is_over and not has_entries and not self._fleet.store.list_leases()


async def _let_clock_jump(fleet: Fleet) -> None:
    """Let the clock of the store jump, forwards and backwards."""
    while True:
        await asyncio.sleep(fleet.rng.uniform(1.0, 60.0))
        if not fleet.is_calm and fleet.seed % 2:
            fleet.jump_s += fleet.rng.choice([-100.0, -LEASE_S, LEASE_S / 2, 2 * LEASE_S, 100.0])
            fleet.has_jumped = True
            fleet.story.append(f"{fleet.loop.now_s:10.3f}  the clock jumps to {fleet.jump_s:+.1f} s")


async def _run_fleet(fleet: Fleet) -> None:
    workers = [Worker(fleet, number) for number in range(WORKERS)]
    clock = asyncio.ensure_future(_let_clock_jump(fleet))
    await asyncio.gather(*(worker.run() for worker in workers))
    clock.cancel()
    fleet.become_calm()
    for _ in range(MAX_CALM_ROUNDS):
        if await fleet.rng.choice(workers).settle():
            break
        await asyncio.sleep(LEASE_S / 2)
    else:
        raise simulation.BrokenInvariant("the conversation does not come to its end")
    check_fleet(fleet)


def check_fleet(fleet: Fleet) -> None:
    """Check the log that the workers left, and the truth of what it says about calls."""
    lines = list(fleet.store.read_lines("c"))
    if not lines:
        return
    verify_conversation(lines, "c")
    *_, last = steps = list(replay(lines, "c"))  # invariant 3
    require(len(steps) == len(lines), "invariant 3: a record does not replay")
    snapshot = last.step.snapshot
    check_calls_answered_once(snapshot.messages)  # invariant 1
    repeated = sorted(call for call, times in fleet.run_counts.items() if times > 1 and call[0] != "safe")
    require(not repeated, f"invariant 5: ran twice: {repeated}")
    for line in lines:
        event = orjson.loads(line)["event"]
        if event["type"] == "tool_finished":
            _check_outcome(fleet, steps, event)


def _check_outcome(fleet: Fleet, steps: Sequence[Any], event: dict[str, Any]) -> None:
    """Invariant 1: a call that succeeded has run."""
    if event["outcome"] == "succeeded":
        number = event["result"]["result"]["n"]
        has_run = any(count for (_, n), count in fleet.run_counts.items() if n == number)
        require(has_run, f"invariant 1: call {number} succeeded and never ran")


@contextlib.contextmanager
def _simulated_time(fleet: Fleet) -> Iterator[None]:
    """Let the engine and the store take their time, their writer and their workers from a fleet."""
    numbers, salts = itertools.count(1), itertools.count(1)
    with (
        patch("time.perf_counter", fleet.loop.time),
        patch("time.time", fleet.read_time),
        patch.object(group_commit, "read_clock_s", fleet.loop.time),
        patch.object(group_commit, "name_worker", lambda number: f"w{number}"),
        patch.object(group_commit, "_numbers", numbers),
        patch.object(leases, "is_dead", fleet.dead_names.__contains__),
        patch.object(postgres, "read_time", lambda _: fleet.read_time()),
        patch.object(group_commit, "LogWriter", SimulatedWriter),
        patch.object(records, "generate_salt", lambda: f"salt {next(salts)}"),
    ):
        yield


def run_fleet_simulation(seed: int, store: Any = None) -> tuple[Fleet, list[bytes]]:
    """Run one seed to its end; the fleet, with its story, and the log.

    Args:
        store: without a conversation `c`; it has none again afterwards.

    Raises:
        BrokenInvariant, AssertionError: an invariant is broken; its notes have the end of the story.
    """
    fleet = Fleet(seed) if store is None else Fleet(seed, store=store)
    try:
        with _simulated_time(fleet):
            fleet.loop.run_until_complete(_run_fleet(fleet))
            lines = list(fleet.store.read_lines("c"))
            fleet.store.delete("c")
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}", *fleet.story[-60:]]))
        raise
    finally:
        simulation.close_loop(fleet.loop)
    return fleet, lines


if __name__ == "__main__":
    import conftest  # noqa: F401  makes a checkout importable

    fleet, lines = run_fleet_simulation(int(sys.argv[1]))
    print("\n".join(fleet.story))
