"""Settings of one `tools.registry` entry: how the tool runs, and the keys of its own type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.specs.models import Implementation, ToolEntry
from toolchart.states.errors import SpecError
from toolchart.tools.definition import NeedScope


class RunSettings(BaseModel):
    """How the executor runs a tool; these keys stand beside `name`."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    parallel: bool = True
    """Whether it may run while other calls of the conversation run."""
    needs: list[str] = Field(default_factory=list)
    """Tools that must have succeeded earlier; without them a call is denied, and the model reads why."""
    needs_in: NeedScope = "turn"
    """Where they must have succeeded: in this `turn`, or anywhere in the `conversation`."""
    not_after: list[str] = Field(default_factory=list)
    """Tools after whose success in the conversation a call is denied."""
    max_calls: int | None = Field(default=None, ge=1)
    """Calls of a turn; further ones are denied."""
    repeatable: bool = False
    """Whether the same call again and again is its nature (polling)."""
    cacheable: bool = False
    """Whether the same arguments may be answered from an earlier run in the turn."""
    cache_ttl_s: float | None = Field(default=None, gt=0)
    """How long such an answer stays good, in seconds, across turns; implies `cacheable`."""
    listing: bool | None = None
    """Whether its results are listings, which may show more."""
    memory_mb: int = Field(default=512, ge=64)
    """Memory of a tool with `isolation: process` and everything that it starts together."""
    environment: list[str] = Field(default_factory=list)
    """Variables of the environment that such a tool gets, beyond the plain ones such as PATH."""


def get_type_settings(entry: ToolEntry) -> dict[str, Any]:
    """The keys that belong to the tool's type.

    They may stand inside `implementation` or beside `name`; those inside `implementation` win.
    """
    outer_settings = {
        key: value
        for key, value in (entry.model_extra or {}).items()
        if key not in RunSettings.model_fields and key not in Implementation.model_fields
    }
    inner_settings = dict(entry.kind.model_extra or {})
    return {**outer_settings, **inner_settings}


def parse_run_settings(entry: ToolEntry) -> RunSettings:
    """Read how the tool is to run.

    Raises:
        SpecError: a value is not allowed.
    """
    inner_settings = entry.kind.model_extra or {}
    common_settings = entry.model_dump(include=set(RunSettings.model_fields), exclude_unset=True)
    try:
        return RunSettings.model_validate({**inner_settings, **(entry.model_extra or {}), **common_settings})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key_path = ".".join(map(str, first["loc"]))
        raise SpecError(f"{key_path}: {first['msg']}", path=f"tool {entry.name!r}") from None


def describe_unknown_settings(
    name: str, settings: Mapping[str, Any], known_settings: Iterable[str]
) -> tuple[str, ...]:
    """One warning for each setting that the tool's type does not have, with the most similar name."""
    names = (*known_settings, *RunSettings.model_fields, *ToolEntry.model_fields)
    warnings = []
    for key in settings:
        if key not in names:
            close_names = get_close_matches(key, names, n=1)
            hint = (
                f"did you mean {close_names[0]!r}?"
                if close_names
                else f"known: {', '.join(known_settings) or 'none'}"
            )
            warnings.append(f"tool {name!r}: the setting {key!r} is not used; {hint}")
    return tuple(warnings)
