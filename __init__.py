"""Toolchart runs LLM tool loops as declared state machines.

    from toolchart import Engine, load_spec

    Engine(load_spec("quickstart")).run("What is 17 * (23 + 4)?")

The exports are the public API, together with those of `toolchart.testing` and the interfaces in
`docs/extending.md`; `docs/python-api.md` describes them. They are imported when they are first used, so that
`import toolchart` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.engine.agent_options import AgentOptions as AgentOptions
    from toolchart.engine.agent_options import McpServer as McpServer
    from toolchart.engine.agent_options import RagServiceOptions as RagServiceOptions
    from toolchart.engine.agents import Agent as Agent
    from toolchart.engine.agents import AgentTurnOptions as AgentTurnOptions
    from toolchart.engine.agents import ApprovalOptions as ApprovalOptions
    from toolchart.engine.agents import OpenAgent as OpenAgent
    from toolchart.engine.agents import OpenOptions as OpenOptions
    from toolchart.engine.exchange.histories import read_anthropic_messages as read_anthropic_messages
    from toolchart.engine.exchange.histories import read_gemini_contents as read_gemini_contents
    from toolchart.engine.exchange.histories import read_langchain_messages as read_langchain_messages
    from toolchart.engine.exchange.histories import read_ollama_messages as read_ollama_messages
    from toolchart.engine.exchange.histories import read_pydantic_ai_messages as read_pydantic_ai_messages
    from toolchart.engine.exchange.histories import read_responses_items as read_responses_items
    from toolchart.engine.exchange.histories import read_spans as read_spans
    from toolchart.engine.exchange.tool_messages import encode_tools as encode_tools
    from toolchart.engine.exchange.tool_messages import make_call_message as make_call_message
    from toolchart.engine.exchange.tool_messages import make_result_message as make_result_message
    from toolchart.engine.log.fork import ForkChanges as ForkChanges
    from toolchart.engine.log.read_records import ReadRecord as ReadRecord
    from toolchart.engine.log.stores import open_store as open_store
    from toolchart.engine.reading.listing import ConversationFilter as ConversationFilter
    from toolchart.engine.reading.listing import ConversationPage as ConversationPage
    from toolchart.engine.reading.listing import ConversationSummary as ConversationSummary
    from toolchart.engine.reading.listing import UnreadableConversation as UnreadableConversation
    from toolchart.engine.reading.overview import ConversationView as ConversationView
    from toolchart.engine.reading.overview import ForkTree as ForkTree
    from toolchart.engine.reading.overview import ForkView as ForkView
    from toolchart.engine.reading.waiting import PendingApproval as PendingApproval
    from toolchart.engine.reading.waiting import Waiting as Waiting
    from toolchart.engine.reading.waiting import WaitingCall as WaitingCall
    from toolchart.engine.rerun.campaign import arerun as arerun
    from toolchart.engine.rerun.campaign import rerun as rerun
    from toolchart.engine.rerun.changes import RerunChanges as RerunChanges
    from toolchart.engine.rerun.judges import Judgement as Judgement
    from toolchart.engine.rerun.judges import RunView as RunView
    from toolchart.engine.rerun.judges import make_function_judge as make_function_judge
    from toolchart.engine.rerun.judges import parse_judge as parse_judge
    from toolchart.engine.rerun.report import RerunReport as RerunReport
    from toolchart.engine.rerun.report import RerunResult as RerunResult
    from toolchart.engine.runtime.clock import Clock as Clock
    from toolchart.engine.runtime.engine import Engine as Engine
    from toolchart.engine.runtime.handle import Conversation as Conversation
    from toolchart.engine.runtime.parts import Approver as Approver
    from toolchart.engine.runtime.parts import Asker as Asker
    from toolchart.engine.runtime.parts import DeltaObserver as DeltaObserver
    from toolchart.engine.runtime.parts import Observer as Observer
    from toolchart.engine.runtime.parts import ResumeOptions as ResumeOptions
    from toolchart.engine.runtime.parts import StreamOptions as StreamOptions
    from toolchart.engine.runtime.parts import TurnOptions as TurnOptions
    from toolchart.engine.runtime.prompt_context import PromptContext as PromptContext
    from toolchart.engine.runtime.result import FinishedCall as FinishedCall
    from toolchart.engine.runtime.result import ForkResult as ForkResult
    from toolchart.engine.runtime.result import Turn as Turn
    from toolchart.engine.runtime.streaming import BlockingTurnStream as BlockingTurnStream
    from toolchart.engine.runtime.streaming import PartialOutput as PartialOutput
    from toolchart.engine.runtime.streaming import StepTaken as StepTaken
    from toolchart.engine.runtime.streaming import TurnStream as TurnStream
    from toolchart.engine.telemetry.live import Telemetry as Telemetry
    from toolchart.engine.value_schemas import schema_of as schema_of
    from toolchart.specs.charts import load_chart as load_chart
    from toolchart.specs.loader import load_spec as load_spec
    from toolchart.specs.models import AgentSpec as AgentSpec
    from toolchart.states.chart.document import Chart as Chart
    from toolchart.states.content import AudioPart as AudioPart
    from toolchart.states.content import CitationPart as CitationPart
    from toolchart.states.content import ContentPart as ContentPart
    from toolchart.states.content import FilePart as FilePart
    from toolchart.states.content import HostCallPart as HostCallPart
    from toolchart.states.content import ImagePart as ImagePart
    from toolchart.states.content import TextPart as TextPart
    from toolchart.states.core.step import Step as Step
    from toolchart.states.core.step import begin as begin
    from toolchart.states.core.step import step as step
    from toolchart.states.effects import Answer as Answer
    from toolchart.states.effects import AskPerson as AskPerson
    from toolchart.states.effects import AwaitUser as AwaitUser
    from toolchart.states.effects import CallFunction as CallFunction
    from toolchart.states.effects import CallModel as CallModel
    from toolchart.states.effects import Effect as Effect
    from toolchart.states.effects import ReviewCalls as ReviewCalls
    from toolchart.states.effects import RunAgent as RunAgent
    from toolchart.states.effects import RunTools as RunTools
    from toolchart.states.effects import Wait as Wait
    from toolchart.states.errors import AlreadyDecided as AlreadyDecided
    from toolchart.states.errors import DurableHostUnavailable as DurableHostUnavailable
    from toolchart.states.errors import EffectRefused as EffectRefused
    from toolchart.states.errors import ForeignLog as ForeignLog
    from toolchart.states.errors import IllegalEvent as IllegalEvent
    from toolchart.states.errors import LeaseHeld as LeaseHeld
    from toolchart.states.errors import LeaseLost as LeaseLost
    from toolchart.states.errors import LogBusy as LogBusy
    from toolchart.states.errors import LogConflict as LogConflict
    from toolchart.states.errors import LogDamaged as LogDamaged
    from toolchart.states.errors import LogUnavailable as LogUnavailable
    from toolchart.states.errors import NewerLog as NewerLog
    from toolchart.states.errors import NoRecordedAnswer as NoRecordedAnswer
    from toolchart.states.errors import NotFound as NotFound
    from toolchart.states.errors import PluginFailure as PluginFailure
    from toolchart.states.errors import PluginUnusable as PluginUnusable
    from toolchart.states.errors import ProviderError as ProviderError
    from toolchart.states.errors import ReplayMismatch as ReplayMismatch
    from toolchart.states.errors import SettingsWidened as SettingsWidened
    from toolchart.states.errors import SpecError as SpecError
    from toolchart.states.errors import StorageFailure as StorageFailure
    from toolchart.states.errors import ToolchartError as ToolchartError
    from toolchart.states.errors import TurnCancelled as TurnCancelled
    from toolchart.states.errors import TurnChanged as TurnChanged
    from toolchart.states.errors import UnknownSemantics as UnknownSemantics
    from toolchart.states.events import AgentFailed as AgentFailed
    from toolchart.states.events import AgentFinished as AgentFinished
    from toolchart.states.events import AgentRested as AgentRested
    from toolchart.states.events import Answered as Answered
    from toolchart.states.events import CallsStarted as CallsStarted
    from toolchart.states.events import CallSubmitted as CallSubmitted
    from toolchart.states.events import Cancelled as Cancelled
    from toolchart.states.events import Configured as Configured
    from toolchart.states.events import Continued as Continued
    from toolchart.states.events import Counted as Counted
    from toolchart.states.events import Decided as Decided
    from toolchart.states.events import Elapsed as Elapsed
    from toolchart.states.events import Event as Event
    from toolchart.states.events import Failed as Failed
    from toolchart.states.events import Forked as Forked
    from toolchart.states.events import Limits as Limits
    from toolchart.states.events import Migrated as Migrated
    from toolchart.states.events import Replied as Replied
    from toolchart.states.events import Resumed as Resumed
    from toolchart.states.events import Returned as Returned
    from toolchart.states.events import Reviewed as Reviewed
    from toolchart.states.events import Settings as Settings
    from toolchart.states.events import ToolFinished as ToolFinished
    from toolchart.states.events import TurnStarted as TurnStarted
    from toolchart.states.events import UserSaid as UserSaid
    from toolchart.states.events import Verdict as Verdict
    from toolchart.states.machine import Machine as Machine
    from toolchart.states.messages import CallArguments as CallArguments
    from toolchart.states.messages import CallStarted as CallStarted
    from toolchart.states.messages import Delta as Delta
    from toolchart.states.messages import Message as Message
    from toolchart.states.messages import PartDelta as PartDelta
    from toolchart.states.messages import ReasoningDelta as ReasoningDelta
    from toolchart.states.messages import Reply as Reply
    from toolchart.states.messages import Request as Request
    from toolchart.states.messages import ResultDelta as ResultDelta
    from toolchart.states.messages import TextDelta as TextDelta
    from toolchart.states.messages import TextWithdrawn as TextWithdrawn
    from toolchart.states.messages import ToolCall as ToolCall
    from toolchart.states.messages import ToolDefinition as ToolDefinition
    from toolchart.states.messages import Usage as Usage
    from toolchart.states.ports import Provider as Provider
    from toolchart.states.ports import Store as Store
    from toolchart.states.ports import StreamingProvider as StreamingProvider
    from toolchart.states.snapshot import Snapshot as Snapshot
    from toolchart.tools.approvers import Signer as Signer
    from toolchart.tools.definition import CallStatus as CallStatus
    from toolchart.tools.definition import Tool as Tool
    from toolchart.tools.definition import ToolFailure as ToolFailure
    from toolchart.tools.definition import ToolPending as ToolPending
    from toolchart.tools.execution.context import CallContext as CallContext
    from toolchart.tools.services import Embedder as Embedder
    from toolchart.tools.services import Hit as Hit
    from toolchart.tools.services import Search as Search
    from toolchart.tools.sources.effect_functions import effect as effect
    from toolchart.tools.sources.python import tool as tool
    from toolchart.tools.tool_context import ToolContext as ToolContext

__version__ = "0.3.0"

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    from toolchart.late_names import make_late_names

    __all__, __getattr__, __dir__ = make_late_names(
        globals(),
        {
            "toolchart.engine.agent_options": ("AgentOptions", "McpServer", "RagServiceOptions"),
            "toolchart.engine.agents": (
                "Agent",
                "AgentTurnOptions",
                "ApprovalOptions",
                "OpenAgent",
                "OpenOptions",
            ),
            "toolchart.engine.runtime.engine": ("Engine",),
            "toolchart.engine.runtime.handle": ("Conversation",),
            "toolchart.engine.runtime.prompt_context": ("PromptContext",),
            "toolchart.engine.reading.overview": ("ConversationView", "ForkTree", "ForkView"),
            "toolchart.engine.reading.waiting": ("PendingApproval", "Waiting", "WaitingCall"),
            "toolchart.engine.reading.listing": (
                "ConversationFilter",
                "ConversationPage",
                "ConversationSummary",
                "UnreadableConversation",
            ),
            "toolchart.engine.log.read_records": ("ReadRecord",),
            "toolchart.engine.runtime.result": ("Turn", "FinishedCall", "ForkResult"),
            "toolchart.engine.log.fork": ("ForkChanges",),
            "toolchart.engine.rerun.campaign": ("arerun", "rerun"),
            "toolchart.engine.rerun.changes": ("RerunChanges",),
            "toolchart.engine.rerun.judges": ("Judgement", "RunView", "make_function_judge", "parse_judge"),
            "toolchart.engine.rerun.report": ("RerunReport", "RerunResult"),
            "toolchart.engine.runtime.streaming": (
                "BlockingTurnStream",
                "PartialOutput",
                "StepTaken",
                "TurnStream",
            ),
            "toolchart.engine.runtime.parts": (
                "Approver",
                "Asker",
                "Observer",
                "DeltaObserver",
                "TurnOptions",
                "StreamOptions",
                "ResumeOptions",
            ),
            "toolchart.engine.runtime.clock": ("Clock",),
            "toolchart.engine.telemetry.live": ("Telemetry",),
            "toolchart.specs.loader": ("load_spec",),
            "toolchart.specs.models": ("AgentSpec",),
            "toolchart.specs.charts": ("load_chart",),
            "toolchart.states.chart.document": ("Chart",),
            "toolchart.tools.sources.python": ("tool",),
            "toolchart.tools.sources.effect_functions": ("effect",),
            "toolchart.tools.definition": ("Tool", "CallStatus", "ToolFailure", "ToolPending"),
            "toolchart.tools.execution.context": ("CallContext",),
            "toolchart.tools.approvers": ("Signer",),
            "toolchart.tools.tool_context": ("ToolContext",),
            "toolchart.tools.services": ("Search", "Hit", "Embedder"),
            "toolchart.engine.exchange.histories": (
                "read_anthropic_messages",
                "read_gemini_contents",
                "read_langchain_messages",
                "read_ollama_messages",
                "read_pydantic_ai_messages",
                "read_responses_items",
                "read_spans",
            ),
            "toolchart.engine.exchange.tool_messages": (
                "encode_tools",
                "make_call_message",
                "make_result_message",
            ),
            "toolchart.engine.log.stores": ("open_store",),
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
                "TextWithdrawn",
                "ResultDelta",
                "ReasoningDelta",
                "CallStarted",
                "CallArguments",
                "PartDelta",
            ),
            "toolchart.states.content": (
                "ContentPart",
                "TextPart",
                "ImagePart",
                "FilePart",
                "AudioPart",
                "CitationPart",
                "HostCallPart",
            ),
            "toolchart.states.core.step": ("begin", "step", "Step"),
            "toolchart.engine.value_schemas": ("schema_of",),
            "toolchart.states.machine": ("Machine",),
            "toolchart.states.snapshot": ("Snapshot",),
            "toolchart.states.events": (
                "Event",
                "Configured",
                "Continued",
                "Forked",
                "TurnStarted",
                "Resumed",
                "CallsStarted",
                "CallSubmitted",
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
                "Migrated",
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
                "NotFound",
                "SpecError",
                "PluginUnusable",
                "SettingsWidened",
                "TurnChanged",
                "PluginFailure",
                "EffectRefused",
                "AlreadyDecided",
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
                "NewerLog",
                "ForeignLog",
                "LogBusy",
                "StorageFailure",
                "LeaseHeld",
                "LeaseLost",
            ),
        },
    )
    __all__ += ["__version__"]
