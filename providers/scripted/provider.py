"""The scripted provider: a rehearsal without a model, offline and deterministic.

It answers from a list of replies, or by rules: a pattern on the user's message leads to a tool call
with captured arguments, and then to a reply that may use the tool's result. What it says next depends
on the request alone, so a conversation goes on, and is replayed, as it was.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolchart.providers.shared.reply_deltas import in_pieces, pieces_of
from toolchart.specs.models import LLMConfig
from toolchart.states.deltas import Delta, TextDelta
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.events import FAILURE_KINDS
from toolchart.states.messages import FinishReason, Message, Reply, Request, ToolCall, Usage

Scripted = Callable[[Request], Reply]
"""A reply made by a function, for tests."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedCall(_Part):
    """A call that a scripted reply asks for."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    """An object; or text, taken as the provider's own argument text."""
    id: str = ""


class ScriptedFailure(_Part):
    """A model call that fails."""

    kind: str = "server"
    message: str = "scripted failure"
    status: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None


class ScriptedUsage(_Part):
    """Tokens that a reply says it took; `total` is the sum where it is left out."""

    input: int = Field(default=0, ge=0)
    output: int = Field(default=0, ge=0)
    reasoning: int | None = None
    cached: int | None = None
    total: int | None = None
    cost: float | None = None


class ScriptedStream(_Part):
    """How a reply grows where it is streamed; without it, word by word."""

    pieces: list[str] = Field(default_factory=list)
    """The content in these pieces; together they are the content."""
    pause_s: float = Field(default=0.0, ge=0)
    """Seconds after each piece."""


class ScriptedReply(_Part):
    """One reply of a list."""

    content: str | None = None
    tool_calls: list[ScriptedCall] = Field(default_factory=list)
    finish_reason: FinishReason | None = None
    """Without one: `tool_calls` where there are calls, else `stop`."""
    fail: ScriptedFailure | None = None
    usage: ScriptedUsage | None = None
    latency_s: float = Field(default=0.0, ge=0)
    """Seconds before the answer, or before its first piece."""
    stream: ScriptedStream | None = None
    cut: bool = False
    """Whether the connection ends before the reply is whole: its pieces are seen, then it fails."""

    @model_validator(mode="after")
    def _pieces_are_the_content(self) -> ScriptedReply:
        pieces = "".join(self.stream.pieces) if self.stream is not None else ""
        if pieces and self.content is not None and pieces != self.content:
            raise ValueError("`stream.pieces` together must be the `content`; leave one out")
        return self

    def text(self) -> str | None:
        """The content, said at once or in pieces."""
        pieces = self.stream.pieces if self.stream is not None else []
        return "".join(pieces) if self.content is None and pieces else self.content


class Rule(_Part):
    """What to do when the user's message matches."""

    match: str
    """Regular expression, searched in the user's message, upper and lower case alike."""
    call: ScriptedCall | None = None
    """Tool to call; `{1}` and `{name}` in its arguments are the captures."""
    reply: str
    """Answer, or answer after the call: `{result}`, `{message}`, `{1}` and `{name}` are filled in."""
    on_error: str = "The tool {tool} could not do that: {error}"
    """Answer after a call that failed: `{error}` and `{tool}` too."""


class _Script(_Part):
    model: str | None = None
    latency_s: float = Field(default=0.0, ge=0)
    rules: list[Rule] = Field(default_factory=list)
    replies: list[Annotated[str | ScriptedReply, Field(union_mode="left_to_right")]] = Field(
        default_factory=list
    )


