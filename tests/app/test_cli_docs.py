"""Generates docs/cli.md from the help texts and checks it; `python tests/app/test_cli_docs.py` writes it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOC = ROOT / "docs" / "cli.md"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    import conftest  # noqa: F401  makes the checkout importable

import click  # noqa: E402

from toolchart.app.cli import cli  # noqa: E402
from toolchart.app.cli.exit_codes import EXIT_CODES  # noqa: E402

HEAD = """\
# The command line

Results go to stdout, messages and prompts to stderr. What tools, their programs and the modules of an agent
print goes to stderr too. Most commands have `--json` for programs. Colour and the live display of steps
appear only on a terminal; `NO_COLOR` turns colour off. Output is always UTF-8.

{codes}

| variable | meaning |
| --- | --- |
| `TOOLCHART_LOG` | the log to use without `--log` |
| `TOOLCHART_DSN` | the database of `worker` and `submit` without `--dsn` |
| `TOOLCHART_DEBUG` | `1`: internal errors show a traceback |
| `TOOLCHART_PLUGIN_TIMEOUT` | seconds that importing something of another package may take; 30 without it |
| `TOOLCHART_DEBUG_TRACES` | `1` or `0`; see [Finding faults](howto/finding-faults.md) |
| `TOOLCHART_DEBUG_MESSAGE_PARTS` | the same |
| `TOOLCHART_DEBUG_RAW_RESPONSES` | the same |
| `TOOLCHART_DEBUG_STRICT` | the same |
| `TOOLCHART_DEBUG_FOLDER` | the folder of what these switches write |
| `TOOLCHART_LIMITS` | `documents=50000`: [how much is read](limits.md#what-is-read-from-outside) |
| `TOOLCHART_OFFLINE` | `1`: only model hosts on this machine are contacted |
| `TOOLCHART_TOKEN_NAME` | the value of the token NAME of `toolchart serve --token` |
| `TOOLCHART_MODELS` | the file with the results of `models validate`, without `--results` |
| `NO_COLOR` | any value: no colour |

`--log LOG` is also accepted before the command: `toolchart --log other.db runs`. Shell completion is
enabled by

    eval "$(_TOOLCHART_COMPLETE=bash_source toolchart)"        # zsh_source, fish_source
"""


def render_page() -> str:
    """Return docs/cli.md as it should be."""
    return "\n".join([HEAD.format(codes=EXIT_CODES), *_render_commands(cli, "toolchart")])


def _render_commands(group: click.Group, path: str) -> Iterator[str]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _render_commands(command, f"{path} {name}")
        else:
            yield _render_command(command, f"{path} {name}")


def _render_command(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path, parent=click.Context(cli, **cli.context_settings))
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"## {path}", f"    {usage}", *_render_paragraphs(command.help or ""), _render_options(context)]
    return "\n\n".join(parts) + "\n"


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
            # `|` would end the cell, and `[text]` would be read as a link.
            meaning = re.sub(r"([|\[])", r"\\\1", " ".join(record[1].split()))
            rows.append(f"| `{record[0]}` | {meaning} |")
    return "\n".join(rows) if len(rows) > 2 else "No options."


def test_the_page_is_the_commands() -> None:
    """docs/cli.md is up to date with the help texts; `python tests/app/test_cli_docs.py` writes it."""
    assert DOC.read_text("utf-8") == render_page()


if __name__ == "__main__":
    DOC.write_text(render_page(), "utf-8")
