"""`toolchart run`: run one turn of an agent."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.parameters.options import (
    durability_option,
    list_engine_options,
    log_option,
    owner_option,
    parse_tags,
    parse_variables,
    read_signer,
    signer_options,
    tag_option,
)
from toolchart.app.cli.terminal.output import get_output
from toolchart.app.cli.terminal.people import find_people
from toolchart.app.cli.terminal.stopping import stop_on_signals
from toolchart.app.cli.terminal.text import is_terminal, print_notice
from toolchart.app.cli.turn_output import build_observer, report_cancellation, report_result
from toolchart.engine.log.conversation_ids import find_id_fault
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.telemetry.environment import open_telemetry
from toolchart.specs.document_files import read_regular_file
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    from toolchart.engine.runtime.result import Turn
    from toolchart.states.messages import Message
    from toolchart.states.ports import Store


class _RunCommand(click.Command):
    """A click command whose usage errors explain how to pass a message with spaces or a leading dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            problem, advice = error.format_message(), "Put -- before a message that begins with -."
        except click.UsageError as error:
            problem, advice = f"{error.message}.", "Put the message in quotes."
            if "unexpected extra argument" not in problem:
                raise
        raise click.UsageError(f"{problem} {advice}", ctx)


def _refuse_quiet(context: click.Context, parameter: click.Parameter, verbose: bool) -> bool:
    if verbose and context.params.get("quiet"):
        raise click.UsageError("--quiet and --verbose cannot be used together.")
    return verbose


@click.command(cls=_RunCommand, short_help="Run one turn of an agent.")
@click.argument("spec")
@click.argument("message", required=False)
@click.option(
    "--conversation",
    metavar="ID",
    help="Continue this conversation with its history, or start it under this id.",
)
@click.option(
    "--continue", "-c", "continues", is_flag=True, help="Continue the conversation with the newest record."
)
@click.option(
    "--attach",
    "attachments",
    multiple=True,
    metavar="FILE",
    help="Attach a file: a text is added to the message, a picture, PDF or sound is sent. Repeatable.",
)
@owner_option
@tag_option
@click.option("--handler", metavar="NAME", help="Handler to use. Default: the first whose `match` fits.")
@click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="K=V",
    help="Variable for prompts and `match`. `a.b=v` nests, `k=@FILE` reads a file. Repeatable.",
)
@click.option(
    "--history",
    type=click.Path(),
    metavar="FILE",
    help="Earlier messages of a new conversation: a file of any form that `import` reads.",
)
@click.option("--llm", metavar="NAME", help="Use this entry of `llms` instead of the handler's.")
@click.option("--model", metavar="NAME", help="Use this model instead of the agent's.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--quiet", "-q", is_flag=True, is_eager=True, help="Print only the answer.")
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    callback=_refuse_quiet,
    help="Print every step in full on stderr, even if it is not a terminal.",
)
@signer_options
@durability_option
@log_option
def command(
    spec: str,
    message: str | None,
    conversation: str | None,
    continues: bool,
    attachments: tuple[str, ...],
    owner: str | None,
    tags: tuple[str, ...],
    handler: str | None,
    variables: tuple[str, ...],
    history: str | None,
    llm: str | None,
    model: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    key_file: str | None,
    approver_name: str | None,
    durability: str | None,
    log: str | None,
) -> int:
    """Run one turn of the agent SPEC (a shipped name or a file) with MESSAGE.

    Without MESSAGE, or with -, the message is read from standard input; with a MESSAGE, what is piped in is
    added to it. On a terminal the states are shown as they are entered, you are asked about calls that need
    approval, and questions of the chart are put to you. In a pipe only the answer is printed.

    \b
    Example:  toolchart run quickstart "What is 17 * (23 + 4)?"
              toolchart run agent.yaml --var intent=support --conversation c1 "And then?"
              toolchart run quickstart --json 2**10 | jq .tool_calls
              git diff | toolchart run agent.yaml "Summarise this change." --attach notes.txt
              toolchart run agent.yaml --continue "And then?"
    """
    from toolchart.engine.runtime.engine import Engine

    text, files = add_inputs(_read_message(message, attachments), message, attachments)
    name = _choose_id(conversation, continues)
    options: dict[str, Any] = {"handler": handler, "llm": llm, "model": model, "attachments": files}
    options |= {"owner": owner, "tags": parse_tags(tags) or None}
    observer = build_observer(is_silent=quiet or as_json, verbose=verbose)
    streams_answer = is_terminal(get_output()) and not (quiet or as_json)
    approver, asker = find_people()
    signer = read_signer(key_file, approver_name)
    people: dict[str, Any] = {"approver": approver, "signer": signer, "asker": asker, "observer": observer}
    with (
        open_telemetry() as telemetry,
        Engine(
            **list_engine_options(spec), log=log, durability=durability, telemetry=telemetry, **people
        ) as engine,
        stop_on_signals(engine) as request,
    ):
        if approver is not None:
            approver.tools = engine.tools
        name = (_find_newest(engine.store) if continues else None) or name
        result: Turn | None = None
        with suppress(KeyboardInterrupt):
            options |= {"history": _load_history(history)}
            options |= {"on_delta": observer.on_delta if streams_answer else None}
            result = engine.run(text, conversation=name, variables=parse_variables(variables), **options)
        if result is None or (request.is_made and not result.is_over):
            return report_cancellation(engine.store, name, ["run", spec, "--conversation", name])
    return report_result(result, observer, as_json=as_json, quiet=quiet)


