"""The parts of a script, as a spec or a test writes them: replies, calls, failures, streams and rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, cast

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolchart.providers.shared.arguments import parse_arguments
from toolchart.providers.shared.reply_deltas import iterate_deltas
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.events import FAILURE_KINDS
from toolchart.states.messages import Delta, FinishReason, Reply, Request, TextDelta, ToolCall, Usage

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
        calls = tuple(call.build_call() for call in self.tool_calls)
        reason = self.finish_reason or ("tool_calls" if calls else "stop")
        return Reply(
            content=self._join_content(),
            tool_calls=calls,
            finish_reason=reason,
            native_reason=reason,
            usage=self.usage.build_usage() if self.usage is not None else None,
        )

    def _join_content(self) -> str | None:
        pieces = self.stream.pieces if self.stream is not None else []
        return "".join(pieces) if self.content is None and pieces else self.content

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
    try:
        return Script.model_validate(settings)
    except ValidationError as error:
        # A reply that fits neither a text nor a mapping has two errors; the mapping's, the last, says more.
        detail = error.errors(include_url=False)[-1]
        key_path = ".".join(map(str, detail["loc"]))
        raise SpecError(f"scripted provider: {key_path}: {detail['msg']}") from None


def read_reply_item(item: Any) -> Reply | ReplyFunction | ScriptedReply:
    """One item of a list of replies, as tests write it.

    Raises:
        SpecError: it is not a text, a mapping, a reply or a function.
    """
    if isinstance(item, str):
        return ScriptedReply(content=item)
    if isinstance(item, Mapping):
        try:
            return ScriptedReply(**item)
        except ValidationError as error:
            raise SpecError(f"scripted reply: {error.errors(include_url=False)[0]['msg']}") from None
    if isinstance(item, (Reply, ScriptedReply)):
        return item
    if callable(item):
        return cast(ReplyFunction, item)
    raise SpecError(f"a scripted reply is a text, a mapping, a Reply or a function, not {item!r}")
