"""The row of the scripted provider in the table of hosts."""

from __future__ import annotations

from toolchart.providers.descriptor import HostDescriptor

SCRIPTED_HOST = HostDescriptor(
    name="scripted",
    summary="replies that stand in the entry itself",
    adapter="toolchart.providers.scripted.provider:ScriptedProvider",
    needs_network=False,
    list_starts="toolchart.states.starts:list_no_starts",
)
