"""A provider wrapper that describes tools in the prompt and reads tool calls from the text of a reply."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from toolchart.providers.shared.replies import stream_reply
from toolchart.providers.text_calls.formats import (
    TEXT_FORMATS,
    UNREADABLE,
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
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import TextPart, add_text
from toolchart.states.descriptors import find_row
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Delta,
    FinishReason,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolCall,
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
        scanner, text = self._make_scanner(request), _AnswerText()
        async with aclosing(self._inner.stream(self._rewrite_request(request))) as items:
            async for item in items:
                if self._is_passed_on(request):
                    yield item
                elif isinstance(item, TextDelta):
                    for delta in text.show_pieces(scanner.add_text(item.text)):
                        yield delta
                elif isinstance(item, Reply):
                    pieces = scanner.finish_text(reads_calls=item.finish_reason not in _INCOMPLETE_REASONS)
                    for delta in text.show_pieces(self._place_blocks(pieces, item, request), is_last=True):
                        yield delta
                    reply = self._read_reply(item, request)
                    for delta in _make_call_deltas(reply.tool_calls, len(item.tool_calls)):
                        yield delta
                    yield reply
                else:
                    yield item

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

    def _make_scanner(self, request: Request, *, is_code_quoted: bool = True) -> TextCallScanner:
        schemas: Schemas = {tool.name: tool.parameters for tool in request.tools}
        formats: Sequence[TextFormat] = ()
        if request.tools and self._uses_native_calls(request):
            formats = [row for row in TEXT_FORMATS.values() if row.is_detected]
        elif request.tools:
            formats = (self._choose_format(request),)
        return TextCallScanner(formats, schemas, is_code_quoted=is_code_quoted)

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
        scanners = [self._make_scanner(request, is_code_quoted=False) for _ in texts]
        pieces = [
            piece
            for text, scanner in zip(texts, scanners, strict=True)
            for piece in (*scanner.add_text(text), *scanner.finish_text())
        ]
        blocks = [piece for piece in pieces if isinstance(piece, CallsPiece)]
        read_calls = {_name_call(call) for block in blocks for call in block.calls}

        def is_quoted(block: CallsPiece) -> bool:
            """Whether a call of the block, or all of its text, was read."""
            is_known_call = any(_name_call(call) in read_calls for call in block.calls)
            return is_known_call or any(block.raw.strip() in text for text in texts)

        return is_quoted

    def _place_blocks(self, pieces: Sequence[Piece], reply: Reply, request: Request) -> list[Piece]:
        """The pieces, in which a block that is no call is text: one that is quoted, or stands beside native
        calls. A block that repeats native calls, or is what a host left of them, has no calls."""
        if not any(isinstance(piece, CallsPiece) for piece in pieces):
            return list(pieces)
        is_quoted = self._build_quotation_check(request)
        native = {_name_call(call) for call in reply.tool_calls}
        placed: list[Piece] = []
        for piece in pieces:
            if not isinstance(piece, CallsPiece):
                placed.append(piece)
                continue
            named = [_name_call(call) for call in piece.calls if call.name]
            if native and native.issuperset(named):
                piece = CallsPiece(calls=(), raw=piece.raw)
            elif native or is_quoted(piece):
                piece = TextPiece(text=piece.raw)
            placed.append(piece)
        return placed

    def _read_reply(self, reply: Reply, request: Request) -> Reply:
        """The reply with the calls in its text. If it has native calls, these alone are its calls."""
        if not reply.content or self._is_passed_on(request):
            return reply
        scanner = self._make_scanner(request)
        reads_calls = reply.finish_reason not in _INCOMPLETE_REASONS
        scanned = [*scanner.add_text(reply.content), *scanner.finish_text(reads_calls=reads_calls)]
        pieces = self._place_blocks(scanned, reply, request)
        blocks = [new for old, new in zip(scanned, pieces, strict=True) if isinstance(old, CallsPiece)]
        deltas = list(_AnswerText().show_pieces(pieces, is_last=True))
        content = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) or None
        reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
        is_from_text = not self._uses_boundary(request)
        calls = [
            replace(call, is_from_text=is_from_text)
            for block in blocks
            if isinstance(block, CallsPiece)
            for call in block.calls
        ]
        named = tuple(call for call in calls if call.name)
        problems = [str(call.problem) for call in calls if not call.name]
        if reply.tool_calls and any(isinstance(piece, TextPiece) for piece in blocks):
            problems.append("the text has a call beside native calls, which alone are run")
        finish_reason: FinishReason = reply.finish_reason
        if calls:
            finish_reason = "tool_calls" if len(named) == len(calls) else "malformed_call"
        others = [part for part in reply.parts if not isinstance(part, TextPart)]
        return replace(
            reply,
            content=content,
            parts=add_text(content, others) if content != reply.content else reply.parts,
            reasoning=(reply.reasoning or "") + reasoning or None,
            tool_calls=(*reply.tool_calls, *named),
            finish_reason=finish_reason,
            warnings=(*reply.warnings, *problems),
        )


def accept_text_calls(provider: Provider) -> Provider:
    """A provider that obeys `Request.writes_tools_as_text`: the same one, wrapped if it does not.

    Only requests that say so need it: others go straight to the host.
    """
    return provider if getattr(provider, "obeys_text_calls", False) else TextCallProvider(provider, "native")


def _name_call(call: ToolCall) -> str:
    """A call as one text."""
    arguments = call.raw if call.problem else encode_canonical_text(call.arguments or {})
    return f"{call.name} {arguments}"


class _AnswerText:
    """Shows the pieces of a reply, without white space at the edge of the text and of a call or a thought."""

    def __init__(self) -> None:
        self._blanks = ""
        self._has_text = False
        self._has_block = False

    def show_pieces(self, pieces: Iterable[Piece], *, is_last: bool = False) -> Iterator[Delta]:
        """The deltas of text and reasoning in these pieces."""
        for piece in pieces:
            if not isinstance(piece, TextPiece):
                self._has_block = True
                if isinstance(piece, ReasoningPiece):
                    yield ReasoningDelta(text=piece.text)
                continue
            is_first = self._has_block and not self._has_text
            text = piece.text.lstrip() if is_first else self._blanks + piece.text
            shown = text.rstrip()
            self._blanks = text[len(shown) :]
            if shown:
                self._has_text = True
                yield TextDelta(text=shown)
        if is_last and self._blanks and not self._has_block:
            yield TextDelta(text=self._blanks)


def _make_call_deltas(calls: Sequence[ToolCall], native_count: int) -> Iterator[Delta]:
    """The deltas of the calls that come after the native ones."""
    for index, call in enumerate(calls[native_count:], native_count):
        yield CallStarted(index=index, name=call.name)
        if call.arguments is not None:
            yield CallArguments(index=index, text=encode_canonical_text(call.arguments))


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
        calls = [_write_call(call, text_format) for call in message.tool_calls]
        content = "\n".join([*([message.content] if message.content else []), *calls])
        return Message(role="assistant", content=content)
    return message


def _write_call(call: ToolCall, text_format: TextFormat) -> str:
    """A call as the model wrote it, or would have."""
    if call.raw is not None and (call.problem or "").startswith(UNREADABLE):
        return call.raw
    return text_format.format_call(call.name, encode_arguments(call))


def _extend_system_prompt(messages: Sequence[Message], instructions: str) -> list[Message]:
    """The messages with the instructions at the end of the system prompt."""
    if messages and messages[0].role == "system":
        first = messages[0]
        return [replace(first, content=f"{first.content}\n\n{instructions}"), *messages[1:]]
    return [Message(role="system", content=instructions), *messages]
