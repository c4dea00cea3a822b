"""Tables of descriptors, one for each kind (effects, events, hosts, stores); other packages add to three.

A row is a `Descriptor`: a frozen value that holds everything the rest of the code wants to know about its
kind, so that no second list has to be kept in step. A row that lacks something is refused when it is loaded.

Most tables are dictionaries by name, made by `build_table`. Hosts, stores and tool sources are each listed in
a `Registry`: another package adds a row by an entry point whose object is the descriptor:

    [project.entry-points."toolchart.stores"]
    redis = "my_package.store:DESCRIPTOR"

The name of the entry point is the name of the row. A row of another package cannot replace one of this
package.

A row of another package is loaded when somebody names it, and by nothing else. So no registry can be
iterated: lists, helps and hints are made of `builtin_rows` and of the names of `list_added`, and what needs
the meaning of rows reads those that a spec or chart names. `states/plugins.py` says what a broken package
costs then: an error for those who name it.
"""

from __future__ import annotations

import importlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

from toolchart.states.errors import PluginUnusable, SpecError, suggest_name
from toolchart.states.plugins import PluginPoint, guard_use, load_foreign, read_points, shorten_foreign
from toolchart.states.visible_text import make_visible

log = logging.getLogger("toolchart")

REGISTRIES: dict[str, str] = {
    "toolchart.hosts": "toolchart.providers.hosts:HOSTS",
    "toolchart.stores": "toolchart.engine.log.stores:STORES",
    "toolchart.tool_sources": "toolchart.tools.sources.table:TOOL_SOURCES",
}
"""Every registry by its entry point group. These are references, so that no room imports a higher one: a
spec, for instance, is checked against the tool sources without an import of the room that loads them."""


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a table."""

    name: str
    """The word that specs, commands and addresses use."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each; empty if it is complete."""
        return [] if self.name else ["`name` is empty"]

    def list_references(self) -> dict[str, str]:
        """The lazy references in this row, by field; `load_reference` loads one."""
        return {}


Row = TypeVar("Row", bound=Descriptor)


def build_table(kind: str, rows: Iterable[Row]) -> dict[str, Row]:
    """The table of some rows, by their names.

    Args:
        kind: what a row is, for messages: `store`.

    Raises:
        SpecError: a row lacks something, or two have one name.
    """
    table: dict[str, Row] = {}
    gaps = []
    for row in rows:
        gaps += [f"{kind} {row.name!r}: {gap}" for gap in row.find_gaps()]
        if row.name in table:
            gaps.append(f"{kind} {row.name!r}: another row has this name")
        table[row.name] = row
    if gaps:
        raise SpecError("; ".join(gaps))
    return table


def require_rows(table: str, listed: Iterable[type], classes: Iterable[type]) -> None:
    """Refuse a table by class that lacks a class, or has one too many: called where the table is made.

    Args:
        table: its name and file, for the message.
        listed: the classes that it has.

    Raises:
        SpecError: the message names each class.
    """
    listed, wanted = list(listed), list(classes)
    gaps = [f"a row for {type_.__name__} is missing" for type_ in wanted if type_ not in listed]
    gaps += [f"{type_.__name__} has a row and needs none" for type_ in listed if type_ not in wanted]
    if gaps:
        raise SpecError(f"{table}: {'; '.join(gaps)}")


