"""Errors that were found in a part of a spec, told with the file and line of that part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolchart.specs.models import AgentSpec
from toolchart.specs.yaml_document import read_document
from toolchart.states.chart.source_positions import Place
from toolchart.states.errors import SpecError

_KEY_PATH = re.compile(r"[\w-]+(?:\.[\w-]+|\[\d+\])*")
_STEP = re.compile(r"([\w-]+)|\[(\d+)\]")


@contextmanager
def placed_in(spec: AgentSpec) -> Iterator[None]:
    """Give a `SpecError` that names no file the spec's own, and the line of its key path.

    Raises:
        SpecError: the one that came out, with its place.
    """
    try:
        yield
    except SpecError as error:
        if error.file is not None or spec.source is None:
            raise
        raise SpecError(
            error.message,
            file=spec.source,
            line=_line(spec.source, error.path),
            path=error.path,
            hint=error.hint,
        ) from None


def _line(source: str, path: str | None) -> int | None:
    """The line of a key path such as `approval[1].tools`, where the file still has it."""
    if path is None or not _KEY_PATH.fullmatch(path):
        return None
    try:
        return read_document(Path(source)).line(place_of(path))
    except SpecError:
        return None


def place_of(path: str) -> Place:
    """The steps of a key path.

    >>> place_of("approval[1].tools")
    ('approval', 1, 'tools')
    """
    return tuple(int(number) if number else key for key, number in _STEP.findall(path))
