"""Imports what a spec names as `module:function`: from the environment, else from beside the spec."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from toolchart.states.descriptors import load_reference


def load_own_reference(reference: str, folder: Path | None) -> Any:
    """The object behind `package.module:name`, imported now.

    A module that stands beside the spec is found wherever the program was started: its folder is added to the
    import path, behind everything else.

    Args:
        folder: the folder of the spec; None where it has none.

    Raises:
        ImportError, AttributeError: there is no such module or name.
        Exception: whatever the module raises.
    """
    top = reference.partition(":")[0].partition(".")[0]
    try:
        return load_reference(reference)
    except ModuleNotFoundError as error:
        if error.name != top or folder is None or not _has_module(folder, top):
            raise
    sys.path.append(str(folder.resolve()))
    return load_reference(reference)


def _has_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()