def find_row(table: Mapping[str, Row], kind: str, name: str, path: str = "") -> Row:
    """The row of a table with this name.

    Args:
        kind: what a row is, for the error.
        path: key path of the place that names it, for the error.

    Raises:
        SpecError: there is none.
    """
    if name not in table:
        hint = suggest_name(name, table)
        raise SpecError(f"unknown {kind} {shorten_foreign(name)!r}", path=path or None, hint=hint)
    return table[name]


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
        self._loaded: dict[str, Row | PluginUnusable] = {}
        """Rows of other packages that were named, and why those that failed did."""
        self._locks: dict[str, threading.RLock] = {}

    def find(self, name: str, path: str = "") -> Row:
        """The row of this name, imported now if it is one of another package.

        Args:
            path: key path of the place that names it, for the error.

        Raises:
            PluginUnusable: the package that offers it cannot be imported, or gives an incomplete row.
            SpecError: there is none.
        """
        row = self._builtin.get(name)
        if row is not None:
            return row
        if name in self._points:
            return self._find_added(self._points[name])
        raise SpecError(
            f"unknown {self.kind} {shorten_foreign(name)!r}",
            path=path or None,
            hint=suggest_name(name, self.names()),
        )

    def find_known(self, name: str) -> Row | None:
        """The row of this name, if it is one of this package or was loaded before; nothing is imported."""
        row = self._builtin.get(name) or self._loaded.get(name)
        return None if isinstance(row, PluginUnusable) else row

    def names(self) -> list[str]:
        """Every name, without loading the rows of other packages."""
        return [*self._builtin, *self._points]

    def has_builtin(self, name: str) -> bool:
        """Whether this package has a row of this name; other packages are not looked at."""
        return name in self._builtin

    def list_added(self) -> list[PluginPoint]:
        """What other packages add, without loading it."""
        return list(self._points.values())

    def describe_origin(self, name: str) -> str:
        """The package and the module that offer a row, from its metadata; empty for a row of this package."""
        point = None if name in self._builtin else self._points.get(name)
        return f"{point.package}: {point.reference}" if point is not None else ""

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self._points

    @property
    def builtin_rows(self) -> tuple[Row, ...]:
        """The rows of this package, in order; other packages are not looked at."""
        return tuple(self._builtin.values())

    @property
    def known_rows(self) -> tuple[Row, ...]:
        """The rows of this package, and those of other packages that were named in this process."""
        added = [row for row in self._loaded.values() if not isinstance(row, PluginUnusable)]
        return (*self._builtin.values(), *added)

    @cached_property
    def _builtin(self) -> dict[str, Row]:
        return build_table(self.kind, self._load_builtin())

    @cached_property
    def _points(self) -> dict[str, PluginPoint]:
        points: dict[str, PluginPoint] = {}
        for point in read_points(self.group, self.kind):
            is_taken = point.name in self._builtin or points.get(point.name, point) != point
            if is_taken:
                log.warning("%s %r of %s is ignored: the name is taken", self.kind, point.name, point.package)
            else:
                points[point.name] = point
        return points

    def _find_added(self, point: PluginPoint) -> Row:
        # Who asks for the same row meanwhile waits for the same outcome, and does not import again; who asks
        # for another one does not wait. Reentrant, since a module may name its own row while it is imported.
        with self._locks.setdefault(point.name, threading.RLock()):
            row = self._loaded.get(point.name)
            if row is None:
                try:
                    row = load_foreign(point, point.reference, lambda row: self._check(row, point))
                    _origins[id(row)] = (row, point)
                except PluginUnusable as error:
                    row = error
                self._loaded[point.name] = row
        if isinstance(row, PluginUnusable):
            # A new one each time: the traceback of one error would grow with each raise.
            raise PluginUnusable(row.message, hint=row.hint) from row.__cause__
        return row

    def _check(self, row: Any, point: PluginPoint) -> Row:
        """The object of an entry point, if it is a row as it must be.

        Raises:
            PluginUnusable: it is something else, incomplete, or holds values of other types.
        """
        if not isinstance(row, self._row_type):
            kind = shorten_foreign(type(row).__name__)
            raise PluginUnusable(
                f"{point.title} ({point.origin}): a {self.kind} is a {self._row_type.__name__}, not a {kind}"
            )
        if row.name != point.name:
            name = shorten_foreign(row.name)
            raise PluginUnusable(f"{point.origin} gives a {self.kind} with another name, {name!r}")
        gaps = find_value_gaps(row, self._row_type) or row.find_gaps()
        if gaps:
            problems = "; ".join(make_visible(gap) for gap in gaps)
            raise PluginUnusable(f"{point.title} ({point.origin}) is incomplete: {problems}")
        return row


