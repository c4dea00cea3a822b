"""Installs a small package into a folder, as `pip install --no-deps --target` does, but without pip."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

from command_line import run_toolchart


def install_package(source: Path, target: Path) -> None:
    """Copy the packages of a project to a folder, with the metadata that its pyproject.toml declares:
    name, version and entry points."""
    config = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))
    for package in config["tool"]["setuptools"]["packages"]:
        shutil.copytree(source / package, target / package)
    project = config["project"]
    name, version = project["name"], project["version"]
    info = target / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata, "utf-8")
    groups = project.get("entry-points", {})
    (info / "entry_points.txt").write_text(
        "\n".join(_format_group(group, points) for group, points in groups.items()), "utf-8"
    )


def _format_group(group: str, points: dict[str, str]) -> str:
    lines = [f"{name} = {reference}" for name, reference in points.items()]
    return "\n".join([f"[{group}]", *lines, ""])


def run_with_packages(*words: str, packages: Path, cwd: Path, **env: str) -> Any:
    """Run the real command line in a process that sees the packages of a folder."""
    path = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")]))
    return run_toolchart(*words, cwd=cwd, PYTHONPATH=path, **env)
