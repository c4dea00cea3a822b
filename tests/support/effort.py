"""How much the fuzzers and the simulator try: a short form in every run, the long form on request.

TOOLCHART_LONG=1 pytest -m '' tests/providers tests/engine/test_simulation.py tests/states
"""

from __future__ import annotations

import os

IS_LONG = os.environ.get("TOOLCHART_LONG") == "1"


def choose_count(*, short: int, long: int) -> int:
    """The number of examples or seeds of this run."""
    return long if IS_LONG else short
