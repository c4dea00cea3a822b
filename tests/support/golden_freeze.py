"""The freeze gate: what a released log looks like, and what its steps did, holds for every later release.

The golden logs of a format and of semantics stand in one folder, beside `numbers.json` with their digests.
Once frozen they never change. A program that writes them otherwise needs a new number; then the folder of the
old one stays, and the program must still read what is in it.

While the log is a draft, nobody has one: golden logs are written anew, and no number grows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from golden_logs import (
    FOLDER,
    describe_first_difference,
    encode_world,
    list_changed_keys,
    load_golden_store,
    split_conversations,
)
from golden_scenarios import SCENARIOS, run_scenario

from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.record import FORMAT
from toolchart.engine.log.record_schema import build_record_schema
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.verify import verify_store
from toolchart.states.core.step import SEMANTICS
from toolchart.states.errors import LogDamaged, ToolchartError, UnknownSemantics

LOG_IS_DRAFT = True
"""No release has written a log yet, so a change of it breaks nobody's. The issue that freezes format and
semantics as number 1 sets this to False. Then `write.py` keeps what stands here."""

MANIFEST = "numbers.json"


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a log, and the digests of what belongs to them."""

    format: int
    semantics: int
    schema: str
    """Of the JSON Schema of a record, without what it says to people."""
    logs: dict[str, str]
    """Of each golden log, by name."""

    @property
    def numbers(self) -> tuple[int, int]:
        """Format and semantics."""
        return self.format, self.semantics


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a program writes now."""

    format: int
    semantics: int
    schema: str
    logs: dict[str, bytes]
    """Its golden logs, by name: all, or some."""

    @property
    def numbers(self) -> tuple[int, int]:
        """Format and semantics."""
        return self.format, self.semantics

    def freeze(self) -> Frozen:
        """Its numbers with digests."""
        logs = {name: _digest(data) for name, data in sorted(self.logs.items())}
        return Frozen(format=self.format, semantics=self.semantics, schema=self.schema, logs=logs)


def write_scenario_anew(name: str) -> bytes:
    """The file of a scenario, which runs now."""
    return encode_world(run_scenario(name))


def describe_program(
    names: Collection[str] = tuple(SCENARIOS), write: Callable[[str], bytes] = write_scenario_anew
) -> Program:
    """What this program writes in some scenarios."""
    schema = _digest(json.dumps(_without_words(build_record_schema()), sort_keys=True).encode())
    logs = {name: write(name) for name in names}
    return Program(format=FORMAT, semantics=SEMANTICS, schema=schema, logs=logs)


def _without_words(value: Any) -> Any:
    """A JSON Schema without titles and descriptions, which change nothing."""
    if isinstance(value, dict):
        words = [key for key in ("title", "description", "$comment") if isinstance(value.get(key), str)]
        return {key: _without_words(item) for key, item in value.items() if key not in words}
    return [_without_words(item) for item in value] if isinstance(value, list) else value


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# -- the gate ----------------------------------------------------------------------------------------


def list_folders(root: Path = FOLDER.parent) -> list[Path]:
    """The folders of golden logs: the present one, and one for each older pair of numbers."""
    return sorted(path.parent for path in root.glob(f"*/{MANIFEST}"))


def find_breaches(
    program: Program, folders: Collection[Path], first: tuple[int, int] = (1, 1)
) -> Iterator[str]:
    """What is missing for a change of a frozen log, one sentence each.

    Args:
        folders: golden logs of each pair of numbers.
        first: the numbers that were frozen first.
    """
    found = {(frozen := read_manifest(folder)).numbers: (folder, frozen) for folder in folders}
    if program.numbers not in found:
        yield f"{_name(program.numbers)} has no golden logs: python tests/golden/write.py"
    for number in range(first[0], program.format):
        if number not in [numbers[0] for numbers in found]:
            yield f"format {number} has no golden logs any more, and logs of it are in use"
    for number in range(first[1], program.semantics):
        if number not in [numbers[1] for numbers in found]:
            yield f"semantics {number} has no golden logs any more, and logs of it are in use"
    for numbers, (folder, frozen) in found.items():
        logs = read_logs(folder)
        for name, digest in frozen.logs.items():
            if name not in logs or _digest(logs[name]) != digest:
                yield f"the golden log {name!r} of {_name(numbers)} was changed, and it is frozen"
        if numbers == program.numbers:
            yield from _compare(program, frozen, logs)
        else:
            yield from _find_unread(logs, numbers)


def _compare(program: Program, frozen: Frozen, logs: Mapping[str, bytes]) -> Iterator[str]:
    """What a program does otherwise than it did when its numbers were frozen."""
    if program.schema != frozen.schema:
        yield f"a record may look otherwise than by format {frozen.format}: that needs another number"
    for name, data in program.logs.items():
        if name in logs and data != logs[name]:
            keys = ", ".join(list_changed_keys(logs[name], data))
            yield (
                f"{_name(frozen.numbers)} wrote {name!r} otherwise ({keys}): what a log looks like, or what "
                f"a step does, needs another number. {describe_first_difference(logs[name], data)}"
            )


def _find_unread(logs: Mapping[str, bytes], numbers: tuple[int, int]) -> Iterator[str]:
    """The older golden logs that this program does not verify, read, and derive or name the release of."""
    for name, data in logs.items():
        store: Any = load_golden_store(split_conversations(data))
        try:
            for outcome in verify_store(store):
                if isinstance(outcome, LogDamaged):
                    raise outcome
            for conversation in store.list_conversations():
                for _ in read_conversation(store, conversation):
                    pass
                for _ in replay_conversation(store, conversation):
                    pass
        except UnknownSemantics:
            continue  # it names the release that derives them
        except ToolchartError as error:
            yield f"{_name(numbers)} has no reader any more: {name!r}: {error}"


def _name(numbers: tuple[int, int]) -> str:
    return f"format {numbers[0]} with semantics {numbers[1]}"


# -- the folders -------------------------------------------------------------------------------------


def read_manifest(folder: Path) -> Frozen:
    """The numbers of a folder."""
    return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Frozen)


def read_logs(folder: Path) -> dict[str, bytes]:
    """The golden logs of a folder, by name."""
    return {path.name.removesuffix(".jsonl"): path.read_bytes() for path in sorted(folder.glob("*.jsonl"))}


def write_folder(
    program: Program, folder: Path = FOLDER, *, is_draft: bool = LOG_IS_DRAFT
) -> dict[str, list[str]]:
    """Write what a program writes now; by name of each golden log that changed, in what.

    In a draft whatever stands there goes. Else the folder of other numbers is kept under a name of its own,
    and what is frozen under these numbers is left as it is: the gate says what differs.
    """
    if not is_draft and (folder / MANIFEST).exists() and read_manifest(folder).numbers != program.numbers:
        frozen = read_manifest(folder)
        folder.rename(folder.with_name(f"{folder.name}-{frozen.format}-{frozen.semantics}"))
    folder.mkdir(exist_ok=True)
    before = read_logs(folder)
    kept = before if not is_draft else {}
    logs = {**program.logs, **kept}
    for name in before.keys() - logs.keys():
        (folder / f"{name}.jsonl").unlink()
    for name, data in logs.items():
        if before.get(name) != data:
            (folder / f"{name}.jsonl").write_bytes(data)
    frozen = msgspec.structs.replace(program, logs=logs).freeze()
    if kept:
        old = read_manifest(folder)
        frozen = msgspec.structs.replace(frozen, schema=old.schema, logs={**frozen.logs, **old.logs})
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(frozen)) + b"\n")
    changed = {name for name in before.keys() | logs.keys() if before.get(name) != logs.get(name)}
    return {name: list_changed_keys(before.get(name, b""), logs.get(name, b"")) for name in sorted(changed)}
