"""The base address of a model host, whatever form of it somebody has written or copied.

An adapter adds the path of each request to the base address: `/chat/completions`, `/v1/messages`.
Documents show bases with and without a version, and whole endpoints. What the adapter adds itself is cut off
here, so that no path is sent twice. An address of another API is an error that names its `provider`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit, urlunsplit

from toolchart.providers.descriptor import HostDescriptor
from toolchart.states.errors import SpecError

_VERSION = re.compile(r"/(v\d+(?:(?:alpha|beta)\d*)?)$", re.IGNORECASE)
_COMPATIBLE_PATH = re.compile(r"/openai(/v1)?$", re.IGNORECASE)
"""Where Gemini, Bedrock and others offer an API like OpenAI's."""


def normalize_address(
    address: str, host: HostDescriptor, others: Iterable[HostDescriptor], *, place: str, api_version: str = ""
) -> str:
    """The base address to which the adapter of a host adds its paths, without a slash at the end.

    Args:
        others: every kind of host, by whose endpoints an address of another API is known.
        place: where the address stands: a key path, or the name of a variable.
        api_version: the version that the adapter puts before its paths, where it does.

    Raises:
        SpecError: it is no address of HTTP, has a query or fragment, or is that of another API.
    """
    parts = _split_address(address.strip(), place)
    path = _cut(parts.path, "/+")
    if host.name != "openai" and _COMPATIBLE_PATH.search(path):
        raise _build_other_api_error(path, host, "openai", place)
    base_path = _cut(_cut(_cut(path, host.endpoint_path), "/+"), host.added_path)
    if base_path == path:
        for other in others:
            if other.name != host.name and _cut(path, other.endpoint_path) != path:
                raise _build_other_api_error(path, host, other.name, place)
    if api_version:
        base_path = _cut_version(_cut(base_path, "/models"), api_version, place)
    # Paths are compared by case on most hosts, and no host has a version in capitals.
    base_path = _VERSION.sub(lambda match: match.group().lower(), _cut(base_path, "/+"))
    return urlunsplit(parts._replace(path=base_path))


def _split_address(address: str, place: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_address, parts = False, SplitResult("", "", "", "", "")
    if not is_address:
        raise SpecError(
            "this is no address of a model host",
            path=place,
            hint="write `http://` or `https://`, the name of the host, and its path: https://host.example/v1",
        )
    if parts.query or parts.fragment:
        raise SpecError(
            "the address of a model host has no query and no fragment: paths are added at its end",
            path=place,
            hint="leave out what begins with ? or #",
        )
    return parts


def _cut(path: str, ending: str) -> str:
    """The path without an ending, given as a pattern; the path itself where it has none."""
    return re.sub(rf"(?:{ending})$", "", path, flags=re.IGNORECASE) if ending else path


def _cut_version(path: str, api_version: str, place: str) -> str:
    match = _VERSION.search(path)
    if match is None:
        return path
    if match.group(1).lower() != api_version.lower():
        raise SpecError(
            f"the address ends in the version {match.group(1)}, and the requests have {api_version}",
            path=place,
            hint=f"leave it out of the address, and write `api_version: {match.group(1)}` in the llms entry",
        )
    return path[: match.start()]


def _build_other_api_error(path: str, host: HostDescriptor, provider: str, place: str) -> SpecError:
    return SpecError(
        f"the address ends in {path!r}, which belongs to another API than that of provider {host.name!r}",
        path=place,
        hint=f"write `provider: {provider}`, or the address of {host.summary}",
    )
