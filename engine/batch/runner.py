"""Runs the inputs of a batch, each once, in a conversation of its own, and goes on where a kill stopped it.

The log decides what was done. The conversation of an input has an id made of the batch's name and the
input's key, and its turn is run once (`Engine.arun_once`): begun, gone on with, read, or tried again. So an
input is answered once, whenever the process was killed, and never with the answer to another input.

The file of results is for whoever reads it. It is asked only about conversations that the log has no more.
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.parts import TurnOptions
from toolchart.engine.runtime.result import Turn
from toolchart.specs.chat_messages import EMPTY_MESSAGE
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import strike_secrets
from toolchart.states.canonical_json import encode_canonical, encode_escaped_json
from toolchart.states.core.encoding import read_json
from toolchart.states.errors import LogConflict, SpecError, ToolchartError, TurnChanged
from toolchart.states.events import Event
from toolchart.states.json_bounds import ExcessError, parse_foreign_json
from toolchart.states.messages import Usage
from toolchart.tools.schemas.repair import is_misspelling

log = logging.getLogger("toolchart.engine")

MAX_FAILURES = 10
"""Failures that a report names."""

_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
"""Seconds between two looks at an input that another process runs."""


class BatchReport(msgspec.Struct, kw_only=True):
    """The sums of a batch; it grows while the batch runs."""

    inputs: int = 0
    answered: int = 0
    """Inputs whose turn ended with an answer."""
    failed: int = 0
    """Inputs whose turn ended in error or at a limit, or could not begin."""
    changed: int = 0
    """Of the failed ones: inputs whose key was used before, by another input or another agent."""
    waiting: int = 0
    """Inputs whose turn waits for a person or a timer."""
    earlier: int = 0
    """Inputs that an earlier run had finished: nothing was done for them now."""
    warnings: dict[str, int] = msgspec.field(default_factory=dict)
    """Warnings of turns, and how many results have each."""
    failures: dict[str, str] = msgspec.field(default_factory=dict)
    """Why inputs failed, by key: the first `MAX_FAILURES`. The results file has all of them."""
    usage: Usage = msgspec.field(default_factory=Usage)
    """Of all inputs, those of earlier runs included."""

    @property
    def result_count(self) -> int:
        """Inputs that have a result."""
        return self.answered + self.failed + self.waiting

    def add_result(self, result: dict[str, Any]) -> None:
        """Count a result."""
        for text in result.get("warnings") or ():
            self.warnings[text] = self.warnings.get(text, 0) + 1
        if result.get("ok"):
            self.answered += 1
        elif result.get("is_waiting"):
            self.waiting += 1
        else:
            self.failed += 1
            error = result.get("error") or {}
            self.changed += error.get("kind") == TurnChanged.__name__
            if len(self.failures) < MAX_FAILURES:
                self.failures[result["key"]] = _describe_failure(result)
        self.usage = self.usage.plus(msgspec.convert(result.get("usage") or {}, Usage))


def _describe_failure(result: Mapping[str, Any]) -> str:
    """Why an input has no answer, in one line."""
    error = result.get("error")
    if not error:
        return f"limit: {result.get('limit_reached')}"
    text = str(error["message"]).partition("\n")[0]
    is_class = not str(error["kind"]).islower()  # an error of ours says what it is about
    return text if is_class else f"{error['kind']}: {text}"


class Batch:
    """The run of a batch.

    Args:
        name: the beginning of the ids of its conversations.
        concurrency: inputs that run at the same time.
        per_minute: most inputs that begin in a minute; None for no such limit.
        again: run inputs again whose key was used by another input or another agent, and those that ended
            without an answer.
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
        again: bool = False,
        on_progress: Callable[[BatchReport], None] | None = None,
    ) -> None:
        self._engine = engine
        self._results = results
        self._name = name
        self._concurrency = concurrency
        self._pause_s = 60.0 / per_minute if per_minute else 0.0
        self._llm, self._model = llm, model
        self._again = again
        self._on_progress = on_progress
        self._next_start = 0.0
        self._is_stopped = False
        self.report = BatchReport()

    def stop(self) -> None:
        """Begin no further input; those that run end."""
        self._is_stopped = True

    async def run(self, inputs: Sequence[BatchInput]) -> BatchReport:
        """Have every input answered."""
        self.report.inputs = len(inputs)
        queue = iter(inputs)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, len(inputs))):
                group.create_task(self._work(queue))
        return self.report

    async def _work(self, queue: Iterator[BatchInput]) -> None:
        for entry in queue:
            result = None if self._is_stopped else await self._answer(entry)
            if result is None:
                return
            self._results.append(result)
            self.report.add_result(result)
            if self._on_progress is not None:
                self._on_progress(self.report)

    async def _wait_for_start(self, conversation: str) -> None:
        """Wait until the rate allows a further input; not where its result is only read."""
        if not self._pause_s:
            return
        turn = self._engine.once.describe(conversation)
        if turn is not None and (turn.ok or not turn.is_over) and not self._again:
            return
        now = asyncio.get_running_loop().time()
        start = max(now, self._next_start)
        self._next_start = start + self._pause_s
        if start > now:
            await asyncio.sleep(start - now)

    async def _answer(self, entry: BatchInput) -> dict[str, Any] | None:
        """The result of an input, as a line of the results file; None where the batch was stopped before."""
        conversation = f"{self._name}:{entry.key}"
        line: dict[str, Any] = {"key": entry.key}
        try:
            if entry.problem:
                raise SpecError(entry.problem)
            options = TurnOptions(
                handler=entry.handler, variables=entry.variables, llm=self._llm, model=self._model
            )
            line["input"] = await self._engine.once.digest_request(entry.message, options)
            kept_line = self._find_kept_line(entry.key, line["input"], conversation)
            if kept_line is not None:
                self.report.earlier += 1
                return kept_line
            await self._wait_for_start(conversation)
            result = None if self._is_stopped else await self._run_turn(entry, conversation, options)
        except ToolchartError as error:
            data = {"kind": type(error).__name__, "message": str(error)}
            failed_line = {**line, "ok": False, "conversation": conversation, "error": data}
            self.report.earlier += self._results.results.get(entry.key) == failed_line
            return failed_line
        if result is None:
            return None
        waiting = {} if result.is_over else {"is_waiting": True}
        return {**line, **waiting, **result.to_dict()}

    def _find_kept_line(self, key: str, digest: str, conversation: str) -> dict[str, Any] | None:
        """The answer of the results file to this very input, where the log has its conversation no more.

        Raises:
            TurnChanged: the answer there is one to another input, or of another agent.
        """
        line, read_last_line = self._results.results.get(key), self._engine.store.read_last_line
        if line is None or not line.get("ok"):
            return None
        if any(read_last_line(name) is not None for name in {conversation, str(line.get("conversation"))}):
            return None
        if line.get("input") == digest:
            return line
        if self._again:
            return None
        raise _build_changed_error(key, "another input or by another agent; its conversation was deleted")

    async def _run_turn(self, entry: BatchInput, conversation: str, options: TurnOptions) -> Turn | None:
        """The result of the input's turn. Where another process runs it, that is waited for; None where the
        batch was stopped meanwhile.

        Raises:
            TurnChanged: the key was used before, by another input or another agent.
        """
        steps: list[Event] = []
        turn = options.copy()
        turn["conversation"] = conversation
        turn["observer"] = lambda event, step: steps.append(event)
        pause_s = _SHORTEST_PAUSE_S
        while True:
            try:
                result = await self._engine.arun_once(entry.message, again=self._again, **turn)
            except TurnChanged as error:
                raise _build_changed_error(entry.key, error.difference) from None
            except LogConflict as error:
                if self._is_stopped:
                    return None
                if pause_s == _SHORTEST_PAUSE_S:
                    log.warning("input %s is waited for: %s", entry.key, str(error).partition("\n")[0])
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                self.report.earlier += not steps and result.is_over
                return result


