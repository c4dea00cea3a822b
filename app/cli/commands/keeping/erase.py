"""`toolchart erase`: erase what somebody said inside a kept conversation."""

from __future__ import annotations

from shlex import quote

import click
import msgspec

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log, print_json
from toolchart.app.cli.parameters.options import json_option, log_option
from toolchart.app.cli.terminal.text import escape_controls, print_notice, print_text
from toolchart.engine.log.secrecy.erasing import (
    ContentElsewhere,
    ErasedConversation,
    ErasureChoice,
    erase_content,
    find_content_elsewhere,
)
from toolchart.engine.runtime.clock import SystemClock


@click.command(short_help="Erase what somebody said inside a kept conversation.")
@click.argument("conversation")
@click.option("--turn", "turns", type=int, multiple=True, metavar="N", help="All content of this turn.")
@click.option(
    "--record", "records", type=int, multiple=True, metavar="SEQ", help="The content of this record."
)
@click.option(
    "--text", "texts", multiple=True, metavar="TEXT", help="The content of each record that contains TEXT."
)
@click.option("--all", "everything", is_flag=True, help="All content; steps, times and counts stay.")
@click.option("--by", metavar="NAME", help="Who has it erased; it stands in the log.")
@click.option("--reason", metavar="TEXT", help="Why; it stands in the log.")
@click.option("--keep-space", is_flag=True, help="Do not shrink the file of a SQLite log afterwards.")
@json_option
@log_option
def command(
    conversation: str,
    turns: tuple[int, ...],
    records: tuple[int, ...],
    texts: tuple[str, ...],
    everything: bool,
    by: str | None,
    reason: str | None,
    keep_space: bool,
    as_json: bool,
    log: str | None,
) -> int:
    """Erase content of CONVERSATION: what people, the model and tools said in the chosen records.

    The records stay, with their steps, times and hashes, and a new record says what was erased. `verify`,
    seals and `replay` go on to hold. Agents that the chosen records ran are erased whole. In forks what they
    share is gone, and each record of theirs that repeats an erased text; with --all what they said themselves
    goes too, and --text finds its words in forks and agents. Other records of CONVERSATION that repeat the
    same words stay, so look for them with --text. It cannot be undone.

    What a fork shares belongs to its parent: erase it there. docs/log.md says what erasing cannot reach:
    backups, exports, archives, hosts. Exits with 1 if nothing was erased.

    \b
    Example:  toolchart erase 5f0c --turn 2 --by anna --reason "asked for it"
              toolchart erase 5f0c --text "Jane Roe"
    """
    choice = ErasureChoice(turns=turns, records=records, texts=texts, everything=everything)
    if choice == ErasureChoice():
        raise click.UsageError("Choose what is erased: --turn N, --record SEQ, --text TEXT or --all.")
    if "" in texts:
        raise click.UsageError("--text needs a text.")
    with open_log(log) as store:
        name = find_conversation(store, conversation)
        elsewhere = find_content_elsewhere(store, name, choice)
        at = SystemClock().now()
        results = erase_content(store, name, choice, at=at, by=by, reason=reason, keep_space=keep_space)
    for result in results:
        _print_result(result, as_json)
    for place in elsewhere:
        _print_elsewhere(place, texts, as_json)
    if not results and not elsewhere:
        print_notice("nothing was chosen that has content")
    return SUCCESS if results else NEGATIVE


def _print_elsewhere(place: ContentElsewhere, texts: tuple[str, ...], as_json: bool) -> None:
    """Say what stays in a conversation that somebody else may own, and what erases it there."""
    if as_json:
        print_json(msgspec.to_builtins(place), lines=True)
        return
    owner = place.conversation
    numbers = ", ".join(map(str, place.records))
    reason = "which it shares" if place.relation == "fork" else "which has what it said"
    words = [f"--text {quote(text)}" for text in texts] or [f"--turn {turn}" for turn in place.turns]
    print_notice(
        f"chosen content stays in {owner}, {reason}: records {numbers}\n"
        f"  to erase it there: toolchart erase {quote(owner)} {' '.join(words)}"
    )


def _print_result(result: ErasedConversation, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(result), lines=True)
        return
    content, digests = (", ".join(map(str, numbers)) for numbers in (result.content, result.digests))
    name = escape_controls(result.conversation)
    if content:
        print_text(f"{name}: erased the content of {content}")
    else:
        print_text(f"{name}: erased copies of what it shares, and has no such content of its own")
    if digests:
        print_notice(f"digests over it were replaced in {digests}")
    if not result.is_derivable:
        print_notice("an erased value decided a step: the conversation cannot go on, and replays up to there")
