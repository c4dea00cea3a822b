"""The recorded provider traffic beside the repository, for tests that replay it.

The folder is not part of the repository; where it is absent, tests that need it skip and say so.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
RECORDED = SHARED / "recorded"

needs_recorded = pytest.mark.skipif(
    not RECORDED.is_dir(), reason="the recorded traffic (../shared/recorded) is not here"
)


def index() -> list[dict[str, Any]]:
    """One entry per recorded file, as its index lists them."""
    if not RECORDED.is_dir():
        return []
    lines = (RECORDED / "INDEX.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def replayer() -> ModuleType:
    """The module that serves a cassette over loopback (`CassetteServer`, `load`)."""
    spec = importlib.util.spec_from_file_location("serve_cassettes", SHARED / "serve_cassettes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
