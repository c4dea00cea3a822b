"""Parameter types for names: one of a registry, such as a diagram format, or one of a few choices.

A name that is none of them is refused with the nearest one.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from toolchart.states.descriptors import Registry


def _suggest_nearest(value: Any, names: Iterable[str]) -> str:
    """A sentence with the most similar name, for the end of a message; empty where none is similar."""
    matches = get_close_matches(str(value), sorted(names), n=1, cutoff=0.6)
    return f" Did you mean {matches[0]!r}?" if matches else ""


class NameChoice(click.Choice[str]):
    """One of a few names that are known here."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name, if it is one of them."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            nearest = _suggest_nearest(value, map(str, self.choices))
            raise click.BadParameter(f"{error.message}{nearest}", ctx, param) from None


class RegisteredName(click.ParamType[str]):
    """A name in a registry. Other packages are looked at only for the help and for an unknown name."""

    name = "name"

    def __init__(self, registry: Registry[Any]) -> None:
        self._registry = registry

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, if there is such a row."""
        if value not in self._registry:
            names = ", ".join(map(repr, self._registry.names()))
            nearest = _suggest_nearest(value, self._registry.names())
            self.fail(f"{value!r} is not one of {names}.{nearest}", param, ctx)
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
