"""The contract of all tables: every row of every kind is complete, light to load, and usable."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from toolchart.providers.text_calls.formats import TEXT_FORMATS
from toolchart.states.descriptors import (
    REGISTRIES,
    Descriptor,
    Registry,
    build_table,
    find_reference_gaps,
    find_registry,
    load_reference,
)
from toolchart.states.errors import SpecError
from toolchart.states.vocabulary import get_effects, get_events, get_facts

ROOT = Path(__file__).resolve().parents[2]

TABLES: dict[str, tuple[Descriptor, ...]] = {
    **{group: find_registry(group).builtin_rows for group in REGISTRIES},
    "effects": tuple(get_effects().values()),
    "events": tuple(get_events().values()),
    "facts": tuple(get_facts().values()),
    "text formats": tuple(TEXT_FORMATS.values()),
}
"""The rows of every table of descriptors."""


def list_rows() -> Iterator[Any]:
    """Yield every row of Toolchart."""
    for table, rows in TABLES.items():
        for row in rows:
            yield pytest.param(row, id=f"{table.removeprefix('toolchart.')}-{row.name}")


@pytest.mark.parametrize("group", REGISTRIES)
def test_a_registry_has_its_rows(group: str) -> None:
    """A registry has the group under which it is listed, and rows with different names."""
    registry = find_registry(group)
    names = [row.name for row in registry.builtin_rows]
    assert registry.group == group
    assert names
    assert len(set(names)) == len(names)
    assert registry.names()[: len(names)] == names
    assert all(registry.find(row.name) is row for row in registry.builtin_rows)


@pytest.mark.parametrize("row", list(list_rows()))
def test_every_row_is_complete(row: Descriptor) -> None:
    """A row has no gaps, and each of its references loads something to call or read."""
    assert row.find_gaps() == []
    for field, reference in row.list_references().items():
        assert load_reference(reference) is not None, field


@pytest.mark.parametrize("row", list(list_rows()))
def test_a_faulty_reference_is_a_gap(row: Descriptor) -> None:
    """A reference with a mistake is a gap that names its field."""
    for field in set(row.list_references()).intersection(row.__struct_fields__):
        assert f"`{field}`" in " ".join(replace(row, **{field: "module.without_name"}).find_gaps())


@pytest.mark.parametrize("table", TABLES)
def test_a_row_with_only_a_name_has_gaps(table: str) -> None:
    """A row of any kind that holds nothing but its name is incomplete, and `find_gaps` does not raise."""
    row_type = type(TABLES[table][0])
    assert row_type(name="x").find_gaps()
    assert "`name` is empty" in row_type(name="").find_gaps()


@pytest.mark.parametrize("table", TABLES)
def test_two_rows_of_one_name_are_refused(table: str) -> None:
    """A table with two rows of one name does not load, whatever its kind: neither wins silently."""
    first, *_ = rows = TABLES[table]
    with pytest.raises(SpecError, match=f"{first.name!r}: another row has this name"):
        build_table(table, [*rows, replace(first)])
    assert list(build_table(table, rows).values()) == list(rows)


def test_all_rows_load_without_their_code() -> None:
    """The rows of all tables load without an SDK, SymPy, rich, a database driver or entry points."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); import conftest, importlib.metadata\n"
        "def watch(): print('READ'); return []\n"
        "before = set(sys.modules)\n"
        "importlib.metadata.distributions = watch\n"
        "from toolchart.providers.text_calls.formats import TEXT_FORMATS\n"
        "from toolchart.states.descriptors import REGISTRIES, find_registry\n"
        "from toolchart.states.vocabulary import get_effects, get_events, get_facts\n"
        "assert TEXT_FORMATS and get_effects() and get_events() and get_facts()\n"
        "for group in REGISTRIES:\n"
        "    for row in find_registry(group).builtin_rows: find_registry(group).find(row.name)\n"
        "print(*(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    heavy = {"openai", "ollama", "google.genai", "anthropic", "sympy", "rich", "psycopg", "sqlite3"}
    heavy |= {"mcp", "httpx", "prompt_toolkit", "statemachine"}
    assert "READ" not in run.stdout
    assert not heavy & set(run.stdout.split())


# -- rows of other packages --------------------------------------------------------------------------


class Ship(Descriptor, frozen=True, kw_only=True):
    """A kind of row for these tests."""

    captain: str = ""

    def find_gaps(self) -> list[str]:
        """A ship needs a captain."""
        return [*super().find_gaps(), *([] if self.captain else ["`captain` is missing"])]


class LateModule(ModuleType):
    """A module whose object is made by a function when it is asked for."""

    def __init__(self, make_row: Callable[[], Any]) -> None:
        super().__init__("late")
        self._make_row = make_row

    def __getattr__(self, name: str) -> Any:
        if name != "make":
            raise AttributeError(name)
        return self._make_row()


