"""Deterministic simulation of workers on one store: the real code of stores, under faults that a seed
decides.

A few workers share a log. Each has a store object of its own (those of the memory store share one) and a
clock of its own, which is off by seconds, runs too fast and jumps. They take leases, append, look into
inboxes, keep checkpoints, and go on with leases that they have lost long ago. Between two steps of a store
(a look at a value, a write, a sync, a wait for a lock) the seed decides who goes on, where the time stands,
and what fails: a worker stands still for longer than its lease, is killed in the middle of a write, finds
the disk full or a sync failed; or the machine loses its power, and with it what was not synced. What they
did and were answered is a history, and `store_histories.py` looks for an order that explains it.

Each worker is a thread, and exactly one of them runs: whoever reaches a moment at which another one could be
faster hands on. So one seed gives one history.

    python tests/soak/histories.py --seed 17      # print the history of one seed
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from faulty_disk import Dead, Disk, SimulatedOs, SqliteDisk, find_sqlite
from faulty_network import Proxy
from store_histories import NEVER, LeaseState, Operation, Order, Rules, State, Unknown, find_order

from toolchart.engine.log import leases
from toolchart.engine.log.stores import base, replaced_files, sqlite
from toolchart.engine.log.stores.base import INBOX, StoreBase
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.states.errors import LeaseHeld, LogBusy, LogConflict, LogUnavailable, ToolchartError
from toolchart.states.ports import Lease, RecordBatch

FAMILIES = ("a", "b")
LEASE_S = 3.0
CLOCK_START = 1_700_000_000.0
MAX_WORKERS = 3
NO_CHANCES: dict[str, float] = {}


class BrokenHistory(AssertionError):
    """A history that no sequential store explains, or damage that a fault must not do."""


class Profile(msgspec.Struct, frozen=True):
    """What may happen in the history of one seed."""

    kind: str
    """Of the store."""
    is_durable: bool
    workers: int
    operations: int
    chances: dict[str, float]
    """By fault, for each moment at which it could strike."""


def choose_profile(seed: int, kinds: tuple[str, ...]) -> Profile:
    """The profile of a seed."""
    rng = random.Random(f"profile {seed}")
    kind = rng.choice(kinds)
    is_durable = rng.random() < 0.7
    faults = {"pause": 0.02, "kill": 0.006, "power": 0.003, "full": 0.01, "sync": 0.02, "jump": 0.02}
    chances = {name: chance * rng.choice([0.0, 1.0, 1.0, 3.0]) for name, chance in faults.items()}
    chances |= {"torn": 0.5, "short": 0.02, "switch": rng.choice([0.1, 0.3, 0.6])}
    if kind == "memory":
        chances["power"] = 0.0  # nothing is promised
    return Profile(kind, is_durable, rng.randint(2, MAX_WORKERS), rng.randint(12, 40), chances)


class SimulatedTime:
    """The module `time` as the worker sees it that runs now."""

    def __init__(self, world: World) -> None:
        self._world = world

    def time(self) -> float:
        """The clock of the worker's host."""
        return self._world.read_clock()

    def monotonic(self) -> float:
        """Seconds that pass the same everywhere."""
        return self._world.now_s

    def sleep(self, seconds: float) -> None:
        """Let the others work for a while; for a whole one, so that who waits for a lock does not ask for it
        thousands of times."""
        self._world.wait(max(seconds, 0.5))


