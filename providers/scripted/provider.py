"""The scripted provider: a model host without a model, offline and deterministic.

It answers from a list of replies, or by rules: a pattern on the user's message leads to a tool call with the
captured arguments, and then to a reply with the tool's result. With rules the answer depends on the request
alone, so a conversation can be resumed and replayed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, TypeVar, cast

import orjson
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from toolchart.providers.adapter import compute_plain_digest, encode_plain_request
from toolchart.providers.shared.replies import iterate_deltas, stream_reply
from toolchart.specs.models import LLMConfig
from toolchart.states.call_arguments import parse_arguments
from toolchart.states.canonical_json import encode_escaped_json
from toolchart.states.chart.yaml_document import SourcePosition, format_key_path
from toolchart.states.content import add_text, decode_parts
from toolchart.states.errors import ProviderError, SpecError, suggest_name
from toolchart.states.events import FAILURE_KINDS
from toolchart.states.messages import Delta, FinishReason, Message, Reply, Request, TextDelta, ToolCall, Usage

# -- the parts of a script -------------------------------------------------------------------------


ReplyFunction = Callable[[Request], Reply]
"""Makes a reply from the request, for tests."""


class _ScriptPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ScriptedCall(_ScriptPart):
    """A tool call in a scripted reply."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    """An object; or text, read like the argument text of a provider."""
    id: str = ""

    def build_call(self) -> ToolCall:
        """The call as an adapter would read it from a host."""
        if isinstance(self.arguments, dict):
            return ToolCall(id=self.id, name=self.name, arguments=self.arguments)
        arguments, problem = parse_arguments(self.arguments)
        return ToolCall(id=self.id, name=self.name, arguments=arguments, raw=self.arguments, problem=problem)


class ScriptedFailure(_ScriptPart):
    """A model call that fails."""

    kind: str = "server"
    message: str = "scripted failure"
    status: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None

    def build_error(self) -> ProviderError:
        """The error of the model call. An unknown kind becomes `bad_response`."""
        return ProviderError(
            kind=self.kind if self.kind in FAILURE_KINDS else "bad_response",
            message=self.message,
            status=self.status,
            retryable=self.retryable,
            retry_after_s=self.retry_after_s,
        )


class ScriptedUsage(_ScriptPart):
    """The tokens that a reply reports."""

    input: int = Field(default=0, ge=0)
    output: int = Field(default=0, ge=0)
    reasoning: int | None = None
    cached: int | None = None
    total: int | None = None
    """Without it, the sum of `input` and `output`."""
    cost: float | None = None

    def build_usage(self) -> Usage:
        """The usage, with the total filled in."""
        total = self.input + self.output if self.total is None else self.total
        return Usage(**{**self.model_dump(), "total": total})


class ScriptedStream(_ScriptPart):
    """How a reply grows when it is streamed; without it, word by word."""

    pieces: list[str] = Field(default_factory=list)
    """The content in these pieces; together they are the content."""
    pause_s: float = Field(default=0.0, ge=0)
    """Seconds after each piece."""


class ScriptedReply(_ScriptPart):
    """One reply of a list."""

    content: str | None = None
    parts: list[dict[str, Any]] = Field(default_factory=list)
    """What the reply has beside its text, as the log writes parts: `{type: image, media_type, data}`, `{type:
    citation, url, title}`, ..."""
    tool_calls: list[ScriptedCall] = Field(default_factory=list)
    finish_reason: FinishReason | None = None
    """Without one: `tool_calls` where there are calls, else `stop`."""
    fail: ScriptedFailure | None = None
    usage: ScriptedUsage | None = None
    latency_s: float = Field(default=0.0, ge=0)
    """Seconds before the answer, or before its first piece."""
    stream: ScriptedStream | None = None
    cut: bool = False
    """Whether the connection ends before the reply is complete: its pieces arrive, then it fails."""

    @model_validator(mode="after")
    def _check_pieces(self) -> ScriptedReply:
        decode_parts(self.parts)
        pieces = "".join(self.stream.pieces) if self.stream is not None else ""
        if pieces and self.content is not None and pieces != self.content:
            raise ValueError("`stream.pieces` together must be the `content`; leave one out")
        return self

    def build_reply(self) -> Reply:
        """The complete reply.

        Raises:
            ProviderError: the script has a failure here.
        """
        if self.fail is not None:
            raise self.fail.build_error()
        calls = tuple([call.build_call() for call in self.tool_calls])
        pieces = self.stream.pieces if self.stream is not None else ()
        reason = self.finish_reason or ("tool_calls" if calls else "stop")
        content = "".join(pieces) if self.content is None and pieces else self.content
        return Reply(
            content=content,
            parts=add_text(content, decode_parts(self.parts)) if self.parts else (),
            tool_calls=calls,
            finish_reason=reason,
            native_reason=reason,
            usage=self.usage.build_usage() if self.usage is not None else None,
        )

    def split_into_deltas(self, reply: Reply) -> Iterator[Delta]:
        """The deltas of the reply, its text in the pieces of the script."""
        pieces = self.stream.pieces if self.stream is not None else []
        if not pieces:
            yield from iterate_deltas(reply)
            return
        for text in pieces:
            yield TextDelta(text=text)
        yield from iterate_deltas(replace(reply, content=None))


class ScriptedRule(_ScriptPart):
    """What to answer when the user's message matches."""

    match: str
    """Regular expression, searched in the user's message without regard to case."""
    call: ScriptedCall | None = None
    """Tool to call; `{1}` and `{name}` in its arguments are the captures."""
    reply: str
    """Answer, or answer after the call: `{result}`, `{message}`, `{1}` and `{name}` are filled in."""
    on_error: str = "The tool {tool} could not do that: {error}"
    """Answer after a call that failed: `{error}` and `{tool}` too."""
    usage: ScriptedUsage | None = None
    """The tokens that each answer of the rule reports, the call too."""

    @field_validator("match")
    @classmethod
    def _check_pattern(cls, text: str) -> str:
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
        return text

    def build_usage(self) -> Usage | None:
        """What an answer reports."""
        return self.usage.build_usage() if self.usage is not None else None


