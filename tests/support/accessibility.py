"""Checks pages with axe-core from npm; tests are skipped with a reason where it is absent."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

AXE = Path(os.environ.get("TOOLCHART_AXE", "")) / "node_modules" / "axe-core" / "axe.min.js"
"""Its script, in the folder in which `npm install axe-core` was run."""

HAS_AXE = bool(os.environ.get("TOOLCHART_AXE")) and AXE.is_file()

_RUN = """async () => {
    const options = {resultTypes: ["violations"]};
    const report = await axe.run(document, options);
    return report.violations.map((row) => ({id: row.id, impact: row.impact,
        nodes: row.nodes.map((node) => `${node.html} ${node.failureSummary}`)}));
}"""


@cache
def _load_script() -> str:
    return AXE.read_text("utf-8")


async def list_violations(page: Any) -> list[str]:
    """What axe finds on a page that makes it harder for somebody, all but what it calls minor: rule and
    element."""
    # Not a script element: the pages' policy forbids inline scripts.
    await page.evaluate(_load_script())
    return [
        f"{row['id']}: {node}"
        for row in await page.evaluate(_RUN)
        if row["impact"] != "minor"
        for node in row["nodes"]
    ]
