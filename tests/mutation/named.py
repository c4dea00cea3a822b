"""Mutants with names: programs that do something else than their logs say, and that replay once accepted."""

from __future__ import annotations

from contextlib import ExitStack

import judges  # noqa: F401  (it makes the modules of tests importable)
from golden_feeds import replace_everywhere
from golden_twins import make_program
from test_answer_mutations import DECODERS, MUTANTS, Edit
from test_twins import PROGRAMS
from wire_patches import find_owner

from toolchart.states.core.step import step

NAMED: dict[str, str] = {**dict.fromkeys(PROGRAMS, "core"), **dict.fromkeys(MUTANTS, "wire")}
"""The group of each."""


_KEPT = ExitStack()
"""It keeps a substitute in its place until the process ends."""


def install_named(name: str) -> None:
    """Let this process ask for something else, or read something else in an answer, from now on."""
    if name in PROGRAMS:
        _, edit = PROGRAMS[name]
        _KEPT.enter_context(replace_everywhere(step, make_program(edit)))
        return
    for place in set(DECODERS.values()):
        module, _, function = place.partition(":")
        _put_behind(find_owner(module), function, MUTANTS[name][0])


def _put_behind(owner: object, function: str, edit: Edit) -> None:
    decode = getattr(owner, function)
    setattr(owner, function, lambda *args, **keys: edit(decode(*args, **keys)))
