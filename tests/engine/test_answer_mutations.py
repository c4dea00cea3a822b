"""Each change of how an answer is read is told by replay where raw answers are kept, in both directions.

Conversations with every host, whole and streamed, are recorded once by unpatched code. Each test patches one
decoder and replays them; the difference must name host, field and record. Then the patched code records, and
unpatched code must refuse its log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import pytest
from host_answers import STREAMED_BODIES, WHOLE_BODIES, encode_frames, find_answered_endpoint
from msgspec.structs import replace
from web import WebAnswer, serve_web
from wire_patches import find_owner
from wire_requests import CITY, ENTRIES

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.wire_replay import WireComparison
from toolchart.states.errors import ReplayMismatch
from toolchart.states.messages import Reply
from toolchart.states.ports import Store

DECODERS = {
    "openai": "openai.client:decode_reply",
    "openai responses": "openai.client:decode_response",
    "ollama": "ollama.client:decode_reply",
    "gemini": "gemini.client:decode_reply",
    "anthropic": "anthropic.client:decode_reply",
    "bedrock": "bedrock.client:decode_reply",
}
"""Where the adapter of an `llms` entry finds its decoder."""

NAMES = [f"{entry}, {way}" for entry in DECODERS for way in ("whole", "streamed")]

Edit = Callable[[Reply], Reply]


def double_usage(reply: Reply) -> Reply:
    """The reply with its usage counted twice."""
    return replace(reply, usage=reply.usage.plus(reply.usage)) if reply.usage else reply


def change_arguments(reply: Reply) -> Reply:
    """The reply with another argument in its last call."""
    if not reply.tool_calls:
        return reply
    *others, last = reply.tool_calls
    return replace(reply, tool_calls=(*others, replace(last, arguments={"city": "Rome"})))


def change_ending(reply: Reply) -> Reply:
    """The reply that claims to have ended by itself."""
    return replace(reply, finish_reason="length")


MUTANTS: dict[str, tuple[Edit, str]] = {
    "a lost call": (lambda reply: replace(reply, tool_calls=reply.tool_calls[:-1]), "/tool_calls"),
    "doubled usage": (double_usage, "/usage"),
    "cut text": (lambda reply: replace(reply, content=(reply.content or "")[:-1] or None), "/content"),
    "lost reasoning": (lambda reply: replace(reply, reasoning=None), "/reasoning"),
    "other arguments": (change_arguments, "/tool_calls"),
    "another finish reason": (change_ending, "/finish_reason"),
}
"""By name: what the mutant of a decoder does to a reply, and the field in which replay must tell it."""

REASONING: dict[str, tuple[Any, Any]] = {
    "chat": (
        lambda body: body["choices"][0]["message"].update(reasoning_content="I think."),
        lambda frames: frames[0]["choices"][0]["delta"].update(reasoning_content="I think."),
    ),
    "responses": (
        lambda body: body["output"].insert(
            0, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I think."}]}
        ),
        lambda frames: frames[-1]["response"]["output"].insert(
            0, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I think."}]}
        ),
    ),
    "ollama": (
        lambda body: body["message"].update(thinking="I think."),
        lambda frames: frames[0]["message"].update(thinking="I think."),
    ),
    "gemini": (
        lambda body: body["candidates"][0]["content"]["parts"].insert(
            0, {"text": "I think.", "thought": True}
        ),
        lambda frames: frames[0]["candidates"][0]["content"]["parts"].insert(
            0, {"text": "I think.", "thought": True}
        ),
    ),
    "messages": (
        lambda body: body["content"].insert(
            0, {"type": "thinking", "thinking": "I think.", "signature": "c2ln"}
        ),
        lambda frames: frames.insert(
            1,
            {
                "type": "content_block_start",
                "index": 7,
                "content_block": {"type": "thinking", "thinking": "I think.", "signature": "c2ln"},
            },
        ),
    ),
    "converse": (
        lambda body: body["output"]["message"]["content"].insert(
            0, {"reasoningContent": {"reasoningText": {"text": "I think.", "signature": "c2ln"}}}
        ),
        lambda frames: frames.insert(
            1,
            {
                "contentBlockDelta": {
                    "contentBlockIndex": 7,
                    "delta": {"reasoningContent": {"text": "I think."}},
                }
            },
        ),
    ),
}
"""By wire format: what adds reasoning to a whole answer, and to the frames of a streamed one."""


def answer_with_reasoning(http_request: dict[str, Any]) -> WebAnswer:
    """A text, a call, usage and reasoning in the wire format that was called."""
    endpoint, wants_stream = find_answered_endpoint(http_request)
    if not wants_stream:
        body = deepcopy(WHOLE_BODIES[endpoint])
        REASONING[endpoint][0](body)
        return 200, {"content-type": "application/json"}, json.dumps(body).encode()
    frames = deepcopy(STREAMED_BODIES[endpoint])
    REASONING[endpoint][1](frames)
    content_type, data = encode_frames(endpoint, frames)
    return 200, {"content-type": content_type}, data


def make_spec(entry: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An agent with one tool, whose log keeps raw answers."""
    tool = {
        "name": "look_up",
        "description": "Look up a city.",
        "parameters": CITY,
        "implementation": {"type": "mock", "mock_response": "cold"},
    }
    return {
        "llms": {"model": entry},
        "tools": {"max_iterations": 1, "registry": [tool]},
        "responses": [{"llm": "model", "prompt": "You know the weather.", "tools": {"enabled": True}}],
        "log_answers": True,
        **changes,
    }