def _load_history(file: str | None) -> Sequence[Message]:
    """The earlier messages of a file; none without one. Most turns have none, and need no reader of them."""
    if file is None:
        return ()
    from toolchart.engine.exchange.message_files import load_history

    return load_history(file)


def _read_message(message: str | None, attachments: Sequence[str]) -> str:
    """Return the user's message, from the command line or from standard input.

    Raises:
        click.UsageError: the message is missing or not UTF-8.
        SpecError: it is empty.
    """
    from toolchart.specs.chat_messages import require_words

    if message is not None and message != "-":
        require_words(message, attachments)
        return message
    if message is None and is_terminal(sys.stdin):
        raise click.UsageError('There is no message. Try: toolchart run SPEC "your question"')
    try:
        text = "" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"Standard input is not UTF-8 text ({error.reason} at byte {error.start})."
        ) from None
    if not text:
        raise click.UsageError("Standard input is empty, so there is no message.")
    return text


def _find_newest(store: Store) -> str | None:
    from toolchart.app.cli.newest_conversation import find_newest_conversation

    return find_newest_conversation(store)


def _choose_id(conversation: str | None, continues: bool) -> str:
    """Return the id of the conversation; with --continue that of the one that begins in an empty log."""
    if continues and conversation is not None:
        raise click.UsageError("--continue and --conversation cannot be used together.")
    return generate_conversation_id() if conversation is None else _require_usable_id(conversation)


def _require_usable_id(conversation: str) -> str:
    """Return the id if it can be typed again.

    Raises:
        SpecError: it is blank, too long or contains control characters.
    """
    if fault := find_id_fault(conversation):
        raise SpecError(fault, hint="use letters, digits, - and _")
    return conversation


# -- messages and attachments --------------------------------------------------------------------


_PATIENCE_S = 2.0
"""Seconds of waiting for piped text before a notice says so."""

_MEDIA_TYPES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".wav", ".mp3", ".ogg", ".flac")
"""Ends of the names of files that are sent as they are; others are texts."""


def add_inputs(text: str, message: str | None, attachments: tuple[str, ...]) -> tuple[str, list[Path]]:
    """The message with piped and attached texts, and the files that are sent as they are.

    Args:
        message: as it stands on the command line; standard input is read beside it only.

    Raises:
        click.UsageError: what is piped in or attached is not UTF-8 text.
        SpecError: an attached file cannot be read.
    """
    parts, files = [text] if text.strip() else [], []
    for name in attachments:
        if name.lower().endswith(_MEDIA_TYPES):
            files.append(Path(name))
        else:
            parts.append(_format_part(name, _read_text_file(name)))
    if message is not None and message != "-":
        piped_text = _read_piped_text()
        parts += [_format_part("standard input", piped_text)] if piped_text.strip() else []
    return "\n\n".join(parts), files


def _format_part(name: str, text: str) -> str:
    return f"--- {name} ---\n{text.rstrip()}\n--- end of {name} ---"


def _read_text_file(name: str) -> str:
    try:
        return read_regular_file(Path(name)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text ({error.reason} at byte {error.start})"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise SpecError(f"the file {name!r} {problem}", path="--attach")


def _read_piped_text() -> str:
    """What a pipe or a redirected file holds; nothing from a terminal or a socket.

    Raises:
        click.UsageError: it is not UTF-8 text.
    """
    if sys.stdin is None or is_terminal(sys.stdin) or not _is_pipe_or_file():
        return ""
    notice = threading.Timer(
        _PATIENCE_S, print_notice, ["reading standard input, which joins the message (</dev/null: none)"]
    )
    notice.daemon = True
    notice.start()
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"Standard input is not UTF-8 text ({error.reason} at byte {error.start})."
        ) from None
    finally:
        notice.cancel()


def _is_pipe_or_file() -> bool:
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # a stream without a file, as in tests
        return True
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
