"""The README's first command as printed: it makes an environment of its own, also where pip is managed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_first_command_makes_its_own_environment() -> None:
    """Issue 16: the line installs into an environment that it makes itself, and then runs the agent."""
    (line,) = re.findall(r"^    (python3 -m venv .*)$", README, re.MULTILINE)
    steps = line.split(" && ")
    assert steps[:3] == ["python3 -m venv .venv", ". .venv/bin/activate", "pip install ."]
    assert steps[3].startswith("toolchart run quickstart")


@pytest.mark.skipif(not os.environ.get("TOOLCHART_LONG"), reason="installs every package: the long form")
def test_the_first_command_answers_from_a_clean_clone(tmp_path: Path) -> None:
    """Issue 16: as printed, from a clean clone, where the system's pip refuses to install: it prints 459."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    system = tmp_path / "system"
    venv.create(system, with_pip=True)
    library = next((system / "lib").glob("python3*"))
    (library / "EXTERNALLY-MANAGED").write_text("[externally-managed]\nError=managed\n", "utf-8")
    (line,) = re.findall(r"^    (python3 -m venv .*)$", README, re.MULTILINE)
    environment = {**os.environ, "PATH": f"{system / 'bin'}:/usr/bin:/bin"}
    environment.pop("VIRTUAL_ENV", None)
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["bash", "-c", line], cwd=clone, env=environment, capture_output=True, text=True, timeout=900
    )
    assert "459" in done.stdout, done.stderr


CHECKED = """\
from toolchart import Engine

Engine("quickstart").run("x").content.upper()
Engine("quickstart").runn("x")
"""


@pytest.mark.skipif(not os.environ.get("TOOLCHART_LONG"), reason="downloads the build tool: the long form")
def test_type_checkers_find_the_package_in_an_editable_installation(tmp_path: Path) -> None:
    """After `pip install -e .`, without settings of their own, pyright and mypy see the types: they find the
    one mistake, and no other."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH",)}
    clone, own = tmp_path / "clone", tmp_path / "own"
    shutil.copytree(
        ROOT,
        clone,
        symlinks=True,
        ignore=shutil.ignore_patterns(".git", ".*_cache", "__pycache__", "node_modules"),
    )
    venv.create(own, with_pip=True)
    python = str(own / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "-e", str(clone)]
    subprocess.run(install, env=environment, check=True, timeout=300)
    program = tmp_path / "user" / "program.py"
    program.parent.mkdir()
    program.write_text(CHECKED, "utf-8")
    for command in (["mypy", "--python-executable", python], ["pyright", "--pythonpath", python]):
        done = subprocess.run(
            [sys.executable, "-m", *command, program.name],
            cwd=program.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        errors = [text for text in done.stdout.splitlines() if " error: " in text]
        assert len(errors) == 1, done.stdout + done.stderr
        assert "program.py:4" in errors[0]
        assert "runn" in errors[0]
