"""Builds the pages of `docs/` as a site: as HTML by Zensical, and as Markdown for programs.

    python .ci/build_site.py [FOLDER]       FOLDER is `site` where none is named; it is replaced

Each page stands as Markdown beside its HTML: `tour/` as `tour.md`. `llms.txt` lists them, each with its
first sentence. The entries of the Python API, which the HTML has from the docstrings, are written out.
A link to a page or a heading that does not exist ends the build with status 1.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parents[1]
DOCS, CONFIGURATION = ROOT / "docs", ROOT / "zensical.toml"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.])\s(?=[A-Z`])")


def build(site: Path) -> int:
    """Build the site; return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)  # Zensical leaves files beside what it builds
        shutil.copytree(DOCS, copy / "docs")
        shutil.copy(CONFIGURATION, copy)
        (copy / ".typing").symlink_to(ROOT / ".typing")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
        if done.returncode:
            # A traceback of Zensical follows its list of issues.
            sys.stderr.write(_COLOUR.sub("", done.stdout + done.stderr.partition("Traceback")[0]))
            return 1
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(copy / "site", site)
    package = griffe.load("toolchart", search_paths=[ROOT / ".typing"], resolve_aliases=True)
    assert isinstance(package, griffe.Module)
    for page in sorted(DOCS.rglob("*.md")):
        place = site / page.relative_to(DOCS)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = _ENTRY.sub(lambda entry: describe_entry(package, entry[1]), page.read_text("utf-8"))
        place.write_text(text, "utf-8")
    (site / "llms.txt").write_text(print_list(), "utf-8")
    return 0


def print_list() -> str:
    """The list of all pages for language models, in the order of the bar (llmstxt.org has the form)."""
    project = tomllib.loads(CONFIGURATION.read_text("utf-8"))["project"]
    parts = [f"# {project['site_name']}\n\n> {project['site_description']}\n"]
    for section in project["nav"]:
        ((title, entries),) = section.items()
        rows = [
            f"- [{name or read_title(page)}]({page}): {read_promise(page)}" for name, page in flatten(entries)
        ]
        parts.append("\n".join((f"## {title}\n", *rows, "")))
    return "\n".join(parts)


def flatten(entries: list[Any]) -> Iterator[tuple[str, str]]:
    """Name and file of each page of a section; the page of the section itself has no name."""
    for entry in entries:
        if isinstance(entry, str):
            yield "", entry
            continue
        ((name, value),) = entry.items()
        if isinstance(value, str):
            yield name, value
        else:
            yield from flatten(value)


def read_title(page: str) -> str:
    """The heading of a page."""
    return (DOCS / page).read_text("utf-8").partition("\n")[0].removeprefix("# ")


def read_promise(page: str) -> str:
    """The first sentence of a page."""
    text = (DOCS / page).read_text("utf-8").partition("\n")[2].strip()
    return _SENTENCE_END.split(" ".join(text.partition("\n\n")[0].split()))[0]


def describe_entry(package: griffe.Module, name: str) -> str:
    """Signature and docstring of an export, and of its public members, as Markdown."""
    value = package[name.removeprefix("toolchart.")]
    parts = [f"### `{name}`\n", *print_value(value)]
    if value.is_class:
        for key, member in value.members.items():
            if not key.startswith("_") and (member.docstring or member.is_function):
                parts += [f"#### `{value.name}.{key}`\n", *print_value(member)]
    return "\n".join(parts)


def print_value(value: griffe.Object | griffe.Alias) -> Iterator[str]:
    """Signature or type, and docstring, of a class, a function or an attribute."""
    if value.is_function or value.is_class:
        yield f"```python\n{value.signature()}\n```\n"
    elif value.is_attribute and value.annotation is not None:
        yield f"```python\n{value.name}: {value.annotation}\n```\n"
    if value.docstring is not None:
        yield f"{value.docstring.value}\n"


if __name__ == "__main__":
    sys.exit(build(Path(*sys.argv[1:2] or ["site"]).absolute()))
