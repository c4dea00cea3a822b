"""Messages, tool calls, tool definitions, requests, replies and stream deltas, in neutral form.

A provider adapter maps these values to its wire format and back, and the log writes them as JSON. Nothing
here depends on a vendor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import to_builtins
from msgspec.structs import astuple, replace

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import ContentPart, TextPart, Value

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
"""The normalised finish reasons; each adapter maps its provider's words to them."""

# Why `gc=False` stands at the values of every step (calls, replies, events, effects, snapshots): they are
# frozen and never refer to who holds them, so no cycle leads through them. A conversation keeps thousands,
# and Python's search for cycles would visit each of them again and again.


class ToolCall(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One tool call that the model requests."""

    id: str = ""
    """Unique in the conversation. Adapters leave it empty if the provider sends none; the core fills it."""
    name: str
    arguments: dict[str, Any] | None = None
    """Parsed arguments, or None where they could not be parsed: such a call is never run."""
    raw: str | None = None
    """The argument text as the provider sent it, if it sent text; where it is a JSON object, it is sent back
    unchanged."""
    problem: str | None = None
    """Why `arguments` is None, with the position in the text."""
    native_id: str | None = None
    """The provider's own id where it differs from `id`."""
    is_from_text: bool = False
    """Whether it was read from the text of a reply in a format that cannot tell a quoted call from a call."""


class Message(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, weakref=True):
    """One message of a conversation."""

    role: Role
    content: str | None = None
    """The text; of a message with parts, the text among them."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls of an assistant message."""
    tool_call_id: str | None = None
    """The call that a tool message answers."""
    name: str | None = None
    """Tool name of a tool message."""
    arguments: dict[str, Any] | None = None
    """Of a tool message: what was made of the arguments of its call where their text could not be read. None
    for most."""
    provider_data: dict[str, Any] | None = None
    """Data that the same provider needs back unchanged (`{"provider": name, ...}`). Nothing else reads it."""
    parts: tuple[ContentPart, ...] = ()
    """The whole content in order, where it is more than one text (`states/content.py`)."""

    def list_parts(self) -> tuple[ContentPart, ...]:
        """The whole content as parts; empty where there is none."""
        return self.parts or ((TextPart(text=self.content),) if self.content else ())


FAILED_RESULT = "is_error"
"""Key in the `provider_data` of a tool message whose result was marked as failed where it was read from."""


def encode_arguments(call: ToolCall) -> str:
    """The arguments as JSON text: the provider's own text if it sent text."""
    return call.raw if call.raw is not None else encode_canonical_text(call.arguments or {})


class DecisionSignature(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The Ed25519 signature of a person's decision about a tool call."""

    key: str
    """The beginning of the SHA-256 of the public key."""
    at: str
    """When it was signed: RFC 3339, UTC."""
    expires_at: str = ""
    """From when on the approval does not hold; empty where it does not expire."""
    arguments: str
    """SHA-256 of the canonical arguments."""
    asked: str
    """Hash of the record that asked for the decision, which stands for the whole log up to there."""
    shown: str = ""
    """Digest of what the person was shown: the decision's `shown_digest`."""
    value: str
    """The signature in Base64."""


class ToolDefinition(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool as it is described to a model."""

    name: str
    description: str
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema (2020-12) of the arguments object."""


MODEL_OPTIONS = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "reasoning_effort",
    "thinking_budget",
    "verbosity",
    "logprobs",
    "service_tier",
    "cache_key",
    "cache_ttl",
    "safety_settings",
    "host_tools",
    "strict_tools",
    "metadata",
    "batch",
    "extra_body",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
)
"""Options of a model call; keys of a handler have the same names."""


class Request(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One model request, complete and provider-neutral."""

    model: str
    messages: Sequence[Message]
    """`[system, ...history, user, ...]`; every call of an assistant message has a tool message."""
    tools: tuple[ToolDefinition, ...] = ()
    """Offered tools; empty means that the call is made without tools."""
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Options in neutral spelling: some of `MODEL_OPTIONS`. An adapter leaves out what its host lacks,
    and says so."""
    writes_tools_as_text: bool = False
    """Whether tools are described in the prompt and calls are read from text, for a host that refuses native
    calls."""
    turn: int = 0
    iteration: int = 0


class Usage(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Token counts and cost of one reply or of a turn; None where the provider does not report them."""

    input: int | None = None
    """Prompt tokens, cached ones included."""
    output: int | None = None
    """Completion tokens, reasoning included."""
    reasoning: int | None = None
    cached: int | None = None
    """Prompt tokens that the host read from its cache."""
    cache_write: int | None = None
    """Prompt tokens that the host wrote to its cache; part of `input`, and priced apart."""
    cache_write_1h: int | None = None
    """Those of `cache_write` that the cache keeps for an hour, which some hosts price apart."""
    total: int | None = None
    cost: float | None = None
    """Money, if the host reports it or a price table has it; in the currency of the table."""

    def plus(self, other: Usage | None) -> Usage:
        """The sum, field by field. None counts as zero, and None plus None stays None."""
        if other is None:
            return self
        sums = {}
        for name, left, right in zip(self.__struct_fields__, astuple(self), astuple(other), strict=True):
            if right is not None:
                sums[name] = right if left is None else left + right
        return replace(self, **sums)


class Reply(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One complete reply of a model, normalised without loss."""

    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason
    native_reason: str | None = None
    """The provider's own finish reason, unchanged."""
    usage: Usage | None = None
    reasoning: str | None = None
    """Reasoning text, which is not part of the answer."""
    refusal: str | None = None
    """The model's refusal, if the provider reports it apart from the content."""
    model: str | None = None
    """The model that answered, if the reply names it."""
    response_id: str | None = None
    provider_data: dict[str, Any] | None = None
    """Data that must be sent back unchanged with this message (`{"provider": name, ...}`)."""
    details: dict[str, Any] | None = None
    """What else the provider said, in its own words: grounding, log probabilities, service tier, ... Nothing
    decides by it."""
    warnings: tuple[str, ...] = ()
    parts: tuple[ContentPart, ...] = ()
    """The whole content in order, where it is more than one text: pictures, sounds, files, sources, and calls
    of tools that the host ran itself."""
    wire_digest: str | None = None
    """Digest of the body that the adapter handed to its SDK or HTTP client for this reply."""
    rate_limits: dict[str, dict[str, float]] | None = None
    """What the host said in its headers about limits, by what is limited: `limit`, `remaining`, `reset_s`."""
    finish_message: str | None = None
    """What the provider said about the finish reason, in a sentence."""


class RawAnswer(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """The bytes of a host's answer, as the log keeps them where the agent spec asks for it."""

    content: str
    """The bytes before decoding, compressed (zlib), as Base64."""
    status: int = 0
    """Status of HTTP; 0 stands for 200."""
    is_streamed: bool = False
    """Whether the answer was asked for as a stream."""
    is_cut: bool = False
    """Whether it was not read to its end."""


# -- deltas of a streamed reply ------------------------------------------------------------------

# A stream yields deltas and then, last, the complete reply. Deltas are for display. Only the complete reply
# becomes an event: no decision, tool run or log record is based on a delta.


Doubt = Literal["", "form", "calls", "chart", "agent"]
"""Why a text may be no part of the answer: it must have a form, the reply may go on to ask for tools, the
chart may do something else than answer with it, or an agent says it that the conversation was handed to.
Empty where only a failure of its host can make it none."""

WithdrawalReason = Literal["form", "calls", "chart", "failure"]
"""Why a text is no part of the answer: it broke its form, tools were called after it, the chart went on
without it, or it was broken off."""


class TextDelta(
    Value,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
    tag_field="type",
    tag="text_delta",
):
    """More text of the answer."""

    text: str
    doubt: Doubt = ""
    """Why it may still be withdrawn; adapters leave it empty."""


class TextWithdrawn(
    Value,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
    tag="text_withdrawn",
):
    """All text that came before is no part of the answer. Text that comes after it begins the answer anew."""

    reason: WithdrawalReason
    kept: str = ""
    """The beginning of that text that stands nevertheless: it is said again right after this."""


class ResultDelta(
    Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="result_delta"
):
    """More text of a model call whose result has a name (`as`): a draft or a verdict, and no answer."""

    result: str
    """Name of the result."""
    text: str


class ReasoningDelta(
    Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="reasoning_delta"
):
    """More reasoning text, which is not part of the answer."""

    text: str


class CallStarted(
    Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="call_started"
):
    """The model began a tool call."""

    index: int
    """Index of the call in the reply, from 0."""
    name: str


class CallArguments(
    Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="call_arguments"
):
    """More of a call's argument text. It can be parsed only when the reply is complete."""

    index: int
    text: str


class PartDelta(
    Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="part_delta"
):
    """A picture, a sound, a file, a source of the answer, or a call that the host ran itself."""

    index: int
    """Number of the part among those of the reply that are no text, in the order in which they began."""
    part: ContentPart
    """A sound comes in pieces with one index, whose bytes follow each other. Any other part replaces the one
    with its index: a picture may come in drafts, and a call before its outcome."""


Delta = TextDelta | TextWithdrawn | ResultDelta | ReasoningDelta | CallStarted | CallArguments | PartDelta
"""One delta of a streamed reply, or of a turn: `TextWithdrawn` and `ResultDelta` come from the engine."""

_DELTA_KINDS = {
    TextDelta: "text",
    ReasoningDelta: "reasoning",
    CallStarted: "call",
    CallArguments: "arguments",
    PartDelta: "part",
}


def encode_delta(delta: Delta) -> dict[str, Any]:
    """The delta as JSON data, in the form that the log stores."""
    data = to_builtins(delta)
    del data["type"]  # that of a stream; the log has a word of its own
    return {"kind": _DELTA_KINDS[type(delta)], **data}
