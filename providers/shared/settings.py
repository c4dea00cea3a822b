"""What an adapter takes beyond the common keys of an `llms` entry, checked with clear errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest

Hooks = dict[str, list[Callable[[Any], Awaitable[None]]]]
"""What an HTTP client calls with each `request` and each `response`; httpx and httpx2 alike."""


class AdapterSettings(BaseModel):
    """Base of an adapter's own keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


Own = TypeVar("Own", bound=AdapterSettings)


def own_settings(kind: type[Own], config: LLMConfig, below: Mapping[str, Any] | None = None) -> Own:
    """The adapter's own keys of an entry.

    Args:
        below: what holds where the entry says nothing.

    Raises:
        SpecError: a key that this adapter does not have, with the nearest one, or a wrong value.
    """
    try:
        return kind.model_validate({**(below or {}), **config.extras()})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        key = ".".join(map(str, detail["loc"]))
        if detail["type"] == "extra_forbidden":
            known = [*kind.model_fields, *(set(LLMConfig.model_fields) - {"comment"})]
            raise SpecError(
                f"provider {config.provider!r} has no setting {key!r}",
                path=f"llms.*.{key}",
                hint=nearest(key, known),
            ) from None
        raise SpecError(f"provider {config.provider!r}: {key}: {detail['msg']}") from None
