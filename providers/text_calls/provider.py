"""A provider whose calls are text: it tells the model how to write them, and reads them out of its answer."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from toolchart.providers.shared.reply_deltas import in_pieces
from toolchart.providers.text_calls.formats import FORMATS, Format, Schemas, bracket
from toolchart.providers.text_calls.scanner import Called, Piece, Scanner, Text, Thought
from toolchart.states.canonical_json import canonical_text
from toolchart.states.deltas import CallArguments, CallStarted, Delta, ReasoningDelta, TextDelta
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolCall, arguments_text
from toolchart.states.ports import Provider, Streams

_HOW = """You can use tools. To use one, write exactly this, with nothing after it, and wait for its result:

{example}

Write it once for each call. Never write the result of a call yourself. The tools, with the JSON Schema of
their arguments:

{tools}"""

_CUT = ("length", "content_filter", "error", "malformed_call")
"""Reasons beside which a call is not run."""


class TextCalls:
    """Wraps a provider whose model has no calls of its own.

    Args:
        written: a name of `FORMATS`, `bracket`, or `auto`: native calls first; an answer without any is read
            in every known format, and a host that takes no tools is asked again with `bracket`.
    """

    def __init__(self, inner: Provider, written: str) -> None:
        self.name = inner.name
        self._inner = inner
        self._auto = written == "auto"
        # Drawn once for this process: the model is told of it in every request, and nobody else is.
        own = bracket(secrets.token_hex(4))
        self._format = FORMATS.get(written, own)
        self._native = self._auto

    async def complete(self, request: Request) -> Reply:
        """One whole reply."""
        try:
            reply = await self._inner.complete(self._told(request))
        except ProviderError as error:
            if not (self._native and request.tools and error.kind == "tools_unsupported"):
                raise
            self._native = False
            reply = await self._inner.complete(self._told(request))
        return self._read(reply, request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The reply as it grows; a call is shown when it is whole."""
        if not isinstance(self._inner, Streams):
            async for piece in in_pieces(await self.complete(request)):
                yield piece
            return
        scanner, calls = self._scanner(request), 0
        async with aclosing(self._inner.stream(self._told(request))) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextDelta):
                    for found in scanner.feed(piece.text):
                        for delta in _deltas(found, calls):
                            yield delta
                        calls += len(found.calls) if isinstance(found, Called) else 0
                elif isinstance(piece, Reply):
                    for found in scanner.end():
                        for delta in _deltas(found, calls):
                            yield delta
                    yield self._read(piece, request)
                else:
                    yield piece

    async def aclose(self) -> None:
        """Give back connections."""
        await self._inner.aclose()

    # -- to the model ------------------------------------------------------------------------------

    def _told(self, request: Request) -> Request:
        """The request as a model without calls of its own understands it."""
        if self._native:
            return request
        messages = [self._plain(message) for message in request.messages]
        if request.tools:
            messages = _instructed(messages, self._instructions(request))
        options = {
            key: value
            for key, value in request.options.items()
            if key not in ("tool_choice", "parallel_tool_calls")
        }
        return replace(request, messages=messages, tools=(), options=options)

    def _instructions(self, request: Request) -> str:
        tools = [
            {"name": one.name, "description": one.description, "parameters": one.parameters}
            for one in request.tools
        ]
        first = request.tools[0]
        names = list(first.parameters.get("properties") or {})[:1]
        example = self._format.write(first.name, json.dumps(dict.fromkeys(names, "...")))
        listed = "\n".join(canonical_text(tool) for tool in tools)
        return _HOW.format(example=example, tools=listed)

    def _plain(self, message: Message) -> Message:
        """Calls and results as text, under the markers of now."""
        if message.role == "tool":
            said = f"The result of {message.name}:\n{message.content or ''}"
            return Message(role="user", content=said)
        if message.role == "assistant" and message.tool_calls:
            calls = [
                self._format.write(call.name, arguments_text(call)) for call in message.tool_calls
            ]
            said = "\n".join([*([message.content] if message.content else []), *calls])
            return Message(role="assistant", content=said)
        return message

    # -- from the model ----------------------------------------------------------------------------

    def _scanner(self, request: Request) -> Scanner:
        schemas: Schemas = {tool.name: tool.parameters for tool in request.tools}
        formats: Sequence[Format] = (self._format,)
        if self._native:
            formats = [one for one in FORMATS.values() if one.name != "qwen3_coder"]
        return Scanner(formats if request.tools else (), schemas)

    def _read(self, reply: Reply, request: Request) -> Reply:
        """The reply with the calls that its text holds. Native calls stand; their text is not read too."""
        if reply.tool_calls or not reply.content:
            return reply
        scanner = self._scanner(request)
        pieces = [*scanner.feed(reply.content), *scanner.end()]
        thought = "".join(one.text for one in pieces if isinstance(one, Thought))
        reasoning = (reply.reasoning or "") + thought or None
        blocks = [one for one in pieces if isinstance(one, Called)]
        if not blocks or reply.finish_reason in _CUT:
            said = "".join(
                one.raw if isinstance(one, Called) else one.text
                for one in pieces
                if not isinstance(one, Thought)
            )
            return replace(reply, content=said or None, reasoning=reasoning)
        text = "".join(one.text for one in pieces if isinstance(one, Text)).strip()
        return replace(
            reply,
            content=text or None,
            reasoning=reasoning,
            tool_calls=tuple(_call(*one) for block in blocks for one in block.calls),
            finish_reason="tool_calls",
        )


def _call(name: str, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def _deltas(piece: Piece, calls: int) -> list[Delta]:
    match piece:
        case Text():
            return [TextDelta(text=piece.text)]
        case Thought():
            return [ReasoningDelta(text=piece.text)]
        case Called():
            found: list[Delta] = []
            for place, (name, given) in enumerate(piece.calls, calls):
                found += [
                    CallStarted(index=place, name=name),
                    CallArguments(index=place, text=canonical_text(given)),
                ]
            return found


def _instructed(messages: Sequence[Message], words: str) -> list[Message]:
    """The messages with more words in the system prompt."""
    if messages and messages[0].role == "system":
        first = messages[0]
        return [replace(first, content=f"{first.content}\n\n{words}"), *messages[1:]]
    return [Message(role="system", content=words), *messages]
