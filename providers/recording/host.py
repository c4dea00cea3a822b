"""The row of the recorded provider in the table of hosts."""

from __future__ import annotations

from toolchart.providers.descriptor import HostDescriptor

RECORDED_HOST = HostDescriptor(
    name="recorded",
    summary="replies of a cassette or of a log",
    adapter="toolchart.providers.recording.player:RecordedProvider",
    needs_network=False,
    list_starts="toolchart.providers.shared.starts:list_recording_starts",
)
