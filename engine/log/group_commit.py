"""Group commit: conversations that want to be durable at the same moment share one commit.

A commit costs the disk's sync, whatever it carries. With one turn open there is nothing to share, and it
goes straight to the store. With several, what is asked for in one round of the event loop is written in
one transaction; each conversation still wins or loses by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from toolchart.states.errors import ToolchartError
from toolchart.states.ports import Batch, Groups, Store


@dataclass(frozen=True, slots=True)
class _Asked:
    batch: Batch
    done: asyncio.Future[None]


class GroupCommit:
    """Appends for every conversation of an engine."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open = 0
        self._asked: list[_Asked] = []

    def __enter__(self) -> None:
        """One more turn is open, until it leaves."""
        self._open += 1

    def __exit__(self, *_: object) -> None:
        self._open -= 1

    async def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """`Store.append`, shared with whoever asks in the same round of the event loop.

        Raises:
            LogConflict, LogUnavailable: nothing of this conversation was appended.
        """
        if self._open < 2 or not isinstance(self._store, Groups):
            self._store.append(conversation, first_seq, lines)
            return
        loop = asyncio.get_running_loop()
        asked = _Asked((conversation, first_seq, lines), loop.create_future())
        if not self._asked:
            loop.call_soon(self._flush)
        self._asked.append(asked)
        # A caller that is cancelled meanwhile does not take its records back: they are being written.
        await asyncio.shield(asked.done)

    def _flush(self) -> None:
        asked, self._asked = self._asked, []
        assert isinstance(self._store, Groups)
        refused: Sequence[ToolchartError | None]
        try:
            refused = self._store.append_many([one.batch for one in asked])
        except ToolchartError as error:
            refused = [error] * len(asked)
        for one, loss in zip(asked, refused, strict=True):
            if loss is None:
                one.done.set_result(None)
            else:
                one.done.set_exception(loss)
                one.done.exception()  # whoever was cancelled does not come to hear it
