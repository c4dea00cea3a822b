"""The pages of `docs/coming-from`: text of `tests/pairs/pages`, completed with programs and measures."""

from __future__ import annotations

import ast
import io
import itertools
import json
import re
import sys
import tempfile
import time
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pair_runs
from pair_runs import (
    FRAMEWORKS,
    OWN_LOOP,
    PACKAGES,
    PROGRAMS,
    ROOT,
    TASKS,
    TOOLCHART,
    find_program,
    find_python,
    list_tasks,
    run_process,
    run_program,
)

DOCS = ROOT / "docs" / "coming-from"
PAGES = PROGRAMS / "pages"
"""The text of each page, in Markdown, with marks `<!-- NAME ARGUMENTS -->` that are filled."""
PAGE_OF = {
    "pydantic_ai": "pydantic-ai",
    "openai_agents": "openai-agents",
    "langgraph": "langgraph",
    OWN_LOOP: "own-loop",
}
"""By framework: its page."""
MEASURES = PROGRAMS / "measures.json"
"""What was measured: seconds to load and to run each program, the releases, and what the log shows."""
ROUNDS = 3
ROUNDS_S = 300
"""After the first round nothing more is measured when so much time has gone."""
LOAD_S = 60
"""How long one program may take to load."""
SHOWN = ("streamed_approval", "delegation")
"""The tasks whose log is on the pages; those of the others are too long, or show nothing else."""
MARK = re.compile(r"<!-- (\w+)((?: \w+)*) -->")
Measures = dict[str, Any]


def list_pages() -> list[str]:
    """The names of the pages, without their suffix."""
    return sorted(path.stem for path in PAGES.glob("*.md"))


def print_page(name: str) -> str:
    """A page as it should be."""
    measures = json.loads(MEASURES.read_text("utf-8"))

    def fill(mark: re.Match[str]) -> str:
        return FILLERS[mark[1]](measures, *mark[2].split())

    return MARK.sub(fill, (PAGES / f"{name}.md").read_text("utf-8"))


def print_releases(measures: Measures, *frameworks: str) -> str:
    """The newest releases that the programs were run with, of one framework or of all."""
    releases = [
        f"{title} {measures['releases'][package]}"
        for framework in frameworks or PACKAGES
        for package, title in PACKAGES[framework].items()
    ]
    return " and ".join(filter(None, (", ".join(releases[:-1]), releases[-1])))


def print_figures(measures: Measures) -> str:
    """The table of all tasks and frameworks."""
    titles = " | ".join(
        title if name == TOOLCHART else f"[{title}]({PAGE_OF[name]}.md)" for name, title in FRAMEWORKS.items()
    )
    rows = [
        f"| {TASKS[task].title} | "
        + " | ".join(print_cell(measures, task, framework) for framework in FRAMEWORKS)
        + " |"
        for task in TASKS
    ]
    return "\n".join((f"| lines, loading, running | {titles} |", "|---|" + "---:|" * len(FRAMEWORKS), *rows))


def print_cell(measures: Measures, task: str, framework: str) -> str:
    """Lines, loading and running of a program; a dash where there is none."""
    if task not in list_tasks(framework):
        return "–"
    ratios = (print_ratio(measures, kind, task, framework) for kind in ("loading", "running"))
    return ", ".join((str(count_lines(task, framework)), *ratios))


def print_ratio(measures: Measures, kind: str, task: str, framework: str) -> str:
    """How long loading or running a program takes, as a multiple of ours."""
    seconds = measures[kind][task]
    return f"{seconds[framework] / seconds[TOOLCHART]:.1f}"


def print_missing(measures: Measures, *frameworks: str) -> str:
    """Which programs there are not."""
    sentences = [
        f"For {FRAMEWORKS[framework]} there is no program of "
        + " and ".join(f'"{TASKS[task].title}"' for task in absent)
        + "."
        for framework in frameworks or FRAMEWORKS
        if (absent := [task for task in TASKS if task not in list_tasks(framework)])
    ]
    return "\n".join(sentences) or "Every task has a program of each."


def print_own_figures(measures: Measures, framework: str) -> str:
    """The table of the programs of one framework, beside ours."""
    title = FRAMEWORKS[framework]
    rows = [
        f"| [{TASKS[task].title}](#{make_anchor(task)}) | {count_lines(task, framework)} "
        f"| {count_lines(task, TOOLCHART)} | {print_ratio(measures, 'loading', task, framework)} "
        f"| {print_ratio(measures, 'running', task, framework)} |"
        for task in list_tasks(framework)
    ]
    head = f"| task | lines: {title} | lines: Toolchart | loading, Toolchart = 1 | running, Toolchart = 1 |"
    return "\n".join((head, "|---|---:|---:|---:|---:|", *rows))


def make_anchor(task: str) -> str:
    """The anchor of the section of a task."""
    return re.sub(r"[^a-z ]", "", TASKS[task].title.lower()).replace(" ", "-")


