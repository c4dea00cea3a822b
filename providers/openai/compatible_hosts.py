"""Load the default settings of hosts with an OpenAI-compatible API from `compatible_hosts.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

from toolchart.providers.shared.model_rules import list_profile_names
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError

_METADATA_KEYS = ("host", "source")
"""Keys of a row in the file that are no settings."""


def find_profile(host: str | None) -> Mapping[str, Any]:
    """The default settings of a host, by the end of its name; empty for an unknown host.

    Args:
        host: name, or name and port, or the name of a profile.

    >>> find_profile("api.mistral.ai:443")["seed_name"]
    'random_seed'
    """
    whole = (host or "").lower()
    name = whole.partition(":")[0].rstrip(".")
    for suffix, settings in _load_profiles().items():
        if whole == suffix or name == suffix or name.endswith(f".{suffix}"):
            return settings
    return MappingProxyType({})


def check_profile_name(config: LLMConfig) -> str | None:
    """The `host_profile` of an entry; None where it has none.

    Raises:
        SpecError: no host of that name is known.
    """
    name = config.extra_options().get("host_profile")
    known_names = sorted({name for name in _load_profiles() if ":" not in name} | set(list_profile_names()))
    if name is not None and name not in known_names:
        raise SpecError(
            f"there is no profile of a host {name!r}",
            path="llms.*.host_profile",
            hint=f"known are: {', '.join(known_names)}",
        )
    return name


@cache
def _load_profiles() -> Mapping[str, Mapping[str, Any]]:
    """Settings by the end of a host's name."""
    text = files("toolchart.providers.openai").joinpath("compatible_hosts.yaml").read_text("utf-8")
    return {
        row["host"]: MappingProxyType({k: v for k, v in row.items() if k not in _METADATA_KEYS})
        for row in yaml.safe_load(text)["profiles"]
    }
