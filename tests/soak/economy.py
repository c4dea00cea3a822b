"""2,000 conversations through an emulated batch endpoint, killed and with expired lines: each ended once.

PYTHONPATH=tests/support python tests/soak/economy.py [--inputs 2000] [--kills 4] [--provider openai]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conftest  # noqa: F401  makes a checkout importable
from killed_economy import kill_and_finish


def main() -> None:
    """Run the batch and print its report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--provider", choices=("openai", "anthropic"), default="openai")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = kill_and_finish(Path(folder), options.provider, options.inputs, options.kills)
    print(f"{report} in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
