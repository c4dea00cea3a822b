"""Addresses of the JetStream store: `nats://[USER:PASSWORD@]HOST[:PORT][,...]/NAME[?credentials=FILE&ca=FILE]`."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import msgspec

from toolchart.states.errors import SpecError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_DEFAULT_PORT = 4222
_FORM = "nats://HOST:4222/NAME"


class NatsAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a log is, without its secrets where it is shown."""

    servers: tuple[str, ...]
    """URLs of the servers, with user and password where the address has them."""
    name: str
    """Name of the stream."""
    credentials: str | None = None
    """Path of a NATS credentials file."""
    ca: str | None = None
    """Path of a file with the certificates that sign those of the servers."""

    @property
    def place(self) -> str:
        """The address for people: hosts and name, neither users, passwords nor options."""
        places = [url.rpartition("@")[2].removeprefix("nats://") for url in self.servers]
        return f"nats://{','.join(places)}/{self.name}"


def parse_address(address: str) -> NatsAddress:
    """The parts of an address.

    Raises:
        SpecError: it has no host or no name, or an unknown option.
    """
    rest = address.partition("://")[2]
    location, _, query = rest.partition("?")
    hosts, _, name = location.partition("/")
    if not hosts or not _NAME.fullmatch(name):
        raise SpecError(
            "an address of a NATS log has a host and a name of letters, digits, `_` and `-`",
            hint=f"write {_FORM}",
        )
    users, separator, places = hosts.rpartition("@")
    servers = tuple(_build_url(users + separator, place) for place in places.split(","))
    options = dict(parse_qsl(query))
    unknown = sorted(options.keys() - {"credentials", "ca"})
    if unknown:
        raise SpecError(f"unknown option of a NATS log: {unknown[0]}", hint="known: ca, credentials")
    return NatsAddress(
        servers=servers, name=name, credentials=options.get("credentials"), ca=options.get("ca")
    )


def _build_url(users: str, place: str) -> str:
    try:
        parts = urlsplit(f"nats://{place}")
        port = parts.port or _DEFAULT_PORT
    except ValueError:
        raise SpecError("a port of a NATS log is a number up to 65535", hint=f"write {_FORM}") from None
    if not parts.hostname:
        raise SpecError("a host of a NATS log is missing", hint=f"write {_FORM}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"nats://{users}{host}:{port}"
