"""The freeze gate tells each change of what a log looks like or of what a step does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden_feeds import replace_everywhere
from golden_freeze import Program, describe_program, find_breaches, list_folders, read_manifest, write_folder
from golden_logs import FOLDER, write_scenario
from golden_twins import make_program
from msgspec.structs import replace

from toolchart.engine.log import record
from toolchart.states.core.step import Step, step
from toolchart.states.effects import Effect, Wait

SCENARIOS = ("resilient-retries", "deadline-of-approval", "tool_loop-limit")
"""With waits, with a late answer, with neither."""


def find_seeded_breaches(program: Program, folder: Path = FOLDER) -> list[str]:
    """What the armed gate says, with the present numbers as those that were frozen first."""
    return list(find_breaches(program, [folder], read_manifest(FOLDER).numbers))


def test_the_gate_has_nothing_to_say() -> None:
    """The program writes what is committed under its numbers, schema and digests included, armed or not."""
    program = describe_program(write=write_scenario)
    breaches = list(find_breaches(program, list_folders(), read_manifest(FOLDER).numbers))
    assert not breaches, "\n".join(breaches)
    assert read_manifest(FOLDER) == program.freeze(), "python tests/golden/write.py"


def wait_longer(effect: Effect) -> Effect | None:
    """Another back-off: half as long again."""
    return replace(effect, seconds=effect.seconds * 1.5) if isinstance(effect, Wait) else None


def forget_lateness(machine: Any, snapshot: Any, event: Any) -> Step:
    """Another rule of late answers: they are not marked."""
    return replace(step(machine, snapshot, event), is_late=False)


@pytest.mark.parametrize(
    ("program", "scenario", "key"),
    [
        (make_program(wait_longer), "resilient-retries", "asks"),
        (forget_lateness, "deadline-of-approval", "late"),
    ],
    ids=["back-off", "late answers"],
)
def test_a_change_of_semantics_needs_a_number(program: Callable[..., Step], scenario: str, key: str) -> None:
    """Another back-off and another rule of late answers fail the gate, which names log and key."""
    with replace_everywhere(step, program):
        breaches = find_seeded_breaches(describe_program(SCENARIOS))
    assert any(f"{scenario!r} otherwise" in text and key in text and "number" in text for text in breaches)
    assert not any("tool_loop-limit" in text for text in breaches)


def test_a_change_of_form_needs_a_number() -> None:
    """A record with one more key, and a schema that would allow one, fail the gate."""
    original = record.seal_line

    def seal_more(body: bytes) -> tuple[bytes, str]:
        return original(body[:-1] + b',"more":1}')

    with replace_everywhere(original, seal_more):
        breaches = find_seeded_breaches(describe_program(["tool_loop-limit"]))
    assert any("(more" in text or ", more" in text for text in breaches)
    program = describe_program([])
    assert find_seeded_breaches(program) == []
    breaches = find_seeded_breaches(replace(program, schema=hashlib.sha256(b"another").hexdigest()))
    assert [text for text in breaches if "may look otherwise" in text]


def test_a_new_number_keeps_the_golden_logs_of_the_old_one(tmp_path: Path) -> None:
    """Under a new number the old folder stays, must be readable and unchanged, and may not be missing."""
    program = describe_program(SCENARIOS)
    first = program.numbers
    folder = tmp_path / "logs"
    write_folder(program, folder, is_draft=False)
    newer = replace(program, semantics=program.semantics + 1)
    assert "has no golden logs" in " ".join(find_breaches(newer, [folder], first))
    assert sorted(write_folder(newer, folder, is_draft=False)) == sorted(SCENARIOS)
    old = tmp_path / f"logs-{first[0]}-{first[1]}"
    assert list_folders(tmp_path) == [folder, old]
    assert list(find_breaches(newer, list_folders(tmp_path), first)) == []
    assert "logs of it are in use" in " ".join(find_breaches(newer, [folder], first))
    path = old / "tool_loop-limit.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"type":"replied"', b'"type":"told"'))
    said = " ".join(find_breaches(newer, list_folders(tmp_path), first))
    assert "was changed, and it is frozen" in said
    assert "has no reader any more" in said


def test_what_is_frozen_is_not_written_again(tmp_path: Path) -> None:
    """Armed, `write.py` adds new scenarios and leaves the others; a draft is written anew."""
    folder = tmp_path / "logs"
    program = describe_program(["tool_loop-limit"])
    write_folder(program, folder, is_draft=False)
    changed = replace(program, logs={"tool_loop-limit": b"other\n", "new": b"new\n"})
    assert list(write_folder(changed, folder, is_draft=False)) == ["new"]
    assert "wrote 'tool_loop-limit' otherwise" in " ".join(
        find_breaches(replace(changed, logs={"tool_loop-limit": b"{}\n"}), [folder], program.numbers)
    )
    assert sorted(write_folder(changed, folder, is_draft=True)) == ["tool_loop-limit"]
