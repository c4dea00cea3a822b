"""`toolchart verify`: check a log for changed, missing or misplaced records, and signatures of decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from toolchart.app.cli.exit_codes import DAMAGED_LOG, NEGATIVE, SUCCESS, USAGE_ERROR
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.keys import key_option, public_key_option, read_public_keys, read_seal_key
from toolchart.app.cli.parameters.options import format_command, json_option, load_named_spec, log_option
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import escape_controls, escape_line, print_notice, print_text
from toolchart.engine.log.seal import Head, Seal, encode_seal, find_lost_records, read_seal, write_seal
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.reading.chart_differences import OwnCharts
from toolchart.engine.reading.decisions import CheckedDecision, check_decisions
from toolchart.engine.runtime.clock import SystemClock
from toolchart.states.errors import ForeignLog, LogDamaged, LogUnavailable, NewerLog, SpecError
from toolchart.states.ports import Store
from toolchart.tools.approval import Policy, parse_policy

# -- signed decisions -----------------------------------------------------------------------------------

FINDINGS = {
    "valid": "signed",
    "unsigned": "unsigned",
    "missing_key": "signed with a key that the spec does not have",
    "not_yet_valid": "signed before the key was valid",
    "expired": "signed with an expired key",
    "revoked": "signed with a revoked key",
    "other_call": "signed for other arguments or another text than the log holds, or redacted",
    "other_question": "SIGNED FOR ANOTHER QUESTION, which this log did not ask",
    "wrong": "WRONG SIGNATURE",
}
"""What is printed about a decision, by what its signature proves."""


def load_policy(spec: str) -> Policy:
    """The approval policy of an agent spec, with its approvers; nothing of the spec is started.

    Raises:
        SpecError: the spec cannot be used.
    """
    loaded_spec = load_named_spec(spec)
    return parse_policy(loaded_spec.approval, approvers=loaded_spec.approvers)


def verify_decisions(store: Store, conversations: Iterable[str], policy: Policy, *, as_json: bool) -> int:
    """Check every decision and print one line for each. Returns the exit code: 5 where a signature is wrong
    or of another log, 1 where one cannot be relied on, or is missing although the spec requires it."""
    exit_code, count, valid = SUCCESS, 0, 0
    for name in conversations:
        try:
            for decision in check_decisions(store, name, policy.approvers):
                count, valid = count + 1, valid + (decision.finding == "valid")
                exit_code = max(exit_code, _judge(decision, policy))
                _print_decision(decision, as_json=as_json)
        except LogDamaged:
            exit_code = DAMAGED_LOG  # what is damaged was printed before
    if not as_json:
        print_notice(f"{valid} of {count} decisions are signed by an approver of the spec")
    return exit_code


def _judge(decision: CheckedDecision, policy: Policy) -> int:
    if decision.finding in ("wrong", "other_question"):
        return DAMAGED_LOG
    is_accepted = decision.finding == "valid" or (
        decision.finding == "unsigned" and not policy.require_signatures
    )
    return SUCCESS if is_accepted else NEGATIVE


def _print_decision(decision: CheckedDecision, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "conversation": decision.conversation,
                "seq": decision.seq,
                "call": decision.call,
                "tool": decision.tool,
                "approver": decision.approver,
                "approved": decision.approved,
                "signature": decision.finding,
            },
            lines=True,
        )
        return
    ruling = "approved" if decision.approved else "denied"
    who = f" by {escape_line(decision.approver)}" if decision.approver else ""
    what = f"{escape_line(decision.tool)} ({escape_line(decision.call)})"
    place = f"{escape_line(decision.conversation)}: record {decision.seq}"
    print_text(f"{place}: {what} {ruling}{who}: {FINDINGS[decision.finding]}")


# -- the command ----------------------------------------------------------------------------------------


@click.command(short_help="Check a log, and seal it.")
@click.argument("conversation", required=False)
@click.option(
    "--seal",
    "seal_path",
    type=click.Path(),
    metavar="FILE",
    help="File with an earlier seal: also check that nothing that was sealed was removed.",
)
@click.option(
    "--seal-to",
    type=click.Path(),
    metavar="FILE",
    help="Seal what was checked, if all of it is intact: write number of records and newest hash of each "
    "conversation to a new file.",
)
@key_option
@public_key_option
@click.option(
    "--spec",
    metavar="SPEC",
    help="Your own agent spec: also check the signatures of decisions with its keys, and those of seals with "
    "its `seal_keys`.",
)
@json_option
@log_option
def command(
    conversation: str | None,
    seal_path: str | None,
    seal_to: str | None,
    key_file: str | None,
    public_keys: tuple[str, ...],
    spec: str | None,
    as_json: bool,
    log: str | None,
) -> int:
    """Check CONVERSATION, or every conversation of the log, for changed or missing records.

    Checks the hash chain, the form of each record, and the order of turns, states and tool calls; without
    CONVERSATION also every table and file of the log. Writes nothing to it. Exits with 5 and names the record
    if something was changed or is missing, and with 2 if something cannot be checked: a foreign file, a newer
    format, a seal without its key.

    The chain cannot show that the newest records are missing, or that a whole log was written anew. A seal
    that is kept elsewhere can. Seal anew after `prune`: for an older seal what was deleted is missing.

    With --spec, conversations whose chart is none of that agent's are named, with what their charts
    declare and the agent does not; that is no damage, and nobody who goes on with the agent performs it. Each
    decision about a call is listed: signed, unsigned, signed with a missing, expired or revoked key, or with
    a wrong signature. A wrong one exits with 5, one that the spec does not accept with 1.

    \b
    Example:  toolchart verify
              toolchart verify 5f0c --json
              toolchart verify --seal-to monday.json --key-file seal.pem
              toolchart verify --seal monday.json --key seal.pub
              toolchart verify --spec agent.yaml
    """
    spec_keys = tuple(load_named_spec(spec).seal_keys) if spec is not None else ()
    policy = load_policy(spec) if spec is not None else None
    if key_file is not None and seal_to is None:
        raise click.UsageError("--key-file needs --seal-to FILE.")
    if public_keys and seal_path is None:
        raise click.UsageError("--key needs --seal FILE: it checks who signed a seal, and none is named.")
    key = read_seal_key(key_file)
    seal = read_seal(seal_path, read_public_keys(public_keys, spec_keys)) if seal_path else None
    with open_log_for_reading(log) as store:
        try:
            name = find_conversation(store, conversation) if conversation is not None else None
            code, heads = _verify_conversations(store, name, as_json)
            if seal is not None:
                code = max(code, _check_seal(store, seal, name, heads, as_json))
            if seal_to is not None and code == SUCCESS:
                write_seal(seal_to, encode_seal(heads, SystemClock().now(), key))
            if policy is None or spec is None:
                return code
            names = [name] if name is not None else list(store.list_conversations())
            _compare_charts(store, names, spec, as_json)
            return max(code, verify_decisions(store, names, policy, as_json=as_json))
        except (ForeignLog, NewerLog):
            raise
        except LogUnavailable as error:
            raise LogDamaged(f"it can be opened, but not read: {error}") from None


def _check_seal(
    store: Store, seal: Seal, name: str | None, intact_heads: Sequence[Head], as_json: bool
) -> int:
    """Print what is missing of that which was sealed, and how many conversations are whole: they are intact,
    too. Returns the exit code of what is missing; damage of what is there was found before."""
    damages = list(find_lost_records(store, seal, name))
    for damage in damages:
        _print_damage(damage, as_json)
    if not as_json:
        sealed_names = {head[0] for head in seal.heads if name in (None, head[0])}
        whole_names = sealed_names.intersection(head[0] for head in intact_heads)
        whole_names.difference_update(damage.conversation for damage in damages)
        unsigned = "" if seal.key else "; the seal is not signed, so nothing shows who wrote it"
        print_notice(
            f"{len(whole_names)} of {len(sealed_names)} sealed conversations are intact and have all that "
            f"was sealed{unsigned}"
        )
    return DAMAGED_LOG if damages else SUCCESS


def _verify_conversations(store: Store, conversation: str | None, as_json: bool) -> tuple[int, list[Head]]:
    """Verify one conversation or all. Returns the exit code, and the heads of those that are intact."""
    names = [conversation] if conversation is not None else None
    damaged_count = unchecked_count = 0
    heads = []
    total = len(names) if names is not None else None
    for outcome in track_progress(verify_store(store, names), "verifying", total):
        if isinstance(outcome, LogDamaged):
            damaged_count += 1
            _print_damage(outcome, as_json)
        elif isinstance(outcome, LogUnavailable):
            unchecked_count += 1
            _print_unchecked(outcome, as_json)
        else:
            heads.append((outcome.conversation, outcome.records, outcome.head))
            _print_verified(outcome, as_json)
    if not as_json and names is None:
        print_notice(
            f"{len(heads)} conversations with {sum(count for _, count, _ in heads)} records are intact; "
            f"{damaged_count} are damaged" + (f"; {unchecked_count} not checked" if unchecked_count else "")
        )
        if damaged_count and heads:
            export = format_command("export", "--format", "jsonl")
            print_notice(
                "restore the log from a backup, or keep the intact conversations:\n"
                f"  {export} > intact.jsonl; toolchart import intact.jsonl --log new.db"
            )
    if damaged_count:
        return DAMAGED_LOG, heads
    return USAGE_ERROR if unchecked_count else SUCCESS, heads


def _compare_charts(store: Store, names: Sequence[str], spec: str, as_json: bool) -> None:
    """Name the conversations whose charts are none of the operator's. That is no damage: charts change."""
    try:
        own_charts = OwnCharts(load_named_spec(spec))
    except SpecError as error:
        print_notice(f"toolchart: charts are not compared: {error}")
        return
    for name in names:
        try:
            difference = own_charts.find_difference(store, name)
        except LogDamaged:  # reported already
            continue
        if difference is not None and as_json:
            row = {"conversation": name, "own_chart": False}
            print_json({**row, "foreign_effects": list(difference.effects)}, lines=True)
        elif difference is not None:
            print_notice(escape_line(f"{name}: {difference.describe()}"))


def _print_verified(verification: VerifiedConversation, as_json: bool) -> None:
    if as_json:
        row = {"conversation": verification.conversation, "records": verification.records}
        print_json({**row, "head": verification.head, "ok": True}, lines=True)
    else:
        name = escape_controls(verification.conversation)
        print_text(f"{name}: {verification.records} records verify, head {verification.head[:16]}")


def _print_damage(damage: LogDamaged, as_json: bool) -> None:
    if as_json:
        row = {"conversation": damage.conversation, "seq": damage.seq, "ok": False}
        print_json({**row, "problem": str(damage)}, lines=True)
    else:
        print_notice(f"toolchart: damaged: {damage}")


def _print_unchecked(problem: LogUnavailable, as_json: bool) -> None:
    if as_json:
        print_json({"conversation": None, "ok": None, "problem": str(problem)}, lines=True)
    else:
        print_notice(f"toolchart: not checked: {problem}")
