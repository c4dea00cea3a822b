"""The scripted provider acts as a slow, streaming or failing host."""

from __future__ import annotations

import asyncio
from typing import Any

import agents
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reply_comparison import drop_digest

from toolchart.engine import Engine
from toolchart.providers.registry import create_provider
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import CallStarted, Message, Reply, Request, TextDelta, Usage
from toolchart.testing import ScriptedModel

REQUEST = Request(model="m", messages=(Message(role="user", content="go"),))


def create_scripted(*replies: Any, **settings: Any) -> Any:
    """The provider of an `llms` entry with these replies."""
    entry = LLMConfig.model_validate({"provider": "scripted", "replies": list(replies), **settings})
    return create_provider(entry, resolve=str)


def collect_stream(provider: Any) -> tuple[list[Any], ProviderError | None]:
    """The items of a stream, and the error with which it ends."""

    async def collect() -> tuple[list[Any], ProviderError | None]:
        items: list[Any] = []
        try:
            async for piece in provider.stream(REQUEST):
                items.append(piece)
        except ProviderError as error:
            return items, error
        return items, None

    return asyncio.run(collect())


@given(st.lists(st.text(min_size=1), min_size=1, max_size=6))
def test_stream_has_the_pieces_of_the_script(pieces: list[str]) -> None:
    """S3.4: the text comes in the pieces of the script; the reply at the end equals that of `complete`."""
    reply = {"stream": {"pieces": pieces}, "tool_calls": [{"name": "echo"}]}
    items, error = collect_stream(create_scripted(reply))
    assert error is None
    assert [piece.text for piece in items if isinstance(piece, TextDelta)] == pieces
    assert [piece.name for piece in items if isinstance(piece, CallStarted)] == ["echo"]
    assert items[-1] == asyncio.run(create_scripted(reply).complete(REQUEST))
    assert items[-1].content == "".join(pieces)


def test_cut_stream_gives_its_pieces_and_fails() -> None:
    """A cut stream gives its pieces and no reply; without streaming the call fails with the same error."""
    reply = {"content": "one two", "cut": True}
    items, error = collect_stream(create_scripted(reply))
    assert [piece.text for piece in items] == ["one ", "two"]
    assert error is not None
    assert (error.kind, error.retryable) == ("connection", True)
    with pytest.raises(ProviderError) as caught:
        asyncio.run(create_scripted(reply).complete(REQUEST))
    assert caught.value == error


@pytest.mark.parametrize("where", ["reply", "entry"])
def test_latency_comes_before_the_first_piece(where: str) -> None:
    """A slow script gives nothing before its latency, streamed or not, and can be cancelled."""
    slow = {"latency_s": 3600}
    provider = (
        create_scripted("hi", **slow) if where == "entry" else create_scripted({"content": "hi", **slow})
    )

    async def give_up(call: Any) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, timeout=0.01)

    asyncio.run(give_up(provider.complete(REQUEST)))
    again = create_scripted("hi", **slow) if where == "entry" else create_scripted({"content": "hi", **slow})
    asyncio.run(give_up(anext(again.stream(REQUEST))))


def test_pieces_and_content_must_agree() -> None:
    """A script whose pieces and content differ is refused when it is read."""
    with pytest.raises(SpecError, match=r"leave one out"):
        create_scripted({"content": "ab", "stream": {"pieces": ["a", "c"]}})
    agreeing = {"content": "ab", "stream": {"pieces": ["a", "b"], "pause_s": 0.001}}
    assert collect_stream(create_scripted(agreeing))[0][-1].content == "ab"


def test_script_reports_usage() -> None:
    """A scripted reply can report tokens; without `total` it is the sum of input and output."""
    reply = asyncio.run(
        create_scripted({"content": "x", "usage": {"input": 3, "output": 4}}).complete(REQUEST)
    )
    assert reply.usage == Usage(input=3, output=4, total=7)


def test_turn_after_a_cut_stream() -> None:
    """S3.3: a chart with retries recovers from a cut stream, and its text is not in the answer."""

    async def run_chart(chart: str, **changes: Any) -> list[Any]:
        cut_reply = {"stream": {"pieces": ["half an "]}, "cut": True}
        async with agents.make_engine([cut_reply, "A whole answer."], chart=chart, **changes) as engine:
            return [piece async for piece in engine.stream("go")]

    assert asyncio.run(run_chart("resilient", retry={"first_wait_s": 0}))[-1].content == "A whole answer."
    assert asyncio.run(run_chart("tool_loop"))[-1].state == "error"


