"""Durable hosts: queues, timers and placement by others, over the same engine and the same log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.engine.durable.client import DurableClient
    from toolchart.engine.durable.dbos_queue import DbosQueue
    from toolchart.engine.durable.dbos_worker import DbosWorker, WorkerOptions
    from toolchart.engine.durable.fleet.fleet_engine import FleetEngine
    from toolchart.engine.durable.local import LocalHost
    from toolchart.engine.durable.performing import perform_stretch
    from toolchart.engine.durable.stretches import (
        DurableHost,
        FollowedHost,
        Rest,
        Stretch,
        compute_version,
        decode_rest,
        decode_stretch,
        encode_rest,
        encode_stretch,
        plan_next,
    )
    from toolchart.engine.durable.temporal_worker import StretchActivity, TemporalHost, TemporalWorker
    from toolchart.engine.durable.temporal_workflow import ConversationWorkflow
    from toolchart.engine.runtime.engine import GRACE_S

__all__ = [
    "ConversationWorkflow",
    "DbosQueue",
    "DbosWorker",
    "DurableClient",
    "DurableHost",
    "FleetEngine",
    "FollowedHost",
    "GRACE_S",
    "LocalHost",
    "Rest",
    "Stretch",
    "StretchActivity",
    "TemporalHost",
    "TemporalWorker",
    "WorkerOptions",
    "compute_version",
    "decode_rest",
    "decode_stretch",
    "encode_rest",
    "encode_stretch",
    "perform_stretch",
    "plan_next",
]

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    from toolchart.late_names import make_late_names

    _NAMES = {
        "toolchart.engine.durable.client": ("DurableClient",),
        "toolchart.engine.durable.dbos_queue": ("DbosQueue",),
        "toolchart.engine.durable.dbos_worker": ("DbosWorker", "WorkerOptions"),
        "toolchart.engine.durable.fleet.fleet_engine": ("FleetEngine",),
        "toolchart.engine.durable.local": ("LocalHost",),
        "toolchart.engine.durable.performing": ("perform_stretch",),
        "toolchart.engine.durable.stretches": (
            "DurableHost",
            "FollowedHost",
            "Rest",
            "Stretch",
            "compute_version",
            "decode_rest",
            "decode_stretch",
            "encode_rest",
            "encode_stretch",
            "plan_next",
        ),
        "toolchart.engine.durable.temporal_worker": (
            "ConversationWorkflow",
            "StretchActivity",
            "TemporalHost",
            "TemporalWorker",
        ),
        "toolchart.engine.runtime.engine": ("GRACE_S",),
    }
    __getattr__, __dir__ = make_late_names(globals(), _NAMES)
