"""Adds the file and line of the agent spec to errors that know only a key path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolchart.specs.models import AgentSpec
from toolchart.specs.yaml_document import read_document
from toolchart.states.chart.source_positions import SourcePosition
from toolchart.states.errors import SpecError

_KEY_PATH = re.compile(r"[\w-]+(?:\.[\w-]+|\[\d+\])*")
_STEP = re.compile(r"([\w-]+)|\[(\d+)\]")


@contextmanager
def locate_errors(spec: AgentSpec) -> Iterator[None]:
    """Add the spec's file, and the line of the key path, to a `SpecError` that names no file.

    Raises:
        SpecError: the same error with its position.
    """
    try:
        yield
    except SpecError as error:
        if error.file is not None or spec.source is None:
            raise
        raise SpecError(
            error.message,
            file=spec.source,
            line=find_spec_line(spec.source, error.path),
            path=error.path,
            hint=error.hint,
        ) from None


def find_spec_line(source: str | None, path: str | None) -> int | None:
    """Return the line of a key path such as `approval[1].tools`; None if there is no file that has it."""
    if source is None or path is None or not _KEY_PATH.fullmatch(path):
        return None
    try:
        return read_document(Path(source)).find_line(parse_key_path(path))
    except SpecError:
        return None


def parse_key_path(path: str) -> SourcePosition:
    """Split a key path into keys and list positions.

    >>> parse_key_path("approval[1].tools")
    ('approval', 1, 'tools')
    """
    return tuple(int(number) if number else key for key, number in _STEP.findall(path))
