"""Resolve the address of a model host, and refuse remote hosts when `TOOLCHART_OFFLINE=1` is set.

The address comes from the `llms` entry, else from the host's environment variable, else from the host's row.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from toolchart.providers.hosts import find_host
from toolchart.specs.models import LLMConfig
from toolchart.states.descriptors import load_reference
from toolchart.states.errors import SpecError

OFFLINE_VARIABLE = "TOOLCHART_OFFLINE"
"""Set to `1`, it forbids providers whose host is not this machine."""


def resolve_address(config: LLMConfig, resolve: Callable[[str], str]) -> str | None:
    """The base address that the adapter of an entry uses; None if the adapter has no default address.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.

    Raises:
        SpecError: a variable in `base_url` is not set.
    """
    host = find_host(config.provider)
    default_address = os.environ.get(host.address_variable) or host.default_address
    address = resolve(config.base_url) if config.base_url else default_address
    if address and host.complete_address:
        address = load_reference(host.complete_address)(address)
    return address.rstrip("/") or None


def is_local_address(address: str) -> bool:
    """Whether an address is `localhost` or a loopback IP; no name is looked up.

    >>> is_local_address("http://127.0.0.1:8080/v1"), is_local_address("https://api.openai.com")
    (True, False)
    """
    host = urlsplit(address).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_offline_mode(config: LLMConfig, resolve: Callable[[str], str]) -> None:
    """Refuse an entry whose host is not this machine, if `TOOLCHART_OFFLINE=1` is set.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.

    Raises:
        SpecError: the host is remote and offline mode is on.
    """
    is_offline = os.environ.get(OFFLINE_VARIABLE, "").lower() in ("1", "true", "yes")
    if not is_offline or not find_host(config.provider).needs_network:
        return
    address = resolve_address(config, resolve)
    if address is None or not is_local_address(address):
        raise SpecError(
            f"{OFFLINE_VARIABLE}=1 forbids provider {config.provider!r} "
            f"at {address or 'its default address'}",
            path="llms.*.provider",
            hint="use `scripted`, `recorded` or a base_url on this machine; "
            f"or unset {OFFLINE_VARIABLE} to contact remote hosts",
        )
