"""How much the fuzzers and the simulator try: a short form in every run, the long form on request.

TOOLCHART_LONG=1 pytest tests/providers tests/engine/test_simulation.py tests/states

The second Python of continuous integration runs all tests with a fifth of the short form
(TOOLCHART_BRIEF=1): it looks for what differs between Pythons, and not for rare inputs.
"""

from __future__ import annotations

import os

IS_LONG = os.environ.get("TOOLCHART_LONG") == "1"
IS_BRIEF = os.environ.get("TOOLCHART_BRIEF") == "1"


def choose_count(*, short: int, long: int) -> int:
    """The number of examples or seeds of this run."""
    if IS_LONG:
        return long
    return max(1, short // 5) if IS_BRIEF else short
