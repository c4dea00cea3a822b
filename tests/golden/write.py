"""Writes all golden logs anew, after a deliberate change of what a log looks like or of what a step does.

    python tests/golden/write.py

Once the log is frozen (`LOG_IS_DRAFT` in `tests/support/golden_freeze.py`) it writes those of new numbers and
of new scenarios, and leaves the others as they are.

Look at the difference before you commit it: earlier programs do not write or derive the lines that changed.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conftest  # noqa: F401  makes a checkout importable
from golden_freeze import describe_program, write_folder
from golden_logs import FOLDER

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    changed = write_folder(describe_program())
    for name, keys in changed.items():
        print(f"{name}: {', '.join(keys)}")
    size = sum(path.stat().st_size for path in FOLDER.iterdir())
    print(f"{len(list(FOLDER.iterdir()))} golden logs, {size // 1024} KiB", file=sys.stderr)
