"""Load the default settings of hosts with an OpenAI-compatible API from `compatible_hosts.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

_METADATA_KEYS = ("host", "source")
"""Keys of a row in the file that are no settings."""


def find_profile(host: str | None) -> Mapping[str, Any]:
    """The default settings of a host, by the end of its name; empty for an unknown host.

    >>> find_profile("myorg.snowflakecomputing.com")
    mappingproxy({'finish_words': {'': 'stop'}})
    """
    name = (host or "").lower().rstrip(".")
    for suffix, settings in _load_profiles().items():
        if name == suffix or name.endswith(f".{suffix}"):
            return settings
    return MappingProxyType({})


@cache
def _load_profiles() -> Mapping[str, Mapping[str, Any]]:
    """Settings by the end of a host's name."""
    text = files("toolchart.providers.openai").joinpath("compatible_hosts.yaml").read_text("utf-8")
    return {
        row["host"]: MappingProxyType({k: v for k, v in row.items() if k not in _METADATA_KEYS})
        for row in yaml.safe_load(text)["profiles"]
    }
