"""Resolve the address of a model host, and refuse remote hosts when `TOOLCHART_OFFLINE=1` is set.

The address comes from the `llms` entry, else from the SDK's environment variable, else from its default.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError

OFFLINE_VARIABLE = "TOOLCHART_OFFLINE"
"""Set to `1`, it forbids providers whose host is not this machine."""

_DEFAULT_ADDRESSES: dict[str, tuple[str, str]] = {
    "openai": ("OPENAI_BASE_URL", "https://api.openai.com/v1"),
    "ollama": ("OLLAMA_HOST", "http://127.0.0.1:11434"),
    "anthropic": ("ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"),
}
"""The SDK's own variable and default. Source: openai 3.52.0, ollama 0.6.3, google-genai 3.4.0."""

_OLLAMA_PORT = 11434


def resolve_address(config: LLMConfig, resolve: Callable[[str], str]) -> str | None:
    """The base address that the adapter of an entry uses; None if the adapter has no default address.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.

    Raises:
        SpecError: a variable in `base_url` is not set.
    """
    if config.provider not in _DEFAULT_ADDRESSES:
        return resolve(config.base_url) if config.base_url else None
    variable, default = _DEFAULT_ADDRESSES[config.provider]
    default = os.environ.get(variable) or default
    address = resolve(config.base_url) if config.base_url else default
    return (_add_ollama_scheme(address) if config.provider == "ollama" else address).rstrip("/")


def _add_ollama_scheme(host: str) -> str:
    """Ollama accepts a bare host name. Source: ollama 0.6.3, `_parse_host`."""
    if "://" in host:
        return host
    parts = urlsplit(f"http://{host}")
    return parts.geturl() if parts.port else f"http://{parts.hostname}:{_OLLAMA_PORT}{parts.path}"


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


def check_offline_mode(
    config: LLMConfig, resolve: Callable[[str], str], needs_network: bool
) -> None:
    """Refuse an entry whose host is not this machine, if `TOOLCHART_OFFLINE=1` is set.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.
        needs_network: whether the entry's adapter contacts a host at all.

    Raises:
        SpecError: the host is remote and offline mode is on.
    """
    is_offline = os.environ.get(OFFLINE_VARIABLE, "").lower() in ("1", "true", "yes")
    if not is_offline or not needs_network:
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
