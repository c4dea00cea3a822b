"""The page `docs/watch.md`: its commands, as printed, in two terminals."""

from __future__ import annotations

import sys
from pathlib import Path

from watch_page import follow_page


def test_every_command_of_the_page_prints_what_it_says(tmp_path: Path) -> None:
    """A newcomer follows the page in an empty folder: a program is watched, its agent mined, a rule enforced;
    each command ends with 0 and prints what the page says."""
    follow_page(tmp_path, sys.executable, "agent.py")