def test_other_replies_stream_word_by_word() -> None:
    """A `Reply` value is streamed word by word, and ends with that same value."""
    whole = Reply(content="two words", finish_reason="stop")
    items, _ = collect_stream(ScriptedProvider([whole]))
    assert drop_digest(items[-1]) == whole
    assert len(items) == 3


@pytest.mark.parametrize("reply", [["a", "b"] * 10_000, 7])
def test_what_is_no_reply_is_refused_in_a_short_text(reply: Any) -> None:
    """A value that no reply can be is named by its kind, never quoted whole; a list has the way out."""
    with pytest.raises(SpecError, match=f"not '{type(reply).__name__}'") as caught:
        ScriptedModel(reply)
    assert len(str(caught.value)) < 300
    assert ("ScriptedModel(*replies)" in str(caught.value)) == isinstance(reply, list)


RULE = {"match": "a", "reply": "b"}


@pytest.mark.parametrize(
    ("settings", "place", "hint"),
    [
        ({"rules": [{**RULE, "cut": True}]}, "rules[0].cut: unknown key 'cut'", "known: call, match, "),
        (
            {"rules": [{**RULE, "replay": "c"}]},
            "rules[0].replay: unknown key",
            "did you mean 'reply'? known: call, match, on_error, reply, usage",
        ),
        (
            {"rules": [{**RULE, "call": {"name": "x", "argument": {}}}]},
            "rules[0].call.argument: unknown key",
            "did you mean 'arguments'",
        ),
        ({"replies": ["a", {"usge": {}}]}, "replies[1].usge: unknown key", "did you mean 'usage'"),
        (
            {"replies": [{"usage": {"prompt": 1}}]},
            "replies[0].usage.prompt: unknown key",
            "known: cached, cost,",
        ),
        (
            {"replies": [{"tool_calls": [{"name": "x", "nr": 1}]}]},
            "tool_calls[0].nr: unknown",
            "known: arguments",
        ),
    ],
)
def test_an_unknown_key_of_a_script_names_the_allowed_ones(
    settings: dict[str, Any], place: str, hint: str
) -> None:
    """An unknown key anywhere in a script is named with its place and with the keys that are allowed there,
    in a spec and in Python."""
    with pytest.raises(SpecError) as caught:
        create_provider(LLMConfig.model_validate({"provider": "scripted", **settings}), resolve=str)
    assert str(caught.value).startswith("llms.*.")
    assert place in str(caught.value)
    assert f"\n  {hint}" in str(caught.value)
    with pytest.raises(SpecError, match="unknown key"):
        ScriptedProvider(settings.get("replies", ()), rules=settings.get("rules", ()))


def test_a_pattern_that_is_none_is_named_with_its_place() -> None:
    """What is no regular expression in a rule is refused when the script is read, in a spec and in Python."""
    rules = [RULE, {"match": "(", "reply": "b"}]
    with pytest.raises(SpecError, match=r"llms\.\*\.rules\[1\]\.match: '\(' is not a regular expression"):
        create_provider(LLMConfig.model_validate({"provider": "scripted", "rules": rules}), resolve=str)
    with pytest.raises(SpecError, match=r"scripted rule: match: '\(' is not a regular expression"):
        ScriptedProvider(rules=rules)


def test_rules_report_usage() -> None:
    """Each answer of a rule with `usage`, a call and the answer after it, reports these tokens; one of a rule
    without it reports none."""
    call = {"name": "echo", "arguments": {"text": "hi"}}
    rules = [{"match": "go", "call": call, "reply": "Done.", "usage": {"input": 30, "output": 5}}, RULE]
    llms = {"model": {"provider": "scripted", "model": "m", "rules": rules}}
    with Engine(agents.make_spec(llms=llms), log="memory") as engine:
        turn = engine.run("go")
        assert (turn.content, turn.usage.input, turn.usage.total) == ("Done.", 60, 70)
        assert engine.run("a").usage.total is None


def test_a_script_that_is_used_up_says_how_to_go_on() -> None:
    """The failure of a script without a further reply names `replies` and `rules`: those of the spec, and in
    Python the arguments of `ScriptedModel`."""
    with pytest.raises(ProviderError, match="has 0 replies and no more: add to `replies`, or give `rules`"):
        asyncio.run(create_scripted().complete(REQUEST))
    words = r"no more: write ScriptedModel\(..., REPLY\), or ScriptedModel\(rules=\[...\]\), which"
    with pytest.raises(ProviderError, match=words):
        asyncio.run(ScriptedModel().complete(REQUEST))
