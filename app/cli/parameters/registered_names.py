"""The parameter type for a name in a registry, such as a diagram format; other packages may add names."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from toolchart.states.descriptors import Registry


class RegisteredName(click.ParamType[str]):
    """A name in a registry. Other packages are looked at only for the help and for an unknown name."""

    name = "name"

    def __init__(self, registry: Registry[Any]) -> None:
        self._registry = registry

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, if there is such a row."""
        if value not in self._registry:
            names = ", ".join(map(repr, self._registry.names()))
            self.fail(f"{value!r} is not one of {names}.", param, ctx)
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return all names, for the help."""
        return f"[{'|'.join(self._registry.names())}]"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with what was typed."""
        names = self._registry.names()
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
