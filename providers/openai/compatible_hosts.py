"""What compatible hosts do their own way, as data: `compatible_hosts.yaml` beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

_NOT_SETTINGS = ("host", "source")


def profile_of(host: str | None) -> Mapping[str, Any]:
    """The settings of a host, by the end of its name; empty for one that is not known.

    >>> profile_of("myorg.snowflakecomputing.com")
    mappingproxy({'finish_words': {'': 'stop'}})
    """
    name = (host or "").lower().rstrip(".")
    for known, settings in _profiles().items():
        if name == known or name.endswith(f".{known}"):
            return settings
    return MappingProxyType({})


@cache
def _profiles() -> Mapping[str, Mapping[str, Any]]:
    """Settings by the end of a host's name."""
    text = files(__package__).joinpath("compatible_hosts.yaml").read_text("utf-8")
    return {
        row["host"]: MappingProxyType({k: v for k, v in row.items() if k not in _NOT_SETTINGS})
        for row in yaml.safe_load(text)["profiles"]
    }
