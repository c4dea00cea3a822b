"""`toolchart verify`: is this log what was written?"""

from __future__ import annotations

from pathlib import Path

import click

from toolchart.app.cli.exit_codes import DAMAGED, DONE
from toolchart.app.cli.log_access import find, json_option, log_option, opened, print_json
from toolchart.app.cli.parameters.keys import key_option, read_key
from toolchart.app.cli.terminal.progress import watched
from toolchart.app.cli.terminal.text import printable, talk
from toolchart.engine.log.seal import Seal, check_seal, read_seals
from toolchart.engine.log.verify import Verified, verify_store
from toolchart.states.errors import LogDamaged, LogUnavailable, SpecError
from toolchart.states.ports import Store


@click.command(short_help="Check that a log is what was written.")
@click.argument("conversation", required=False)
@click.option(
    "--seal",
    type=click.Path(),
    metavar="FILE",
    help="Seals made earlier: nothing that was there then may be gone.",
)
@key_option
@json_option
@log_option
def command(
    conversation: str | None, seal: str | None, key_file: str | None, as_json: bool, log: str | None
) -> int:
    """Check CONVERSATION, or every conversation of the log: chain, form and place of each record, and
    that calls and states follow each other.

    Exits with 5 and names the record where something was changed.

    \b
    Example:  toolchart verify
              toolchart verify 5f0c --json
              toolchart verify --seal seals.jsonl
    """
    seals = _seals(seal)
    key = read_key(key_file)
    with opened(log) as store:
        try:
            chosen = find(store, conversation) if conversation is not None else None
            verified = _verified(store, chosen, as_json)
            sealed = [one for one in seals if chosen in (None, one.conversation)]
            return max(verified, _sealed(store, sealed, key, as_json))
        except LogUnavailable as error:
            raise LogDamaged(f"it opened and cannot be read: {error}") from None


def _seals(path: str | None) -> list[Seal]:
    if path is None:
        return []
    try:
        return list(read_seals(Path(path).read_bytes(), path))
    except OSError as error:
        raise SpecError(f"the seals cannot be read: {error.strerror}", file=path) from None


def _sealed(store: Store, seals: list[Seal], key: bytes | None, as_json: bool) -> int:
    damaged = 0
    for one in seals:
        try:
            check_seal(store, one, key)
        except LogDamaged as damage:
            damaged += 1
            _tell_damage(damage, as_json)
    if seals and not as_json:
        talk(f"{len(seals) - damaged} of {len(seals)} seals hold")
    return DAMAGED if damaged else DONE


def _verified(store: Store, conversation: str | None, as_json: bool) -> int:
    chosen = [conversation] if conversation is not None else None
    sound = damaged = count = 0
    total = len(chosen) if chosen is not None else None
    for found in watched(verify_store(store, chosen), "verifying", total):
        if isinstance(found, LogDamaged):
            damaged += 1
            _tell_damage(found, as_json)
        else:
            sound, count = sound + 1, count + found.records
            _tell_sound(found, as_json)
    if not as_json and chosen is None:
        talk(f"{sound} conversations with {count} records are as written; {damaged} are damaged")
    return DAMAGED if damaged else DONE


def _tell_sound(found: Verified, as_json: bool) -> None:
    if as_json:
        row = {"conversation": found.conversation, "records": found.records}
        print_json({**row, "head": found.head, "ok": True}, lines=True)
    else:
        name = printable(found.conversation)
        click.echo(f"{name}: {found.records} records verify, head {found.head[:16]}")


def _tell_damage(damage: LogDamaged, as_json: bool) -> None:
    if as_json:
        row = {"conversation": damage.conversation, "seq": damage.seq, "ok": False}
        print_json({**row, "problem": str(damage)}, lines=True)
    else:
        talk(f"toolchart: damaged: {damage}")