class ScriptedProvider:
    """Answers by script.

    Args:
        replies: taken in order, one per model call: texts, `ScriptedReply` values or the like as
            mappings, `Reply` values, or functions from `Request` to `Reply`.
        rules: asked in order when there are no replies.
        latency_s: seconds before every answer, beside what a reply says of itself.

    Raises:
        SpecError: a script that cannot be read.
    """

    name = "scripted"

    def __init__(
        self,
        replies: Sequence[str | Mapping[str, Any] | Reply | ScriptedReply | Scripted] = (),
        *,
        rules: Sequence[Rule | Mapping[str, Any]] = (),
        latency_s: float = 0.0,
    ) -> None:
        self._latency_s = latency_s
        self._replies = [_readable(reply) for reply in replies]
        self._next = 0
        self._rules = [
            (_pattern(rule), rule)
            for rule in (one if isinstance(one, Rule) else Rule(**one) for one in rules)
        ]
        self.requests: list[Request] = []
        """Every request so far, for tests; kept only where there is a list of replies."""

    @classmethod
    def from_config(cls, config: LLMConfig, resolve: Callable[[str], str]) -> ScriptedProvider:
        """The provider of an `llms` entry: `rules` or `replies` beside `provider`."""
        try:
            script = _Script.model_validate(config.extras())
        except ValidationError as error:
            detail = error.errors(include_url=False)[
                -1
            ]  # the mapping's, where a text fits no better
            place = ".".join(map(str, detail["loc"]))
            raise SpecError(f"scripted provider: {place}: {detail['msg']}") from None
        return cls(script.replies, rules=script.rules, latency_s=script.latency_s)

    async def complete(self, request: Request) -> Reply:
        """The next reply of the script; an empty script repeats nothing and fails clearly."""
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        scripted = self._next_answer(request)
        if isinstance(scripted, Reply):
            return scripted
        if scripted.latency_s:
            await asyncio.sleep(scripted.latency_s)
        reply = _reply(scripted)
        if scripted.cut:
            raise _cut_off()
        return reply

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The same reply in the script's pieces, or word by word."""
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        scripted = self._next_answer(request)
        if isinstance(scripted, Reply):
            async for piece in in_pieces(scripted):
                yield piece
            return
        if scripted.latency_s:
            await asyncio.sleep(scripted.latency_s)
        reply, pause_s = _reply(scripted), scripted.stream.pause_s if scripted.stream else 0.0
        for delta in _deltas(scripted, reply):
            yield delta
            if pause_s:
                await asyncio.sleep(pause_s)
        if scripted.cut:
            raise _cut_off()
        yield reply

    async def aclose(self) -> None:
        """Nothing to give back."""

    def _next_answer(self, request: Request) -> Reply | ScriptedReply:
        return self._from_rules(request) if self._rules else self._from_list(request)

    # -- a list ----------------------------------------------------------------------------------

    def _from_list(self, request: Request) -> Reply | ScriptedReply:
        self.requests.append(request)
        if self._next >= len(self._replies):
            raise ProviderError(
                kind="bad_request",
                message=f"the script has {len(self._replies)} replies and no more",
            )
        reply = self._replies[self._next]
        self._next += 1
        return reply if isinstance(reply, (Reply, ScriptedReply)) else reply(request)

    # -- rules -----------------------------------------------------------------------------------

    def _from_rules(self, request: Request) -> Reply:
        asked, results = _tail(request.messages)
        for pattern, rule in self._rules:
            found = pattern.search(asked)
            if found is None:
                continue
            words = {"message": asked, **_captures(found)}
            if rule.call is not None and not results and request.tools:
                return _call(rule.call, words)
            return _answer(_after(rule, words, results))
        return _answer("This rehearsal has no rule for that message.")


def _readable(reply: Any) -> Reply | Scripted | ScriptedReply:
    if isinstance(reply, str):
        return ScriptedReply(content=reply)
    if isinstance(reply, Mapping):
        try:
            return ScriptedReply(**reply)
        except ValidationError as error:
            raise SpecError(
                f"scripted reply: {error.errors(include_url=False)[0]['msg']}"
            ) from None
    if isinstance(reply, (Reply, ScriptedReply)):
        return reply
    if callable(reply):
        return cast(Scripted, reply)
    raise SpecError(f"a scripted reply is a text, a mapping, a Reply or a function, not {reply!r}")


def _pattern(rule: Rule) -> re.Pattern[str]:
    try:
        return re.compile(rule.match, re.IGNORECASE)
    except re.error as error:
        raise SpecError(
            f"scripted rule {rule.match!r}: not a regular expression: {error}"
        ) from None


