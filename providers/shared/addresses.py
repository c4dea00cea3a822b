"""Resolve the address of a model host, and refuse remote hosts when `TOOLCHART_OFFLINE=1` is set.

The address comes from the `llms` entry, else from the host's environment variable, else from the host's row.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from toolchart.providers.hosts import find_host
from toolchart.specs.models import LLMConfig
from toolchart.states.descriptors import load_row_reference
from toolchart.states.errors import SpecError

_FILE_KEYS = ("record", "cassette", "log", "ca_file", "client_certificate")
"""Keys of an entry that name files."""

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
        address = load_row_reference(host, host.complete_address)(address)
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
    if _is_offline() and find_host(config.provider).needs_network:
        refuse_remote_address(resolve_address(config, resolve), config.provider)


def _is_offline() -> bool:
    return os.environ.get(OFFLINE_VARIABLE, "").lower() in ("1", "true", "yes")


def refuse_remote_address(address: str | None, provider: str) -> None:
    """Refuse an address that is not this machine, if `TOOLCHART_OFFLINE=1` is set.

    Args:
        address: None for the default address of a provider, which is remote.

    Raises:
        SpecError: the address is remote and offline mode is on.
    """
    if _is_offline() and (address is None or not is_local_address(address)):
        raise SpecError(
            f"{OFFLINE_VARIABLE}=1 forbids provider {provider!r} at {address or 'its default address'}",
            path="llms.*.provider",
            hint="use `scripted`, `recorded` or a base_url on this machine; "
            f"or unset {OFFLINE_VARIABLE} to contact remote hosts",
        )


def resolve_file_paths(config: LLMConfig, folder: Path, resolve: Callable[[str], str]) -> LLMConfig:
    """The entry with the paths of its files relative to the current folder.

    Args:
        folder: to which they are relative in the entry: that of the spec.
        resolve: replaces `${VARIABLE}` references by their values.
    """
    names = {key: getattr(config, key, None) for key in _FILE_KEYS}
    paths = {key: str(folder / resolve(str(name))) for key, name in names.items() if name}
    return config.model_copy(update=paths) if paths else config
