"""The table of model hosts: one row per `provider` word, with the wire formats that the hosts speak.

To add a host, make a folder with its adapter and a row in `host.py`, and list the row here. Another package
adds a host by an entry point of the group `toolchart.hosts`.
"""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.providers.anthropic.host import ANTHROPIC_HOST
from toolchart.providers.bedrock.host import BEDROCK_HOST
from toolchart.providers.descriptor import HostDescriptor, WireFormat
from toolchart.providers.gemini.host import GEMINI_HOST
from toolchart.providers.ollama.host import OLLAMA_HOST
from toolchart.providers.openai.host import AZURE_HOST, OPENAI_HOST
from toolchart.providers.recording.host import RECORDED_HOST
from toolchart.providers.scripted.host import SCRIPTED_HOST
from toolchart.states.descriptors import Registry


def _list_builtin_hosts() -> tuple[HostDescriptor, ...]:
    return (
        *(OPENAI_HOST, AZURE_HOST, OLLAMA_HOST, ANTHROPIC_HOST, GEMINI_HOST, BEDROCK_HOST),
        *(SCRIPTED_HOST, RECORDED_HOST),
    )


HOSTS: Registry[HostDescriptor] = Registry("provider", "toolchart.hosts", HostDescriptor, _list_builtin_hosts)
"""The hosts by the `provider` word of an `llms` entry."""


def find_host(provider: str) -> HostDescriptor:
    """The row of a `provider` word.

    Raises:
        SpecError: there is no such host, or its row is incomplete.
    """
    return HOSTS.find(provider, "llms.*.provider")


def iterate_wire_formats() -> Iterator[WireFormat]:
    """Every wire format once, those of this package first; of several with one name the first.

    Those of another package's host are among them once an `llms` entry has named it.
    """
    names: set[str] = set()
    for host in HOSTS.known_rows:
        for wire_format in host.formats:
            if wire_format.name not in names:
                names.add(wire_format.name)
                yield wire_format


def find_wire_format(name: str) -> WireFormat | None:
    """The wire format of this name; None if there is none."""
    return next((row for row in iterate_wire_formats() if row.name == name), None)


def get_telemetry_name(provider: str) -> str:
    """OpenTelemetry's `gen_ai.provider.name` of a provider; for an unknown one its own name."""
    host = HOSTS.find_known(provider)
    return (host.telemetry_name if host else "") or provider
