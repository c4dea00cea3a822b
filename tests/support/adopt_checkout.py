"""Makes a clean clone importable as `toolchart`; importing this module is enough.

The import serves whoever runs the tests of a checkout without installing it; the clone's folder may be
called anything. Where `toolchart` is installed from this very tree it gives the same modules. Processes that
are started from here find this tree too, even where another one is installed. It needs nothing but the
standard library, so that the processes that tests start do not pay for pytest.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _adopt_checkout() -> None:
    """Bind the name `toolchart` to this checkout, under whatever folder name it stands."""
    if "toolchart" in sys.modules:
        return
    _lead_children_here()
    spec = importlib.util.spec_from_file_location(
        "toolchart", ROOT / "__init__.py", submodule_search_locations=[str(ROOT)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["toolchart"] = module
    spec.loader.exec_module(module)


def _lead_children_here() -> None:
    """Put this checkout first on the path of child processes, unless it is what they find anyhow."""
    found = importlib.util.find_spec("toolchart")
    if found and found.origin and Path(found.origin).resolve() == ROOT / "__init__.py":
        return
    paths = [str(ROOT / ".typing"), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


_adopt_checkout()
