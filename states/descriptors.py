"""Registries: everything that has kinds is one table of descriptors, open to other packages.

Model hosts, stores, tool sources, commands, renderers and text formats are each listed in one `Registry`. A
row is a `Descriptor`: a frozen value that holds everything the rest of the code wants to know about its kind,
so that no second list has to be kept in step. A row that lacks something is refused when it is loaded.

Another package adds a row by an entry point whose object is the descriptor:

    [project.entry-points."toolchart.stores"]
    redis = "my_package.store:DESCRIPTOR"

Rows of this package load without looking at other packages; entry points are read when a name is unknown, or
when all names are listed.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

import msgspec

from toolchart.states.errors import SpecError, suggest_name

log = logging.getLogger("toolchart")


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a registry."""

    name: str
    """The word that specs, commands and addresses use."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each; empty if it is complete."""
        return [] if self.name else ["`name` is empty"]


Row = TypeVar("Row", bound=Descriptor)


class Registry(Generic[Row]):
    """All rows of one kind, those of this package first, then those of other packages.

    Args:
        kind: what a row is, for messages: `store`.
        group: entry point group of other packages: `toolchart.stores`.
        row_type: class of the rows.
        load_builtin: returns the rows of this package; called once, when the registry is first used.
    """

    def __init__(
        self, kind: str, group: str, row_type: type[Row], load_builtin: Callable[[], Iterable[Row]]
    ) -> None:
        self.kind = kind
        self.group = group
        self._row_type = row_type
        self._load_builtin = load_builtin

    def find(self, name: str, path: str = "") -> Row:
        """The row of this name.

        Args:
            path: key path of the place that names it, for the error.

        Raises:
            SpecError: there is none, or the package that offers it gives an incomplete row.
        """
        row = self._builtin.get(name)
        if row is not None:
            return row
        if name in self._entry_points:
            return self._load(self._entry_points[name])
        known = ", ".join(self.names())
        raise SpecError(
            f"unknown {self.kind} {name!r} (known: {known})",
            path=path or None,
            hint=suggest_name(name, self.names()),
        )

    def names(self) -> list[str]:
        """Every name, without loading the rows of other packages."""
        return [*self._builtin, *(name for name in self._entry_points if name not in self._builtin)]

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self._entry_points

    def __iter__(self) -> Iterator[Row]:
        """Every row that loads; one that does not is reported as a warning and left out."""
        yield from self._builtin.values()
        for name, point in self._entry_points.items():
            if name not in self._builtin:
                try:
                    yield self._load(point)
                except SpecError as error:
                    log.warning("%s", error)

    @cached_property
    def _builtin(self) -> dict[str, Row]:
        return {row.name: self._check(row, "toolchart") for row in self._load_builtin()}

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    def _load(self, point: EntryPoint) -> Row:
        package = point.dist.name if point.dist is not None else "an unknown package"
        origin = f"entry point {point.name!r} of {package}"
        try:
            row = point.load()
        except Exception as error:  # another package's module may fail in any way
            raise SpecError(
                f"{self.kind} {point.name!r} cannot be loaded from {point.value} ({origin}): "
                f"{type(error).__name__}: {error}"
            ) from error
        if isinstance(row, self._row_type) and row.name != point.name:
            raise SpecError(f"{origin} gives a {self.kind} with another name, {row.name!r}")
        return self._check(row, origin)

    def _check(self, row: Any, origin: str) -> Row:
        if not isinstance(row, self._row_type):
            raise SpecError(
                f"{origin}: a {self.kind} is a {self._row_type.__name__}, not a {type(row).__name__}"
            )
        gaps = row.find_gaps()
        if gaps:
            raise SpecError(f"{self.kind} {row.name!r} ({origin}) is incomplete: {'; '.join(gaps)}")
        return row


def load_reference(reference: str) -> Any:
    """The object behind `package.module:name`, imported now.

    Raises:
        ImportError, AttributeError: there is no such module or name.
    """
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