def record_conversations(names: Iterable[str], **changes: Any) -> Store:
    """A store with a conversation for each name, which says the `llms` entry and whether it is streamed."""
    store = open_store("memory")
    with serve_web(answer_with_reasoning) as server:
        for name in names:
            entry_name, way = name.split(", ")
            entry = {**ENTRIES[entry_name], "model": "m", "api_key": "none"}
            entry["base_url"] = server.url + entry.get("base_url", "")
            on_delta = (lambda _: None) if way == "streamed" else None
            with Engine(make_spec(entry, **changes), log=store) as engine:
                engine.run("Is it warm in Oslo?", conversation=name, on_delta=on_delta)
    return store


@pytest.fixture(scope="module")
def store() -> Store:
    """The log with all conversations, recorded by unpatched code."""
    return record_conversations(NAMES)


def compare_conversation(store: Store, name: str) -> WireComparison:
    """The comparison of a conversation.

    Raises:
        ReplayMismatch: something differs.
    """
    comparison = WireComparison()
    for _ in comparison.compare_steps(replay_conversation(store, name)):
        pass
    return comparison


@pytest.mark.parametrize("name", NAMES)
def test_unpatched_code_decodes_every_answer_again(name: str, store: Store) -> None:
    """The twin of the tests below: every answer of a sound log is compared, and all are equal."""
    comparison = compare_conversation(store, name)
    events = [step.record.event for step in replay_conversation(store, name)]
    answers = [event for event in events if event["type"] == "replied"]
    assert len(answers) >= 2
    assert all(event["answer_digest"] and event["raw_answer"] for event in answers)
    assert all(event["reply"]["reasoning"] == "I think." for event in answers)
    assert (comparison.answers, comparison.bodies) == (len(answers), len(answers))
    assert not comparison.uncompared_answers
    assert not comparison.uncompared_bodies


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_of_a_decoder_is_told(
    mutant: str, name: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patched decoder reads another reply of the kept bytes: host, field and record are named."""
    edit, field = MUTANTS[mutant]
    patch_decoder(name, edit, monkeypatch)
    with pytest.raises(ReplayMismatch) as caught:
        compare_conversation(store, name)
    mismatch = caught.value
    assert mismatch.pointer.startswith(f"/event/reply{field}")
    assert (mismatch.blame, mismatch.host) == ("adapter", ENTRIES[name.split(", ")[0]]["provider"])
    first_reply = next(
        step.record.seq for step in replay_conversation(store, name) if step.record.event["type"] == "replied"
    )
    assert mismatch.seq == first_reply


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("name", ["openai, streamed", "anthropic, whole"])
def test_the_log_of_a_mutant_is_refused(mutant: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpatched code tells a log that a patched decoder wrote."""
    edit, field = MUTANTS[mutant]
    with monkeypatch.context() as patches:
        patch_decoder(name, edit, patches)
        changed_store = record_conversations([name])
    with pytest.raises(ReplayMismatch, match=f"/event/reply{field}"):
        compare_conversation(changed_store, name)


def patch_decoder(name: str, edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the edit behind the decoder of an entry."""
    module, _, function = DECODERS[name.split(", ")[0]].partition(":")
    owner = find_owner(module)
    decode = getattr(owner, function)
    monkeypatch.setattr(owner, function, lambda *args, **keys: edit(decode(*args, **keys)))


STREAM_READERS = {
    "chat": ("openai.client:OpenAIProvider", "openai, streamed"),
    "responses": ("openai.client:ResponsesProvider", "openai responses, streamed"),
    "ollama": ("ollama.client:OllamaProvider", "ollama, streamed"),
    "gemini": ("gemini.client:GeminiProvider", "gemini, streamed"),
    "messages": ("anthropic.client:AnthropicProvider", "anthropic, streamed"),
    "converse": ("bedrock.client:BedrockProvider", "bedrock, streamed"),
}


@pytest.mark.parametrize("endpoint", STREAM_READERS)
def test_a_stream_reader_that_loses_frames_is_told(
    endpoint: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frames of a stream are joined by the code that runs live: one that is lost shows."""
    place, name = STREAM_READERS[endpoint]
    accumulator = find_owner(place).accumulator
    add_frame, last = accumulator.add_frame, STREAMED_BODIES[endpoint][-1]

    def lose_last(self: Any, frame: Any) -> Any:
        is_last = set(frame) == set(last) and frame.get("type") == last.get("type")
        return [] if is_last else add_frame(self, frame)

    monkeypatch.setattr(accumulator, "add_frame", lose_last)
    with pytest.raises(ReplayMismatch, match="/event/reply"):
        compare_conversation(store, name)
