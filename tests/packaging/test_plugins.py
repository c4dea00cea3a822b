"""The distributions under `plugins/`: complete, built on public names, and named where they are missing."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_runs import restored_loggers, run_cli

import toolchart
from toolchart.states.descriptors import PLUGINS

__all__ = ["restored_loggers", "run_cli"]

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))
EXTENDING = (ROOT / "docs" / "extending.md").read_text("utf-8")


def read_project(folder: Path) -> dict[str, Any]:
    """The pyproject.toml of a plugin."""
    return tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_plugin_is_a_whole_distribution(folder: Path) -> None:
    """A plugin has the name of its folder, a README, typed packages that are all listed, and tests; it needs
    Toolchart, and has the version of it."""
    config = read_project(folder)
    project, packages = config["project"], config["tool"]["setuptools"]["packages"]
    assert project["name"] == folder.name
    assert project["version"] == toolchart.__version__
    assert any(re.match(r"toolchart\b", need) for need in project["dependencies"])
    assert f"pip install {folder.name}" in (folder / "README.md").read_text("utf-8")
    assert packages == [path.parent.name for path in folder.glob("*/__init__.py")]
    assert all((folder / package / "py.typed").is_file() for package in packages)
    assert list((folder / "tests").glob("test_*.py"))


def list_imports_of_toolchart(folder: Path) -> set[str]:
    """The names of Toolchart that the packages of a plugin import: `toolchart.engine.durable.Stretch`."""
    names = set()
    for package in read_project(folder)["tool"]["setuptools"]["packages"]:
        for path in (folder / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "toolchart":
                    names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def is_public(name: str) -> bool:
    """Whether a name is exported by `toolchart`, or `docs/extending.md` names it."""
    module, _, word = name.rpartition(".")
    return (module == "toolchart" and word in toolchart.__all__) or f"`{name}`" in EXTENDING


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_plugin_is_built_on_public_names(folder: Path) -> None:
    """A plugin imports what `docs/reference.md` or `docs/extending.md` names, and nothing else."""
    assert [name for name in sorted(list_imports_of_toolchart(folder)) if not is_public(name)] == []


def test_the_table_of_plugins_has_their_rows() -> None:
    """Each entry point of a plugin is in the table that errors read, and no other."""
    assert {
        (group, name): folder.name
        for folder in FOLDERS
        for group, points in read_project(folder)["project"].get("entry-points", {}).items()
        for name in points
    } == PLUGINS


def test_a_plugin_that_is_not_installed_is_named(run_cli: Callable[..., Any]) -> None:
    """A log on NATS without the plugin is an error with exit code 2 and the command that installs it."""
    result = run_cli("runs", "--log", "nats://127.0.0.1:1/log")
    assert (result.code, result.out) == (2, "")
    assert "the store 'nats' is in a package of its own, which is not installed" in result.err
    assert "pip install toolchart-nats" in result.err
