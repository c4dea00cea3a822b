"""docs/pairs.md is correct: the programs of this folder, their lines, and what was measured of them.

The page is generated: `python tests/pairs/test_pairs_doc.py` writes it. Where `TOOLCHART_PAIRS` names the
folder that `.ci/install_pairs` has filled, it also measures how long the programs take to load.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from pair_page import DOC, MEASURES, measure, print_page


def test_the_page_is_up_to_date() -> None:
    """The page has the programs as they are, and the figures that were measured with it."""
    assert DOC.read_text("utf-8") == print_page(), "run: python tests/pairs/test_pairs_doc.py"


if __name__ == "__main__":
    measured = json.loads(MEASURES.read_text("utf-8")) if MEASURES.exists() else {}
    MEASURES.write_text(json.dumps(measure(measured), indent=2, ensure_ascii=False) + "\n", "utf-8")
    DOC.write_text(print_page(), "utf-8")
    sys.exit()
