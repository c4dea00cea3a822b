"""The tests of plugins run as those of Toolchart: on this checkout, on loopback, with the same fixtures.

A plugin that is installed is tested as it is installed; otherwise its folder is what is imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parent

sys.path.insert(0, str(PLUGINS.parent / "tests"))
sys.path += [str(path.parent) for path in sorted(PLUGINS.glob("*/pyproject.toml"))]
from command_runs import restored_loggers, run_cli  # noqa: E402, F401  fixtures
from conftest import *  # noqa: E402, F403  fixtures and hooks
from conftest import (  # noqa: E402, F401
    _loopback_only,
    _nats_process,
    _no_ambient_settings,
    _no_public_authorities,
    _no_secrets_of_other_tests,
)


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    """The folder in which commands run."""
    return tmp_path