def print_programs(measures: Measures, task: str, framework: str) -> str:
    """Their program and ours, and what our log shows afterwards."""
    parts: list[str] = []
    for name in (framework, TOOLCHART):
        # The type checkers read the examples that are marked as `python`; they know our own package only.
        language = "python" if name == TOOLCHART else "py"
        text = find_program(task, name).read_text("utf-8")
        title = FRAMEWORKS[name][0].upper() + FRAMEWORKS[name][1:]
        parts.append(f"**{title}**\n\n```{language}\n{text}```\n")
    if task in SHOWN:
        parts.append(
            "Afterwards Toolchart's log has this, as `toolchart show` prints it (without times). "
            "`toolchart verify` finds the\nlog intact, and `toolchart replay` derives each step again.\n\n"
            f"```text\n{measures['shown'][task]}\n```\n"
        )
    return "\n".join(parts).rstrip("\n")


def print_title(measures: Measures, task: str) -> str:
    """The title of a task."""
    return TASKS[task].title


FILLERS: dict[str, Callable[..., str]] = {
    "releases": print_releases,
    "figures": print_figures,
    "own_figures": print_own_figures,
    "missing": print_missing,
    "programs": print_programs,
    "title": print_title,
}
"""What fills a mark, by its name."""


def count_lines(task: str, framework: str) -> int:
    """The lines of code of a program: no blank lines, comments and docstrings."""
    text = find_program(task, framework).read_text("utf-8")
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in skipped and token.string
        for number in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def show_log(folder: Path) -> str:
    """What `show` prints of the first conversation in a folder, from its first turn on, without times.

    Raises:
        AssertionError: the log does not verify, or does not replay.
    """
    (name, *_), *_ = map(str.split, _run_command(folder, "verify"))
    name = name.rstrip(":")
    assert _run_command(folder, "replay", name)
    text = "\n".join(_run_command(folder, "show", name))
    text = re.sub(r"\d\d:\d\d:\d\d\.\d{3} ", "", text)
    lines = text[text.index("turn_started") :].splitlines()
    return "\n".join(["   1 " + lines[0], *lines[1:]])


def _run_command(folder: Path, *arguments: str) -> list[str]:
    environment = pair_runs.make_environment(TOOLCHART, folder, "http://127.0.0.1:9/v1")
    command = [sys.executable, "-m", "toolchart", *arguments]
    return run_process(command, environment, folder, LOAD_S).splitlines()


def measure(measured: Measures, say: Callable[[str], None]) -> Measures:
    """What the log of each program shows; and the seconds anew where the other frameworks are installed.

    It says what it does, because it takes minutes: it loads and runs each program up to `ROUNDS` times, for
    the shortest time. It ends within `ROUNDS_S` and one round; each process of a round has its own limit.
    """
    shown: dict[str, str] = {}
    for task in SHOWN:
        say(f"running {find_program(task, TOOLCHART).relative_to(ROOT)}")
        shown[task] = show_new_log(task)
    if find_python(OWN_LOOP) is None:
        say(f"nothing is measured: {pair_runs.VARIABLE} names no folder with the newest releases")
        return {**measured, "shown": shown}
    measures: Measures = {"releases": read_releases()}
    end = time.monotonic() + ROUNDS_S
    for number in range(1, ROUNDS + 1):
        # The frameworks of a task one after the other: a machine may be slower a minute later.
        for task, framework in itertools.product(TASKS, FRAMEWORKS):
            if task not in list_tasks(framework) or (number > 1 and time.monotonic() > end):
                continue
            taken = {"loading": load_program(framework, task), "running": time_program(framework, task)}
            for kind, seconds in taken.items():
                row = measures.setdefault(kind, {}).setdefault(task, {})
                row[framework] = round(min(seconds, row.get(framework, seconds)), 2)
            path = find_program(task, framework).relative_to(ROOT)
            texts = (f"{kind} {seconds:.2f} s" for kind, seconds in taken.items())
            say(f"round {number} of {ROUNDS}, {path}: {', '.join(texts)} of a processor")
    return {**measures, "shown": shown}


def show_new_log(task: str) -> str:
    """What the log shows after our program of a task."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_program(task, TOOLCHART, Path(sys.executable), folder)
        return show_log(folder)


def load_program(framework: str, task: str) -> float:
    """The seconds of a processor that a process takes to load a program."""
    code = (
        "import os, runpy, sys; runpy.run_path(sys.argv[1], run_name='loaded'); "
        "times = os.times(); print(times.user + times.system)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = pair_runs.make_environment(framework, Path(folder), "http://127.0.0.1:9/v1")
        command = [str(find_python(framework)), "-c", code, str(find_program(task, framework))]
        return float(run_process(command, environment, Path(folder), LOAD_S))


def time_program(framework: str, task: str) -> float:
    """The seconds of a processor that all processes of a program take, from their start to their end."""
    import resource  # not on Windows, where the pages are tested too

    python = find_python(framework)
    assert python is not None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        run_program(task, framework, python, Path(folder))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def read_releases() -> dict[str, str]:
    """The newest releases of the other frameworks' packages, as they are installed."""
    packages = [package for row in PACKAGES.values() for package in row]
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    command = [str(find_python(OWN_LOOP)), "-c", code, *packages]
    return dict(zip(packages, run_process(command, {}, ROOT, LOAD_S).split(), strict=True))
