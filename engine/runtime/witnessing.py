"""The witness of an engine: conversations are compared with their seals before they go on, then sealed.

Only whoever holds a conversation does so, after it got the lease and before it gives it back. So nobody
appends between the comparison and the turn. What cannot be sealed is remembered and sealed with the next one;
what a process that died did not seal, the next turn of the conversation does.

One thread does all of it, so that a slow witness holds up no other work. Conversations that wait at the same
time share a reading and a seal, as appends share a commit.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from toolchart.engine.log.sealing.log_seals import LostRecords, find_lost_records, read_leaf
from toolchart.engine.log.sealing.witness import Witness, open_spec_witness, read_seal_interval
from toolchart.engine.runtime.clock import Clock
from toolchart.specs.models import AgentSpec
from toolchart.states.errors import LogDamaged, LogUnavailable, MissingKey, SpecError, ToolchartError
from toolchart.states.ports import Store

log = logging.getLogger("toolchart.engine")


class TurnWitness:
    """Asks the witness of one engine, and gives it seals.

    Args:
        interval_s: seconds between two seals; 0 for one at the end of each turn.
        is_required: whether nothing goes on while the witness cannot be reached.
    """

    def __init__(
        self, witness: Witness, store: Store, clock: Clock, *, interval_s: float, is_required: bool
    ) -> None:
        self._witness, self._store, self._clock = witness, store, clock
        self._interval_s, self._is_required = interval_s, is_required
        self._unsealed: set[str] = set()
        """Conversations with records that the witness has not."""
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        """Conversations of which somebody waits for the seal."""
        self._reading_count = 0
        self._failure: ToolchartError | None = None
        """Why the newest reading failed."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toolchart-witness")
        self._sealed_at = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def open(cls, spec: AgentSpec, store: Store, clock: Clock) -> TurnWitness:
        """The witness that an agent spec names.

        Raises:
            SpecError: the section `witness` cannot be used.
        """
        witness, section = open_spec_witness(spec), spec.witness
        assert witness is not None, "whoever calls this has looked"
        assert section is not None
        interval_s = read_seal_interval(section)
        return cls(witness, store, clock, interval_s=interval_s, is_required=section.required)

    def note_records(self, conversation: str) -> None:
        """Note that a conversation has new records, which are durable."""
        with self._lock:
            self._unsealed.add(conversation)

    async def check(self, conversation: str) -> None:
        """Compare a conversation and its children with the witness.

        Raises:
            LogDamaged: records are missing, or the witness itself was changed.
            MissingKey: its newest seal is signed with a key that is not given.
            LogUnavailable: the witness is required, and it cannot be reached.
        """
        # A reading that begins later than this has all that was sealed before.
        await self._do_in_thread(partial(self._check, conversation, self._reading_count))

    async def seal(self, conversation: str) -> None:
        """Seal a conversation and its children, now or when it is time; never raises."""
        if not self._interval_s:
            prefix = f"{conversation}."
            with self._lock:
                self._waiting |= {name for name in self._unsealed if f"{name}.".startswith(prefix)}
            await self._do_in_thread(self._seal_waiting)
            return
        wait_s = self._sealed_at + self._interval_s - time.monotonic()
        if wait_s <= 0:
            await self._do_in_thread(self._seal_all)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._seal_later)

    async def close(self) -> None:
        """Seal what is left, and close connections."""
        if self._timer is not None:
            self._timer.cancel()
        await self._do_in_thread(self._seal_all)
        self._witness.close()

    def _seal_later(self) -> None:
        self._timer = None
        task = asyncio.ensure_future(self._do_in_thread(self._seal_all))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do_in_thread(self, work: Callable[[], None]) -> None:
        """Do something in the thread of the witness."""
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- in the thread of the witness --------------------------------------------------------------

    def _check(self, conversation: str, reading_count: int) -> None:
        """Compare a conversation, by a reading that began after so many others."""
        try:
            if self._is_required and self._unsealed:
                self._seal(self._list_unsealed())
            if self._reading_count <= reading_count:
                self._reading_count += 1
                self._read()
            if self._failure is not None:
                raise self._failure
        except MissingKey:  # it can be reached, and nobody knows whether what it says is true
            raise
        except LogUnavailable as error:
            if self._is_required:
                raise
            log.warning("conversation %s goes on without a comparison: %s", conversation, error)
            return
        journal = self._witness.journal
        for name in journal.list_family(conversation):
            if find_lost_records(self._store, journal, name) is not None:
                # The newest leaf says that records are missing; which ones, only the whole history says.
                lost = find_lost_records(self._store, self._witness.read_history(), name)
                if lost is not None:
                    raise build_rollback_error(lost, self._witness.address)

    def _read(self) -> None:
        try:
            self._witness.read_newest()
            self._failure = None
        except ToolchartError as error:  # also damage: whoever shares this reading must hear of it
            self._failure = error

    def _seal_waiting(self) -> None:
        """Seal all for which somebody waits; nothing where an earlier call has done so."""
        with self._lock:
            names, self._waiting = self._waiting, set()
        self._try_to_seal(names)

    def _seal_all(self) -> None:
        self._try_to_seal(self._list_unsealed())

    def _try_to_seal(self, names: Iterable[str]) -> None:
        try:
            self._seal(names)
        except ToolchartError as error:
            log.warning("the log was not sealed, which is tried again: %s", error)

    def _seal(self, names: Iterable[str]) -> None:
        """Seal conversations; what could not be sealed stays noted."""
        names = set(names)
        if not names:
            return
        with self._lock:
            self._unsealed -= names  # before the reading: a record that comes meanwhile is noted again
        try:
            leaves = []
            for name in names:
                try:
                    leaves.append(read_leaf(self._store, name))
                except SpecError:  # it was deleted meanwhile
                    continue
            self._witness.add_seal(leaves, self._clock.now())
        except BaseException:
            with self._lock:
                self._unsealed |= names
            raise
        self._sealed_at = time.monotonic()

    def _list_unsealed(self) -> list[str]:
        with self._lock:
            return list(self._unsealed)


def build_rollback_error(lost: LostRecords, address: str) -> LogDamaged:
    """The error for a conversation of which the log lacks records that the witness has seen."""
    name = lost.leaf.conversation
    return LogDamaged(
        f"{lost.describe()} (witness {address})\n"
        "  bring back the newest copy of the log; if this is the newest, declare it and go on:\n"
        f"  toolchart restore {name} --spec SPEC --reason WHY",
        conversation=name,
        seq=lost.first if lost.count else None,
    )