def _build_changed_error(key: str, difference: str) -> TurnChanged:
    """The error for an input whose key was used before."""
    return TurnChanged(
        f"the key {key!r} was used", difference, "--again runs it again, and --name NAME begins another batch"
    )


# -- the file of results -------------------------------------------------------------------------


class ResultsFile:
    """The results of a batch: one line for each key, the newest.

    A line that a kill cut off is removed when the file is opened again. A line that a newer one replaces is
    removed when the file is closed, the next time after a kill; until then the last line counts.

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
        self._lines: dict[str, bytes] = {}
        self._has_replaced_lines = False
        self.results = self._read_results()
        """The results so far, by key."""

    def _read_results(self) -> dict[str, dict[str, Any]]:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        results = {}
        for number, line in enumerate(whole.splitlines(keepends=True), 1):
            try:
                result = read_json(line)
                key, _ = str(result["key"]), result["ok"]
            except (ValueError, KeyError, TypeError):
                os.close(self._handle)
                hint = "name another file: --output FILE"
                raise SpecError(
                    "this is no results file of a batch", file=str(self.path), line=number, hint=hint
                ) from None
            results[key] = result
            self._note_line(key, line)
        os.ftruncate(self._handle, len(whole))
        os.lseek(self._handle, 0, os.SEEK_END)
        return results

    def _note_line(self, key: str, line: bytes) -> None:
        self._has_replaced_lines |= self._lines.pop(key, None) is not None
        self._lines[key] = line

    def append(self, result: dict[str, Any]) -> None:
        """Append a result, unless the file has it; it survives the death of the process on return."""
        line = strike_secrets(encode_escaped_json(result).decode()).encode() + b"\n"
        key = str(result["key"])
        self.results[key] = result
        if self._lines.get(key) == line:
            return
        self._note_line(key, line)
        while line:
            line = line[os.write(self._handle, line) :]

    def close(self) -> None:
        """Remove lines that were replaced, write everything to the disk, and close the file."""
        try:
            if self._has_replaced_lines:
                self._remove_replaced_lines()
            os.fsync(self._handle)
        finally:
            os.close(self._handle)

    def _remove_replaced_lines(self) -> None:
        """Put a file with the newest line of each key in the place of this one, whole or not at all."""
        handle, name = tempfile.mkstemp(dir=self.path.resolve().parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(self._lines.values())
                file.flush()
                os.fsync(handle)
            os.chmod(name, os.fstat(self._handle).st_mode & 0o777)
            os.replace(name, self.path.resolve())
        except BaseException:
            os.unlink(name)
            raise


def _lock(handle: int, path: Path) -> None:
    """Keep other batches from this file; the lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_replaced = not os.path.samestat(os.fstat(handle), path.stat())  # by a batch that ended just now
    except OSError:
        is_replaced = True
    if is_replaced:
        os.close(handle)
        raise SpecError("another batch writes this file now", file=str(path))