class Worker:
    """A process that works on the log, and what it believes."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.rng = world.rng
        self.baton = threading.Lock()
        self.baton.acquire()
        self.wakes_at = 0.0
        self.is_finished = False
        self.is_dead = False
        self.host = self.rng.randrange(2)
        self.name = ""
        self.store: StoreBase | None = None
        self.operation: Operation | None = None
        self.is_opening = False

    # -- life ------------------------------------------------------------------------------------

    def live(self) -> None:
        """Be the thread of this worker."""
        self.baton.acquire()
        try:
            while not self.world.is_over():
                try:
                    self._start()
                    while not self.world.is_over():
                        self._act()
                except (Dead, ToolchartError, OSError) as error:
                    if isinstance(self.world, ServedWorld) and isinstance(error, LogUnavailable):
                        self._close()
                        continue  # a look at the log failed: the worker begins anew
                    if not self.is_dead:  # SQLite reports the end of its worker as an error
                        raise
                    self._die()
                    if self.world.has_no_power:
                        break
                    self.is_dead = False
                    with contextlib.suppress(Dead):  # it may die while it waits
                        self.world.wait(self.rng.choice([0.0, 0.5, 2 * LEASE_S]))
            if self.store is not None and not self.is_dead:
                self._close()
        except BaseException as error:
            self.world.failure = self.world.failure or error
        finally:
            self.is_finished = True
            self.world.hand_on()

    def _start(self) -> None:
        pid = self.world.take_record()
        self.name = f"host{self.host}:{pid}/host{self.host}.{pid}.0"
        self.world.alive.add(pid)
        self.held: dict[str, Lease] = {}
        self.old: list[Lease] = []
        self.is_opening = True
        try:
            self.store = self.world.open_store()
        finally:
            self.is_opening = False

    def _die(self) -> None:
        world = self.world
        self.is_dead = True
        world.alive.discard(int(self.name.rpartition(".0")[0].rpartition(".")[2]))
        world.dead_at[self.name] = world.steps
        world.tell(f"{self.name} dies")
        self._close()

    def _close(self) -> None:
        store, self.store = self.store, None
        if store is not None and self.world.profile.kind != "memory":
            self.is_opening = True
            with contextlib.suppress(Dead, ToolchartError, OSError):
                store.close()
            self.is_opening = False

    # -- operations ------------------------------------------------------------------------------

    def _call(
        self, kind: str, family: str, work: Callable[[], Any], *, is_durable: bool = False, **arguments: Any
    ) -> Any:
        """Do one operation and note it; None where it failed or its outcome is not known."""
        world = self.world
        op = Operation(self.name, kind, family, arguments, world.take_step(), times=[])
        op.is_durable = is_durable and world.profile.is_durable
        self.operation = op
        world.history.append(op)
        answer = None
        try:
            answer = op.result = work()
        except LeaseHeld:
            op.result = "LeaseHeld"
        except LogConflict as error:
            op.result = type(error).__name__
        except LogUnavailable as error:
            op.told = world.steps
            op.result = Unknown(str(error).partition("\n")[0])
        except Dead:
            op.result = Unknown("it died")
            op.ended = world.take_step()
            world.tell(str(op))
            raise
        finally:
            self.operation = None
        if self.is_dead:  # within SQLite, which reports the end of its worker as an error
            op.result, op.ended, op.told = Unknown("it died"), world.take_step(), NEVER
            raise Dead
        op.ended = NEVER if op.is_unknown else world.take_step()
        world.tell(str(op))
        return answer

    def _call_store(self, work: Callable[[bool], Any]) -> Any:
        """Call the store as the engine does: without waiting, and again where another writer is at work."""
        if self.rng.random() < 0.5:
            with contextlib.suppress(LogBusy):
                return work(False)
        return work(True)

    def _act(self) -> None:
        """Do one thing at random."""
        world, rng = self.world, self.rng
        world.count_operation()
        world.pass_moment("think")
        family = rng.choice(FAMILIES)
        lease = self.held.get(family)
        if lease is None:
            choices = [(self._acquire, 8), (self._post, 3), (self._append_unleased, 1), (self._read, 2)]
        else:
            choices = [
                (self._append, 8),
                (self._renew, 3),
                (self._release, 2),
                (self._post, 1),
                (self._read, 2),
                (self._drop, 1),
                (self._write_checkpoint, 1),
                (self._acquire, 1),
            ]
        if self.old:
            choices.append((self._haunt, 2))
        if world.profile.kind == "sqlite" and world.profile.chances["kill"]:
            choices.append((self._do_upkeep, 1))
        (action,) = rng.choices([choice for choice, _ in choices], [weight for _, weight in choices])
        action(family)

    def _acquire(self, family: str) -> None:
        store = self.store
        assert store is not None
        taken: list[Lease] = []

        def take() -> Any:
            taken.append(
                self._call_store(lambda wait: store.acquire_lease(family, self.name, LEASE_S, wait=wait))
            )
            return taken[0].token, taken[0].since, taken[0].expires

        if self._call("acquire", family, take, seconds=LEASE_S) is not None:
            if family in self.held:
                self.old.append(self.held[family])
            self.held[family] = taken[0]

    def _drop_lease(self, lease: Lease) -> None:
        if self.held.get(lease.conversation) is lease:
            del self.held[lease.conversation]
            self.old.append(lease)

    def _append(self, family: str) -> None:
        self._append_under(self.held[family], self.rng.random() < 0.1)

    def _append_unleased(self, family: str) -> None:
        self._append_under(None, False, family)

    def _haunt(self, _: str) -> None:
        """Go on under a lease that is not the newest any more."""
        lease = self.rng.choice(self.old)
        work = self.rng.choice(
            [self._append_under, self._append_under, self._renew_lease, self._release_lease]
        )
        work(lease)

    def _append_under(self, lease: Lease | None, is_child: bool = False, family: str = "") -> None:
        store, rng, world = self.store, self.rng, self.world
        assert store is not None
        family = family if lease is None else lease.conversation
        name = f"{family}.1" if is_child else family
        newest = store.read_last_line(name)
        seq = 0 if newest is None else newest[0] + 1
        if rng.random() < 0.05:
            seq += 1
        records = tuple(world.take_record() for _ in range(rng.choice([1, 1, 1, 2])))
        lines = [_build_line(seq + place, record, rng) for place, record in enumerate(records)]
        world.lines.update(zip(records, lines, strict=True))
        entries = list(store.read_inbox([family])) if lease is not None and rng.random() < 0.5 else []
        checkpoint = (seq, records[0]) if lease is not None and not is_child and rng.random() < 0.3 else None
        batch = RecordBatch(
            name,
            seq,
            lines,
            lease,
            None if checkpoint is None else (seq, b"%d" % records[0] + bytes(rng.choice([0, 900]))),
            [entry.key for entry in entries],
        )

        def append() -> Any:
            (fault,) = self._call_store(lambda wait: store.append_many([batch], wait=wait))
            if fault is not None:
                raise fault

        op_lease = None if lease is None else (lease.token, lease.worker)
        more = {"checkpoint": checkpoint, "taken": tuple(entry.key for entry in entries)}
        self._call(
            "append",
            family,
            append,
            is_durable=True,
            name=name,
            seq=seq,
            records=records,
            lease=op_lease,
            **more,
        )
        if lease is not None and world.history and world.history[-1].result == "LeaseLost":
            self._drop_lease(lease)

    def _renew(self, family: str) -> None:
        self._renew_lease(self.held[family])

    def _renew_lease(self, lease: Lease) -> None:
        store, family = self.store, lease.conversation
        assert store is not None
        op_lease = (lease.token, lease.worker)
        seconds = self.rng.choice([LEASE_S, LEASE_S, 0.0])
        is_held = self._call(
            "renew", family, lambda: store.renew_leases([lease], seconds)[0], lease=op_lease, seconds=seconds
        )
        if is_held is False:
            self._drop_lease(lease)

    def _release(self, family: str) -> None:
        self._release_lease(self.held[family])

    def _release_lease(self, lease: Lease) -> None:
        store, family = self.store, lease.conversation
        assert store is not None
        op_lease = (lease.token, lease.worker)
        is_open = self.rng.random() < 0.5
        is_released = self._call(
            "release",
            family,
            lambda: self._call_store(lambda wait: store.release_lease(lease, is_open=is_open, wait=wait)),
            lease=op_lease,
        )
        if is_released is not False:
            self._drop_lease(lease)

    def _post(self, family: str) -> None:
        store = self.store
        assert store is not None
        key = f"k{self.rng.randrange(8)}"
        data = key.encode() + bytes(self.rng.choice([1, 700]))
        self._call("post", family, lambda: store.post(family, key, data), is_durable=True, key=key)

    def _drop(self, family: str) -> None:
        store = self.store
        assert store is not None
        entries = list(store.read_inbox([family]))
        if entries:
            entry = self.rng.choice(entries)
            keys = (entry.key,)
            self._call(
                "drop", family, lambda: store.drop_entries(family, [entry.key]), is_durable=True, keys=keys
            )

    def _write_checkpoint(self, family: str) -> None:
        store = self.store
        assert store is not None
        newest = store.read_last_line(family)
        if newest is not None:
            mark = self.world.take_record()
            self._call(
                "write_checkpoint",
                family,
                lambda: store.write_checkpoint(family, newest[0], b"%d" % mark + bytes(900)),
                checkpoint=(newest[0], mark),
            )

    def _do_upkeep(self, _: str) -> None:
        assert isinstance(self.store, SqliteStore)
        try:
            self.store.do_upkeep()
        except LogUnavailable:  # it is tried again
            if self.is_dead:
                raise Dead from None

    def _read(self, family: str) -> None:
        store = self.store
        assert store is not None
        match self.rng.randrange(4):
            case 0:
                name = self.rng.choice([family, f"{family}.1"])
                self._call("read", family, lambda: _read_records(store, name), name=name)
            case 1:
                self._call("read_inbox", family, lambda: _read_inbox(store, family))
            case 2:
                self._call("find_lease", family, lambda: _read_lease(store, family))
            case 3:
                self._call("read_checkpoint", family, lambda: _read_checkpoint(store, family))


def _build_line(seq: int, record: int, rng: random.Random) -> bytes:
    """A line as the log has them: it says its number first and its hash last."""
    filler = "x" * rng.choice([0, 0, 600, 1500])
    return b'{"seq":%d,"event":{"record":%d,"text":"%b"},"hash":"%064x"}' % (
        seq,
        record,
        filler.encode(),
        record,
    )


class _Event(msgspec.Struct):
    record: int


class _Line(msgspec.Struct):
    seq: int
    event: _Event


_decode_line = msgspec.json.Decoder(_Line).decode


def _read_records(store: StoreBase, name: str) -> tuple[int, ...]:
    stored = list(store.read_lines(name))
    try:
        lines = [_decode_line(line) for line in stored]
    except msgspec.DecodeError as error:
        raise BrokenHistory(f"{name} has a line that is none: {error}") from None
    if [line.seq for line in lines] != list(range(len(lines))):
        raise BrokenHistory(f"the records of {name} have the numbers {[line.seq for line in lines]}")
    records = tuple(line.event.record for line in lines)
    if any(_current[-1].lines[record] != line for record, line in zip(records, stored, strict=True)):
        raise BrokenHistory(f"the records of {name} are not as they were appended")
    return records


def _read_inbox(store: StoreBase, family: str) -> tuple[str, ...]:
    return tuple(entry.key for entry in store.read_inbox([family]))


def _read_lease(store: StoreBase, family: str) -> tuple[int, str] | None:
    lease = store.find_lease(family)
    return None if lease is None else (lease.token, lease.worker)


def _read_checkpoint(store: StoreBase, family: str) -> tuple[int, int] | None:
    found = next(iter(store.read_checkpoints(family)), None)
    return None if found is None else (found[0], int(found[1].rstrip(b"\0")))


class World:
    """One history: workers, their clocks, the disk, and what was done."""

    def __init__(self, seed: int, profile: Profile, folder: Path) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.profile = profile
        self.folder = folder
        self.story: list[str] = []
        self.history: list[Operation] = []
        self.lines: dict[int, bytes] = {}
        """What was appended, by the number of the record."""
        self.now_s = 0.0
        self.steps = 0
        self.records = 0
        self.operations = 0
        self.failure: BaseException | None = None
        self.has_no_power = False
        self.alive: set[int] = set()
        """Ids of the processes that live."""
        self.dead_at: dict[str, int] = {}
        self._rules = Rules(self.dead_at, recovers=profile.kind == "sqlite")
        self.faults: set[str] = set()
        """Kinds of faults that struck."""
        self._skews = [self.rng.choice([0.0, 0.0, 1.0, -1.0, 5.0, -20.0]) for _ in range(2)]
        self._rates = [self.rng.choice([1.0, 1.0, 1.3, 0.7]) for _ in range(2)]
        self._is_calm = True
        self.workers: list[Worker] = []
        self.current: Worker | None = None
        self._main = threading.Lock()
        self._memory = MemoryStore() if profile.kind == "memory" else None
        if self._memory is not None:
            self._watch(self._memory)
        self.disk: Disk | None = None

    # -- time and turns --------------------------------------------------------------------------

    def take_step(self) -> int:
        """The number of the next moment."""
        self.steps += 1
        return self.steps

    def take_record(self) -> int:
        """A number that no other record has."""
        self.records += 1
        return self.records

    def count_operation(self) -> None:
        """Count an operation against the end of the history."""
        self.operations += 1

    def is_over(self) -> bool:
        """Whether nothing more is begun."""
        return self.operations >= self.profile.operations or self.has_no_power or self.failure is not None

    def tell(self, words: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.steps:5} {self.now_s:9.3f}  {words}")

    def read_clock(self) -> float:
        """The clock of the host whose worker runs."""
        worker = self.current
        if worker is None:
            return CLOCK_START + self.now_s
        now = CLOCK_START + self.now_s * self._rates[worker.host] + self._skews[worker.host]
        if worker.operation is not None:
            worker.operation.times.append(now)
        return now

    def draw_fault(self, kind: str) -> bool:
        """Whether a fault strikes now."""
        worker = self.current
        if self._is_calm or worker is None or (worker.is_dead and kind != "torn"):
            return False
        if kind != "torn" and worker.is_opening:
            return False
        chance = self.profile.chances.get(kind, 0.0)
        if chance and self.rng.random() < chance:
            self.faults.add(kind)
            self.tell(f"{worker.name}: fault: {kind}")
            return True
        return False

    def pass_moment(self, what: str) -> None:
        """A moment at which anything may happen: others go on, and faults strike.

        Raises:
            Dead: the worker that calls has died.
        """
        worker = self.current
        if worker is None:
            return
        if worker.is_dead:
            raise Dead
        if self._is_calm or worker.is_opening:
            return
        self.steps += 1
        chances, rng = self.profile.chances, self.rng
        draw = rng.random()
        if draw < chances["kill"]:
            worker.is_dead = True
            self.faults.add("kill")
            raise Dead
        draw -= chances["kill"]
        if draw < chances["power"]:
            self._lose_power()
            raise Dead
        draw -= chances["power"]
        if draw < chances["pause"]:
            self.faults.add("pause")
            self.wait(rng.uniform(0.0, 4 * LEASE_S))
        elif draw < chances["pause"] + chances["switch"]:
            self.wait(0.0)
        if rng.random() < chances["jump"] / 4:
            self.faults.add("jump")
            self._skews[rng.randrange(2)] += rng.choice([-5.0, 5.0, 1.0, -1.0, 60.0])
        self.now_s += rng.choice([0.0, 0.0, 0.001, 0.01, 0.2])

    def wait(self, seconds: float) -> None:
        """Let the others work, at least for a while.

        Raises:
            Dead: the worker died meanwhile.
        """
        worker = self.current
        if worker is None:
            self.now_s += seconds
            return
        if worker.is_dead:
            raise Dead
        worker.wakes_at = self.now_s + seconds
        self.hand_on()
        if worker.is_dead:
            raise Dead

    def hand_on(self) -> None:
        """Let the next worker run; it returns when it is the turn of the caller again."""
        worker = self.current
        assert worker is not None
        others = [other for other in self.workers if not other.is_finished]
        if not others:
            self.current = None
            self._main.release()
            return
        ready = [other for other in others if other.wakes_at <= self.now_s]
        if not ready:
            self.now_s = min(other.wakes_at for other in others)
            ready = [other for other in others if other.wakes_at <= self.now_s]
        chosen = self.rng.choice(ready)
        if chosen is worker:
            return
        self.current = chosen
        chosen.baton.release()
        if not worker.is_finished:
            worker.baton.acquire()

    def _lose_power(self) -> None:
        self.faults.add("power")
        self.has_no_power = True
        self.tell("the power is lost")
        for worker in self.workers:
            worker.is_dead = True
            worker.wakes_at = 0.0
        assert self.disk is not None
        self.folder = self.disk.folder.with_name(f"{self.disk.folder.name}+")
        self.disk.write_survivors(self.folder)

    # -- stores ----------------------------------------------------------------------------------

    def open_store(self) -> StoreBase:
        """The store of one worker."""
        if self._memory is not None:
            return self._memory
        store = SqliteStore(self.folder / "log.db", durable=self.profile.is_durable)
        self._watch(store)
        return store

    def _watch(self, store: Any) -> None:
        """Let others be faster between any two steps of a store."""

        def watch(name: str) -> None:
            inner = getattr(store, name)

            def call(*arguments: Any, **options: Any) -> Any:
                self.pass_moment(name)
                return inner(*arguments, **options)

            setattr(store, name, call)

        for name in ("read_value", "list_values", "commit", "read_last_line"):
            watch(name)

    # -- the whole -------------------------------------------------------------------------------

    def run(self) -> None:
        """Let the workers work until the history is long enough, and check it."""
        starts = dict.fromkeys(FAMILIES, State())
        while True:
            self.disk = Disk(self.folder, self.rng, self.pass_moment, self.draw_fault)
            first_op = len(self.history)
            self._run_workers()
            if self.failure is not None:
                raise self.failure
            lost_power, self.has_no_power = self.has_no_power, False
            self.disk = Disk(self.folder, self.rng, self.pass_moment, self.draw_fault)
            ends = self._look_at_log()
            part = self.history[first_op:]
            for family in FAMILIES:
                self._check(family, part, starts[family], ends[family], lost_power=lost_power)
            starts = ends
            if not lost_power or self.operations >= self.profile.operations:
                return

    def _run_workers(self) -> None:
        self._is_calm = True
        self.workers = [Worker(self, number) for number in range(self.profile.workers)]
        threads = [threading.Thread(target=worker.live, daemon=True) for worker in self.workers]
        for thread in threads:
            thread.start()
        self._is_calm = False
        self._main.acquire()
        self.current = self.workers[0]
        self.current.baton.release()
        self._main.acquire()
        self._main.release()
        for thread in threads:
            thread.join()
        self._is_calm = True

    def _look_at_log(self) -> dict[str, State]:
        """What a new process finds."""
        store = self.open_store()
        try:
            damage = list(store.check_storage())
            if damage:
                raise BrokenHistory(f"the log is damaged: {damage[0]}")
            return {family: _read_state(store, family) for family in FAMILIES}
        except ToolchartError as error:
            raise BrokenHistory(f"the log cannot be read: {error}") from error
        finally:
            if self._memory is None:
                store.close()

    def _check(
        self, family: str, part: list[Operation], start: State, end: State, *, lost_power: bool
    ) -> None:
        """Look for an order of the operations on one conversation."""
        ops = [op for op in part if op.family == family]
        if not lost_power:
            last = self.take_step()
            ops += [
                Operation("reader", kind, family, arguments, last, last + 1, result)
                for kind, arguments, result in (
                    ("read", {"name": family}, end.get_lines(family)),
                    ("read", {"name": f"{family}.1"}, end.get_lines(f"{family}.1")),
                    ("read_inbox", {}, end.list_waiting()),
                    ("find_lease", {}, None if end.lease is None else (end.lease.token, end.lease.worker)),
                    ("read_checkpoint", {}, end.checkpoints[-1] if end.checkpoints else None),
                )
            ]
            self.take_step()
        order = find_order(ops, self._rules, start, end if lost_power else None)
        if not order.is_found:
            raise BrokenHistory(describe(ops, order, start, end))


def _read_state(store: StoreBase, family: str) -> State:
    """A conversation as a new process finds it."""
    names = (family, f"{family}.1")
    lines = tuple((name, _read_records(store, name)) for name in names)
    waiting = _read_inbox(store, family)
    entries = [key for key, data in store.read_values(family, INBOX)]
    lease = store.find_lease(family)
    checkpoints = [(seq, int(data.rstrip(b"\0"))) for seq, data in store.read_checkpoints(family)]
    return State(
        lines=tuple((name, records) for name, records in lines if records),
        lease=None if lease is None else LeaseState(lease.token, lease.worker, lease.expires),
        inbox=tuple((key, "waits") for key in waiting)
        + tuple((key, "taken") for key in entries if key not in waiting),
        checkpoints=tuple(sorted(checkpoints)),
    )


def describe(ops: list[Operation], order: Order, start: State, end: State) -> str:
    """Why a history is broken: how far an order comes, and what does not fit."""
    left = [op for op in sorted(ops, key=lambda op: op.began) if op not in order.done]
    return "\n".join(
        [
            "no order explains what was answered",
            f"  before: {start}",
            *(f"  {op}" for op in order.done),
            f"  then: {order.state}",
            *(f"  left: {op}" for op in left),
            f"  at the end: {end}",
        ]
    )


# -- a store behind a server -------------------------------------------------------------------------


class ServedWorld(World):
    """Workers on a store that a server keeps, at the same time: what fails is the network, and the server.

    Args:
        open_store: opens the store of one worker.
    """

    def __init__(self, seed: int, profile: Profile, open_store: Callable[[], StoreBase]) -> None:
        super().__init__(seed, profile, Path())
        self._open_store = open_store
        self._count_lock = threading.Lock()

    def open_store(self) -> StoreBase:
        """The store of one worker."""
        return self._open_store()

    def take_step(self) -> int:
        """The number of the next moment, of all workers together."""
        with self._count_lock:
            return super().take_step()

    def take_record(self) -> int:
        """A number that no other record has."""
        with self._count_lock:
            return super().take_record()

    def pass_moment(self, what: str) -> None:
        """Nothing: the workers really work at the same time."""

    def wait(self, seconds: float) -> None:
        """Nothing."""

    def hand_on(self) -> None:
        """Nothing."""

    def run_served(self, become_calm: Callable[[], None]) -> None:
        """Let the workers work at the same time, and check what they did.

        Args:
            become_calm: called before the log is looked at.
        """
        _current.append(self)
        try:
            self.workers = [Worker(self, number) for number in range(self.profile.workers)]
            threads = [threading.Thread(target=worker.live, daemon=True) for worker in self.workers]
            for worker, thread in zip(self.workers, threads, strict=True):
                worker.baton.release()
                thread.start()
            for thread in threads:
                thread.join()
            if self.failure is not None:
                raise self.failure
            become_calm()
            self._rules = Rules(may_repeat=True, knows_clocks=False)
            ends = self._look_at_log()
            for family in FAMILIES:
                self._check(family, self.history, State(), ends[family], lost_power=False)
        finally:
            _current.pop()


def run_served_history(seed: int, kind: str, server: int | str, open_at: Callable[[int], StoreBase]) -> World:
    """The history of a seed on a store behind a proxy that delays and cuts its connections.

    Args:
        server: where its server listens: a port of the loopback or the path of a socket.
        open_at: opens the store of one worker by way of a port.
    """
    profile = Profile(kind, True, MAX_WORKERS, 40, NO_CHANCES)
    with Proxy(server, random.Random(f"network {seed}"), cut=0.02) as proxy:

        def open_store() -> StoreBase:
            for _ in range(20):
                with contextlib.suppress(LogUnavailable):
                    return open_at(proxy.port)
            raise BrokenHistory("no connection in 20 times")

        world = ServedWorld(seed, profile, open_store)

        def become_calm() -> None:
            proxy.is_calm = True

        try:
            world.run_served(become_calm)
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}", *world.story]))
            raise
        if proxy.cuts:
            world.faults.add("cut")
    return world


# -- one seed ----------------------------------------------------------------------------------------

KINDS = ("memory", "sqlite") if find_sqlite() is not None else ("memory",)
"""Kinds of stores that can be simulated here: SQLite can where its functions can be reached."""

TEMPORARY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where the files stand: in memory where that is possible."""

