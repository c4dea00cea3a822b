"""`toolchart share`: write a run as one page of HTML that opens without a server."""

from __future__ import annotations

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading
from toolchart.app.cli.parameters.options import log_option
from toolchart.app.cli.terminal.line_reading import can_ask_user
from toolchart.app.cli.terminal.output import get_output
from toolchart.app.cli.terminal.text import print_notice
from toolchart.engine.exchange.exports import write_new_file
from toolchart.engine.log.redaction import PATTERNS
from toolchart.states.errors import SpecError, explain_import_fault

_ANSWERS = click.Choice(["write", "redact", "no"])


@click.command(short_help="Write a run as one page that opens without a server.")
@click.argument("conversation")
@click.option("-o", "--output", metavar="FILE", help="Write to this new file instead of stdout.")
@click.option(
    "--redact",
    metavar="NAME,...",
    help=f"Replace what these patterns find by marks, in a copy: {', '.join(PATTERNS)}, /EXPRESSION/.",
)
@click.option("--yes", is_flag=True, help="Write everything as it is, and ask nothing.")
@log_option
def command(conversation: str, output: str | None, redact: str | None, yes: bool, log: str | None) -> int:
    """Write CONVERSATION as one page of HTML, with its records, its chart and what checks their hashes.

    The page opens from a disk or from mail, without a server, and fetches nothing. It shows the run as the
    pages of `serve` do, and names the record where a byte was changed. `import FILE` takes the records back
    into a log.

    Whoever gets the file can read every word of the run. So the command first says what it holds, and which
    e-mail addresses, numbers of phones and cards, and tokens it finds in it, and asks what to do: write it,
    replace what was found by marks, or write nothing. Where nobody can be asked, --yes or --redact decide. A
    redacted copy has hashes of its own.

    \b
    Example:  toolchart share 5f0c > run.html
              toolchart share 5f0c --redact email,phone -o run.html
              toolchart import run.html --log theirs.db
    """
    try:
        from toolchart.app.studio.sharing import build_shared_page, survey_content
    except ImportError as fault:
        raise explain_import_fault(fault, "share", "serve") from None
    if yes and redact:
        raise click.UsageError("--yes writes everything as it is: leave out --redact, or --yes.")
    with open_log_for_reading(log) as store:
        name = find_conversation(store, conversation)
        patterns = _split_names(redact) if redact is not None else ()
        if redact is None and not yes:
            content = survey_content(store, name)
            print_notice(content.describe())
            patterns = _ask(tuple(content.found))
        page = build_shared_page(store, name, patterns)
        if redact is not None and (kept := survey_content(store, name, patterns).describe_kept()):
            print_notice(kept)
    if output is None:
        get_output().buffer.write(page)
        get_output().buffer.flush()
    else:
        write_new_file(output, [page])
        print_notice(f"written: {output}, {len(page) / 1024:,.0f} KiB; open it in a browser")
    return SUCCESS


def _split_names(text: str) -> tuple[str, ...]:
    """The patterns of `--redact`; an expression between slashes may have commas."""
    names = [text] if text.startswith("/") and text.endswith("/") else text.split(",")
    names = [name.strip() for name in names]
    if not all(names):
        raise click.UsageError(f"--redact wants names with commas between them: {', '.join(PATTERNS)}.")
    return tuple(names)


def _ask(found: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns to redact, as a person says.

    Raises:
        SpecError: nobody can be asked.
        Abort: the person wants no file.
    """
    if not can_ask_user():
        raise SpecError(
            "nobody can be asked what of it to share, for this is no terminal",
            hint="write everything with --yes, or replace what patterns find: --redact email,phone,token",
        )
    if not found:
        click.confirm("Write it?", default=False, abort=True, err=True)
        return ()
    question = "Write it as it is, redact what was found, or write nothing?"
    answer = click.prompt(question, type=_ANSWERS, default="no", err=True)
    if answer == "no":
        raise click.Abort
    return found if answer == "redact" else ()
