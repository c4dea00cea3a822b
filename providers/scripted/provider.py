"""The scripted provider: a model host without a model, offline and deterministic.

It answers from a list of replies, or by rules: a pattern on the user's message leads to a tool call with the
captured arguments, and then to a reply with the tool's result. With rules the answer depends on the request
alone, so a conversation can be resumed and replayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from toolchart.providers.adapter import report_digest
from toolchart.providers.scripted.rules import RuleBook
from toolchart.providers.scripted.script import (
    ReplyFunction,
    ScriptedReply,
    ScriptedRule,
    read_reply_item,
    read_script,
)
from toolchart.providers.shared.plain_requests import encode_plain_request
from toolchart.providers.shared.reply_deltas import stream_reply
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Delta, Reply, Request


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
            rule if isinstance(rule, ScriptedRule) else ScriptedRule(**rule) for rule in rules
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
        with report_digest(self.build_body(request, stream=False)) as digest:
            answer = await self._wait_for_answer(request)
            reply = answer if isinstance(answer, Reply) else answer.build_reply()
            if isinstance(answer, ScriptedReply) and answer.cut:
                raise _make_cut_error()
        return replace(reply, wire_digest=digest)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The same reply in the script's pieces, or word by word."""
        with report_digest(self.build_body(request, stream=True)) as digest:
            answer = await self._wait_for_answer(request)
            async with aclosing(_stream_answer(answer)) as items:
                async for item in items:
                    yield replace(item, wire_digest=digest) if isinstance(item, Reply) else item

    async def aclose(self) -> None:
        """Do nothing: there is no connection to close."""

    async def _wait_for_answer(self, request: Request) -> Reply | ScriptedReply:
        """The answer of the script, after its latency."""
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        answer = self._rules.answer_request(request) if self._has_rules else self._get_next_reply(request)
        if isinstance(answer, ScriptedReply) and answer.latency_s:
            await asyncio.sleep(answer.latency_s)
        return answer

    def _get_next_reply(self, request: Request) -> Reply | ScriptedReply:
        """The next reply of the list."""
        self.requests.append(request)
        if self._next_index >= len(self._replies):
            raise ProviderError(
                kind="bad_request", message=f"the script has {len(self._replies)} replies and no more"
            )
        reply = self._replies[self._next_index]
        self._next_index += 1
        return reply if isinstance(reply, (Reply, ScriptedReply)) else reply(request)


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