_origins: dict[int, tuple[Descriptor, PluginPoint]] = {}
"""By the identity of a row of another package: the row, and where it comes from. A registry keeps its rows as
long as the process lives, so an identity means one row."""


def find_origin(row: Descriptor) -> str:
    """Where a row comes from, for messages: `store 'x' (entry point 'x' of package)`; empty for our own."""
    _, point = _origins.get(id(row), (row, None))
    return "" if point is None else f"{point.title} ({point.origin})"


_PLAIN_TYPES: dict[str, Any] = {
    "str": str,
    "str | None": str | None,
    "bool": bool,
    "bool | None": bool | None,
    "int": int,
    "int | None": int | None,
    "tuple[str, ...]": tuple[str, ...],
    "tuple[str, ...] | None": tuple[str, ...] | None,
    "Mapping[str, str]": dict[str, str],
}
"""Types of fields by their annotation. The others are functions, classes and parts with rules of their own,
which `find_gaps` of the row looks at."""


def find_value_gaps(row: Descriptor, row_type: type[Descriptor]) -> list[str]:
    """Fields of a row with a value of another type, or a text that would act on a terminal.

    A struct takes whatever it is given, and what prints a `summary` trusts that it is a text.
    """
    gaps = []
    annotations = {
        name: kind
        for base in row_type.__mro__
        for name, kind in vars(base).get("__annotations__", {}).items()
    }
    for name in row_type.__struct_fields__:
        value, plain_type = getattr(row, name), _PLAIN_TYPES.get(annotations[name])
        if plain_type is None:
            continue
        try:
            msgspec.convert(value, plain_type)
        except msgspec.ValidationError as error:
            gaps.append(f"`{name}`: {shorten_foreign(error)}")
            continue
        for text in (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ():
            if make_visible(text) != text:
                gaps.append(f"`{name}` holds control characters: {shorten_foreign(text)!r}")
    return gaps


def find_registry(group: str) -> Registry[Any]:
    """The registry of an entry point group, imported now."""
    registry: Registry[Any] = load_reference(REGISTRIES[group])
    return registry


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


def load_row_reference(row: Descriptor, reference: str) -> Any:
    """The object behind a lazy reference of a row, imported now; with a time limit, where it is not ours.

    Raises:
        ImportError, AttributeError: there is no such module or name in Toolchart, or software is missing that
            the module needs.
        PluginUnusable: another package gives the row, and its module cannot be imported.
    """
    _, point = _origins.get(id(row), (row, None))
    return _load_of(point, reference)


def _get_top_package(reference: str) -> str:
    return reference.partition(":")[0].partition(".")[0].strip()


_objects: dict[tuple[PluginPoint, str], Any] = {}
"""What the references of rows of other packages led to: the object, or the `PluginUnusable`."""


def _load_of(point: PluginPoint | None, reference: str) -> Any:
    # A row of another package may reuse what is Toolchart's.
    if point is None or _get_top_package(reference) == __name__.partition(".")[0]:
        return load_reference(reference)
    if (point, reference) not in _objects:
        try:
            _objects[point, reference] = load_foreign(point, reference, lambda value: value)
        except PluginUnusable as error:
            _objects[point, reference] = error
    loaded_object = _objects[point, reference]
    if isinstance(loaded_object, PluginUnusable):
        raise PluginUnusable(loaded_object.message, hint=loaded_object.hint) from loaded_object.__cause__
    return loaded_object


def guard_row(row: Descriptor, *expected: type[BaseException]) -> AbstractContextManager[None]:
    """Around a call of the code of a row: what it raises names the package, where that is not Toolchart.

    Args:
        expected: errors that the code may raise by its contract, beside those of Toolchart.

    Raises:
        PluginFailure: code of another package raised an error that is none of Toolchart.
    """
    return guard_use(find_origin(row), expected)
