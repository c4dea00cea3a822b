"""The distributions under `plugins/`, visible to this process and its children as pip would install them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from plugin_installation import install_metadata

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


@contextlib.contextmanager
def see_plugin(name: str) -> Iterator[None]:
    """Let Toolchart find a plugin of this tree within the block; nothing changes where it is installed.

    Args:
        name: the folder: `toolchart-nats`.
    """
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        install_metadata(PLUGINS / name, Path(folder))
        added = [str(PLUGINS / name), folder]
        paths, inherited = list(sys.path), os.environ.get("PYTHONPATH")
        sys.path += added
        os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [inherited]), *added])
        _forget_what_is_installed()
        try:
            yield
        finally:
            sys.path[:] = paths
            os.environ.pop("PYTHONPATH")
            if inherited is not None:
                os.environ["PYTHONPATH"] = inherited
            _forget_what_is_installed()


def _forget_what_is_installed() -> None:
    """Have the registries read the entry points again."""
    from toolchart.engine.log.stores import STORES

    vars(STORES).pop("_points", None)
