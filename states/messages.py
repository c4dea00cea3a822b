"""What is said in a conversation: messages, tool calls, tool definitions, requests and replies.

These are the neutral forms. A provider adapter maps them to its wire format and back; the log
writes them as JSON; nothing here knows a vendor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from toolchart.states.canonical_json import canonical_text
from toolchart.states.quick import quick

Role = Literal["system", "user", "assistant", "tool"]

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")

FinishReason = Literal[
    "stop", "tool_calls", "length", "content_filter", "malformed_call", "paused", "error", "unknown"
]

FINISH_REASONS: tuple[FinishReason, ...] = (
    "stop",
    "tool_calls",
    "length",
    "content_filter",
    "malformed_call",
    "paused",
    "error",
    "unknown",
)
"""The normalised vocabulary; each adapter maps its provider's words to it."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that the model asked for."""

    id: str = ""
    """Unique in the conversation; empty from an adapter whose provider gave none: the core fills it."""
    name: str
    arguments: dict[str, Any] | None = None
    """Parsed arguments, or None where they could not be parsed: such a call is never run."""
    raw: str | None = None
    """The argument text as the provider sent it, where it sent text; sent back unchanged."""
    problem: str | None = None
    """Why `arguments` is None, with the position in the text."""
    native_id: str | None = None
    """The provider's own id where it differs from `id`."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls of an assistant message."""
    tool_call_id: str | None = None
    """The call that a tool message answers."""
    name: str | None = None
    """Tool name of a tool message."""
    provider_data: dict[str, Any] | None = None
    """What the provider wants back verbatim (`{"provider": name, ...}`), opaque to everything else."""


def message_to_dict(message: Message) -> dict[str, Any]:
    """The message in the OpenAI chat form that users, histories and exports share."""
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id
        wire["name"] = message.name
    return wire


def arguments_text(call: ToolCall) -> str:
    """The arguments as JSON text: the provider's own text where it sent text."""
    return call.raw if call.raw is not None else canonical_text(call.arguments or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """What a model is told about a tool."""

    name: str
    description: str
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema (2020-12) of the arguments object."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything that one model call is made from."""

    model: str
    messages: Sequence[Message]
    """`[system, ...history, user, ...]`; every assistant call is answered by a tool message."""
    tools: tuple[ToolDefinition, ...] = ()
    """Offered tools; empty means that the call is made without tools."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Sampling options in neutral spelling: `max_tokens`, `temperature`, `top_p`, `seed`, `stop`,
    `tool_choice`, `parallel_tool_calls`, `response_format`."""
    turn: int = 0
    iteration: int = 0
    fingerprint: str = ""
    """Hash of model, options, offered tools and every message: what the log says of a request."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one reply or of a turn; None where the provider did not say."""

    input: int | None = None
    """Prompt tokens, cached ones included."""
    output: int | None = None
    """Completion tokens, reasoning included."""
    reasoning: int | None = None
    cached: int | None = None
    total: int | None = None
    cost: float | None = None
    """Money, where the host says it or a price table knows it."""

    def plus(self, other: Usage | None) -> Usage:
        """The sum; an unknown part counts as nothing, unknown on both sides stays unknown."""
        if other is None:
            return self
        return Usage(
            input=_sum(self.input, other.input),
            output=_sum(self.output, other.output),
            reasoning=_sum(self.reasoning, other.reasoning),
            cached=_sum(self.cached, other.cached),
            total=_sum(self.total, other.total),
            cost=_sum(self.cost, other.cost),
        )


Number = TypeVar("Number", int, float)


def _sum(left: Number | None, right: Number | None) -> Number | None:
    return right if left is None else left if right is None else left + right


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One whole answer of a model, normalised; nothing that the provider said is lost."""

    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason
    native_reason: str | None = None
    """The provider's word, verbatim."""
    usage: Usage | None = None
    reasoning: str | None = None
    """Reasoning text, kept apart from the answer."""
    refusal: str | None = None
    """The model's refusal, where the provider keeps it apart from the content."""
    model: str | None = None
    """The model that answered, where the reply names it."""
    response_id: str | None = None
    provider_data: dict[str, Any] | None = None
    """What must travel back verbatim with this message (`{"provider": name, ...}`)."""
    warnings: tuple[str, ...] = ()
