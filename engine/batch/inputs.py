"""Reads the inputs of a batch: JSON Lines, CSV, or one message a line."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from toolchart.states.canonical_json import encode_canonical
from toolchart.states.errors import SpecError

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


def _make_input(row: Any, source: str, number: int, known: Mapping[str, int]) -> BatchInput:
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
        key = _make_key(row, known)
    elif not _is_unicode(key):
        key, problem = _make_key(row, known), f"{key!r} cannot be a key: it has half of a surrogate pair"
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


def _make_key(row: Mapping[str, Any], known: Mapping[str, int]) -> str:
    """A key made of the content; the second input with the same content gets another one."""
    digest = hashlib.sha256(encode_canonical(dict(row))).hexdigest()[:12]
    key, count = digest, 1
    while key in known:
        count += 1
        key = f"{digest}-{count}"
    return key
