"""Histories of what workers did with a log, and the search for an order that explains one.

A history is linearizable where its operations can be put into one order that a sequential store could have
carried out: each operation takes effect at one moment between its call and its answer, and answers what the
store says at that moment. `find_order` looks for such an order as Wing and Gong do: it tries what may come
next, notes each place that it has been at (what is done, and the state), and goes back where nothing fits. It
tries every order that the times allow, so where it finds none, there is none. Conversations are looked at one
by one, each with its children: a history is linearizable where that of each object is (Herlihy and Wing).

Three things are not as in a textbook:

- An operation of unknown outcome (its worker died, or it was told that the log cannot be written) took effect
  at some moment or never. A dead worker's took effect before its death, if it did.
- To give a lease back takes two steps, in which the lease and the inbox are looked at: what each promises
  stands in `release_lease`. Between them another worker may take the lease.
- After a loss of power the log is as it was after some beginning of the order, in which everything is that
  was acknowledged as durable. Leases and checkpoints are not synced: any earlier one may be back.

A fourth is of SQLite (`Rules.recovers`): what a worker wrote whole before it died counts from the next
opening of the log on, where no later commit has been written over it.

Every answer of a lease carries its token, and its times say which clock was read, so the order is found fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

NEVER = 1 << 62
"""The end of an operation that may still take effect whenever it likes."""


class Unknown(msgspec.Struct, frozen=True):
    """The outcome of an operation that was not told it."""

    reason: str


class Operation(msgspec.Struct):
    """One call of a store, as its worker saw it."""

    worker: str
    kind: str
    family: str
    """The conversation; a child counts as its root."""
    arguments: dict[str, Any]
    began: int
    ended: int = NEVER
    """When it answered, or its worker died; in steps of the simulation."""
    result: Any = None
    times: list[float] = []
    """What its worker read from its clock meanwhile."""
    is_durable: bool = False
    """Whether an answer says that its effect survives a loss of power."""
    told: int = NEVER
    """When it was told that it has failed, where it was."""

    @property
    def is_unknown(self) -> bool:
        """Whether nobody was told what became of it."""
        return isinstance(self.result, Unknown)

    def __str__(self) -> str:
        ended = "..." if self.ended == NEVER else self.ended
        words = " ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"[{self.began}-{ended}] {self.worker}: {self.kind} {self.family} {words} -> {self.result!r}"


class LeaseState(msgspec.Struct, frozen=True):
    """The newest lease of a conversation."""

    token: int
    worker: str
    """Empty after it was given back."""
    expires: float
    kept: float = 0.0
    """When one that was given back would have ended: who keeps it after all has it until then."""


class State(msgspec.Struct, frozen=True):
    """A conversation with its children, as the sequential store has it."""

    lines: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Numbers of the appended records, by conversation."""
    lease: LeaseState | None = None
    inbox: tuple[tuple[str, str], ...] = ()
    """Key and fate of each entry, in order: `waits`, `taken` by a record, or `dropped`."""
    checkpoints: tuple[tuple[int, int], ...] = ()
    """Record and mark of each checkpoint of the root, the earliest first."""
    changed: int = 0
    """When the latest operation began that has changed something."""

    def get_lines(self, name: str) -> tuple[int, ...]:
        """The records of a conversation."""
        return dict(self.lines).get(name, ())

    def list_waiting(self) -> tuple[str, ...]:
        """Keys of the entries that wait."""
        return tuple(key for key, fate in self.inbox if fate == "waits")


START = State()

DONE = -1
"""The phase of an operation after its last step."""