_current: list[World] = []
"""The world that is simulated now."""


def _get_disk() -> Disk:
    disk = _current[-1].disk
    assert disk is not None
    return disk


def _read_machine() -> str:
    worker = _current[-1].current
    return f"host{worker.host}" if worker is not None else ""


def _read_start_time(pid: int) -> str | None:
    return str(pid) if pid in _current[-1].alive else None


@contextlib.contextmanager
def _simulate(world: World, sqlite_disk: SqliteDisk | None) -> Iterator[None]:
    """Put the world in the place of the clock, the disk and the processes."""
    clock = SimulatedTime(world)
    files = SimulatedOs(_get_disk, lambda: int((CLOCK_START + world.now_s) * 250) * 4_000_000)
    with contextlib.ExitStack() as stack:
        for module in (base, sqlite, replaced_files):
            stack.enter_context(patch.object(module, "time", clock))
        stack.enter_context(patch.object(sqlite, "os", files))
        stack.enter_context(patch.object(leases, "_read_machine", _read_machine))
        stack.enter_context(patch.object(leases, "_read_start_time", _read_start_time))
        if sqlite_disk is not None:
            stack.enter_context(sqlite_disk.in_use())
        _current.append(world)
        stack.callback(_current.pop)
        yield


class Simulator:
    """Simulates seeds, one after the other, in a folder of its own; a context manager."""

    def __init__(self, kinds: tuple[str, ...] = KINDS) -> None:
        self._kinds = kinds
        self._folder = Path(tempfile.mkdtemp(prefix="toolchart-histories-", dir=TEMPORARY))
        self._sqlite_disk = SqliteDisk(_get_disk) if "sqlite" in kinds else None
        self._template = self._folder / "empty.db"
        if self._sqlite_disk is not None:
            SqliteStore(self._template).close()

    def __enter__(self) -> Simulator:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)

    def run(self, seed: int) -> World:
        """The history of a seed; the same each time.

        Raises:
            BrokenHistory: no sequential store explains it; `story` of the note says what happened.
        """
        profile = choose_profile(seed, self._kinds)
        folder = self._folder / f"log{seed}"
        folder.mkdir(mode=0o700)
        if profile.kind == "sqlite":
            shutil.copyfile(self._template, folder / "log.db")
        world = World(seed, profile, folder)
        try:
            with _simulate(world, self._sqlite_disk if profile.kind == "sqlite" else None):
                world.run()
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}: {profile}", *world.story]))
            raise
        finally:
            for path in self._folder.glob(f"log{seed}*"):
                shutil.rmtree(path)
        return world
