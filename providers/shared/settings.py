"""Read an adapter's own keys of an `llms` entry, and report unknown keys and wrong values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError, suggest_name


class AdapterSettings(BaseModel):
    """Base class for the keys that only one adapter has."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


SettingsType = TypeVar("SettingsType", bound=AdapterSettings)


def read_adapter_settings(
    settings_type: type[SettingsType], config: LLMConfig, defaults: Mapping[str, Any] | None = None
) -> SettingsType:
    """The adapter's own keys of an entry.

    Args:
        defaults: values for keys that the entry does not have.

    Raises:
        SpecError: a key that this adapter does not have (with a suggestion), or a wrong value.
    """
    try:
        return settings_type.model_validate({**(defaults or {}), **config.extra_options()})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        key = ".".join(map(str, detail["loc"]))
        if detail["type"] == "extra_forbidden":
            allowed_keys = [*settings_type.model_fields, *(set(LLMConfig.model_fields) - {"comment"})]
            raise SpecError(
                f"provider {config.provider!r} has no setting {key!r}",
                path=f"llms.*.{key}",
                hint=suggest_name(key, allowed_keys),
            ) from None
        raise SpecError(f"provider {config.provider!r}: {key}: {detail['msg']}") from None
