"""The wheel: it contains the whole package, nothing else, under one name."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("states", "workers", "specs", "tools", "providers", "engine", "testing", "app")


def list_declared_packages() -> set[str]:
    """Return the packages that pyproject.toml lists."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return set(config["tool"]["setuptools"]["packages"])


def list_tree_packages() -> set[str]:
    """Return the packages that exist in the tree."""
    packages = {"toolchart"}
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            packages.add(".".join(("toolchart", *init.parent.relative_to(ROOT).parts)))
    return packages


def test_every_package_is_listed() -> None:
    """pyproject.toml lists every package of the tree; one that is missing would be absent from the wheel."""
    assert list_declared_packages() == list_tree_packages()


def test_no_stray_modules_at_the_root() -> None:
    """The root has the package and what every layer needs; `setup.py` builds and is not in the wheel."""
    names = {path.name for path in ROOT.glob("*.py")}
    assert names == {"__init__.py", "__main__.py", "late_names.py", "setup.py"}


def list_repository_files() -> set[Path]:
    """The files that git tracks or would track, relative to the root; `.typing` is for type checkers only."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = {Path(name) for name in filter(None, done.stdout.decode().split("\0"))}
    return {name for name in names if name.parts[0] != ".typing" and (ROOT / name).is_file()}


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's files, in a folder with an odd name."""
    checkout = tmp_path_factory.mktemp("wheel") / "odd folder-name"
    for name in list_repository_files():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    return checkout


def has_build_backend() -> bool:
    """Whether the environment of the tests has the setuptools that pyproject.toml wants."""
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    except importlib.metadata.PackageNotFoundError:
        return False


@pytest.fixture(scope="session")
def wheel(checkout: Path) -> Path:
    """Build a wheel from the copy, as `pip install .` does."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    if has_build_backend():  # else pip gets one over the network
        command.append("--no-build-isolation")
    subprocess.run([*command, "-w", str(checkout.parent), str(checkout)], check=True, capture_output=True)
    return next(checkout.parent.glob("*.whl"))


def test_the_page_names_every_extra() -> None:
    """docs/install.md has one row for each extra that users may want, and no other."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "install.md").read_text("utf-8").partition("| extra | adds |")[2]
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(
        {*extras} - {"dev", "docs", "test"}
    )


@pytest.mark.slow
def test_a_build_leaves_nothing_in_the_tree(wheel: Path, checkout: Path) -> None:
    """`pip install .` leaves no file and no folder behind: no `build/`, no `toolchart.egg-info`."""
    assert wheel.is_file()
    paths = {path.relative_to(checkout) for path in checkout.rglob("*")}
    files = {path for path in paths if (checkout / path).is_file()}
    assert files <= list_repository_files()
    assert paths - files == {parent for file in files for parent in file.parents} - {Path()}


@pytest.mark.slow
def test_the_wheel_holds_the_tree(wheel: Path) -> None:
    """Every module, chart, agent and marker is in the wheel, and the man page is data of it; no test and no
    top-level room is."""
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in list_tree_packages():
        folder = ROOT.joinpath(*package.split(".")[1:])
        for path in folder.iterdir():
            if path.suffix in (".py", ".yaml") or path.name == "py.typed":
                is_included = f"{package.replace('.', '/')}/{path.name}" in names
                assert is_included == (path != ROOT / "setup.py"), path
    tops = {name.split("/")[0] for name in names}
    (data,) = (top for top in tops if top.endswith(".data"))
    assert {top for top in tops if not top.endswith(".dist-info")} == {"toolchart", data}
    found = {name for name in names if name.startswith(data)}
    assert found == {f"{data}/data/share/man/man1/toolchart.1"}


@pytest.mark.slow
def test_rooms_are_no_top_level_modules(wheel: Path, tmp_path: Path) -> None:
    """In an installed package `import toolchart` works, and no room is importable as a top-level module."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "import importlib.util as u, toolchart\n"
        f"assert toolchart.__file__.startswith({str(tmp_path)!r}), toolchart.__file__\n"
        f"print([room for room in {ROOMS!r} if u.find_spec(room)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.stdout.strip() == "[]"


def test_layers_of_the_linter_are_the_rooms() -> None:
    """The layers contract of import-linter names every room."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = " ".join(config["tool"]["importlinter"]["contracts"][0]["layers"])
    assert all(f"toolchart.{room}" in layers for room in ROOMS)
