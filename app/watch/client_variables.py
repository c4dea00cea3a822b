"""The environment variables by which clients find their model hosts: read for us, and written for programs.

Each client reads variables of its own, so a host has several. All of them lead to the proxy, with what this
client expects behind the address. The hosts themselves are what the operator's variables said before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from toolchart.providers.addresses import normalize_address
from toolchart.providers.entries import is_local_address
from toolchart.providers.hosts import find_host, list_builtin_hosts
from toolchart.states.descriptors import load_reference
from toolchart.states.errors import SpecError


class ClientVariable(NamedTuple):
    """One variable that clients read."""

    name: str
    host: str
    """The host by its `provider` word."""
    path: str
    """What stands behind the address of the proxy."""
    ending: str = ""
    """What of this path clients expect behind the base address of a host; our base address has none of it."""


VARIABLES = (
    # openai 3.57, OpenAI Agents, Pydantic AI; LangChain, CrewAI, LiteLLM read the second one too.
    ClientVariable("OPENAI_BASE_URL", "openai", "/openai/v1"),
    ClientVariable("OPENAI_API_BASE", "openai", "/openai/v1"),
    # anthropic 2.14; LangChain; LiteLLM. @ai-sdk/anthropic reads the first one and adds `/messages` alone.
    ClientVariable("ANTHROPIC_BASE_URL", "anthropic", "/anthropic"),
    ClientVariable("ANTHROPIC_API_URL", "anthropic", "/anthropic"),
    ClientVariable("ANTHROPIC_API_BASE", "anthropic", "/anthropic"),
    # google-genai 3.6 adds the version. LiteLLM adds `/models/...` (its vertex_llm_base.py).
    ClientVariable("GOOGLE_GEMINI_BASE_URL", "gemini", "/gemini"),
    ClientVariable("GEMINI_API_BASE", "gemini", "/gemini/v1beta", "/v1beta"),
    # ollama 0.6; Pydantic AI, which speaks chat completions; LiteLLM.
    ClientVariable("OLLAMA_HOST", "ollama", "/ollama"),
    ClientVariable("OLLAMA_BASE_URL", "ollama", "/ollama/v1", "/v1"),
    ClientVariable("OLLAMA_API_BASE", "ollama", "/ollama"),
)
"""Every variable that is set for programs; for the hosts of each word the first one that is set counts."""

HOST_NAMES = tuple(dict.fromkeys(variable.host for variable in VARIABLES))
"""The `provider` words of the hosts that are watched."""

_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


def read_hosts(options: Mapping[str, str | None], environment: Mapping[str, str]) -> dict[str, str]:
    """The base address of each host: the option, else what the operator's variables say, else its own.

    Args:
        options: addresses by the `provider` words, None where the option was not given.

    Raises:
        SpecError: an address is none, or two variables name two hosts.
    """
    return {name: _read_host(name, options.get(name), environment) for name in HOST_NAMES}


def _read_host(name: str, option: str | None, environment: Mapping[str, str]) -> str:
    if option:
        return _check_address(option, name, f"--{name}")
    addresses: dict[str, str] = {}
    for variable in VARIABLES:
        value = environment.get(variable.name, "").rstrip("/") if variable.host == name else ""
        if value:
            base = value.removesuffix(variable.ending) if variable.ending else value
            addresses[variable.name] = _check_address(base, name, variable.name)
    if len(set(addresses.values())) > 1:
        raise SpecError(
            f"{' and '.join(addresses)} name different hosts, and one alone can be watched for {name}",
            hint=f"say which one: --{name} URL",
        )
    return next(iter(addresses.values()), find_host(name).own_row.base_url)


def _check_address(address: str, name: str, place: str) -> str:
    host = find_host(name)
    if host.complete_address:
        address = load_reference(host.complete_address)(address)
    base = normalize_address(address, host, list_builtin_hosts(), place=place)
    if "@" in urlsplit(base).netloc:
        raise SpecError(
            "the address of a watched host holds no user and no password",
            path=place,
            hint="let the program send them in a header",
        )
    return base


def check_hosts(hosts: Mapping[str, str], port: int) -> None:
    """Refuse hosts that cannot be watched by a proxy on this port.

    Raises:
        SpecError: a host is the proxy itself.
    """
    for name, address in hosts.items():
        parts = urlsplit(address)
        if (is_local_address(address) or parts.hostname in ("0.0.0.0", "::")) and parts.port == port:
            raise SpecError(
                f"the host of {name}, {address}, is the proxy itself: it would ask itself without end",
                hint=f"give the address of the real host: --{name} URL",
            )


def list_settings(address: str) -> dict[str, str]:
    """The variables that lead programs to a proxy at an address."""
    return {variable.name: address + variable.path for variable in VARIABLES}


def build_environment(environment: Mapping[str, str], address: str) -> dict[str, str]:
    """The environment of a program that is watched: as it is, but that its model hosts are the proxy.

    Where an HTTP proxy is set, clients would also go through it to an address of this machine: `NO_PROXY`
    then names it.
    """
    has_proxy = any(environment.get(name) for name in _PROXY_VARIABLES)
    exceptions = list_exceptions(environment) if has_proxy else {}
    return {**environment, **list_settings(address), **exceptions}


def list_exceptions(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that let clients ask this machine without an HTTP proxy."""
    settings: dict[str, str] = {}
    for name in ("NO_PROXY", "no_proxy"):
        exceptions = environment.get(name) or environment.get("no_proxy") or environment.get("NO_PROXY", "")
        settings[name] = ",".join(filter(None, [exceptions, "127.0.0.1", "localhost"]))
    return settings