class Script(_ScriptPart):
    """The script in an `llms` entry: rules or replies."""

    model: str | None = None
    latency_s: float = Field(default=0.0, ge=0)
    """Seconds before every answer."""
    rules: list[ScriptedRule] = Field(default_factory=list)
    replies: list[Annotated[str | ScriptedReply, Field(union_mode="left_to_right")]] = Field(
        default_factory=list
    )


def read_script(settings: Mapping[str, Any]) -> Script:
    """The script in the settings of an `llms` entry.

    Raises:
        SpecError: it is not a script.
    """
    return _read_part(Script, settings, place=("llms", "*"))


Part = TypeVar("Part", bound=_ScriptPart)


def _read_part(kind: type[Part], data: Any, *, subject: str = "", place: SourcePosition = ()) -> Part:
    """A part of a script from its data.

    Args:
        subject: what it is, for data of a program.
        place: where it stands in the spec, for data of a spec.

    Raises:
        SpecError: it is none; an unknown key is named with those that are allowed.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        # A reply that fits neither a text nor a mapping has two errors; the mapping's, the last, says more.
        detail = error.errors(include_url=False)[-1]
        # In a place of several types pydantic names the type too, which is no key.
        keys = [key for key in detail["loc"] if ScriptedReply.__name__ not in str(key)]
        path = ": ".join(filter(None, (subject, format_key_path((*place, *keys)))))
        if detail["type"] == "extra_forbidden":
            parent = next((key for key in reversed(keys[:-1]) if key in _PARTS_BY_KEY), None)
            allowed = (kind if parent is None else _PARTS_BY_KEY[str(parent)]).model_fields
            hint = _describe_keys(str(keys[-1]), allowed)
            raise SpecError(f"unknown key {keys[-1]!r}", path=path, hint=hint) from None
        raise SpecError(detail["msg"].removeprefix("Value error, "), path=path) from None


def _describe_keys(name: str, allowed: Iterable[str]) -> str:
    """The keys that are allowed in place of an unknown one, after the nearest one."""
    known = f"known: {', '.join(sorted(allowed))}"
    nearest = suggest_name(name, allowed)
    return known if nearest == known else f"{nearest} {known}"


_PARTS_BY_KEY: Mapping[str, type[_ScriptPart]] = {
    "rules": ScriptedRule,
    "replies": ScriptedReply,
    "call": ScriptedCall,
    "tool_calls": ScriptedCall,
    "fail": ScriptedFailure,
    "usage": ScriptedUsage,
    "stream": ScriptedStream,
}
"""What stands under a key of a script."""


def read_reply_item(item: Any) -> Reply | ReplyFunction | ScriptedReply:
    """One item of a list of replies, as tests write it.

    Raises:
        SpecError: it is not a text, a mapping, a reply or a function.
    """
    if isinstance(item, str):
        return ScriptedReply(content=item)
    if isinstance(item, Mapping):
        return _read_part(ScriptedReply, item, subject="scripted reply")
    if isinstance(item, (Reply, ScriptedReply)):
        return item
    if callable(item):
        return cast(ReplyFunction, item)
    hint = "write `*` before a list of replies: `ScriptedModel(*replies)`" if isinstance(item, list) else None
    raise SpecError(
        f"a scripted reply is a text, a mapping, a Reply or a function, not {type(item).__name__!r}",
        hint=hint,
    )


# -- rules -----------------------------------------------------------------------------------------


class RuleBook:
    """Rules in the order in which they are tried."""

    def __init__(self, rules: Iterable[ScriptedRule]) -> None:
        self._rules = [(re.compile(rule.match, re.IGNORECASE), rule) for rule in rules]

    def answer_request(self, request: Request) -> Reply:
        """The reply of the first rule that matches the newest user message."""
        user_message, results = _split_last_exchange(request.messages)
        for pattern, rule in self._rules:
            match = pattern.search(user_message)
            if match is None:
                continue
            values = {"message": user_message, **_read_captures(match)}
            if rule.call is not None and not results and request.tools:
                return replace(_make_call_reply(rule.call, values), usage=rule.build_usage())
            text = _write_answer(rule, values, results)
            return replace(_make_text_reply(text), usage=rule.build_usage())
        return _make_text_reply("This rehearsal has no rule for that message.")


def _split_last_exchange(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """The newest user message and the tool results after it. Earlier messages are not read."""
    results: list[Message] = []
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "tool":
            results.append(message)
        elif message.role == "user":
            return message.content or "", results[::-1]
    return "", results[::-1]


def _read_captures(match: re.Match[str]) -> dict[str, str]:
    """The captures of a match by number and by name; an unused group is empty."""
    by_number = {str(number): text or "" for number, text in enumerate(match.groups(), 1)}
    by_name = {name: text or "" for name, text in match.groupdict().items()}
    return {"0": match.group(0), **by_number, **by_name}


def _make_call_reply(call: ScriptedCall, values: Mapping[str, str]) -> Reply:
    """A reply with that call. Arguments that come out empty are left out."""
    arguments = {
        name: _fill_template(value, values).strip() if isinstance(value, str) else value
        for name, value in (call.arguments if isinstance(call.arguments, dict) else {}).items()
    }
    tool_call = ToolCall(
        name=call.name, arguments={name: value for name, value in arguments.items() if value != ""}
    )
    return Reply(tool_calls=(tool_call,), finish_reason="tool_calls", native_reason="tool_calls")


def _write_answer(rule: ScriptedRule, values: Mapping[str, str], results: Sequence[Message]) -> str:
    if not results:
        return _fill_template(rule.reply, values)
    outcome = _read_outcome(results[-1])
    template = rule.reply if outcome.get("success") else rule.on_error
    return _fill_template(
        template,
        {
            **values,
            "tool": results[-1].name or "",
            "result": _format_result(outcome.get("result")),
            "error": _format_result(outcome.get("error")),
        },
    )


def _read_outcome(message: Message) -> dict[str, Any]:
    """The result of a tool. A result that was shortened for the model is taken as text."""
    try:
        outcome = orjson.loads(message.content or "")
    except orjson.JSONDecodeError:
        outcome = None
    return outcome if isinstance(outcome, dict) else {"success": True, "result": message.content}


def _format_result(value: Any) -> str:
    if isinstance(value, dict) and "result" in value:
        value = value["result"]
    return value if isinstance(value, str) else encode_escaped_json(value).decode()


def _fill_template(template: str, values: Mapping[str, str]) -> str:
    """The template with `{name}` filled in, in one pass. Unknown names stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match.group(1), match.group(0)), template)


