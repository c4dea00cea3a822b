"""What a start loads: imports, the help and a first run load no module that they can do without.

There is no clock here. Importing is most of a short run, so what is loaded decides how long it takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT

HEAVY = {
    "anthropic",
    "cryptography",
    "google",
    "httpx",
    "httpx2",
    "json_repair",
    "jsonschema",
    "mcp",
    "ollama",
    "openai",
    "opentelemetry",
    "prompt_toolkit",
    "psycopg",
    "re2",
    "rich",
    "sympy",
    "toolchart.engine.rerun",
    "toolchart.engine.telemetry.live",
    "toolchart.providers.catalogs",
    "toolchart.states.diagram.model",
    "toolchart.states.proofs",
    "toolchart.tools.sources.http.tool",
    "toolchart.workers.host",
}
"""What none of them needs: SDKs, signatures, displays, other kinds of tools, and pictures."""

ENGINE = {"pydantic", "statemachine", "sqlite3"}
"""What an engine needs first when it is made: specs and charts."""

STARTS = {
    "import toolchart": HEAVY | ENGINE | {"asyncio", "click", "msgspec"},
    "from toolchart import Engine": HEAVY | ENGINE | {"click"},
    "from toolchart.engine import step": HEAVY | {"pydantic", "click"},
    "import toolchart.engine.log.verify": HEAVY | {"pydantic", "statemachine", "click"},
    "sys.argv[1:] = ['--help']; import toolchart.__main__ as m; m.main()": HEAVY | ENGINE | {"asyncio"},
    "sys.argv[1:] = ['run', 'quickstart', '1+1']; import toolchart.__main__ as m; m.main()": HEAVY,
}


@pytest.mark.parametrize("code", STARTS)
def test_a_start_loads_nothing_that_it_can_do_without(code: str, tmp_path: Path) -> None:
    """Imports, the help and a first run load no SDK, no display, no signatures, no other kinds of tools."""
    lines = [
        "import atexit, sys",
        "atexit.register(lambda: print('LOADED', *sys.modules))",
        f"sys.path.insert(0, {str(ROOT / '.typing')!r})",
        "import toolchart",
        code,
    ]
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=tmp_path,
        env={**os.environ, "TOOLCHART_LOG": str(tmp_path / "log.db")},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(run.stdout.rpartition("LOADED")[2].split())
    assert "toolchart" in loaded
    assert sorted(STARTS[code] & loaded) == []
