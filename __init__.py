"""Toolchart runs LLM tool loops as declared state machines.

    from toolchart import Engine, load_spec

    Engine(load_spec("quickstart")).run("What is 17 * (23 + 4)?")

The exports are the public API, together with those of `toolchart.testing` and the interfaces in
`docs/extending.md`; `docs/reference.md` describes them. They are imported when they are first used, so that
`import toolchart` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.engine.exchange.tool_messages import encode_tools, make_call_message, make_result_message
    from toolchart.engine.log.fork import ForkChanges
    from toolchart.engine.log.secrecy.erasing import (
        ContentElsewhere,
        ErasedConversation,
        ErasureChoice,
        erase_content,
        find_content_elsewhere,
    )
    from toolchart.engine.log.secrecy.keys import LogKeys
    from toolchart.engine.log.stores import open_store
    from toolchart.engine.rerun.campaign import arerun, rerun
    from toolchart.engine.rerun.changes import RerunChanges
    from toolchart.engine.rerun.report import RerunReport, RerunResult
    from toolchart.engine.runtime.clock import Clock
    from toolchart.engine.runtime.dependencies import Approver, Asker, DeltaObserver, Observer
    from toolchart.engine.runtime.engine import Engine
    from toolchart.engine.runtime.result import (
        FinishedCall,
        ForkResult,
        PendingApproval,
        TurnResult,
        WaitingCall,
    )
    from toolchart.engine.runtime.streaming import StepTaken
    from toolchart.engine.runtime.turns.handle import Conversation
    from toolchart.engine.runtime.turns.options import ResumeOptions, StreamOptions, TurnOptions
    from toolchart.engine.telemetry.live import Telemetry
    from toolchart.specs.charts import load_chart
    from toolchart.specs.loader import load_spec
    from toolchart.specs.models import AgentSpec
    from toolchart.states.chart.document import Chart
    from toolchart.states.content import AudioPart, CitationPart, ContentPart, FilePart, ImagePart, TextPart
    from toolchart.states.core.configurations import Erased, Migrated
    from toolchart.states.core.step import Step, begin, step
    from toolchart.states.effects import (
        Answer,
        AskPerson,
        AwaitUser,
        CallFunction,
        CallModel,
        Effect,
        ReviewCalls,
        RunAgent,
        RunTools,
        Wait,
    )
    from toolchart.states.errors import (
        DurableHostUnavailable,
        EffectRefused,
        ForeignLog,
        IllegalEvent,
        LeaseHeld,
        LeaseLost,
        LogBusy,
        LogConflict,
        LogDamaged,
        LogUnavailable,
        MissingKey,
        NewerLog,
        NoRecordedAnswer,
        PluginFailure,
        PluginUnusable,
        ProviderError,
        ReplayMismatch,
        SettingsWidened,
        SpecError,
        StorageFailure,
        ToolchartError,
        TurnCancelled,
        UnknownSemantics,
    )
    from toolchart.states.events import (
        Cancelled,
        Configured,
        Continued,
        Decided,
        Elapsed,
        Event,
        Failed,
        Forked,
        Limits,
        Replied,
        Resumed,
        Reviewed,
        Settings,
        ToolFinished,
        TurnStarted,
        UserSaid,
        Verdict,
    )
    from toolchart.states.flows.events import (
        AgentFailed,
        AgentFinished,
        AgentRested,
        Answered,
        Counted,
        Returned,
    )
    from toolchart.states.machine import Machine
    from toolchart.states.messages import (
        CallArguments,
        CallStarted,
        Delta,
        Message,
        ReasoningDelta,
        Reply,
        Request,
        TextDelta,
        ToolCall,
        ToolDefinition,
        Usage,
    )
    from toolchart.states.ports import Provider, Store, StreamingProvider
    from toolchart.states.snapshot import Snapshot
    from toolchart.tools.approvers import Signer
    from toolchart.tools.definition import Tool, ToolFailure, ToolPending
    from toolchart.tools.execution.context import CallContext
    from toolchart.tools.services import Embedder, Hit, Search
    from toolchart.tools.sources.effect_functions import effect
    from toolchart.tools.sources.python import tool
    from toolchart.tools.tool_context import ToolContext

__version__ = "0.2.0"

__all__ = [
    "__version__",
    "Engine",
    "Conversation",
    "TurnOptions",
    "StreamOptions",
    "ResumeOptions",
    "TurnResult",
    "FinishedCall",
    "PendingApproval",
    "WaitingCall",
    "ForkResult",
    "ForkChanges",
    "rerun",
    "arerun",
    "RerunChanges",
    "RerunReport",
    "RerunResult",
    "StepTaken",
    "Approver",
    "Asker",
    "Observer",
    "DeltaObserver",
    "Telemetry",
    "Clock",
    "load_spec",
    "AgentSpec",
    "load_chart",
    "Chart",
    "tool",
    "effect",
    "Tool",
    "ToolFailure",
    "ToolPending",
    "CallContext",
    "Signer",
    "ToolContext",
    "Search",
    "Hit",
    "Embedder",
    "encode_tools",
    "make_call_message",
    "make_result_message",
    "open_store",
    "LogKeys",
    "erase_content",
    "ErasureChoice",
    "ErasedConversation",
    "find_content_elsewhere",
    "ContentElsewhere",
    "Store",
    "Provider",
    "StreamingProvider",
    "Message",
    "ContentPart",
    "TextPart",
    "ImagePart",
    "FilePart",
    "AudioPart",
    "CitationPart",
    "ToolCall",
    "ToolDefinition",
    "Request",
    "Reply",
    "Usage",
    "Delta",
    "TextDelta",
    "ReasoningDelta",
    "CallStarted",
    "CallArguments",
    "begin",
    "step",
    "Step",
    "Machine",
    "Snapshot",
    "Event",
    "Configured",
    "Continued",
    "Forked",
    "Migrated",
    "Erased",
    "TurnStarted",
    "Resumed",
    "UserSaid",
    "Replied",
    "Failed",
    "Reviewed",
    "Decided",
    "ToolFinished",
    "Returned",
    "Answered",
    "Counted",
    "AgentFinished",
    "AgentFailed",
    "AgentRested",
    "Elapsed",
    "Cancelled",
    "Settings",
    "Limits",
    "Verdict",
    "Effect",
    "CallModel",
    "RunAgent",
    "CallFunction",
    "AskPerson",
    "AwaitUser",
    "ReviewCalls",
    "RunTools",
    "Wait",
    "Answer",
    "ToolchartError",
    "SpecError",
    "PluginUnusable",
    "SettingsWidened",
    "PluginFailure",
    "EffectRefused",
    "IllegalEvent",
    "ProviderError",
    "NoRecordedAnswer",
    "ReplayMismatch",
    "UnknownSemantics",
    "LogConflict",
    "DurableHostUnavailable",
    "TurnCancelled",
    "LogDamaged",
    "LogUnavailable",
    "MissingKey",
    "NewerLog",
    "ForeignLog",
    "LogBusy",
    "StorageFailure",
    "LeaseHeld",
    "LeaseLost",
]

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    from toolchart.late_names import make_late_names

    _NAMES = {
        "toolchart.engine.runtime.engine": ("Engine",),
        "toolchart.engine.runtime.turns.handle": ("Conversation",),
        "toolchart.engine.runtime.turns.options": ("TurnOptions", "StreamOptions", "ResumeOptions"),
        "toolchart.engine.runtime.result": (
            "TurnResult",
            "FinishedCall",
            "PendingApproval",
            "WaitingCall",
            "ForkResult",
        ),
        "toolchart.engine.log.fork": ("ForkChanges",),
        "toolchart.engine.rerun.campaign": ("arerun", "rerun"),
        "toolchart.engine.rerun.changes": ("RerunChanges",),
        "toolchart.engine.rerun.report": ("RerunReport", "RerunResult"),
        "toolchart.engine.runtime.streaming": ("StepTaken",),
        "toolchart.engine.runtime.dependencies": ("Approver", "Asker", "Observer", "DeltaObserver"),
        "toolchart.engine.runtime.clock": ("Clock",),
        "toolchart.engine.telemetry.live": ("Telemetry",),
        "toolchart.specs.loader": ("load_spec",),
        "toolchart.specs.models": ("AgentSpec",),
        "toolchart.specs.charts": ("load_chart",),
        "toolchart.states.chart.document": ("Chart",),
        "toolchart.tools.sources.python": ("tool",),
        "toolchart.tools.sources.effect_functions": ("effect",),
        "toolchart.tools.definition": ("Tool", "ToolFailure", "ToolPending"),
        "toolchart.tools.execution.context": ("CallContext",),
        "toolchart.tools.approvers": ("Signer",),
        "toolchart.tools.tool_context": ("ToolContext",),
        "toolchart.tools.services": ("Search", "Hit", "Embedder"),
        "toolchart.engine.exchange.tool_messages": (
            "encode_tools",
            "make_call_message",
            "make_result_message",
        ),
        "toolchart.engine.log.stores": ("open_store",),
        "toolchart.engine.log.secrecy.keys": ("LogKeys",),
        "toolchart.engine.log.secrecy.erasing": (
            "erase_content",
            "ErasureChoice",
            "ErasedConversation",
            "find_content_elsewhere",
            "ContentElsewhere",
        ),
        "toolchart.states.ports": ("Store", "Provider", "StreamingProvider"),
        "toolchart.states.messages": (
            "Message",
            "ToolCall",
            "ToolDefinition",
            "Request",
            "Reply",
            "Usage",
            "Delta",
            "TextDelta",
            "ReasoningDelta",
            "CallStarted",
            "CallArguments",
        ),
        "toolchart.states.content": (
            "ContentPart",
            "TextPart",
            "ImagePart",
            "FilePart",
            "AudioPart",
            "CitationPart",
        ),
        "toolchart.states.core.configurations": ("Migrated", "Erased"),
        "toolchart.states.core.step": ("begin", "step", "Step"),
        "toolchart.states.machine": ("Machine",),
        "toolchart.states.snapshot": ("Snapshot",),
        "toolchart.states.events": (
            "Event",
            "Configured",
            "Continued",
            "Forked",
            "TurnStarted",
            "Resumed",
            "UserSaid",
            "Replied",
            "Failed",
            "Reviewed",
            "Decided",
            "ToolFinished",
            "Elapsed",
            "Cancelled",
            "Settings",
            "Limits",
            "Verdict",
        ),
        "toolchart.states.flows.events": (
            "Returned",
            "Answered",
            "Counted",
            "AgentFinished",
            "AgentFailed",
            "AgentRested",
        ),
        "toolchart.states.effects": (
            "Effect",
            "CallModel",
            "RunAgent",
            "CallFunction",
            "AskPerson",
            "AwaitUser",
            "ReviewCalls",
            "RunTools",
            "Wait",
            "Answer",
        ),
        "toolchart.states.errors": (
            "ToolchartError",
            "SpecError",
            "PluginUnusable",
            "SettingsWidened",
            "PluginFailure",
            "EffectRefused",
            "IllegalEvent",
            "ProviderError",
            "NoRecordedAnswer",
            "ReplayMismatch",
            "UnknownSemantics",
            "LogConflict",
            "DurableHostUnavailable",
            "TurnCancelled",
            "LogDamaged",
            "LogUnavailable",
            "MissingKey",
            "NewerLog",
            "ForeignLog",
            "LogBusy",
            "StorageFailure",
            "LeaseHeld",
            "LeaseLost",
        ),
    }
    __getattr__, __dir__ = make_late_names(globals(), _NAMES)
