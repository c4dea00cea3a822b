"""Durable hosts: queues, timers and placement by others, over the same engine and the same log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.engine.durable.client import DurableClient as DurableClient
    from toolchart.engine.durable.dbos_queue import DbosQueue as DbosQueue
    from toolchart.engine.durable.dbos_worker import DbosWorker as DbosWorker
    from toolchart.engine.durable.dbos_worker import WorkerOptions as WorkerOptions
    from toolchart.engine.durable.fleet.fleet_engine import FleetEngine as FleetEngine
    from toolchart.engine.durable.performing import LocalHost as LocalHost
    from toolchart.engine.durable.performing import perform_stretch as perform_stretch
    from toolchart.engine.durable.stretches import DurableHost as DurableHost
    from toolchart.engine.durable.stretches import FollowedHost as FollowedHost
    from toolchart.engine.durable.stretches import Rest as Rest
    from toolchart.engine.durable.stretches import Stretch as Stretch
    from toolchart.engine.durable.stretches import compute_version as compute_version
    from toolchart.engine.durable.stretches import decode_rest as decode_rest
    from toolchart.engine.durable.stretches import decode_stretch as decode_stretch
    from toolchart.engine.durable.stretches import encode_rest as encode_rest
    from toolchart.engine.durable.stretches import encode_stretch as encode_stretch
    from toolchart.engine.durable.stretches import plan_next as plan_next
    from toolchart.engine.durable.temporal_handle import TemporalConversation as TemporalConversation
    from toolchart.engine.durable.temporal_worker import StretchActivity as StretchActivity
    from toolchart.engine.durable.temporal_worker import TemporalHost as TemporalHost
    from toolchart.engine.durable.temporal_worker import TemporalWorker as TemporalWorker
    from toolchart.engine.durable.temporal_workflow import ConversationWorkflow as ConversationWorkflow
    from toolchart.engine.runtime.engine import GRACE_S as GRACE_S

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    from toolchart.late_names import make_late_names

    __all__, __getattr__, __dir__ = make_late_names(
        globals(),
        {
            "toolchart.engine.durable.client": ("DurableClient",),
            "toolchart.engine.durable.dbos_queue": ("DbosQueue",),
            "toolchart.engine.durable.dbos_worker": ("DbosWorker", "WorkerOptions"),
            "toolchart.engine.durable.fleet.fleet_engine": ("FleetEngine",),
            "toolchart.engine.durable.performing": ("LocalHost", "perform_stretch"),
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
            "toolchart.engine.durable.temporal_handle": ("TemporalConversation",),
            "toolchart.engine.durable.temporal_worker": (
                "ConversationWorkflow",
                "StretchActivity",
                "TemporalHost",
                "TemporalWorker",
            ),
            "toolchart.engine.runtime.engine": ("GRACE_S",),
        },
    )
