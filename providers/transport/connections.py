"""Options of the HTTP clients of an `llms` entry: silence, pool, proxy, certificates and hooks."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

from toolchart.providers.transport.reply_guard import ask_for_known_encodings, guard_response
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    import httpx2

HttpHooks = dict[str, list[Callable[[Any], Awaitable[None]]]]
"""Event hooks of an HTTP client: functions that it calls with each `request` and each `response`."""


_MAX_CONNECTIONS = 1000
_MAX_KEPT_CONNECTIONS = 100
"""Where the entry says nothing. The library's 100 make the calls of a wide batch wait for each other."""


def get_silence_timeout_s(config: LLMConfig) -> float:
    """Seconds after which a host that sends nothing is given up. The whole call has a deadline besides."""
    return min(config.idle_timeout_s or config.timeout_s, config.timeout_s)


def create_client(
    config: LLMConfig,
    resolve: Callable[[str], str],
    hooks: HttpHooks | None,
    *,
    address: str,
    headers: Mapping[str, str],
    auth: Any = None,
    follows_redirects: bool = False,
) -> httpx2.AsyncClient:
    """The client through which the adapter of an entry calls its host.

    Args:
        address: what the paths are added to.
        headers: of every request.
        auth: what signs the requests.
        follows_redirects: whether redirects within the host are followed, as its SDK does.

    Raises:
        SpecError: as `build_client_options`.
    """
    import httpx2

    return httpx2.AsyncClient(
        base_url=address,
        headers=headers,
        auth=auth,
        follow_redirects=follows_redirects,
        **build_client_options(config, resolve, hooks),
    )


def build_client_options(
    config: LLMConfig, resolve: Callable[[str], str], hooks: HttpHooks | None = None
) -> dict[str, Any]:
    """Keyword arguments of the HTTP client of an entry.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.

    Raises:
        SpecError: a certificate cannot be read, or the proxy is no address.
    """
    import httpx2

    options: dict[str, Any] = {"timeout": get_silence_timeout_s(config)}
    # The guard is the first hook, so that the others read the body through it.
    options["event_hooks"] = {
        "request": [ask_for_known_encodings, *(hooks or {}).get("request", ())],
        "response": [guard_response, *(hooks or {}).get("response", ())],
    }
    count = config.max_connections
    options["limits"] = httpx2.Limits(
        max_connections=count or _MAX_CONNECTIONS, max_keepalive_connections=count or _MAX_KEPT_CONNECTIONS
    )
    if config.proxy:
        options["proxy"] = _check_proxy(resolve(config.proxy))
    else:
        for address in getproxies().values():  # the client takes them from the environment
            _check_socks(address)
    if config.ca_file or config.client_certificate:
        options["verify"] = _build_ssl_context(config)
    return options


def _check_proxy(address: str) -> Any:
    """The proxy of an address, which may hold user and password.

    Raises:
        SpecError: it is none, or its kind needs a package that is not installed; without the address, which
            may be secret.
    """
    import httpx2

    try:
        proxy = httpx2.Proxy(address)
    except (ValueError, httpx2.InvalidURL):
        raise SpecError(
            "the proxy is no address",
            path="llms.*.proxy",
            hint="write it as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT",
        ) from None
    _check_socks(address)
    return proxy


def _check_socks(address: str) -> None:
    """Refuse a SOCKS proxy where the package for it is missing; the HTTP libraries raise `ImportError`."""
    if address.startswith("socks") and find_spec("socksio") is None:
        raise SpecError(
            "a SOCKS proxy needs the package socksio, which is not installed",
            path="llms.*.proxy",
            hint="pip install socksio; without `proxy` the one of ALL_PROXY or HTTPS_PROXY is used",
        )


def _build_ssl_context(config: LLMConfig) -> ssl.SSLContext:
    """The usual trusted authorities and those of `ca_file`, and the client's own certificate."""
    import httpx2

    context: ssl.SSLContext = httpx2.create_ssl_context()
    try:
        if config.ca_file:
            context.load_verify_locations(config.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise _build_file_error("ca_file", config.ca_file, error) from None
    try:
        if config.client_certificate:
            context.load_cert_chain(config.client_certificate)
    except (OSError, ssl.SSLError) as error:
        raise _build_file_error("client_certificate", config.client_certificate, error) from None
    return context


def _build_file_error(key: str, path: str | None, error: Exception) -> SpecError:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return SpecError(
        f"{path}: {reason}", path=f"llms.*.{key}", hint="give a PEM file; its path is relative to the spec"
    )