# -- reading inputs ------------------------------------------------------------------------------


_SHOWN_FIELDS = 300
"""Characters of a line about the fields of an input."""

MESSAGE_FIELDS = ("message", "prompt", "input", "question")
"""Fields that may hold the message of an input, the first that is there."""

KEY_FIELDS = ("key", "id", "custom_id")
"""Fields that may hold the key of an input, the first that is there."""


_FIELDS = (*MESSAGE_FIELDS, *KEY_FIELDS, "handler", "variables")
"""Fields of an input that are no variables of their own."""


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
    line: int = 0
    """Where it stands in the inputs."""
    fields: tuple[str, ...] = ()
    """The variables that are fields of their own beside `message`, and not in `variables`."""


def read_inputs(text: str, *, source: str = "stdin", delimiter: str = "") -> list[BatchInput]:
    """The inputs in a text.

    A line of JSON Lines is a text, or an object with `message` and, if wanted, `key`, `variables` and
    `handler`; its other fields are variables too. A table has a line of column names, which mean the same. A
    second field that may hold the message, or the key, is a variable. A text that is neither is one message a
    line. A key with half of a surrogate pair, which no id can hold, is the problem of its own input.

    Args:
        delimiter: what separates the columns of a table; empty where the text is none.

    Raises:
        SpecError: a line cannot be used, a name or a key stands twice, or there is no input; names the line.
    """
    if "\0" in text:
        hint = "JSON Lines, CSV, or one message a line; save a table as CSV"
        raise SpecError("this is no text: it has a byte 0", file=source, hint=hint)
    rows = _read_csv(text, source, delimiter) if delimiter else _read_lines(text, source)
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
    if text.lstrip()[:1] == "[" and _is_json(text):
        hint = "write JSON Lines, one object a line: jq -c '.[]' FILE"
        raise SpecError("this is a JSON array", file=source, hint=hint)
    # Lines end as in a file: `splitlines` would also cut at U+2028, which may stand in a JSON string.
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if not line.strip():
            continue
        if not is_json:
            yield number, line.strip()
            continue
        try:
            yield number, parse_foreign_json(line, "file_values", object_pairs_hook=_build_object)
        except ValueError as error:
            raise SpecError(f"not JSON: {error}", file=source, line=number) from None


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, whose second value of one name would replace the first.

    Raises:
        ValueError: a name stands twice.
    """
    _refuse_repeated([name for name, _ in pairs])
    return dict(pairs)


def _refuse_repeated(names: Sequence[str]) -> None:
    repeated_names = (
        [] if len(set(names)) == len(names) else [name for name in names if names.count(name) > 1]
    )
    if repeated_names:
        raise ValueError(f"the name {repeated_names[0]!r} stands twice")


def _is_json(text: str) -> bool:
    try:
        parse_foreign_json(text, "file_values")
    except ExcessError:
        return True
    except ValueError:
        return False
    return True


def _read_csv(text: str, source: str, delimiter: str) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(io.StringIO(text), strict=True, delimiter=delimiter)
    try:
        columns = list(reader.fieldnames or ())
        if columns.count("") > 1:
            columns = [name or f"column {number}" for number, name in enumerate(columns, 1)]
            reader.fieldnames = columns
        _refuse_repeated(columns)
        if columns and not any(name in columns for name in MESSAGE_FIELDS):
            names = ", ".join(map(repr, columns))
            hint = f"the message stands in a column {' or '.join(MESSAGE_FIELDS)}; commas separate columns"
            raise SpecError(f"no column has the message: {names}", file=source, line=1, hint=hint)
        for row in reader:
            if None in row:
                raise SpecError("more fields than columns", file=source, line=reader.line_num)
            yield reader.line_num, {name: value for name, value in row.items() if value not in (None, "")}
    except csv.Error as error:
        raise SpecError(f"not CSV: {error}", file=source, line=reader.line_num) from None
    except ValueError as error:
        raise SpecError(str(error), file=source, line=1) from None


def _make_input(row: Any, source: str, number: int, key_counts: Mapping[str, int]) -> BatchInput:
    if isinstance(row, str):
        row = {"message": row}
    if not isinstance(row, Mapping):
        raise SpecError("an input is a text or an object", file=source, line=number)
    message = _find_field(row, MESSAGE_FIELDS)
    if not isinstance(message, str):
        hint = f"the message is a text in one of: {', '.join(MESSAGE_FIELDS)}"
        fields = ", ".join(map(repr, row)) or "no field"
        problem = f"this input has no message: it has {fields}"
        raise SpecError(problem[:_SHOWN_FIELDS], file=source, line=number, hint=hint)
    if not message.strip():
        raise SpecError(EMPTY_MESSAGE, file=source, line=number)
    own_key = _find_field(row, KEY_FIELDS)
    key, problem = str(own_key), ""
    if own_key in (None, ""):
        key = _make_key(row, key_counts)
    elif not _is_unicode(key):
        key, problem = _make_key(row, key_counts), f"{key!r} cannot be a key: it has half of a surrogate pair"
    # `KEY~2` is the name of the second attempt at KEY.
    if not key.isprintable() or "/" in key or re.search(r"~\d+$", key):
        raise SpecError(f"{key!r} cannot be a key", file=source, line=number, hint="use letters and digits")
    variables = row.get("variables")
    if not isinstance(variables, Mapping | None):
        raise SpecError("`variables` is an object", file=source, line=number)
    used = {next((name for name in names if name in row), "") for names in (MESSAGE_FIELDS, KEY_FIELDS)}
    used |= {"handler", "variables"}
    fields = {name: value for name, value in row.items() if name not in used}
    variables = variables or {}
    repeated_name = next((name for name in fields if name in variables), None)
    if repeated_name is not None:
        problem = f"{repeated_name!r} stands in `variables` and beside it"
        raise SpecError(problem, file=source, line=number, hint="keep one of them")
    handler = row.get("handler")
    return BatchInput(
        key=key,
        message=message,
        variables={**fields, **variables},
        handler=str(handler) if handler else None,
        problem=problem,
        line=number,
        fields=tuple(fields),
    )


def refuse_misspelt_fields(
    inputs: Sequence[BatchInput], read_spec: Callable[[], AgentSpec], source: str
) -> None:
    """Refuse a field that is nearly `handler` or the like, and that no handler of the agent names:
    the default handler would answer.

    Args:
        read_spec: reads the agent; called where there is such a field.

    Raises:
        SpecError: there is one; names the line.
    """
    lines = {name: entry.line for entry in reversed(inputs) for name in entry.fields}
    for name, line in lines.items():
        similar_name = next((known for known in _FIELDS if is_misspelling(name, known)), None)
        if similar_name is None or name in _FIELDS:
            continue
        handlers = " ".join(handler.model_dump_json() for handler in read_spec().responses)
        if re.search(rf"\b{re.escape(name)}\b", handlers) is None:
            hint = f"did you mean {similar_name!r}? a variable of this name goes into `variables`"
            raise SpecError(f"unknown field {name!r}", file=source, line=line, hint=hint)


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
