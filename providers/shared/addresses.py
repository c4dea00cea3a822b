"""Where a model host is, from an `llms` entry and the environment, and whether it may be asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError

OFFLINE = "TOOLCHART_OFFLINE"
"""With `1` no provider is made that would leave this machine."""

_AMBIENT: dict[str, tuple[str, str]] = {
    "openai": ("OPENAI_BASE_URL", "https://api.openai.com/v1"),
    "ollama": ("OLLAMA_HOST", "http://127.0.0.1:11434"),
    "anthropic": ("ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"),
}
"""The SDKs' own variable and default. Source: openai 3.52.0, ollama 0.6.3, google-genai 3.4.0."""

_OLLAMA_PORT = 11434


def address_of(config: LLMConfig, resolve: Callable[[str], str]) -> str | None:
    """The base address that the adapter of an entry asks; None for those that ask nobody.

    Raises:
        SpecError: a variable in `base_url` is not set.
    """
    if config.provider not in _AMBIENT:
        return resolve(config.base_url) if config.base_url else None
    variable, default = _AMBIENT[config.provider]
    given = resolve(config.base_url) if config.base_url else os.environ.get(variable) or default
    return _with_scheme(given).rstrip("/") if config.provider == "ollama" else given.rstrip("/")


def _with_scheme(host: str) -> str:
    """Ollama's addresses may be a bare host. Source: ollama 0.6.3, `_parse_host`."""
    if "://" in host:
        return host
    parts = urlsplit(f"http://{host}")
    return parts.geturl() if parts.port else f"http://{parts.hostname}:{_OLLAMA_PORT}{parts.path}"


def on_this_machine(address: str) -> bool:
    """Whether an address is loopback by its own words; no name is looked up.

    >>> on_this_machine("http://127.0.0.1:8080/v1"), on_this_machine("https://api.openai.com")
    (True, False)
    """
    host = urlsplit(address).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_offline(config: LLMConfig, resolve: Callable[[str], str], asks: bool) -> None:
    """Refuse an entry that would leave this machine, where `TOOLCHART_OFFLINE=1` forbids it.

    Args:
        asks: whether the entry's adapter asks a host at all.

    Raises:
        SpecError: the entry's host is elsewhere.
    """
    if os.environ.get(OFFLINE, "").lower() not in ("1", "true", "yes") or not asks:
        return
    address = address_of(config, resolve)
    if address is None or not on_this_machine(address):
        raise SpecError(
            f"{OFFLINE}=1 forbids provider {config.provider!r} at {address or 'its default address'}",
            path="llms.*.provider",
            hint="allowed are `scripted`, `recorded`, and a base_url on this machine; "
            f"unset {OFFLINE} to ask real hosts",
        )
