"""The snapshot of an open conversation under another chart."""

from __future__ import annotations

from msgspec import to_builtins

from toolchart.states.core.configurations import Migrated
from toolchart.states.core.reduce import configure_conversation, select_tools
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot, SnapshotBuilder


def migrate_snapshot(machine: Machine, snapshot: Snapshot, event: Migrated) -> Snapshot:
    """The same conversation under the chart of a machine: nothing is entered, left, asked for or cancelled.

    Raises:
        IllegalEvent: the chart does not have the states.
    """
    builder = SnapshotBuilder.from_snapshot(snapshot)
    configure_conversation(builder, event)
    builder.now = event.at or snapshot.now
    if snapshot.settings is not None:
        builder.offered_tools = select_tools(builder, snapshot.settings)
    if snapshot.configuration is not None:
        try:
            builder.configuration = machine.restore_configuration(to_builtins(snapshot.configuration))
        except SpecError as error:
            raise IllegalEvent(event.TYPE, snapshot.state, false_conditions=(error.message,)) from None
    return builder.build()