def _reply(script: ScriptedReply) -> Reply:
    if script.fail is not None:
        kind = script.fail.kind if script.fail.kind in FAILURE_KINDS else "bad_response"
        raise ProviderError(
            kind=kind,
            message=script.fail.message,
            status=script.fail.status,
            retryable=script.fail.retryable,
            retry_after_s=script.fail.retry_after_s,
        )
    calls = tuple(_tool_call(call) for call in script.tool_calls)
    reason = script.finish_reason or ("tool_calls" if calls else "stop")
    return Reply(
        content=script.text(),
        tool_calls=calls,
        finish_reason=reason,
        native_reason=reason,
        usage=_usage(script.usage),
    )


def _usage(script: ScriptedUsage | None) -> Usage | None:
    if script is None:
        return None
    total = script.input + script.output if script.total is None else script.total
    return Usage(**{**script.model_dump(), "total": total})


def _deltas(script: ScriptedReply, reply: Reply) -> Iterator[Delta]:
    """The script's own pieces of the text, and what else the reply says."""
    pieces = script.stream.pieces if script.stream is not None else []
    if not pieces:
        yield from pieces_of(reply)
        return
    for text in pieces:
        yield TextDelta(text=text)
    yield from pieces_of(replace(reply, content=None))


def _cut_off() -> ProviderError:
    return ProviderError(
        kind="connection", message="the stream ended before the reply was whole", retryable=True
    )


def _tool_call(call: ScriptedCall) -> ToolCall:
    if isinstance(call.arguments, dict):
        return ToolCall(id=call.id, name=call.name, arguments=call.arguments)
    from toolchart.providers.shared.arguments import parse_arguments

    arguments, problem = parse_arguments(call.arguments)
    return ToolCall(
        id=call.id, name=call.name, arguments=arguments, raw=call.arguments, problem=problem
    )


def _tail(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """The newest user message, and the tool results after it; reads no further back."""
    results: list[Message] = []
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "tool":
            results.append(message)
        elif message.role == "user":
            return message.content or "", results[::-1]
    return "", results[::-1]


def _captures(found: re.Match[str]) -> dict[str, str]:
    numbered = {str(place): text or "" for place, text in enumerate(found.groups(), 1)}
    named = {name: text or "" for name, text in found.groupdict().items()}
    return {"0": found.group(0), **numbered, **named}


def _call(call: ScriptedCall, words: Mapping[str, str]) -> Reply:
    arguments = {
        name: _filled(value, words).strip() if isinstance(value, str) else value
        for name, value in (call.arguments if isinstance(call.arguments, dict) else {}).items()
    }
    filled = ToolCall(
        name=call.name, arguments={name: value for name, value in arguments.items() if value != ""}
    )
    return Reply(tool_calls=(filled,), finish_reason="tool_calls", native_reason="tool_calls")


def _after(rule: Rule, words: Mapping[str, str], results: Sequence[Message]) -> str:
    if not results:
        return _filled(rule.reply, words)
    outcome = _outcome(results[-1])
    template = rule.reply if outcome.get("success") else rule.on_error
    return _filled(
        template,
        {
            **words,
            "tool": results[-1].name or "",
            "result": _text(outcome.get("result")),
            "error": _text(outcome.get("error")),
        },
    )


def _outcome(message: Message) -> dict[str, Any]:
    """The tool's result; a result that was cut for the model is taken as text."""
    try:
        outcome = orjson.loads(message.content or "")
    except orjson.JSONDecodeError:
        outcome = None
    return outcome if isinstance(outcome, dict) else {"success": True, "result": message.content}


def _text(value: Any) -> str:
    if isinstance(value, dict) and "result" in value:
        value = value["result"]
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _filled(template: str, words: Mapping[str, str]) -> str:
    """`{name}` filled in, in one pass; unknown names stay."""
    return re.sub(r"\{(\w+)\}", lambda m: words.get(m.group(1), m.group(0)), template)


def _answer(text: str) -> Reply:
    return Reply(content=text, finish_reason="stop", native_reason="stop")
