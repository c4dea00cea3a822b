"""Guards HTTP tools against server-side request forgery: no private addresses, unless allowed by name.

A model, or a web page that it has read, may choose the address that a tool fetches. So the guard checks
each address after the host name is resolved. The connection goes to exactly that address, because a
second look-up could answer differently. Each redirect is checked in the same way.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase

import msgspec

from toolchart.tools.definition import ToolFailure

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Takes host and port, returns the IP addresses of the host."""


async def resolve_host(host: str, port: int) -> list[str]:
    """Look up the addresses of a host with the operating system's resolver."""
    loop = asyncio.get_running_loop()
    entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class AddressGuard(msgspec.Struct, frozen=True, kw_only=True):
    """Decides which addresses a tool may connect to.

    Private, loopback, link-local, multicast and reserved addresses are refused unless the host is among
    `allow_hosts`. How the host is spelled makes no difference.
    """

    allow_hosts: tuple[str, ...] = ()
    """Hosts that may be private: names or globs, optionally with a port (`localhost:8080`)."""
    resolver: Resolver = resolve_host

    async def choose_address(self, scheme: str, host: str, port: int) -> str:
        """Resolve a host and return the one IP address to connect to.

        Raises:
            ToolFailure: the scheme, the host name or any of its addresses is refused.
        """
        if scheme not in ("http", "https"):
            raise ToolFailure(f"{scheme!r} addresses are not fetched; only http and https")
        name = host.lower().rstrip(".")
        if not name:
            raise ToolFailure("the address names no host")
        try:
            addresses = await self.resolver(name, port)
        except (OSError, UnicodeError):
            raise ToolFailure(f"the host {host!r} cannot be found") from None
        if not addresses:
            raise ToolFailure(f"the host {host!r} has no address")
        if not self._is_allowed(name, port):
            for address in addresses:
                if not is_public_address(address):
                    raise ToolFailure(
                        f"the host {host!r} is not on the public network; name it in allow_hosts "
                        "to let this tool reach it"
                    )
        return addresses[0]

    def _is_allowed(self, name: str, port: int) -> bool:
        spellings = (name, f"{name}:{port}")
        return any(fnmatchcase(spelling, glob.lower()) for spelling in spellings for glob in self.allow_hosts)


def is_public_address(address: str) -> bool:
    """Whether an IP address is on the public network; an embedded IPv4 address is judged instead."""
    try:
        parsed_address = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return False
    embedded_address = _extract_ipv4(parsed_address)
    if embedded_address is not None:
        return is_public_address(str(embedded_address))
    if (
        parsed_address.is_multicast
        or parsed_address.is_reserved
        or any(parsed_address in block for block in _EXTRA_PRIVATE_BLOCKS)
    ):
        return False
    return parsed_address.is_global


_EXTRA_PRIVATE_BLOCKS = tuple(
    ipaddress.ip_network(block)
    for block in ("192.0.0.0/24", "64:ff9b:1::/48", "2001::/23", "3fff::/20", "5f00::/16", "fec0::/10")
)
"""Special-purpose blocks that older versions of `ipaddress` report as global. Source: the IANA
special-purpose address registries."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_IPV4_COMPATIBLE = ipaddress.ip_network("::/96")


def _extract_ipv4(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that is embedded in an IPv6 address, or None."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or (address in _IPV4_COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None
