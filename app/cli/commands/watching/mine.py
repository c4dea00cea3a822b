"""`toolchart mine`: propose an agent spec from recorded conversations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.options import format_command, json_option, log_option, parse_tags
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import print_notice, print_text
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    from toolchart.engine.mining.miner import MiningReport, MiningResult

_MOST_LISTED = 10
"""Lines of one kind in the report; `--json` has all."""


@click.command(short_help="Propose an agent from recorded conversations.")
@click.argument("conversations", nargs=-1, metavar="[CONVERSATION]...")
@click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Only conversations with this tag. Repeatable."
)
@click.option(
    "--out", type=click.Path(), metavar="FILE", help="Write the agent to a new file, not to stdout."
)
@click.option(
    "--support",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Conversations of the first half that a rule must have.",
)
@json_option
@log_option
def command(
    conversations: tuple[str, ...],
    tags: tuple[str, ...],
    out: str | None,
    support: int,
    as_json: bool,
    log: str | None,
) -> int:
    """Propose an agent spec from CONVERSATIONS of a log: watched, imported or your own. Without ids, from all
    but children and forks.

    The spec has the hosts, prompts, tools and limits that were seen, and comments say where each comes from.
    A tool without a recorded schema gets one from its calls. Tools have no code yet: each is a mock, and a
    comment says where the code goes.

    Rules are looked for in one half of the conversations, chosen by a hash of their ids: a tool is called
    only after another has succeeded (`needs`), not after another has succeeded (`not_after`), or at most so
    often in a turn (`max_calls`). The other half tests them. A rule that holds in both is enforced: a call
    that breaks it is refused, and the model reads why. A rule that a held-out conversation breaks is a
    comment.

    Then each conversation is replayed through the agent with its recorded replies and outcomes. The report on
    stderr says how many run the same calls and end with the same answers, and why others do not. With --json
    the report is printed instead of the spec; --out writes the spec beside it. Exits with 1 if a conversation
    cannot be read; it is named and left out.

    \b
    Example:  toolchart mine --out agent.yaml
              toolchart mine --tag watch=20260101-3f2a --log seen.db
              toolchart mine --json
    """
    from toolchart.engine.mining.miner import mine, read_traces, select_traced

    if conversations and tags:
        raise click.UsageError("Name conversations, or choose them with --tag, not both.")
    if out is not None and Path(out).exists():
        raise SpecError("the file exists already, and nothing was written", file=out, hint="choose another")
    with open_log_for_reading(log) as store:
        if conversations:
            names = tuple(dict.fromkeys(find_conversation(store, name) for name in conversations))
            skipped, left_out = (), 0
        else:
            selected = select_traced(store, parse_tags(tags))
            names, skipped, left_out = selected.names, selected.skipped, selected.left_out
        read = read_traces(store, track_progress(names, "reading"))
    skipped = (*skipped, *read.skipped)
    for each in skipped:
        print_notice(f"toolchart: {each.conversation} is left out: {each.reason}")
    if not read.traces:
        condition = f" with the tag {' and '.join(tags)}" if tags else ""
        raise SpecError(
            f"there is no conversation to mine{condition}",
            hint=f"list those of the log: {format_command('runs')}; record some with toolchart watch, run or "
            "import",
        )
    result = mine(read.traces, support=support, skipped=skipped)
    _write_spec(result, out, as_json=as_json)
    if as_json:
        print_json(_encode_report(result.report))
    else:
        print_notice(f"toolchart: {_describe_report(result.report, left_out)}")
    if out is not None:
        print_notice(f"toolchart: {out} written; look at it with: toolchart check {out}")
    return NEGATIVE if any(each.is_damaged for each in skipped) else SUCCESS


def _write_spec(result: MiningResult, out: str | None, *, as_json: bool) -> None:
    if out is None:
        if not as_json:
            print_text(result.text.rstrip("\n"))
        return
    try:
        with Path(out).open("x", encoding="utf-8") as file:
            file.write(result.text)
    except OSError as error:
        raise SpecError(f"the agent cannot be written: {error.strerror}", file=out) from None


def _encode_report(report: MiningReport) -> dict[str, Any]:
    import msgspec

    encoded: dict[str, Any] = msgspec.to_builtins(report)
    return encoded


def _describe_report(report: MiningReport, left_out: int) -> str:
    lines = [
        f"mined {_count(report.conversations, 'conversation')}, {_count(report.turns, 'turn')}, "
        f"{_count(report.calls, 'call')} of {_count(len(report.tools), 'tool')}"
    ]
    if left_out:
        lines.append(
            f"{_count(left_out, 'child or fork', 'children and forks')} left out: name them to mine them"
        )
    if report.is_few:
        lines.append("these are few conversations: what was seen may be chance")
    inferred = sum(tool["inferred"] for tool in report.tools)
    if inferred:
        lines.append(f"{_count(inferred, 'schema')} inferred from calls: the log has none")
    statuses = {name: [rule for rule in report.rules if rule["status"] == name] for name in _STATUSES}
    searched, held_out = report.shares["searched"].of, report.shares["held_out"].of
    lines.append(
        f"rules found in {searched} and tested on {held_out} held out: "
        + ", ".join(f"{len(rules)} {_STATUSES[name]}" for name, rules in statuses.items())
    )
    broken = [
        f"  not enforced: {_describe_rule(rule)} (broken in {', '.join(rule['counterexamples'][:3])})"
        for rule in statuses["contradicted"]
    ]
    lines += _shorten_list(broken)
    shares = {name: f"{share.replayed} of {share.of}" for name, share in report.shares.items()}
    lines.append(f"it replays {shares['all']}; {shares['held_out']} held out")
    lines.append(f"mined from the other half alone, it would replay {shares['unseen']} held out")
    mismatches = [
        f"  not {each.conversation}: turn {each.turn}{f', {each.state}' if each.state else ''}: {each.reason}"
        for each in report.mismatches
    ]
    return "\n  ".join([*lines, *_shorten_list(mismatches)])


_STATUSES = {"kept": "enforced", "contradicted": "broken there", "untested": "not tested there"}


def _describe_rule(rule: dict[str, Any]) -> str:
    from toolchart.engine.mining.rules import Rule

    return Rule(**{name: rule[name] for name in Rule.__struct_fields__}).describe()


def _shorten_list(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST_LISTED
    return lines if more <= 0 else [*lines[:_MOST_LISTED], f"  and {more} more: --json lists all"]


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
