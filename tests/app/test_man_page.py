"""docs/man/toolchart.1 is the help as a man page; `python tests/app/test_man_page.py` writes it."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "man" / "toolchart.1"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    import conftest  # noqa: F401  makes the checkout importable

import click  # noqa: E402

from toolchart import __version__  # noqa: E402
from toolchart.app.cli import cli  # noqa: E402
from toolchart.app.cli.command_table import COMMANDS  # noqa: E402
from toolchart.app.cli.exit_codes import EXIT_CODES  # noqa: E402


def escape(text: str) -> str:
    """A text for roff: backslashes and leading dots mean themselves, a dash can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def make_root() -> click.Context:
    """The context of `toolchart` itself, as when it runs."""
    return click.Context(cli, info_name="toolchart", **cli.context_settings)


def render_page() -> str:
    """The page as it should be."""
    lines = [
        f'.TH TOOLCHART 1 "" "toolchart {__version__}" "User Commands"',
        ".SH NAME",
        escape("toolchart - run LLM tool loops that are declared as state machines"),
        ".SH SYNOPSIS",
        ".B toolchart",
        "[OPTIONS] COMMAND [ARGS]...",
        *(".SH OPTIONS", *render_options(cli, make_root())),
        ".SH COMMANDS",
        *(line for name in COMMANDS for line in render_command(name)),
        ".SH EXIT STATUS",
        escape(" ".join(EXIT_CODES.split())),
    ]
    return "\n".join(lines) + "\n"


def render_command(name: str) -> Iterator[str]:
    """A command, and those below it."""
    root = make_root()
    command = cli.get_command(root, name)
    assert command is not None
    yield from _render(command, click.Context(command, root, info_name=name))


def _render(command: click.Command, context: click.Context) -> Iterator[str]:
    words = [context.command_path, *command.collect_usage_pieces(context)]
    yield f".SS {escape(' '.join(words))}"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from _render_paragraph(paragraph)
    yield from render_options(command, context)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _render(inner, click.Context(inner, context, info_name=name))


def _render_paragraph(paragraph: str) -> Iterator[str]:
    if paragraph.startswith("\b"):
        yield from (".PP", ".nf", escape(paragraph.removeprefix("\b\n").rstrip()), ".fi")
    else:
        yield from (".PP", escape(paragraph))


def render_options(command: click.Command, context: click.Context) -> Iterator[str]:
    """The options of a command with their help."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield from (".TP", f".B {escape(record[0])}", escape(" ".join(record[1].split())))


def test_the_man_page_is_the_help() -> None:
    """Issue 16: the man page says what `--help` says of every command and option."""
    assert PAGE.read_text("utf-8") == render_page(), "run: python tests/app/test_man_page.py"
    assert all(f".SS toolchart {name}" in render_page().replace("\\-", "-") for name in COMMANDS)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_man_page_is_roff() -> None:
    """groff formats the page without a warning."""
    words = ["groff", "-man", "-Tutf8", "-ww", "-z", str(PAGE)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render_page(), "utf-8")
    print(f"{PAGE.name} written")
