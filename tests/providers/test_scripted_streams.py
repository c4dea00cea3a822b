"""The scripted provider as a slow, streaming or failing host."""

from __future__ import annotations

import asyncio
from typing import Any

import agents
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.providers.registry import create_provider
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.models import LLMConfig
from toolchart.states.deltas import CallStarted, TextDelta
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Message, Reply, Request, Usage

REQUEST = Request(model="m", messages=(Message(role="user", content="go"),))


def scripted(*replies: Any, **more: Any) -> Any:
    """The provider of an entry as a spec has it."""
    entry = LLMConfig.model_validate({"provider": "scripted", "replies": list(replies), **more})
    return create_provider(entry, resolve=str)


def streamed(provider: Any) -> tuple[list[Any], ProviderError | None]:
    """What a stream yields, and the error with which it ends."""

    async def collect() -> tuple[list[Any], ProviderError | None]:
        seen: list[Any] = []
        try:
            async for piece in provider.stream(REQUEST):
                seen.append(piece)
        except ProviderError as error:
            return seen, error
        return seen, None

    return asyncio.run(collect())


@given(st.lists(st.text(min_size=1), min_size=1, max_size=6))
def test_pieces_are_told_as_they_are_written(pieces: list[str]) -> None:
    """S3.4: the text grows in the script's own pieces, and the whole reply is the one `complete` gives."""
    reply = {"stream": {"pieces": pieces}, "tool_calls": [{"name": "echo"}]}
    seen, error = streamed(scripted(reply))
    assert error is None
    assert [piece.text for piece in seen if isinstance(piece, TextDelta)] == pieces
    assert [piece.name for piece in seen if isinstance(piece, CallStarted)] == ["echo"]
    assert seen[-1] == asyncio.run(scripted(reply).complete(REQUEST))
    assert seen[-1].content == "".join(pieces)


def test_a_cut_stream_shows_its_pieces_and_fails() -> None:
    """A stream that is cut never comes to a reply; asked for whole, the reply fails alike."""
    reply = {"content": "one two", "cut": True}
    seen, error = streamed(scripted(reply))
    assert [piece.text for piece in seen] == ["one ", "two"]
    assert error is not None
    assert (error.kind, error.retryable) == ("connection", True)
    with pytest.raises(ProviderError) as caught:
        asyncio.run(scripted(reply).complete(REQUEST))
    assert caught.value == error


@pytest.mark.parametrize("where", ["reply", "entry"])
def test_latency_comes_before_the_first_piece(where: str) -> None:
    """A slow script answers nothing before its time, streamed or not, and can be given up."""
    slow = {"latency_s": 3600}
    provider = scripted("hi", **slow) if where == "entry" else scripted({"content": "hi", **slow})

    async def give_up(call: Any) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, timeout=0.01)

    asyncio.run(give_up(provider.complete(REQUEST)))
    again = scripted("hi", **slow) if where == "entry" else scripted({"content": "hi", **slow})
    asyncio.run(give_up(anext(again.stream(REQUEST))))


def test_pieces_and_content_must_agree() -> None:
    """A script that says two different texts is refused where it is read."""
    with pytest.raises(SpecError, match=r"leave one out"):
        scripted({"content": "ab", "stream": {"pieces": ["a", "c"]}})
    agreeing = {"content": "ab", "stream": {"pieces": ["a", "b"], "pause_s": 0.001}}
    assert streamed(scripted(agreeing))[0][-1].content == "ab"


def test_a_script_says_what_was_used() -> None:
    """Tokens of a scripted reply count as a host's would; the total is the sum unless it is said."""
    reply = asyncio.run(
        scripted({"content": "x", "usage": {"input": 3, "output": 4}}).complete(REQUEST)
    )
    assert reply.usage == Usage(input=3, output=4, total=7)


def test_a_turn_over_a_cut_stream_ends_as_a_failure() -> None:
    """S3.3: a chart that tries again gets over a cut stream; what was shown is not in the answer."""

    async def run(chart: str) -> list[Any]:
        cut = {"stream": {"pieces": ["half an "]}, "cut": True}
        async with agents.engine(
            [cut, "A whole answer."], chart=chart, retry={"first_wait_s": 0}
        ) as engine:
            return [piece async for piece in engine.stream("go")]

    assert asyncio.run(run("resilient"))[-1].content == "A whole answer."
    assert asyncio.run(run("tool_loop"))[-1].state == "error"


def test_replies_of_other_kinds_stream_word_by_word() -> None:
    """Replies made by a test itself stream too, and end with that very reply."""
    whole = Reply(content="two words", finish_reason="stop")
    seen, _ = streamed(ScriptedProvider([whole]))
    assert seen[-1] is whole
    assert len(seen) == 3
