"""Standard input for commands that run inside a process of tests or of a generator of pages."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def empty_stdin() -> Iterator[None]:
    """Standard input is at its end; `toolchart run` adds what it holds to the message."""
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    try:
        yield
    finally:
        sys.stdin = before
