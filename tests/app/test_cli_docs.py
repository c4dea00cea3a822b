"""docs/cli.md: the commands as they are; `python tests/app/test_cli_docs.py` writes it anew."""

from __future__ import annotations

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

Data goes to stdout, talk to stderr; `--json` wherever a program might read. Colour and the machine
moving are for terminals; `NO_COLOR` is honoured. Output is UTF-8 whatever the locale.

{codes}

| variable | meaning |
| --- | --- |
| `TOOLCHART_LOG` | the log, where `--log` does not name one |
| `TOOLCHART_DEBUG` | `1`: an unexpected error shows its traceback |
| `TOOLCHART_OFFLINE` | `1`: no model host is asked that is not on this machine |
| `NO_COLOR` | anything: no colour |

`--log LOG` may stand before the command, too: `toolchart --log other.db runs`. Words are completed by the
shell after

    eval "$(_TOOLCHART_COMPLETE=bash_source toolchart)"        # zsh_source, fish_source
"""


def page() -> str:
    """The page as it should be."""
    return "\n".join([HEAD.format(codes=EXIT_CODES), *_commands(cli, "toolchart")])


def _commands(group: click.Group, path: str) -> Iterator[str]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield _command(command, f"{path} {name}")


def _command(command: click.Command, path: str) -> str:
    context = click.Context(
        command, info_name=path, parent=click.Context(cli, **cli.context_settings)
    )
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"## {path}", f"    {usage}", *_paragraphs(command.help or ""), _options(context)]
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    """The help's paragraphs; what stands behind `\\b` is shown as it is."""
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.splitlines()
        if lines[0].strip() == "\b":
            shown = [line.replace("Example:", "        ", 1) for line in lines[1:]]
            yield "\n".join(f"    {line.strip()}" for line in shown)
        else:
            yield "\n".join(line.strip() for line in lines)


def _options(context: click.Context) -> str:
    rows = ["| option | meaning |", "| --- | --- |"]
    for option in context.command.params:
        if isinstance(option, click.Argument):
            continue
        record = option.get_help_record(context)
        if record is not None:
            rows.append(
                f"| `{record[0]}` | {' '.join(record[1].split()).replace('|', chr(92) + '|')} |"
            )
    return "\n".join(rows) if len(rows) > 2 else "No options."


def test_the_page_is_the_commands() -> None:
    """docs/cli.md has every command with its help; `python tests/app/test_cli_docs.py` writes it."""
    assert DOC.read_text("utf-8") == page()


if __name__ == "__main__":
    DOC.write_text(page(), "utf-8")