class Rules(msgspec.Struct, frozen=True):
    """What a sequential store answers.

    Args:
        dead_at: when workers died, which a worker of the same machine sees.
        may_repeat: whether a store asks its server again where a connection broke. What it asked the first
            time may have been done: then a lease has skipped a token, and an entry or a record that it is
            refused may be its own.
        knows_clocks: whether the operations have the times that were read.
        recovers: whether what a dead worker has written takes effect when the log is opened next, as in
            SQLite: unless a later commit has taken its place.
    """

    dead_at: dict[str, int] = {}
    may_repeat: bool = False
    knows_clocks: bool = True
    recovers: bool = False

    def list_steps(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        """What an operation may do next in a state: the state after that, and the phase."""
        step = getattr(self, f"_{op.kind}")
        if self.recovers:
            for after, new in step(state, op, phase):
                changed = max(state.changed, op.began) if after != state else state.changed
                yield replace(after, changed=changed), new
        else:
            yield from step(state, op, phase)

    def may_come(self, state: State, op: Operation, latest: int) -> bool:
        """Whether an operation may take effect after a moment."""
        has_died = op.is_unknown and op.told == NEVER
        return op.ended >= latest or (self.recovers and has_died and state.changed <= op.ended)

    def _is_free(self, lease: LeaseState | None, worker: str, now: float, op: Operation) -> bool:
        if lease is None or lease.worker in ("", worker) or lease.expires <= now or not self.knows_clocks:
            return True
        is_near = lease.worker.partition(":")[0] == op.worker.partition(":")[0]
        return is_near and self.dead_at.get(lease.worker, NEVER) <= op.ended

    def _list_times(self, op: Operation) -> list[float]:
        return list(dict.fromkeys(op.times)) if self.knows_clocks else [0.0]

    # -- leases ------------------------------------------------------------------------------------

    def _acquire(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        lease, worker = state.lease, op.worker
        if op.result == "LeaseHeld":
            is_taken = lease is not None and lease.worker not in ("", worker)
            if is_taken and (not self.knows_clocks or any(lease.expires > now for now in op.times)):
                yield state, DONE
            return
        token = 1 if lease is None else lease.token + 1
        if op.is_unknown:
            for now in self._list_times(op):
                if self._is_free(lease, worker, now, op):
                    yield _with_lease(state, token, worker, now + op.arguments["seconds"]), DONE
            return
        given_token, since, expires = op.result
        is_next = given_token >= token if self.may_repeat else given_token == token
        if is_next and self._is_free(lease, worker, since, op):
            yield _with_lease(state, given_token, worker, expires), DONE

    def _renew(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        is_own = _is_own(state.lease, op)
        if op.result is False:
            if not is_own:
                yield state, DONE
            return
        if is_own:
            for now in self._list_times(op):
                yield _with_lease(state, *op.arguments["lease"], now + op.arguments["seconds"]), DONE

    def _release(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        token, worker = op.arguments["lease"]
        lease, is_own = state.lease, _is_own(state.lease, op)
        if phase == 0:
            if op.result is True and not is_own:
                yield state, DONE
            if op.result is False and state.list_waiting():
                yield state, 2  # it saw an entry
            if is_own:
                assert lease is not None
                yield replace(state, lease=LeaseState(token, "", 0.0, lease.expires)), 1
            return
        if phase == 2:
            if is_own:
                yield state, DONE  # and then that it has the lease
            return
        is_left = lease is not None and (lease.token, lease.worker) == (token, "")
        is_told = op.result is not False
        if is_told and (not is_left or not state.list_waiting() or op.is_unknown or self.may_repeat):
            yield state, DONE
        if op.result is not True and is_left and state.list_waiting():
            assert lease is not None
            yield _with_lease(state, token, worker, lease.kept), DONE

    def _find_lease(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        lease = state.lease
        if op.result == (None if lease is None else (lease.token, lease.worker)):
            yield state, DONE

    # -- records -----------------------------------------------------------------------------------

    def _append(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        name, first_seq, records = (op.arguments[field] for field in ("name", "seq", "records"))
        lease, own = state.lease, op.arguments["lease"]
        if own is None:
            times = op.times or (0.0,)  # nobody looks at the clock where nobody holds it
            is_allowed = not self.knows_clocks or any(self._is_free(lease, "", now, op) for now in times)
        else:
            is_allowed = _is_own(lease, op)
        fits = len(state.get_lines(name)) == first_seq
        match op.result:
            case "LeaseHeld":
                if own is None and lease is not None and lease.worker:
                    yield state, DONE
            case "LeaseLost":
                if own is not None and not is_allowed:
                    yield state, DONE
            case "ValueConflict":  # a lease that changed between the look at it and the append
                if own is None:
                    yield state, DONE
            case "LogConflict":
                if is_allowed and not fits:
                    yield state, DONE
                if self.may_repeat and is_allowed and fits:
                    yield from self._append_records(state, op, name, records)
            case _:
                if is_allowed and fits:
                    yield from self._append_records(state, op, name, records)

    def _append_records(
        self, state: State, op: Operation, name: str, records: Sequence[int]
    ) -> Iterator[tuple[State, int]]:
        fates = dict(state.inbox)
        for key in op.arguments["taken"]:
            if fates.get(key) == "taken":
                return  # it would become two records
            fates[key] = "taken"
        lines = dict(state.lines)
        lines[name] = (*lines.get(name, ()), *records)
        checkpoints = set(state.checkpoints)
        if op.arguments["checkpoint"] is not None:
            checkpoints.add(op.arguments["checkpoint"])
        lease = state.lease
        if lease is None and op.arguments["lease"] is None:
            lease = LeaseState(0, "", 0.0)  # nobody held it: whether it has work is not known
        appended = replace(
            state,
            lines=tuple(sorted(lines.items())),
            lease=lease,
            inbox=tuple(fates.items()),
            checkpoints=tuple(sorted(checkpoints)),
        )
        yield appended, DONE

    def _read(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        if op.result == state.get_lines(op.arguments["name"]):
            yield state, DONE

    # -- inbox and checkpoints ---------------------------------------------------------------------

    def _post(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        key = op.arguments["key"]
        is_known = key in dict(state.inbox)
        if op.result is False and is_known:
            yield state, DONE
        elif not is_known and (op.result is not False or self.may_repeat):
            yield replace(state, inbox=(*state.inbox, (key, "waits"))), DONE

    def _read_inbox(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        if op.result == state.list_waiting():
            yield state, DONE

    def _drop(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        fates = dict(state.inbox)
        for key in op.arguments["keys"]:
            if fates.get(key) == "waits":
                fates[key] = "dropped"
        yield replace(state, inbox=tuple(fates.items())), DONE

    def _write_checkpoint(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        checkpoints = dict(state.checkpoints) | dict([op.arguments["checkpoint"]])
        if state.get_lines(op.family):
            yield replace(state, checkpoints=tuple(sorted(checkpoints.items()))), DONE
        elif op.result is None or op.is_unknown:
            yield state, DONE

    def _read_checkpoint(self, state: State, op: Operation, phase: int) -> Iterator[tuple[State, int]]:
        if op.result == (state.checkpoints[-1] if state.checkpoints else None):
            yield state, DONE


def _with_lease(state: State, token: int, worker: str, expires: float) -> State:
    return replace(state, lease=LeaseState(token, worker, expires))


def _is_own(lease: LeaseState | None, op: Operation) -> bool:
    return lease is not None and (lease.token, lease.worker) == op.arguments["lease"]


class Order(msgspec.Struct):
    """What a search has found."""

    is_found: bool
    done: list[Operation]
    """The operations in the order; where none was found, the longest beginning of one."""
    state: State
    """After them."""


def find_order(
    history: Sequence[Operation], rules: Rules, start: State = START, end: State | None = None
) -> Order:
    """The order in which a sequential store could have carried out a history.

    Args:
        history: of one family.
        start: the state before it.
        end: what a loss of power has left: records and inbox are compared, after any beginning of the order
            that has all that was acknowledged as durable. None where nothing was lost.
    """
    ops = sorted(history, key=lambda op: op.began)
    return _Search(ops, rules, start, end).run()


class _Place(msgspec.Struct, frozen=True):
    """Where a search is: what comes next depends on nothing else."""

    phases: tuple[int, ...]
    """Of each operation, `DONE` after its last step."""
    latest: int
    """No operation that ended before this moment can come any more."""
    state: State
    is_cut: bool
    """Whether what follows was lost with the power."""


class _Search:
    def __init__(self, ops: Sequence[Operation], rules: Rules, start: State, end: State | None) -> None:
        self._ops = ops
        self._rules = rules
        self._end = end
        self._seen: set[_Place] = set()
        self._place = _Place((0,) * len(ops), -1, start, is_cut=False)
        self._longest: tuple[list[Operation], State] = ([], start)

    def run(self) -> Order:
        path: list[Operation] = []
        stack: list[tuple[Operation | None, Iterator[tuple[Operation | None, _Place]]]] = [
            (None, self._list_next(self._place))
        ]
        if self._is_end(self._place):
            return Order(True, path, self._place.state)
        while stack:
            for op, place in stack[-1][1]:
                if place in self._seen:
                    continue
                self._seen.add(place)
                path = [entry[0] for entry in stack if entry[0] is not None] + ([op] if op else [])
                if len(path) > len(self._longest[0]):
                    self._longest = path, place.state
                if self._is_end(place):
                    return Order(True, path, place.state)
                stack.append((op, self._list_next(place)))
                break
            else:
                stack.pop()
        return Order(False, *self._longest)

    def _is_end(self, place: _Place) -> bool:
        for op, phase in zip(self._ops, place.phases, strict=True):
            if phase != DONE and not op.is_unknown:
                return False
        return place.is_cut or self._fits_end(place.state)

    def _fits_end(self, state: State) -> bool:
        if self._end is None:
            return True
        keys, end_keys = ({key for key, _ in one.inbox} for one in (state, self._end))
        return (state.lines, state.list_waiting(), keys) == (
            self._end.lines,
            self._end.list_waiting(),
            end_keys,
        )

    def _list_next(self, place: _Place) -> Iterator[tuple[Operation | None, _Place]]:
        open_ops = [(index, op) for index, op in enumerate(self._ops) if place.phases[index] != DONE]
        earliest_end = min((op.ended for _, op in open_ops if not op.is_unknown), default=NEVER)
        candidates = []
        for index, op in open_ops:
            if op.began > earliest_end:
                break
            if self._rules.may_come(place.state, op, place.latest):
                candidates.append((op.is_unknown, op.ended, index, op))
        for _, _, index, op in sorted(candidates, key=lambda entry: entry[:3]):
            if place.is_cut and op.is_durable and not op.is_unknown:
                continue
            for state, phase in self._rules.list_steps(place.state, op, place.phases[index]):
                phases = (*place.phases[:index], phase, *place.phases[index + 1 :])
                yield op, _Place(phases, max(place.latest, op.began), state, place.is_cut)
        if self._end is None or any(op.is_durable and not op.is_unknown for _, op in open_ops):
            return
        if place.is_cut:
            return
        if self._fits_end(place.state):
            yield None, _Place(place.phases, place.latest, place.state, is_cut=True)
