"""How much the fuzzers and the simulator try: a short form in every run, the long form on request.

TOOLCHART_LONG=1 pytest -m '' tests/providers tests/engine/test_simulation.py tests/states
"""

from __future__ import annotations

import os
from typing import Any

import pytest

IS_LONG = os.environ.get("TOOLCHART_LONG") == "1"


def choose_count(*, short: int, long: int) -> int:
    """The number of examples or seeds of this run."""
    return long if IS_LONG else short


def mark_slow(*kinds: str) -> list[Any]:
    """Kinds of stores as parameters of a test; those in a NATS server are slow: each request goes to another
    process and back."""
    return [pytest.param(kind, marks=pytest.mark.slow) if "nats" in kind else kind for kind in kinds]
