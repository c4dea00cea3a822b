"""A batch of 2,000 inputs that is killed three times ends with each input answered once.

PYTHONPATH=tests/support python tests/soak/batches.py [--inputs 2000] [--kills 3]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conftest  # noqa: F401  makes a checkout importable
from killed_batch import kill_and_finish


def main() -> None:
    """Run the batch and print its report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = kill_and_finish(Path(folder), options.inputs, options.kills)
    print(f"{report} in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
