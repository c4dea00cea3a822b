"""A provider wrapper that describes tools in the prompt and reads tool calls from the text of a reply."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from toolchart.providers.shared.replies import stream_reply
from toolchart.providers.text_calls.formats import (
    TEXT_FORMATS,
    Schemas,
    TextFormat,
    choose_boundary,
    make_bracket_format,
)
from toolchart.providers.text_calls.scanner import (
    CallsPiece,
    Piece,
    ReasoningPiece,
    TextCallScanner,
    TextPiece,
)
from toolchart.providers.transport.limits import HostLimiter
from toolchart.specs.models import TOOL_FORMAT_WORDS
from toolchart.states.call_arguments import decode_call
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import TextPart, add_text
from toolchart.states.descriptors import find_row
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Delta,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    encode_arguments,
)
from toolchart.states.ports import AnswerDecoder, CountingProvider, Provider, StreamingProvider

_INSTRUCTIONS = """\
You can use tools. To use one, write exactly this, with nothing after it, and wait for its result:

{example}

Write it once for each call. Never write the result of a call yourself. The tools, with the JSON Schema of
their arguments:

{tools}"""

_INCOMPLETE_REASONS = ("length", "content_filter", "error", "malformed_call")
"""Finish reasons with which the calls in a reply are not run."""


class TextCallProvider:
    """Wraps a provider whose model has no native tool calls, or may turn out to have none.

    It never asks twice. Where a host refuses tools, the chart decides: its effect `describe_tools_in_text`
    makes the next request say `writes_tools_as_text`.

    Args:
        tool_format: a name in `TEXT_FORMATS` or `bracket`: calls are always text. With `native` and `auto`
            they are native, and `bracket` text where the request says `writes_tools_as_text`; with `auto` a
            reply without native calls is read in every format besides.

    Raises:
        SpecError: there is no such format.
    """

    obeys_text_calls = True
    """See `accept_text_calls`."""

    def __init__(self, inner: Provider, tool_format: str) -> None:
        self.name = inner.name
        self.limiter: HostLimiter | None = getattr(inner, "limiter", None)
        self._inner = inner
        is_bracket = tool_format in TOOL_FORMAT_WORDS
        self._row = (
            None if is_bracket else find_row(TEXT_FORMATS, "text format", tool_format, "llms.*.tool_format")
        )
        """The format of all requests; None for `bracket`, which has a boundary for each request."""
        self._may_be_native = tool_format in ("auto", "native")
        self._passes_replies = tool_format == "native"

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body that the wrapped provider sends for the rewritten request."""
        is_streamed = stream and isinstance(self._inner, StreamingProvider)
        return self._inner.build_body(self._rewrite_request(request), stream=is_streamed)

    async def complete(self, request: Request) -> Reply:
        """One whole reply."""
        reply = await self._inner.complete(self._rewrite_request(request))
        return self._read_reply(reply, request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The reply as it grows. A call is passed on when it is complete."""
        if not isinstance(self._inner, StreamingProvider):
            async for item in stream_reply(await self.complete(request)):
                yield item
            return
        scanner, call_count = self._make_scanner(request), 0
        is_quoted = self._build_quotation_check(request)
        async with aclosing(self._inner.stream(self._rewrite_request(request))) as items:
            async for item in items:
                if not isinstance(item, (TextDelta, Reply)) or self._is_passed_on(request):
                    yield item
                    continue
                pieces = scanner.add_text(item.text) if isinstance(item, TextDelta) else scanner.finish_text()
                for piece in _unquote_calls(pieces, is_quoted):
                    for delta in _make_deltas(piece, call_count):
                        yield delta
                    call_count += len(piece.calls) if isinstance(piece, CallsPiece) else 0
                if isinstance(item, Reply):
                    yield self._read_reply(item, request)

    async def count_tokens(self, request: Request) -> int | None:
        """The tokens of the rewritten request, where the host of the wrapped provider counts."""
        if not isinstance(self._inner, CountingProvider):
            return None
        return await self._inner.count_tokens(self._rewrite_request(request))

    def decode_again(self, request: Request, content: bytes, *, status: int, is_streamed: bool) -> Reply:
        """The reply to a request by its raw answer, which was kept; see `HostAdapter.decode_again`."""
        inner_request = self._rewrite_request(request)
        is_streamed = is_streamed and isinstance(self._inner, StreamingProvider)
        if not isinstance(self._inner, AnswerDecoder):
            raise NotImplementedError
        reply = self._inner.decode_again(inner_request, content, status=status, is_streamed=is_streamed)
        return self._read_reply(reply, request)

    async def aclose(self) -> None:
        """Close the connections of the wrapped provider."""
        await self._inner.aclose()

    # -- requests ----------------------------------------------------------------------------------

    def _uses_native_calls(self, request: Request) -> bool:
        """Whether the request is sent as it is."""
        return self._may_be_native and not request.writes_tools_as_text

    def _is_passed_on(self, request: Request) -> bool:
        """Whether the reply is given back as it is."""
        return self._passes_replies and not request.writes_tools_as_text

    def _rewrite_request(self, request: Request) -> Request:
        """The request for a model without native calls: tools, calls and results as text."""
        if self._uses_native_calls(request):
            return request
        text_format = self._choose_format(request)
        messages = [_rewrite_message(message, text_format) for message in request.messages]
        if request.tools:
            messages = _extend_system_prompt(messages, _write_instructions(request, text_format))
        options = {
            key: value
            for key, value in request.options.items()
            if key not in ("tool_choice", "parallel_tool_calls")
        }
        return replace(request, messages=messages, tools=(), options=options)

    def _choose_format(self, request: Request) -> TextFormat:
        """The format in which the calls of this request and of its reply are written."""
        return self._row or make_bracket_format(choose_boundary(request))

    # -- replies -----------------------------------------------------------------------------------

    def _make_scanner(self, request: Request) -> TextCallScanner:
        schemas: Schemas = {tool.name: tool.parameters for tool in request.tools}
        if not request.tools:
            return TextCallScanner((), schemas)
        if self._uses_native_calls(request):
            return TextCallScanner([row for row in TEXT_FORMATS.values() if row.is_detected], schemas)
        return TextCallScanner((self._choose_format(request),), schemas)

    def _uses_boundary(self, request: Request) -> bool:
        """Whether only markers with the boundary of the request count, which no text can quote."""
        reads_every_format = self._may_be_native and not self._passes_replies
        return self._row is None and (request.writes_tools_as_text or not reads_every_format)

    def _build_quotation_check(self, request: Request) -> Callable[[CallsPiece], bool]:
        """A function that tells whether a block of calls is quoted from what the model read.

        Such a block, or the same call, stands in a message of the user or in the result of a tool. With
        `bracket` none does: its markers stand in no text.
        """
        if self._uses_boundary(request):
            return lambda block: False
        texts = [message.content or "" for message in request.messages if message.role in ("user", "tool")]
        pieces = [piece for text in texts for piece in _scan(self._make_scanner(request), text)]
        blocks = [piece for piece in pieces if isinstance(piece, CallsPiece)]
        read_calls = {call for block in blocks for call in _name_calls(block)}

        def is_quoted(block: CallsPiece) -> bool:
            """Whether a call of the block, or all of its text, was read."""
            is_known_call = any(call in read_calls for call in _name_calls(block))
            return is_known_call or any(block.raw.strip() in text for text in texts)

        return is_quoted

    def _read_reply(self, reply: Reply, request: Request) -> Reply:
        """The reply with the calls in its text. If it has native calls, its text is not searched."""
        if reply.tool_calls or not reply.content or self._is_passed_on(request):
            return reply
        scanned_pieces = _scan(self._make_scanner(request), reply.content)
        pieces = _unquote_calls(scanned_pieces, self._build_quotation_check(request))
        reasoning = "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece))
        reasoning_or_none = (reply.reasoning or "") + reasoning or None
        blocks = [piece for piece in pieces if isinstance(piece, CallsPiece)]
        if not blocks or reply.finish_reason in _INCOMPLETE_REASONS:
            content = "".join(
                piece.raw if isinstance(piece, CallsPiece) else piece.text
                for piece in pieces
                if not isinstance(piece, ReasoningPiece)
            )
            return replace(reply, content=content or None, reasoning=reasoning_or_none)
        text = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)).strip()
        return replace(
            reply,
            content=text or None,
            reasoning=reasoning_or_none,
            tool_calls=tuple(
                replace(decode_call("", name, arguments), is_from_text=not self._uses_boundary(request))
                for block in blocks
                for name, arguments in block.calls
            ),
            finish_reason="tool_calls",
        )


def accept_text_calls(provider: Provider) -> Provider:
    """A provider that obeys `Request.writes_tools_as_text`: the same one, wrapped if it does not.

    Only requests that say so need it: others go straight to the host.
    """
    return provider if getattr(provider, "obeys_text_calls", False) else TextCallProvider(provider, "native")


def _scan(scanner: TextCallScanner, text: str) -> list[Piece]:
    """The pieces of a whole text."""
    return [*scanner.add_text(text), *scanner.finish_text()]


def _unquote_calls(pieces: Iterable[Piece], is_quoted: Callable[[CallsPiece], bool]) -> list[Piece]:
    """The pieces, in which a quoted block of calls is the text that the model wrote."""
    return [
        TextPiece(text=piece.raw) if isinstance(piece, CallsPiece) and is_quoted(piece) else piece
        for piece in pieces
    ]


def _name_calls(block: CallsPiece) -> list[str]:
    """Each call of a block as one text."""
    return [f"{name} {encode_canonical_text(arguments)}" for name, arguments in block.calls]


def _make_deltas(piece: Piece, call_count: int) -> list[Delta]:
    """The deltas of a piece; `call_count` calls came before it."""
    match piece:
        case TextPiece():
            return [TextDelta(text=piece.text)]
        case ReasoningPiece():
            return [ReasoningDelta(text=piece.text)]
        case CallsPiece():
            deltas: list[Delta] = []
            for index, (name, arguments) in enumerate(piece.calls, call_count):
                deltas += [
                    CallStarted(index=index, name=name),
                    CallArguments(index=index, text=encode_canonical_text(arguments)),
                ]
            return deltas


def _write_instructions(request: Request, text_format: TextFormat) -> str:
    """The text that describes the tools and the format of a call to the model."""
    definitions = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in request.tools
    ]
    first_tool = request.tools[0]
    names = list(first_tool.parameters.get("properties") or {})[:1]
    arguments = json.dumps(dict.fromkeys(names, "..."))
    example = text_format.format_call(first_tool.name, arguments)
    tools = "\n".join(encode_canonical_text(definition) for definition in definitions)
    return _INSTRUCTIONS.format(example=example, tools=tools)


def _rewrite_message(message: Message, text_format: TextFormat) -> Message:
    """The message with its calls, or its result, as text with the markers of this request."""
    if message.role == "tool":
        content = f"The result of {message.name}:\n{message.content or ''}"
        media = [part for part in message.parts if not isinstance(part, TextPart)]
        return Message(role="user", content=content, parts=add_text(content, media))
    if message.role == "assistant" and message.tool_calls:
        calls = [text_format.format_call(call.name, encode_arguments(call)) for call in message.tool_calls]
        content = "\n".join([*([message.content] if message.content else []), *calls])
        return Message(role="assistant", content=content)
    return message


def _extend_system_prompt(messages: Sequence[Message], instructions: str) -> list[Message]:
    """The messages with the instructions at the end of the system prompt."""
    if messages and messages[0].role == "system":
        first = messages[0]
        return [replace(first, content=f"{first.content}\n\n{instructions}"), *messages[1:]]
    return [Message(role="system", content=instructions), *messages]
