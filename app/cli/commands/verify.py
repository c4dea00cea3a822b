"""`toolchart verify`: check a log for changed, missing or misplaced records."""

from __future__ import annotations

from pathlib import Path

import click

from toolchart.app.cli.commands.verify_decisions import load_policy, verify_decisions
from toolchart.app.cli.exit_codes import DAMAGED_LOG, SUCCESS, USAGE_ERROR
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.keys import key_option, read_seal_key
from toolchart.app.cli.parameters.options import json_option, log_option
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import escape_controls, print_notice, print_text
from toolchart.engine.log.seal import Seal, check_seal, read_seals
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import LogDamaged, LogUnavailable, SpecError
from toolchart.states.ports import Store


@click.command(short_help="Check a log for changed or missing records.")
@click.argument("conversation", required=False)
@click.option(
    "--seal",
    type=click.Path(),
    metavar="FILE",
    help="File with earlier seals: also check that no sealed record was removed.",
)
@key_option
@click.option(
    "--spec",
    metavar="SPEC",
    help="Your own agent spec: also check the signatures of decisions with its keys.",
)
@json_option
@log_option
def command(
    conversation: str | None,
    seal: str | None,
    key_file: str | None,
    spec: str | None,
    as_json: bool,
    log: str | None,
) -> int:
    """Check CONVERSATION, or every conversation of the log, for changed or missing records.

    Checks the hash chain, the form of each record, and the order of turns, states and tool calls. Exits
    with 5 and names the record if something was changed or is missing.

    With --spec each decision about a call is listed: signed, unsigned, signed with a missing, expired or
    revoked key, or with a wrong signature. A wrong one exits with 5, one that the spec does not accept
    with 1.

    \b
    Example:  toolchart verify
              toolchart verify 5f0c --json
              toolchart verify --seal seals.jsonl
              toolchart verify --spec agent.yaml
    """
    seals = _load_seals(seal)
    key = read_seal_key(key_file)
    policy = load_policy(spec) if spec is not None else None
    with open_log_for_reading(log) as store:
        try:
            name = find_conversation(store, conversation) if conversation is not None else None
            log_code = _verify_conversations(store, name, as_json)
            selection = [seal_entry for seal_entry in seals if name in (None, seal_entry.conversation)]
            exit_code = max(log_code, _check_seals(store, selection, key, as_json))
            if policy is None:
                return exit_code
            names = [name] if name is not None else store.list_conversations()
            return max(exit_code, verify_decisions(store, names, policy, as_json=as_json))
        except LogUnavailable as error:
            raise LogDamaged(f"it can be opened, but not read: {error}") from None


def _load_seals(path: str | None) -> list[Seal]:
    if path is None:
        return []
    try:
        return list(read_seals(Path(path).read_bytes(), path))
    except OSError as error:
        raise SpecError(f"the seals cannot be read: {error.strerror}", file=path) from None


def _check_seals(store: Store, seals: list[Seal], key: bytes | None, as_json: bool) -> int:
    failures = 0
    for seal in seals:
        try:
            check_seal(store, seal, key)
        except LogDamaged as damage:
            failures += 1
            _print_damage(damage, as_json)
    if seals and not as_json:
        print_notice(f"{len(seals) - failures} of {len(seals)} seals are valid")
    return DAMAGED_LOG if failures else SUCCESS


def _verify_conversations(store: Store, conversation: str | None, as_json: bool) -> int:
    names = [conversation] if conversation is not None else None
    verified_count = damaged_count = unchecked_count = record_count = 0
    total = len(names) if names is not None else None
    for outcome in track_progress(verify_store(store, names), "verifying", total):
        if isinstance(outcome, LogDamaged):
            damaged_count += 1
            _print_damage(outcome, as_json)
        elif isinstance(outcome, LogUnavailable):
            unchecked_count += 1
            _print_unchecked(outcome, as_json)
        else:
            verified_count, record_count = verified_count + 1, record_count + outcome.records
            _print_verified(outcome, as_json)
    if not as_json and names is None:
        print_notice(
            f"{verified_count} conversations with {record_count} records are intact; "
            f"{damaged_count} are damaged" + (f"; {unchecked_count} not checked" if unchecked_count else "")
        )
    if damaged_count:
        return DAMAGED_LOG
    return USAGE_ERROR if unchecked_count else SUCCESS


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
