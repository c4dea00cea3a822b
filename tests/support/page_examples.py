"""Runs the examples of a documentation page in an empty folder, in the order of the page.

- A block with a title (```` ```yaml title="agent.yaml" ````) is a file. The tests of `test_*.py` are run.
- A `console` block has commands after `$` and what they print. A line `...` stands for any lines, and `...`
  inside a line for any text.
- A `python` block without a title is run.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

from standard_input import empty_stdin

from toolchart.app.cli import cli
from toolchart.app.cli.exit_codes import run_to_exit_code
from toolchart.app.cli.parameters import python_files

_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run_page(page: Path, folder: Path) -> int:
    """Run every example of a page; return their number.

    Raises:
        AssertionError: a command prints something else than the page says.
    """
    blocks = _BLOCK.findall(page.read_text("utf-8"))
    sys.path.insert(0, str(folder))
    try:
        with chdir(folder), patch.dict(os.environ):
            return sum(_run_block(page, folder, *block) for block in blocks)
    finally:
        sys.path.remove(str(folder))
        _forget_modules(folder)


def _forget_modules(folder: Path) -> None:
    """Let the modules of a folder be imported anew, as the next process of a reader does."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
    python_files._import_file.cache_clear()


def _run_block(page: Path, folder: Path, language: str, title: str, body: str) -> bool:
    _forget_modules(folder)
    if title:
        Path(title).parent.mkdir(parents=True, exist_ok=True)
        Path(title).write_text(body, "utf-8")
        if title.endswith(".py"):
            # Another test of this process may have left a module of this name.
            sys.modules.pop(Path(title).stem, None)
        if title.startswith("test_"):
            _run_tests(Path(title).stem)
    elif language == "console":
        for command, expected in _split_commands(body):
            _, output = run_command(command)
            assert _matches(output, expected), f"{page.name}: {command}\nprints:\n{output}\nnot:\n{expected}"
    elif language == "python":
        exec(compile(body, page.name, "exec"), {"__name__": "__main__"})  # noqa: S102  our own text
    return bool(title) or language in ("console", "python")


def _run_tests(module: str) -> None:
    """Run the test functions of a module that take nothing."""
    tests = [value for name, value in vars(import_module(module)).items() if name.startswith("test_")]
    assert tests, f"{module} has no test"
    for test in tests:
        test()


def _split_commands(body: str) -> list[tuple[str, str]]:
    parts = re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
    return [(part.split("\n", 1)[0], part.split("\n", 1)[1] if "\n" in part else "") for part in parts]


def run_command(command: str) -> tuple[int, str]:
    """The exit code of a command and what it prints, on both streams; `toolchart` and `python` run in this
    process. With `> FILE` the text is written to that file.
    """
    assert " | " not in command, "examples use no pipes"
    text, _, file = command.partition(" > ")
    words = shlex.split(text)
    output, code = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), 0
    with empty_stdin(), redirect_stdout(output), redirect_stderr(output):
        if words[0] == "toolchart":
            code = run_to_exit_code(lambda: cli.main(words[1:], "toolchart", standalone_mode=False))
        elif words[0] == "python":
            program = Path(words[1]).read_text("utf-8")
            exec(compile(program, words[1], "exec"), {"__name__": "__main__"})  # noqa: S102  our own text
        elif words[0] == "cat":
            output.write("".join(Path(word).read_text("utf-8") for word in words[1:]))
        elif words[0] == "export":
            name, _, value = words[1].partition("=")
            os.environ[name] = value
        else:
            raise AssertionError(f"no example runs {words[0]!r}")
    assert isinstance(output.buffer, io.BytesIO)
    printed = output.buffer.getvalue().decode()
    if file:
        Path(file).write_text(printed, "utf-8")
    return code, printed


def _matches(output: str, expected: str) -> bool:
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in expected.rstrip("\n").split("\n")
        if expected.strip()
    )
    lines = "\n".join(line.rstrip() for line in output.rstrip("\n").split("\n")) + "\n"
    return re.fullmatch(pattern, lines if output.strip() else "") is not None