def _make_text_reply(text: str) -> Reply:
    return Reply(content=text, finish_reason="stop", native_reason="stop")


# -- the provider ----------------------------------------------------------------------------------


class ScriptedProvider:
    """Answers from a script.

    Args:
        replies: given in order, one per model call: texts, `ScriptedReply` values or the like as
            mappings, `Reply` values, or functions from `Request` to `Reply`.
        rules: tried in order; with rules, `replies` is not used.
        latency_s: seconds before every answer, in addition to the latency of a reply.

    Raises:
        SpecError: a script that cannot be read.
    """

    name = "scripted"

    _how_to_go_on = "add to `replies`, or give `rules`, which answer any number of messages"
    """What a user does whose replies are used up."""

    def __init__(
        self,
        replies: Sequence[str | Mapping[str, Any] | Reply | ScriptedReply | ReplyFunction] = (),
        *,
        rules: Sequence[ScriptedRule | Mapping[str, Any]] = (),
        latency_s: float = 0.0,
    ) -> None:
        self._latency_s = latency_s
        self._replies = [read_reply_item(reply) for reply in replies]
        self._next_index = 0
        self._rules = RuleBook(
            rule
            if isinstance(rule, ScriptedRule)
            else _read_part(ScriptedRule, rule, subject="scripted rule")
            for rule in rules
        )
        self._has_rules = bool(rules)
        self.requests: list[Request] = []
        """Every request so far, for tests; kept only where there are no rules."""

    @classmethod
    def from_config(cls, config: LLMConfig, resolve: Callable[[str], str]) -> ScriptedProvider:
        """The provider of an `llms` entry: `rules` or `replies` beside `provider`.

        Raises:
            SpecError: a script that cannot be read.
        """
        script = read_script(config.extra_options())
        return cls(script.replies, rules=script.rules, latency_s=script.latency_s)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The request itself: a script has no wire format, and streams without being asked."""
        return encode_plain_request(request)

    async def complete(self, request: Request) -> Reply:
        """The next reply of the script.

        Raises:
            ProviderError: the scripted failure; or `bad_request` when the list has no more replies.
        """
        digest = compute_plain_digest(request)
        try:
            answer = await self._wait_for_answer(request)
            if isinstance(answer, Reply):
                return replace(answer, wire_digest=digest)
            reply = answer.build_reply()
            if answer.cut:
                raise _make_cut_error()
        except ProviderError as error:
            error.wire_digest = digest
            raise
        return replace(reply, wire_digest=digest)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The same reply in the script's pieces, or word by word."""
        digest = compute_plain_digest(request)
        try:
            answer = await self._wait_for_answer(request)
            async with aclosing(_stream_answer(answer)) as items:
                async for item in items:
                    yield replace(item, wire_digest=digest) if isinstance(item, Reply) else item
        except ProviderError as error:
            error.wire_digest = digest
            raise

    async def aclose(self) -> None:
        """Do nothing: there is no connection to close."""

    async def _wait_for_answer(self, request: Request) -> Reply | ScriptedReply:
        """The answer of the script, after its latency."""
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        if self._has_rules:
            return self._rules.answer_request(request)
        self.requests.append(request)
        if self._next_index >= len(self._replies):
            raise ProviderError(
                kind="bad_request",
                message=f"the script has {len(self._replies)} replies and no more: {self._how_to_go_on}",
            )
        answer = self._replies[self._next_index]
        self._next_index += 1
        if isinstance(answer, ScriptedReply):
            if answer.latency_s:
                await asyncio.sleep(answer.latency_s)
            return answer
        return answer if isinstance(answer, Reply) else answer(request)


async def _stream_answer(answer: Reply | ScriptedReply) -> AsyncGenerator[Delta | Reply, None]:
    """The deltas of an answer at its own pace, then the reply."""
    if isinstance(answer, Reply):
        async for item in stream_reply(answer):
            yield item
        return
    reply = answer.build_reply()
    pause_s = answer.stream.pause_s if answer.stream else 0.0
    for delta in answer.split_into_deltas(reply):
        yield delta
        if pause_s:
            await asyncio.sleep(pause_s)
    if answer.cut:
        raise _make_cut_error()
    yield reply


def _make_cut_error() -> ProviderError:
    return ProviderError(
        kind="connection", message="the stream ended before the reply was whole", retryable=True
    )
