"""A model host behind the proxy: where it is, and its connections."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from toolchart.app.watch.messages import Headers
from toolchart.providers.entries import is_local_address, refuse_remote_address
from toolchart.specs.secrets import hide_secrets
from toolchart.states.errors import SpecError


class Upstream:
    """A model host: where it is, and its connections."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.shown = hide_secrets(address)
        """The base address without secrets."""
        parts = urlsplit(address)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._base_path = parts.path.rstrip("/")
        self._proxy = find_proxy(address)
        # A proxy for plain HTTP is asked with the whole address, which the library writes.
        self._sends_exact_path = self._proxy is None or parts.scheme == "https"
        self._is_tls = parts.scheme == "https"
        self._transport: httpx2.AsyncHTTPTransport | None = None
        self.refusal = ""
        """Why it must not be contacted; empty: it may."""
        try:
            refuse_remote_address(address, name)
        except SpecError as error:
            self.refusal = error.message

    async def ask(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: Headers,
        content: bytes | AsyncIterator[bytes] | None,
    ) -> httpx2.Response:
        """The answer of the host, as soon as its headers are there.

        Raises:
            httpx2.HTTPError: the host cannot be reached, or broke off.
        """
        if self._transport is None:
            self._transport = httpx2.AsyncHTTPTransport(
                verify=httpx2.create_ssl_context()
                if self._is_tls
                else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
                proxy=self._proxy,
            )
        target = (self._base_path + path).encode("ascii") + (b"?" + query if query else b"")
        # Not by the client above it: that has headers and cookies of its own, and logs addresses with keys.
        request = httpx2.Request(
            method,
            self._origin + (target.decode("ascii") or "/"),
            headers=[*headers, (b"accept-encoding", b"identity")],
            content=content,
            # So that the path goes as it came: the library would write some characters in another way. No
            # timeout: how long a host may take, the program decides.
            extensions={"target": target or b"/"} if self._sends_exact_path else {},
        )
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close its connections."""
        if self._transport is not None:
            await self._transport.aclose()


def find_proxy(address: str) -> httpx2.Proxy | None:
    """The proxy of the environment for an address; None for one of this machine.

    Raises:
        SpecError: the variable holds no address of a proxy that can be used.
    """
    parts = urlsplit(address)
    if is_local_address(address) or proxy_bypass(parts.netloc):
        return None
    return read_proxy(parts.scheme)


def read_proxy(scheme: str) -> httpx2.Proxy | None:
    """The proxy of the environment for a scheme.

    Raises:
        SpecError: the variable holds no address of a proxy that can be used.
    """
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy:
        return None
    try:
        return httpx2.Proxy(proxy if "://" in proxy else f"http://{proxy}")
    except (ValueError, httpx2.InvalidURL):
        raise SpecError(
            f"{scheme.upper()}_PROXY or ALL_PROXY holds no address of a proxy",
            hint="write it as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT",
        ) from None
