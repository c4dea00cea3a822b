"""Follows the log of a conversation that workers write: each new record as its event and its step."""

from __future__ import annotations

from toolchart.engine.log.record import GENESIS, read_record
from toolchart.engine.log.replay import ReplayState, derive_step, load_conversation
from toolchart.engine.runtime.streaming import StepTaken
from toolchart.states.ports import Store


class LogFollower:
    """Reads what is new in one conversation.

    Args:
        first_seq: number of the first record to read.
    """

    def __init__(self, store: Store, conversation: str, first_seq: int) -> None:
        self._store = store
        self._conversation = conversation
        self._next_seq = first_seq
        self._head = GENESIS
        self._state: ReplayState | None = None

    def read_new_steps(self) -> list[StepTaken]:
        """The steps of the records that are new; blocking.

        Raises:
            LogDamaged, ReplayMismatch, UnknownSemantics: the log is not the one that was written.
            LogUnavailable: it cannot be read.
        """
        if self._state is None and self._next_seq:
            self._load_state()
        steps = []
        for line in self._store.read_lines(self._conversation, self._next_seq):
            record = read_record(line, self._next_seq, self._head, self._conversation)
            event = record.decode_event()
            derived = derive_step(record, event, self._state, self._conversation)
            self._state, self._next_seq, self._head = derived.state, record.seq + 1, record.hash
            steps.append(StepTaken(event=event, step=derived.step))
        return steps

    def _load_state(self) -> None:
        """The state before the first record to read."""
        loaded = load_conversation(self._store, self._conversation, self._next_seq - 1)
        assert loaded is not None, "it has records"
        self._head = loaded.head
        self._state = ReplayState(
            snapshot=loaded.snapshot,
            configured=loaded.configured,
            versions=loaded.versions,
            machine=loaded.machine,
            basis=loaded.basis,
        )
