"""Exported names that a package imports when they are first used (PEP 562).

A package that lists its exports costs nothing until one of them is needed. Type checkers read imports
(`from module import Name as Name` exports a name) and do not see the functions, so for them a name that does
not exist stays an error:

    if TYPE_CHECKING:
        from toolchart.engine.runtime.engine import Engine as Engine

    if not TYPE_CHECKING:
        __all__, __getattr__, __dir__ = make_late_names(
            globals(), {"toolchart.engine.runtime.engine": ("Engine",)}
        )
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def make_late_names(
    package: dict[str, Any], names: Mapping[str, tuple[str, ...]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """The `__all__`, the `__getattr__` and the `__dir__` of a package.

    Args:
        package: the globals of the package; an imported name is kept there.
        names: by module, the names that the package exports from it.
    """
    homes = {name: module for module, exported in names.items() for name in exported}

    def import_name(name: str) -> Any:
        """Import an exported name when it is first used."""
        if name not in homes:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        package[name] = value
        return value

    def list_names() -> list[str]:
        """The names of the package, whether or not they are loaded yet."""
        return sorted({*package, *homes})

    return list(homes), import_name, list_names
