"""What an entry of the spec's registry says beyond its common keys, checked for its type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.specs.models import Implementation, ToolEntry
from toolchart.states.errors import SpecError


class RunSettings(BaseModel):
    """How a tool is run; keys beside `name`."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    parallel: bool = True
    """Whether it may run while other calls of the conversation run."""
    repeatable: bool = False
    """Whether the same call again and again is its nature (polling)."""
    cacheable: bool = False
    """Whether the same arguments may be answered from an earlier run in the turn."""
    cache_ttl_s: float | None = Field(default=None, gt=0)
    """How long such an answer stays good, in seconds, across turns; implies `cacheable`."""
    listing: bool | None = None
    """Whether its results are listings, which may show more."""
    memory_mb: int = Field(default=512, ge=64)
    """Memory of a tool with `isolation: process`."""


def implementation_of(entry: ToolEntry) -> Implementation:
    """What the tool does: named, or the builtin of its own name."""
    return entry.implementation or Implementation(type="builtin")


def settings_of(entry: ToolEntry) -> dict[str, Any]:
    """Keys that belong to the tool's type, wherever they were written: inside `implementation` or
    beside `name`; the inner ones go first."""
    beside = {
        k: v for k, v in (entry.model_extra or {}).items() if k not in RunSettings.model_fields
    }
    inside = dict(implementation_of(entry).model_extra or {})
    return {**beside, **inside}


def run_settings(entry: ToolEntry) -> RunSettings:
    """How the tool is to be run.

    Raises:
        SpecError: a value that cannot be.
    """
    inside = implementation_of(entry).model_extra or {}
    declared = entry.model_dump(include=set(RunSettings.model_fields), exclude_unset=True)
    try:
        return RunSettings.model_validate({**inside, **(entry.model_extra or {}), **declared})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise SpecError(f"{place}: {first['msg']}", path=f"tool {entry.name!r}") from None


def unknown_settings(
    name: str, settings: Mapping[str, Any], known: Iterable[str]
) -> tuple[str, ...]:
    """A warning for each setting that the tool's type does not have, with the nearest one."""
    names = (*known, *RunSettings.model_fields, *ToolEntry.model_fields)
    warnings = []
    for key in settings:
        if key not in names:
            close = get_close_matches(key, names, n=1)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
            )
            warnings.append(f"tool {name!r}: the setting {key!r} is not used; {hint}")
    return tuple(warnings)
