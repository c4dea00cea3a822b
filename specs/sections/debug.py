"""The section `debug`: four switches and the folder of what they write, also set by the environment."""

from __future__ import annotations

import os
from typing import Literal

from toolchart.specs.sections.base import Section
from toolchart.states.errors import SpecError

VARIABLE_PREFIX = "TOOLCHART_DEBUG_"


class DebugConfig(Section):
    """Switches for finding faults. Each may also be set by the environment (`TOOLCHART_DEBUG_TRACES=1`),
    which goes before the spec. What they write may hold everything that was said."""

    raw_responses: bool = False
    """Whether the log keeps the raw answers of hosts, as with `log_answers`."""
    traces: bool = False
    """Whether each step is written to `trace.jsonl`: event, states, effects."""
    strict: bool = False
    """Whether warnings end the turn, as with `policy: strict`."""
    message_parts: bool = False
    """Whether each request is written to `messages.jsonl`: role, kind, size and text of every part."""
    tools: Literal["quiet", "normal", "verbose"] = "normal"
    """What traces say of tools: nothing, the outcomes, or arguments and results too."""
    folder: str = "debug"
    """Folder, relative to the spec; inside it each day has one of its own."""


def read_debug_switches(section: DebugConfig | None) -> DebugConfig:
    """The switches of a spec with those of the environment.

    Raises:
        SpecError: a variable is neither 0 nor 1.
    """
    values: dict[str, object] = {}
    for name in ("raw_responses", "traces", "strict", "message_parts"):
        variable = f"{VARIABLE_PREFIX}{name.upper()}"
        word = os.environ.get(variable, "")
        if word not in ("", "0", "1"):
            raise SpecError(f"{variable} is {word!r}, and neither 0 nor 1")
        values |= {name: word == "1"} if word else {}
    if folder := os.environ.get(f"{VARIABLE_PREFIX}FOLDER"):
        values["folder"] = os.path.abspath(folder)
    return (section or DebugConfig()).model_copy(update=values)