class FakeDistribution(SimpleNamespace):
    """An installed package with one entry point."""

    def read_text(self, name: str) -> str:
        """The file with the entry points."""
        return f"[x.ships]\n{self.point} = {self.module}:make\n"


MakeRegistry = Callable[..., Registry[Ship]]


@pytest.fixture
def make_registry(monkeypatch: pytest.MonkeyPatch) -> MakeRegistry:
    """Make a registry with the row `own` and the given entry points, which are functions by name."""

    def make(**points: Callable[[], Any]) -> Registry[Ship]:
        fakes = []
        for name, make_row in points.items():
            monkeypatch.setitem(sys.modules, f"fleet_{name}", LateModule(make_row))
            fakes.append(FakeDistribution(metadata={"Name": "fleet"}, point=name, module=f"fleet_{name}"))
        monkeypatch.setattr(importlib.metadata, "distributions", lambda: fakes)
        return Registry("ship", "x.ships", Ship, lambda: [Ship(name="own", captain="A")])

    return make


def test_a_row_of_another_package_is_found(make_registry: MakeRegistry) -> None:
    """A row of another package is found by its name, listed after ours, and loaded by nothing else."""
    registry = make_registry(far=lambda: Ship(name="far", captain="B"))
    assert registry.names() == ["own", "far"]
    assert "far" in registry
    assert [row.name for row in registry.known_rows] == ["own"]
    assert registry.find_known("far") is None
    assert registry.find("far").captain == "B"
    assert [row.name for row in registry.known_rows] == ["own", "far"]
    assert [row.name for row in registry.builtin_rows] == ["own"]
    with pytest.raises(TypeError):
        iter(registry)  # type: ignore[call-overload]  # whoever iterates would load the code of everybody


def test_our_names_are_not_replaced(make_registry: MakeRegistry, caplog: pytest.LogCaptureFixture) -> None:
    """A row of another package with the name of one of ours is ignored, with a warning."""
    registry = make_registry(own=lambda: Ship(name="own", captain="pirate"))
    assert registry.names() == ["own"]
    assert registry.find("own").captain == "A"
    assert "ship 'own' of fleet is ignored: the name is taken" in caplog.text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ship(name="far", captain=5), "`captain`: Expected `str`"),  # type: ignore[arg-type]
        (lambda: Ship(name="far", captain="\x1b[2J"), "`captain` holds control characters"),
        (lambda: Ship(name="far"), "ship 'far' (entry point 'far' of fleet) is incomplete: `captain`"),
        (lambda: Ship(name="near", captain="B"), "gives a ship with another name, 'near'"),
        (lambda: "far", "a ship is a Ship, not a str"),
        (lambda: Ship(name="far", capt="B"), "Unexpected keyword argument 'capt'"),  # type: ignore[call-arg]
        (lambda: load_reference("no_such_module:x"), "No module named 'no_such_module'"),
    ],
)
def test_a_faulty_row_is_refused(make: Callable[[], Any], message: str, make_registry: MakeRegistry) -> None:
    """A row that is incomplete, misnamed, of another type or not loadable is refused, whenever named."""
    registry = make_registry(far=make)
    with pytest.raises(SpecError) as refusal:
        registry.find("far")
    assert message in str(refusal.value)
    assert "fleet" in str(refusal.value)
    with pytest.raises(SpecError) as again:
        registry.find("far")
    assert str(again.value) == str(refusal.value)
    assert [row.name for row in registry.known_rows] == ["own"]


def test_an_unknown_name_gets_a_hint(make_registry: MakeRegistry) -> None:
    """An unknown name is refused with the most similar one, also of another package."""
    registry = make_registry(faraway=lambda: Ship(name="faraway", captain="B"))
    with pytest.raises(SpecError, match=r"unknown ship 'farway'\n  did you mean 'faraway'"):
        registry.find("farway")


def test_a_reference_has_a_module_and_a_name() -> None:
    """A reference is `package.module:name`; anything else is a gap that names the reference."""
    assert find_reference_gaps("open", "a.b_c:d", "x") == []
    assert "the opener" in find_reference_gaps("open", "", "the opener")[0]
    for text in ("a.b", "a:b:c", "a b:c", ".a:b", "a:", ":b", "1a:b"):
        assert find_reference_gaps("open", text, "x"), text


def test_every_descriptor_field_is_explained() -> None:
    """Every field of a descriptor has a text below it."""
    for rows in TABLES.values():
        row_type = type(rows[0])
        (definition,) = ast.parse(inspect.getsource(row_type)).body
        assert isinstance(definition, ast.ClassDef)
        for statement, following in pairwise(definition.body):
            if isinstance(statement, ast.AnnAssign):
                assert isinstance(following, ast.Expr), (row_type.__name__, ast.unparse(statement))
