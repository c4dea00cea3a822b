"""Runs the inputs of a batch, each in a conversation of its own, and goes on where a kill stopped it.

The log decides what was done. The conversation of an input has an id made of the batch's name and the
input's key. Where its turn has ended, its result is read; where a turn is open, it goes on; only where there
is none does a turn begin. So an input is answered once, whenever the process was killed.
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.result import TurnResult
from toolchart.specs.secrets import strike_secrets
from toolchart.states.canonical_json import encode_canonical, encode_escaped_json
from toolchart.states.core.encoding import read_json
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
        loaded_conversation = load_conversation(self._engine.store, conversation)
        if (
            loaded_conversation is not None
            and loaded_conversation.snapshot.turn
            and not _was_cancelled(loaded_conversation.snapshot.error)
        ):
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


# -- the file of results -------------------------------------------------------------------------


class ResultsFile:
    """The results of a batch. A line that a kill cut off is removed when the file is opened again.

    Raises:
        SpecError: the file cannot be written, is no results file, or another batch writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise SpecError(f"cannot be written: {error.strerror}", file=str(path)) from None
        _lock(self._handle, path)
        self.results = self._read_results()
        """The results so far, by key."""

    def _read_results(self) -> dict[str, dict[str, Any]]:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        os.ftruncate(self._handle, len(whole))
        os.lseek(self._handle, 0, os.SEEK_END)
        results = {}
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                result = read_json(line)
                results[str(result["key"])] = result
            except (ValueError, KeyError, TypeError):
                hint = "name another file: --output FILE"
                raise SpecError(
                    "this is no results file of a batch", file=str(self.path), line=number, hint=hint
                ) from None
        return results

    def append(self, result: dict[str, Any]) -> None:
        """Append a result; it survives the death of the process on return."""
        line = strike_secrets(encode_escaped_json(result).decode()).encode() + b"\n"
        while line:
            line = line[os.write(self._handle, line) :]
        self.results[str(result["key"])] = result

    def close(self) -> None:
        """Write everything to the disk, and close the file."""
        os.fsync(self._handle)
        os.close(self._handle)


def _lock(handle: int, path: Path) -> None:
    """Keep other batches from this file; the lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise SpecError("another batch writes this file now", file=str(path)) from None


# -- reading inputs ------------------------------------------------------------------------------


MESSAGE_FIELDS = ("message", "prompt", "input", "question")
"""Fields that may hold the message of an input, the first that is there."""

KEY_FIELDS = ("key", "id", "custom_id")
"""Fields that may hold the key of an input, the first that is there."""


class BatchInput(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a batch."""

    key: str
    """Its key, unique in the batch: its own, or one made of its content."""
    message: str
    variables: Mapping[str, Any] = {}
    """Values for the prompt and for `match`."""
    handler: str | None = None
    problem: str = ""
    """Why it cannot be run; empty where it can."""


def read_inputs(text: str, *, source: str = "stdin", is_csv: bool = False) -> list[BatchInput]:
    """The inputs in a text.

    A line of JSON Lines is a text, or an object with `message` and, if wanted, `key`, `variables` and
    `handler`. A CSV file has a line of column names; columns with other names than these are variables.
    A text that is neither is one message a line. A key with half of a surrogate pair, which no id can hold,
    is the problem of its own input.

    Raises:
        SpecError: a line cannot be used, two inputs have one key, or there is none; names the line.
    """
    rows = _read_csv(text, source) if is_csv else _read_lines(text, source)
    inputs: list[BatchInput] = []
    lines: dict[str, int] = {}
    for number, row in rows:
        entry = _make_input(row, source, number, lines)
        if entry.key in lines:
            raise SpecError(
                f"the key {entry.key!r} stands in line {lines[entry.key]} too", file=source, line=number
            )
        lines[entry.key] = number
        inputs.append(entry)
    if not inputs:
        raise SpecError("there is no input", file=source, hint="JSON Lines, CSV, or one message a line")
    return inputs


def _read_lines(text: str, source: str) -> Iterator[tuple[int, Any]]:
    is_json = text.lstrip()[:1] in ("{", '"')
    # Lines end as in a file: `splitlines` would also cut at U+2028, which may stand in a JSON string.
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if not line.strip():
            continue
        if not is_json:
            yield number, line.strip()
            continue
        try:
            yield number, json.loads(line)
        except ValueError as error:
            raise SpecError(f"not JSON: {error}", file=source, line=number) from None


def _read_csv(text: str, source: str) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        for row in reader:
            if None in row:
                raise SpecError("more fields than columns", file=source, line=reader.line_num)
            yield reader.line_num, {name: value for name, value in row.items() if value not in (None, "")}
    except csv.Error as error:
        raise SpecError(f"not CSV: {error}", file=source, line=reader.line_num) from None


def _make_input(row: Any, source: str, number: int, key_counts: Mapping[str, int]) -> BatchInput:
    if isinstance(row, str):
        row = {"message": row}
    if not isinstance(row, Mapping):
        raise SpecError("an input is a text or an object", file=source, line=number)
    message = _find_field(row, MESSAGE_FIELDS)
    if not isinstance(message, str) or not message.strip():
        hint = f"the message stands in one of: {', '.join(MESSAGE_FIELDS)}"
        raise SpecError("this input has no message", file=source, line=number, hint=hint)
    own_key = _find_field(row, KEY_FIELDS)
    key, problem = str(own_key), ""
    if own_key in (None, ""):
        key = _make_key(row, key_counts)
    elif not _is_unicode(key):
        key, problem = _make_key(row, key_counts), f"{key!r} cannot be a key: it has half of a surrogate pair"
    if not key.isprintable() or "/" in key:
        raise SpecError(f"{key!r} cannot be a key", file=source, line=number, hint="use letters and digits")
    variables = row.get("variables")
    if variables is None:
        others = (*MESSAGE_FIELDS, *KEY_FIELDS, "handler")
        variables = {name: value for name, value in row.items() if name not in others}
    if not isinstance(variables, Mapping):
        raise SpecError("`variables` is an object", file=source, line=number)
    handler = row.get("handler")
    return BatchInput(
        key=key,
        message=message,
        variables=dict(variables),
        handler=str(handler) if handler else None,
        problem=problem,
    )


def _is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogate, which JSON may have and UTF-8 has not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _find_field(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if name in row), None)


def _make_key(row: Mapping[str, Any], key_counts: Mapping[str, int]) -> str:
    """A key made of the content; the second input with the same content gets another one."""
    digest = hashlib.sha256(encode_canonical(dict(row))).hexdigest()[:12]
    key, count = digest, 1
    while key in key_counts:
        count += 1
        key = f"{digest}-{count}"
    return key
