"""docs/commands is correct: a page for each command, from its help text.

`python tests/app/test_cli_docs.py` writes the pages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "commands"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    import conftest  # noqa: F401  makes the checkout importable

import click  # noqa: E402

from toolchart.app.cli import cli  # noqa: E402
from toolchart.app.cli.exit_codes import EXIT_CODES  # noqa: E402

HEAD = """\
# Command line

Here you look up a command, and what holds for all of them. Results go to stdout, messages and prompts
to stderr. What tools, their programs and the modules of an agent print goes to stderr too. Most commands have
`--json` for programs. Colour and the live display of steps appear only on a terminal; `NO_COLOR` turns colour
off. Output is always UTF-8.

{codes}

| variable | meaning |
| --- | --- |
| `TOOLCHART_LOG` | the log to use without `--log` |
| `TOOLCHART_DSN` | the database of `worker` and `submit` without `--dsn` |
| `TOOLCHART_DEBUG` | `1`: internal errors show a traceback |
| `TOOLCHART_PLUGIN_TIMEOUT` | seconds that importing something of another package may take; 30 without it |
| `TOOLCHART_DEBUG_TRACES` | `1` or `0`; see [Finding faults](../howto/finding-faults.md) |
| `TOOLCHART_DEBUG_MESSAGE_PARTS` | the same |
| `TOOLCHART_DEBUG_RAW_RESPONSES` | the same |
| `TOOLCHART_DEBUG_STRICT` | the same |
| `TOOLCHART_DEBUG_FOLDER` | the folder of what these switches write |
| `TOOLCHART_LIMITS` | `documents=50000`: [how much is read](../limits.md#what-is-read-from-outside) |
| `TOOLCHART_OFFLINE` | `1`: only model hosts on this machine are contacted |
| `TOOLCHART_TOKEN_NAME` | the value of the token NAME of `toolchart serve --token` |
| `TOOLCHART_MODELS` | the file with the results of `models validate`, without `--results` |
| `NO_COLOR` | any value: no colour |

`--log LOG` is also accepted before the command: `toolchart --log other.db runs`. Shell completion is
enabled by

    eval "$(_TOOLCHART_COMPLETE=bash_source toolchart)"        # zsh_source, fish_source
"""


def render_pages() -> dict[str, str]:
    """Name and text of each file of docs/commands as it should be."""
    commands = dict(_list_commands(cli, "toolchart"))
    pages = {make_name(path): _render_command(command, path) for path, command in commands.items()}
    rows = [_render_row(command, path) for path, command in commands.items()]
    table = "\n".join(("| command | what it does |", "| --- | --- |", *rows))
    return {"index.md": "\n".join((HEAD.format(codes=EXIT_CODES), table, "")), **pages}


def _render_row(command: click.Command, path: str) -> str:
    meaning = _escape(command.get_short_help_str(200))
    return f"| [{path.removeprefix('toolchart ')}]({make_name(path)}) | {meaning} |"


def make_name(path: str) -> str:
    """The file of a command: `tools-list.md` for `toolchart tools list`."""
    return path.removeprefix("toolchart ").replace(" ", "-") + ".md"


def _list_commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _list_commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _render_command(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path, parent=click.Context(cli, **cli.context_settings))
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    first, *others = _render_paragraphs(command.help or "")
    parts = [f"# {path}", first, f"    {usage}", *others, _render_options(context)]
    return "\n\n".join(parts) + "\n"


def _escape(text: str) -> str:
    """Text for a cell: `|` would end it, and `[text]` would be read as a link."""
    return re.sub(r"([|\[])", r"\\\1", " ".join(text.split()))


def _render_paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those after `\\b` become code blocks."""
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.splitlines()
        if lines[0].strip() == "\b":
            example_lines = [line.replace("Example:", "        ", 1) for line in lines[1:]]
            yield "\n".join(f"    {line.strip()}" for line in example_lines)
        else:
            yield "\n".join(line.strip() for line in lines)


def _render_options(context: click.Context) -> str:
    rows = ["| option | meaning |", "| --- | --- |"]
    for option in context.command.params:
        if isinstance(option, click.Argument):
            continue
        record = option.get_help_record(context)
        if record is not None:
            rows.append(f"| `{record[0]}` | {_escape(record[1])} |")
    return "\n".join(rows) if len(rows) > 2 else "No options."


def test_the_pages_are_the_commands() -> None:
    """docs/commands is up to date with the help texts; `python tests/app/test_cli_docs.py` writes it."""
    assert {page.name: page.read_text("utf-8") for page in PAGES.iterdir()} == render_pages()


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for old in PAGES.iterdir():
        old.unlink()
    for name, text in render_pages().items():
        (PAGES / name).write_text(text, "utf-8")
