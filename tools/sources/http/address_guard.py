"""Where an HTTP tool may connect to: never to this machine or its network, unless named.

A model, or a page that it was given to read, may choose what a tool fetches. So every address is looked
at after its name was resolved, the connection is made to that very address (a second look-up could
answer differently), and each redirect is looked at anew.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from toolchart.tools.definition import ToolFailure

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""From host and port to the addresses that stand for it."""


async def system_resolver(host: str, port: int) -> list[str]:
    """The addresses that the operating system knows."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What a tool may reach.

    Private, loopback, link-local, multicast and reserved addresses are refused, whatever the spelling
    of the host that leads to them, unless the host is among `allow_hosts`.
    """

    allow_hosts: tuple[str, ...] = ()
    """Hosts that may be private: names or globs, optionally with a port (`localhost:8080`)."""
    resolver: Resolver = system_resolver

    async def address(self, scheme: str, host: str, port: int) -> str:
        """The one address to connect to.

        Raises:
            ToolFailure: the scheme, the name or any address behind it is refused.
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
        if not self._named(name, port):
            for address in addresses:
                if not is_public(address):
                    raise ToolFailure(
                        f"the host {host!r} is not on the public network; name it in allow_hosts "
                        "to let this tool reach it"
                    )
        return addresses[0]

    def _named(self, name: str, port: int) -> bool:
        spellings = (name, f"{name}:{port}")
        return any(fnmatchcase(one, glob.lower()) for one in spellings for glob in self.allow_hosts)


def is_public(address: str) -> bool:
    """Whether an address is on the public network, seen through every way of wrapping another."""
    try:
        found = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return False
    inner = _inside(found)
    if inner is not None:
        return is_public(str(inner))
    if found.is_multicast or found.is_reserved or any(found in block for block in _ALSO_PRIVATE):
        return False
    return found.is_global


_ALSO_PRIVATE = tuple(
    ipaddress.ip_network(block)
    for block in (
        "192.0.0.0/24",
        "64:ff9b:1::/48",
        "2001::/23",
        "3fff::/20",
        "5f00::/16",
        "fec0::/10",
    )
)
"""Special blocks that older versions of `ipaddress` call global. Source: the IANA special-purpose
address registries."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")


def _inside(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one carries."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None
