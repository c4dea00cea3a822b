"""Registries: one table of descriptors per kind (hosts, stores, commands, ...), open to other packages.

Model hosts, stores, tool sources, commands, renderers and text formats are each listed in one `Registry`. A
row is a `Descriptor`: a frozen value that holds everything the rest of the code wants to know about its kind,
so that no second list has to be kept in step. A row that lacks something is refused when it is loaded.

Another package adds a row by an entry point whose object is the descriptor:

    [project.entry-points."toolchart.stores"]
    redis = "my_package.store:DESCRIPTOR"

The name of the entry point is the name of the row. Rows of this package load without looking at other
packages; entry points are read when a name is unknown, or when all names are listed. A row of another package
cannot replace one of this package.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from toolchart.states.errors import SpecError, suggest_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger("toolchart")

REGISTRIES: dict[str, str] = {
    "toolchart.hosts": "toolchart.providers.hosts:HOSTS",
    "toolchart.stores": "toolchart.engine.log.stores:STORES",
    "toolchart.tool_sources": "toolchart.tools.sources.table:TOOL_SOURCES",
    "toolchart.commands": "toolchart.app.cli.command_table:COMMANDS",
    "toolchart.renderers": "toolchart.states.diagram:RENDERERS",
    "toolchart.text_formats": "toolchart.providers.text_calls.formats:TEXT_FORMATS",
    "toolchart.effects": "toolchart.states.core.vocabulary:EFFECTS",
    "toolchart.events": "toolchart.states.core.vocabulary:EVENTS",
    "toolchart.facts": "toolchart.states.facts:FACTS",
    "toolchart.export_formats": "toolchart.engine.exchange:EXPORT_FORMATS",
}
"""Every registry by its entry point group. These are references, so that no room imports a higher one: a
spec, for instance, is checked against the tool sources without an import of the room that loads them."""


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a registry."""

    name: str
    """The word that specs, commands and addresses use."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each; empty if it is complete."""
        return [] if self.name else ["`name` is empty"]

    def list_references(self) -> dict[str, str]:
        """The lazy references in this row, by field; `load_reference` loads one."""
        return {}


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
        raise SpecError(
            f"unknown {self.kind} {name!r}", path=path or None, hint=suggest_name(name, self.names())
        )

    def names(self) -> list[str]:
        """Every name, without loading the rows of other packages."""
        return [*self._builtin, *self._entry_points]

    def describe_origin(self, name: str) -> str:
        """The package and the module that offer a row, from its metadata; empty for a row of this package."""
        point = None if name in self._builtin else self._entry_points.get(name)
        return f"{_name_package(point)}: {point.value}" if point is not None else ""

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self._entry_points

    def __iter__(self) -> Iterator[Row]:
        """Every row that loads; one that does not is reported as a warning and left out."""
        yield from self._builtin.values()
        for point in self._entry_points.values():
            try:
                yield self._load(point)
            except SpecError as error:
                log.warning("%s", error)

    @property
    def builtin_rows(self) -> tuple[Row, ...]:
        """The rows of this package, in order; other packages are not looked at."""
        return tuple(self._builtin.values())

    @cached_property
    def _builtin(self) -> dict[str, Row]:
        return {row.name: self._check(row, "toolchart") for row in self._load_builtin()}

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points  # slow to import, and rarely needed

        points: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            is_taken = point.name in self._builtin or points.get(point.name, point) != point
            if is_taken:
                package = _name_package(point)
                log.warning("%s %r of %s is ignored: the name is taken", self.kind, point.name, package)
            else:
                points[point.name] = point
        return points

    def _load(self, point: EntryPoint) -> Row:
        origin = f"entry point {point.name!r} of {_name_package(point)}"
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


def find_registry(group: str) -> Registry[Any]:
    """The registry of an entry point group, imported now."""
    registry: Registry[Any] = load_reference(REGISTRIES[group])
    return registry


def _name_package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"


_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def find_reference_gaps(field: str, reference: str, purpose: str) -> list[str]:
    """What is wrong with a lazy reference in a row, without importing it.

    Args:
        field: name of the field that holds it.
        purpose: what the object does, for the message: `the function that opens the store`.
    """
    if not reference:
        return [f"`{field}` is missing: {purpose}, as `package.module:name`"]
    if not _REFERENCE.fullmatch(reference):
        return [f"`{field}` is {reference!r}, and not a reference as `package.module:name`"]
    return []


def find_text_gaps(**texts: str) -> list[str]:
    """One sentence for each text field that is empty."""
    return [f"`{field}` is missing" for field, text in texts.items() if not text.strip()]


def load_reference(reference: str) -> Any:
    """The object behind `package.module:name`, imported now.

    Raises:
        ImportError, AttributeError: there is no such module or name.
    """
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
