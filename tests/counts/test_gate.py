"""The gate that counts fails where a turn got dearer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GATE = Path(__file__).with_name("gate.py")
COUNTS = list(json.loads(GATE.with_name("table.json").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_a_seeded_regression_of_each_count_fails(name: str) -> None:
    """A seeded regression of each count ends the gate with 1, and the gate names the count."""
    if shutil.which("valgrind") is None or shutil.which("cc") is None:
        pytest.skip("valgrind and a C compiler are not installed")
    process = subprocess.run([sys.executable, str(GATE), name, "--worse"], capture_output=True, text=True)
    assert process.returncode == 1, process.stdout + process.stderr
    assert process.stdout.startswith(name)
    assert "more than the table" in process.stdout
