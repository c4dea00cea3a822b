"""Makes a clean clone importable as `toolchart`; importing this module is enough.

The import serves whoever runs the tests of a checkout without installing it; the clone's folder may be
called anything. Where `toolchart` is installed from this very tree it gives the same modules. It needs
nothing but the standard library, so that the processes that tests start do not pay for pytest.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _adopt_checkout() -> None:
    """Bind the name `toolchart` to this checkout, under whatever folder name it stands."""
    if "toolchart" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "toolchart", ROOT / "__init__.py", submodule_search_locations=[str(ROOT)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["toolchart"] = module
    spec.loader.exec_module(module)


_adopt_checkout()
