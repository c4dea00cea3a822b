"""Runs the inputs of a batch, each in a conversation of its own, and goes on where a kill stopped it.

The log decides what was done. The conversation of an input has an id made of the batch's name and the
input's key. Where its turn has ended, its result is read; where a turn is open, it goes on; only where there
is none does a turn begin. So an input is answered once, whenever the process was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from toolchart.engine.batch.inputs import BatchInput
from toolchart.engine.batch.results import ResultsFile
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.result import TurnResult
from toolchart.states.errors import SpecError, ToolchartError
from toolchart.states.messages import Usage


class BatchReport(msgspec.Struct, kw_only=True):
    """The sums of a batch; it grows while the batch runs."""

    inputs: int = 0
    answered: int = 0
    """Inputs whose turn ended with an answer."""
    failed: int = 0
    """Inputs whose turn ended in error or at a limit, or could not begin."""
    waiting: int = 0
    """Inputs whose turn waits for a person or a timer."""
    earlier: int = 0
    """Inputs that an earlier run had finished."""
    usage: Usage = msgspec.field(default_factory=Usage)
    """Of all inputs, those of earlier runs included."""

    @property
    def result_count(self) -> int:
        """Inputs that have a result."""
        return self.answered + self.failed + self.waiting

    def add_result(self, result: dict[str, Any]) -> None:
        """Count a result."""
        if result.get("ok"):
            self.answered += 1
        elif result.get("is_waiting"):
            self.waiting += 1
        else:
            self.failed += 1
        self.usage = self.usage.plus(msgspec.convert(result.get("usage") or {}, Usage))


class Batch:
    """The run of a batch.

    Args:
        name: the beginning of the ids of its conversations.
        concurrency: inputs that run at the same time.
        per_minute: most inputs that begin in a minute; None for no such limit.
        on_progress: called after each input.
    """

    def __init__(
        self,
        engine: Engine,
        results: ResultsFile,
        name: str,
        *,
        concurrency: int = 8,
        per_minute: float | None = None,
        llm: str | None = None,
        model: str | None = None,
        on_progress: Callable[[BatchReport], None] | None = None,
    ) -> None:
        self._engine = engine
        self._results = results
        self._name = name
        self._concurrency = concurrency
        self._pause_s = 60.0 / per_minute if per_minute else 0.0
        self._llm, self._model = llm, model
        self._on_progress = on_progress
        self._next_start = 0.0
        self._is_stopped = False
        self.report = BatchReport()

    def stop(self) -> None:
        """Begin no further input; those that run end."""
        self._is_stopped = True

    async def run(self, inputs: Sequence[BatchInput]) -> BatchReport:
        """Run every input that has no result yet."""
        self.report.inputs = len(inputs)
        missing = []
        for entry in inputs:
            earlier_result = self._results.results.get(entry.key)
            if earlier_result is None or earlier_result.get("is_waiting"):
                missing.append(entry)
            else:
                self.report.earlier += 1
                self.report.add_result(earlier_result)
        queue = iter(missing)
        workers = min(self._concurrency, len(missing))
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(queue))
        return self.report

    async def _work(self, queue: Iterator[BatchInput]) -> None:
        for entry in queue:
            await self._wait_for_start()
            if self._is_stopped:
                return
            result = await self._answer(entry)
            self._results.append(result)
            self.report.add_result(result)
            if self._on_progress is not None:
                self._on_progress(self.report)

    async def _wait_for_start(self) -> None:
        """Wait until the rate allows a further input."""
        now = asyncio.get_running_loop().time()
        start = max(now, self._next_start)
        self._next_start = start + self._pause_s
        if start > now:
            await asyncio.sleep(start - now)

    async def _answer(self, entry: BatchInput) -> dict[str, Any]:
        """The result of an input, as a line of the results file."""
        conversation = f"{self._name}:{entry.key}"
        if entry.problem:
            data = {"kind": SpecError.__name__, "message": entry.problem}
            return {"key": entry.key, "ok": False, "conversation": conversation, "error": data}
        try:
            result = await self._run_turn(entry, conversation)
        except ToolchartError as error:
            data = {"kind": type(error).__name__, "message": str(error)}
            return {"key": entry.key, "ok": False, "conversation": conversation, "error": data}
        waiting = {} if result.is_over else {"is_waiting": True}
        return {"key": entry.key, **waiting, **result.to_dict()}

    async def _run_turn(self, entry: BatchInput, conversation: str) -> TurnResult:
        """The result of the input's turn: read, gone on with, or run now."""
        loaded = load_conversation(self._engine.store, conversation)
        if loaded is not None and loaded.snapshot.turn and not _was_cancelled(loaded.snapshot.error):
            return await self._engine.aresume(conversation)
        return await self._engine.arun(
            entry.message,
            conversation=conversation,
            handler=entry.handler,
            variables=entry.variables,
            llm=self._llm,
            model=self._model,
        )


def _was_cancelled(error: Any) -> bool:
    return error is not None and error.kind == "cancelled"
