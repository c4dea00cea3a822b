"""Drawings that a command prints or writes to a file: which format, and where they go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toolchart.app.cli.terminal.output import get_output
from toolchart.specs.secrets import strike_secret_bytes
from toolchart.states.errors import SpecError


def find_form(output: str, forms: Mapping[str, str], default: str) -> str:
    """The format of a file by its ending; `default` for one without an ending.

    Raises:
        SpecError: the ending stands for none.
    """
    ending = Path(output).suffix.lower()
    if ending and ending not in forms:
        raise SpecError(
            f"no format has the ending {ending}",
            file=output,
            hint=f"name one by --format, or use one of: {', '.join(forms)}",
        )
    return forms.get(ending, default)


def write_drawing(drawing: str | bytes, output: str | None) -> bytes:
    """Write a drawing, without the secrets of the agent, to a file, or to stdout where none is named.

    Returns:
        What was written.

    Raises:
        SpecError: the file cannot be written.
    """
    data = strike_secret_bytes(drawing.encode() if isinstance(drawing, str) else drawing)
    if output is None:
        get_output().buffer.write(data)
        get_output().buffer.flush()
        return data
    try:
        Path(output).write_bytes(data)
    except OSError as error:
        raise SpecError(f"cannot be written: {error.strerror}", file=output) from None
    return data
