"""`HostDescriptor`, what a `provider` word means, and `WireFormat`, what it says of a JSON API.

`hosts.py` holds the descriptors. One names code by lazy references (`package.module:name`), so that it loads
without an SDK.

Another package adds a host by an entry point of the group `toolchart.hosts`; see `docs/extending.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from toolchart.providers.shared.host_rows import UNKNOWN_HOST, HostRow
from toolchart.states.descriptors import Descriptor, find_reference_gaps, find_text_gaps
from toolchart.states.messages import Usage
from toolchart.states.schema_dialects import SchemaDialect


class StreamAccumulator(Protocol):
    """Joins the frames of one streamed answer into the body of an answer that was not streamed."""

    def add_frame(self, frame: Any, /) -> Sequence[Any]:
        """The deltas of one frame. Raises `ProviderError` for an error inside the stream."""
        ...

    def read_usage(self) -> Usage | None:
        """The tokens that the host has counted so far; None if it has said nothing."""
        ...

    def build_body(self, is_done: bool = False) -> dict[str, Any]:
        """The whole body. Raises `ProviderError` if the stream was cut.

        Args:
            is_done: whether the stream had the end marker `[DONE]`.
        """
        ...


class WireFormat(msgspec.Struct, frozen=True, kw_only=True):
    """One JSON API through which a host is called. Hosts may share it: then their rows hold equal values."""

    name: str
    """Its word: `chat`, `responses`, `messages`, ..."""
    dialect: SchemaDialect | None = None
    """The part of JSON Schema in which the adapter sends tools."""

    def find_gaps(self) -> list[str]:
        """What this wire format lacks, one sentence each."""
        gaps = find_text_gaps(name=self.name)
        if self.dialect is None:
            gaps.append("`dialect` is missing: the part of JSON Schema that the host supports")
        return [f"wire format {self.name!r}: {gap}" for gap in gaps]


class HostDescriptor(Descriptor, frozen=True, kw_only=True):
    """The adapter that a `provider` word of an `llms` entry names, and the host that it calls by itself."""

    summary: str = ""
    """What the host is, in a few words."""
    adapter: str = ""
    """Reference to the adapter: a class with `from_config(config, resolve, hooks=None)` that returns a
    `Provider`. One without an HTTP client has no `hooks` in its signature."""
    needs_network: bool | None = None
    """Whether the adapter contacts a host. All fields below `list_starts` are for those that do."""
    list_starts: str = ""
    """Reference to a function `(row, name, config, base_folder)` that lists what an `llms` entry can start,
    load, call, send or read, as `Start`s: what a person is asked to trust. It loads nothing itself.
    `toolchart.providers.entries:list_host_starts` knows addresses, keys, files and proxies;
    `toolchart.states.starts:list_no_starts` is for a host that stays inside the process."""
    formats: tuple[WireFormat, ...] = ()
    """The wire formats that the adapter speaks, the usual one first."""
    own_row: HostRow = UNKNOWN_HOST
    """The row of its own host, whose address and keys count where the entry names no other one."""
    address_variable: str = ""
    """Environment variable that replaces the address of its own host."""
    endpoint_path: str = ""
    """Pattern of the paths of the API's endpoints: where an address ends in one, it is cut off for this API
    and an error for the others."""
    added_path: str = ""
    """Pattern of what the adapter puts before these paths, which is no part of the base address either."""
    api_version: str = ""
    """The version that the adapter puts before its paths, where the entry's `api_version` names none."""
    complete_address: str = ""
    """Reference to a function that completes an address as the SDK does; empty: it is used as it is."""
    key_header: str = ""
    """The header that carries the key: `authorization: Bearer {key}`."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Headers of every request, names in lower case."""
    sign_in: str = ""
    """Reference to a function `(config, resolve)` that returns the `httpx2.Auth` with which the list of
    models is fetched, or None for an entry with a key; empty: every entry has a key or needs none."""
    list_models: str | None = ""
    """Reference to a function `(host)` that yields `OfferedModel`s; None: the host has no list of models."""
    fetch_embeddings: str | None = ""
    """Reference to a function `(host, model, texts)` that returns vectors; None: it has no embeddings."""
    start_command: str = ""
    """Command that starts the host on this machine, for hints: `ollama serve`."""
    pull_command: str = ""
    """Command that fetches a missing model, for hints: `ollama pull {model}`."""
    telemetry_name: str = ""
    """OpenTelemetry's `gen_ai.provider.name`; empty: the name of the row."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each."""
        gaps = super().find_gaps() + find_text_gaps(summary=self.summary)
        gaps += find_reference_gaps("adapter", self.adapter, "the class that calls the host")
        gaps += find_reference_gaps(
            "list_starts", self.list_starts, "the function that lists what an entry starts"
        )
        if self.needs_network is None:
            gaps.append("`needs_network` is missing: whether the adapter contacts a host")
        if self.needs_network:
            gaps += self._find_network_gaps()
        return gaps

    def _find_network_gaps(self) -> list[str]:
        """What is missing of the fields that only a row with `needs_network` has."""
        gaps = [gap for wire_format in self.formats for gap in wire_format.find_gaps()]
        if not self.formats:
            gaps.append("`formats` is empty: the wire formats that the adapter speaks")
        if not self.own_row.base_url and not self.address_variable:
            gaps.append("`own_row.base_url` is missing, and there is no `address_variable`")
        if self.own_row.name and self.own_row.provider != self.name:
            provider = self.own_row.provider
            gaps.append(
                f"`own_row.provider` is {provider!r}, so its address and keys are not those of this row"
            )
        if self.complete_address:
            purpose = "the function that completes an address"
            gaps += find_reference_gaps("complete_address", self.complete_address, purpose)
        if self.sign_in:
            gaps += find_reference_gaps("sign_in", self.sign_in, "the function that signs in")
        if not re.fullmatch(r"[a-z0-9-]+: .*\{key\}.*", self.key_header):
            gaps.append("`key_header` is missing: the header of the key, as `x-api-key: {key}`")
        return gaps + [
            f"{gap}; None: the host has none"
            for field, purpose in _OPTIONAL_REFERENCES.items()
            if (reference := getattr(self, field)) is not None
            for gap in find_reference_gaps(field, reference, purpose)
        ]

    def list_references(self) -> dict[str, str]:
        """The lazy references in this row, by field."""
        fields = ("adapter", "list_starts", "complete_address", "sign_in", *_OPTIONAL_REFERENCES)
        return {field: getattr(self, field) for field in fields if getattr(self, field)}

    def build_headers(self, key: str | None) -> dict[str, str]:
        """The headers of a request with this key."""
        name, _, value = self.key_header.partition(": ")
        return {**self.headers, **({name: value.replace("{key}", key)} if key else {})}


_OPTIONAL_REFERENCES = {
    "list_models": "the function that lists the models of the host",
    "fetch_embeddings": "the function that fetches vectors",
}
"""The fields of a `HostDescriptor` whose reference may be None, and what stands behind each."""
