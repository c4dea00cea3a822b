"""The page that shows the programs of `tests/pairs` beside each other, and what it measures."""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path
from typing import Any

import pair_runs
from pair_runs import FRAMEWORKS, PROGRAMS, ROOT, TASKS, TOOLCHART, find_program, find_python, run_program

DOC = ROOT / "docs" / "pairs.md"
MEASURES = PROGRAMS / "measures.json"
"""What was measured: seconds to load each program, the releases, and what the log shows."""
ROUNDS = 3
SHOWN = ("typed_answer", "streamed_approval", "delegation")
"""The tasks whose log is on the page; that of the long conversation is too long for it."""

INTRODUCTION = """\
# Beside other frameworks

Five programs, each written for Toolchart, for Pydantic AI and for the OpenAI Agents SDK. A test runs
all of them, each in a process of its own, against the same scripted model on loopback: they print the
same lines, and run the same calls with the same results. The other two are run with {releases}, and
with the lowest that `tests/pairs/requirements.txt` allows.

Lines are those of code: no blank lines, comments and docstrings. Loading is the processor time that a
process takes to import the program and what it imports, without running it, as a multiple of the
shortest.

This page is generated: `python tests/pairs/test_pairs_doc.py` writes it, and the same file tests it.
"""

NOTES = {
    "typed_answer": """\
All three have the same shape. In Toolchart a turn without its dependencies is an error for the type
checker; the parameter `deps` of Pydantic AI has a default, so there it is not. An answer that breaks
its class, such as a risk of 11, is asked for again in Toolchart and Pydantic AI; it ends the run of the
Agents SDK with an error.

The others are better here: Pydantic AI takes several functions as instructions, each by a decorator.
Toolchart takes one function as the prompt.
""",
    "streamed_approval": """\
In Toolchart the log says who approved, and when; the turn may go on in another process, after a restart
too.

The others are better here: Pydantic AI's events name each part of an answer. The Agents SDK approves by
`state.approve(call)`, and may approve a tool for the rest of a run. `approve` of Toolchart does not
stream, so a program that streams makes the decision itself (`Decided`). A program that stays in one
process needs no log in the other two.
""",
    "delegation": """\
In Toolchart the second process needs the id of the conversation only. The call that waits in the child
is listed by the parent's turn. Pydantic AI has no agent as a tool: the program hands the child's
conversation on, and goes on with both. The Agents SDK keeps the child in the state of the run. Who runs
`approve` twice completes the run twice in the other two, because nothing marks their file as used;
Toolchart refuses the second one.

The others are better here: the state is one JSON text, which the program may keep where it likes; a log
of Toolchart needs a store (SQLite, PostgreSQL, or one of your own). Pydantic AI's `CallDeferred` waits
for anything outside, not only for a decision.
""",
    "long_conversation": """\
In Toolchart the chart `compacting` decides by tokens what the model sees, also inside a turn. No
function of the program cuts between a call and its result.

The others are better here: a function of a few lines decides what the model sees, by any rule. In
Toolchart the rule is in the chart. `context_limit` makes the model a mapping instead of a text.
""",
    "model_free_test": """\
A scripted model of Toolchart and of the Agents SDK takes the replies in order. In Pydantic AI a
function answers.

The others are better here: `assert_complete` of the Agents SDK says when a reply was not asked for.
`ALLOW_MODEL_REQUESTS` of Pydantic AI forbids requests to hosts in a whole test run, and its `TestModel`
calls every tool with arguments that it makes up.
""",
}
"""What differs, and where the others are better, by task."""


def print_page() -> str:
    """The page as it should be."""
    measures = json.loads(MEASURES.read_text("utf-8"))
    releases = " and ".join(f"{name} {number}" for name, number in measures["releases"].items())
    titles = " | ".join(f"{title}: lines | loading" for title in FRAMEWORKS.values())
    rows = [
        f"| [{TASKS[task].title}](#{make_anchor(task)}) | "
        + " | ".join(
            f"{count_lines(task, framework)} | {print_ratio(measures['seconds'][task], framework)}"
            for framework in FRAMEWORKS
        )
        + " |"
        for task in TASKS
    ]
    table = "\n".join((f"| task | {titles} |", "|---|" + "---:|" * 2 * len(FRAMEWORKS), *rows))
    sections = [print_section(task, measures["shown"].get(task, "")) for task in TASKS]
    return "\n".join((INTRODUCTION.format(releases=releases), table, "", *sections))


def make_anchor(task: str) -> str:
    """The anchor of the section of a task."""
    return re.sub(r"[^a-z ]", "", TASKS[task].title.lower()).replace(" ", "-")


def print_ratio(seconds: dict[str, float], framework: str) -> str:
    """How much longer than the shortest a program takes to load."""
    return f"{seconds[framework] / min(seconds.values()):.1f}"


def print_section(task: str, shown: str) -> str:
    """The section of a task: what differs, the programs, and what the log shows afterwards."""
    parts = [f"## {TASKS[task].title}\n", NOTES[task]]
    for framework, title in FRAMEWORKS.items():
        # The type checkers read the examples that are marked as `python`; they know our own package only.
        language = "python" if framework == TOOLCHART else "py"
        text = find_program(task, framework).read_text("utf-8")
        parts.append(f"**{title}**\n\n```{language}\n{text}```\n")
    if shown:
        parts.append(
            "Afterwards Toolchart's log has this, as `toolchart show` prints it (without times). "
            "`toolchart verify` finds the\nlog intact, and `toolchart replay` derives each step again.\n\n"
            f"```text\n{shown}\n```\n"
        )
    return "\n".join(parts)


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
    process = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.splitlines()


def measure(measured: dict[str, Any]) -> dict[str, Any]:
    """What the log of each program shows; and the seconds anew where the other frameworks are installed."""
    shown = {task: show_new_log(task) for task in SHOWN}
    if not pair_runs.ENVIRONMENTS:
        return {**measured, "shown": shown}
    seconds = {
        task: {
            framework: min(_load_program(framework, task) for _ in range(ROUNDS)) for framework in FRAMEWORKS
        }
        for task in TASKS
    }
    return {"releases": read_releases(), "seconds": seconds, "shown": shown}


def show_new_log(task: str) -> str:
    """What the log shows after our program of a task."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_program(task, TOOLCHART, Path(sys.executable), folder)
        return show_log(folder)


def _load_program(framework: str, task: str) -> float:
    code = (
        "import os, runpy, sys; runpy.run_path(sys.argv[1], run_name='loaded'); "
        "times = os.times(); print(times.user + times.system)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = pair_runs.make_environment(framework, Path(folder), "http://127.0.0.1:9/v1")
        command = [str(find_python(framework)), "-c", code, str(find_program(task, framework))]
        process = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=True
        )
    return float(process.stdout)


def read_releases() -> dict[str, str]:
    """The newest releases of the other frameworks, as they are installed."""
    python = find_python("pydantic_ai")
    code = (
        "from importlib.metadata import version; print(version('pydantic-ai-slim'), version('openai-agents'))"
    )
    text = subprocess.run([str(python), "-c", code], capture_output=True, text=True, timeout=600, check=True)
    return dict(zip(("Pydantic AI", "Agents SDK"), text.stdout.split(), strict=True))
