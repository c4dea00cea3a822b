"""`toolchart erase`: erase what somebody said inside a kept conversation."""

from __future__ import annotations

import click
import msgspec

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log, print_json
from toolchart.app.cli.parameters.options import json_option, log_option
from toolchart.app.cli.terminal.text import escape_controls, print_notice, print_text
from toolchart.engine.log.reading.listing import shrink_store
from toolchart.engine.log.secrecy.erasing import ErasedConversation, ErasureChoice, erase_content
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
    seals and `replay` go on to hold. Agents that the chosen records ran are erased whole; other records and
    conversations that repeat the same words are not, so look for them with --text. It cannot be undone.

    docs/log.md says what erasing cannot reach: backups, exports, archives, hosts. Exits with 1 if nothing was
    chosen.

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
        results = erase_content(store, name, choice, at=SystemClock().now(), by=by, reason=reason)
        if results and not keep_space:
            shrink_store(store)
    for result in results:
        _print_result(result, as_json)
    if not any(result.content for result in results):
        print_notice("nothing was chosen that has content")
        return NEGATIVE
    return SUCCESS


def _print_result(result: ErasedConversation, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(result), lines=True)
        return
    content, digests = (", ".join(map(str, numbers)) for numbers in (result.content, result.digests))
    print_text(f"{escape_controls(result.conversation)}: erased the content of {content or 'no record'}")
    if digests:
        print_notice(f"digests over it were replaced in {digests}")
    if not result.is_derivable:
        print_notice("an erased value decided a step: the conversation cannot go on, and replays up to there")
