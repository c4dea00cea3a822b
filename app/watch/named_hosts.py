"""The hosts that are seen although programs speak HTTPS to them: `--https HOST[=PROVIDER]`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from toolchart.app.watch.client_variables import HOST_NAMES
from toolchart.providers.hosts import find_host
from toolchart.states.errors import SpecError

_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
"""A DNS name of at least two labels; the last one tells it from an IP address. Source: RFC 1123, 2.1."""


class NamedHost(NamedTuple):
    """A host that is seen."""

    provider: str
    """Whose API it speaks: one of `HOST_NAMES`."""
    is_official: bool
    """Whether it is that provider's own host: then the address that the watch has for it is asked."""


def read_named_hosts(values: Iterable[str]) -> dict[str, NamedHost]:
    """The hosts of the option by their DNS names, in small letters.

    >>> read_named_hosts(["api.openai.com", "api.example.com=openai"])["api.example.com"]
    NamedHost(provider='openai', is_official=False)

    Raises:
        SpecError: a value names no host, or one whose provider is not known.
    """
    official = {urlsplit(find_host(name).own_row.base_url).hostname: name for name in HOST_NAMES}
    hosts: dict[str, NamedHost] = {}
    for value in values:
        name, _, provider = value.strip().partition("=")
        name = name.lower()
        if not _NAME.fullmatch(name):
            raise SpecError(
                f"{name!r} is no name of a host", path="--https", hint="write it as --https api.openai.com"
            )
        own = official.get(name)
        if provider not in ("", *HOST_NAMES):
            raise SpecError(
                f"{provider!r} is no provider", path="--https", hint=f"there are {', '.join(HOST_NAMES)}"
            )
        if not provider and own is None:
            raise SpecError(
                f"it is not known which API {name} speaks",
                path="--https",
                hint=f"say it: --https {name}=PROVIDER, with one of {', '.join(HOST_NAMES)}",
            )
        host = NamedHost(provider or own or "", own is not None)
        if own not in (None, host.provider) or hosts.setdefault(name, host) != host:
            raise SpecError(
                f"{name} speaks one API alone: {own or hosts[name].provider}, not {provider}", path="--https"
            )
    return hosts
