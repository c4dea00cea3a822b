"""What users see of the types: pyright finds mistakes, and nothing in correct programs.

mypy (strict) is asked about the typed agent alone: pyright checks our own code.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import toolchart
import toolchart.engine
import toolchart.engine.durable
import toolchart.specs
import toolchart.states.diagram
import toolchart.states.errors
import toolchart.testing
import toolchart.tools
from toolchart.states.errors import ToolchartError
from toolchart.states.vocabulary import get_events

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE_PACKAGE = ROOT / "tests" / "plugin_package"
"""What `docs/extending.md` shows file by file; one of its examples imports from another."""
SUPPORT = ROOT / "tests" / "support"
"""What it says to copy: the suite of stores."""
MISTAKES = {"seeded_mistakes": 15, "seeded_agent_mistakes": 92}
"""Files of mistakes beside this one, and how many each has at least."""
FACES = (
    toolchart,
    toolchart.engine,
    toolchart.engine.durable,
    toolchart.specs,
    toolchart.states.diagram,
    toolchart.testing,
    toolchart.tools,
)
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]

ErrorLines = dict[tuple[str, int], str]
"""File name and line of each error to its text."""


def run_mypy(folder: Path) -> ErrorLines:
    """Check the files of a folder with mypy, with the settings of the repository."""
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--output", "json"]
    done = subprocess.run(
        [*command, *map(str, sorted(folder.glob("*.py")))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": os.pathsep.join(map(str, (EXAMPLE_PACKAGE, SUPPORT)))},
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    diagnostics = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {
        (Path(row["file"]).name, row["line"]): row["message"]
        for row in diagnostics
        if row["severity"] == "error"
    }


def run_pyright(folder: Path) -> ErrorLines:
    """Check the files of a folder with pyright, with the import paths of the repository."""
    settings = {
        "include": ["."],
        "extraPaths": [*(str(ROOT / path) for path in CONFIG["pyright"]["extraPaths"]), str(EXAMPLE_PACKAGE)],
        "pythonVersion": CONFIG["pyright"]["pythonVersion"],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] >= len(list(folder.glob("*.py")))
    return {
        (Path(row["file"]).name, row["range"]["start"]["line"] + 1): row["message"]
        for row in report["generalDiagnostics"]
    }


CHECKERS = [
    pytest.param(
        runner,
        files,
        id=name,
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(
                importlib.util.find_spec(name) is None, reason=f"{name} is not installed (extra `dev`)"
            ),
        ],
    )
    for name, runner, files in (
        ("mypy", run_mypy, ["seeded_agent_mistakes"]),
        ("pyright", run_pyright, list(MISTAKES)),
    )
]


def list_marked_lines(path: Path) -> set[tuple[str, int]]:
    """The lines of a file that are marked as mistakes."""
    lines = path.read_text("utf-8").splitlines()
    return {(path.name, number) for number, line in enumerate(lines, 1) if "  # mistake: " in line}


def write_examples(folder: Path) -> int:
    """Write the examples of the README and of `docs/` and our programs of `tests/pairs`; their number."""
    count = 0
    for program in sorted((ROOT / "tests" / "pairs").glob("*/with_toolchart.py")):
        shutil.copy(program, folder / f"pair_{program.parent.name}.py")
        count += 1
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = document.read_text("utf-8")
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1):
            name = document.stem.replace("-", "_").lower()
            (folder / f"example_{name}_{number}.py").write_text(code, "utf-8")
            count += 1
    return count


@pytest.mark.parametrize(("find_errors", "names"), CHECKERS)
def test_mistakes_are_found_and_nothing_else(
    find_errors: Callable[[Path], ErrorLines], names: list[str], tmp_path: Path
) -> None:
    """Issues 9 and 30: every seeded mistake is an error for its checkers; no other line and no example is.

    One run for all, since a checker reads the whole package first.
    """
    marked_lines: set[tuple[str, int]] = set()
    for name in names:
        path = Path(__file__).with_name(f"{name}.py")
        shutil.copy(path, tmp_path)
        assert len(list_marked_lines(path)) >= MISTAKES[name]
        marked_lines |= list_marked_lines(path)
    assert write_examples(tmp_path) >= 4
    errors = find_errors(tmp_path)
    assert sorted(marked_lines - set(errors)) == []
    assert {place: text for place, text in errors.items() if place not in marked_lines} == {}


def test_the_examples_of_the_reference_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The example at the top of docs/python-api.md runs as written."""
    text = (ROOT / "docs" / "python-api.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(code, "python-api.md", "exec"), {"__name__": "reference"})  # noqa: S102  our own text
    assert "459" in capsys.readouterr().out


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_exports_are_one_list(face: object) -> None:
    """Each export can be imported and is in `dir()`; checkers see these names alone, in the same modules."""
    exports = set(face.__all__) - {"__version__"}  # type: ignore[attr-defined]
    assert exports <= set(dir(face))
    for name in exports:
        assert getattr(face, name) is not None
    source = Path(str(face.__file__)).read_text("utf-8")  # type: ignore[attr-defined]
    homes = {name: module for module, name in re.findall(r"    from ([\w.]+) import (\w+) as \2\n", source)}
    assert homes.keys() == exports
    assert {name: getattr(sys.modules[home], name) for name, home in homes.items()} == {
        name: getattr(face, name) for name in exports
    }
    with pytest.raises(AttributeError, match="nonsense"):
        face.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_every_error_and_every_event_is_exported() -> None:
    """Users can name each error that they may catch and each event that an observer may see."""
    errors = {
        name
        for name, value in vars(toolchart.states.errors).items()
        if isinstance(value, type) and issubclass(value, ToolchartError)
    }
    events = {event.__name__ for event in (row.type for row in get_events().values())}
    assert errors | events <= set(toolchart.__all__)
