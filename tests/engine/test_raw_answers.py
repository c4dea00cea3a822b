"""Raw answers in the log: kept where the spec says so, and once."""

from __future__ import annotations

import json
import sqlite3
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import compress

import pytest
from host_answers import CHAT_USAGE, chat_choice
from msgspec import to_builtins
from msgspec.structs import replace
from web import WebAnswer, serve_web

from toolchart.engine import Engine
from toolchart.engine.log.redaction import Redactor
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.figures import read_turns
from toolchart.engine.runtime.wire_replay import WireComparison
from toolchart.providers.transport.raw_answers import compute_answer_digest, read_raw_answer
from toolchart.specs.loader import load_spec
from toolchart.states.core.encoding import make_plain_event
from toolchart.states.errors import ReplayMismatch, SpecError
from toolchart.states.events import Failed, Replied
from toolchart.states.messages import RawAnswer, Reply, Usage
from toolchart.states.ports import Store

SECRET = "The vault opens with 7781-4432, Zoë."


def make_spec(url: str, **changes: Any) -> dict[str, Any]:
    """An agent of a compatible host on loopback."""
    entry = {"provider": "openai", "model": "m", "api_key": "none", "base_url": f"{url}/v1"}
    return {"llms": {"m": entry}, "responses": [{"llm": "m", "prompt": "x"}], "log_answers": True, **changes}


def answer_text(text: str) -> Callable[[dict[str, Any]], WebAnswer]:
    """A host that always says the same, with letters beyond ASCII as escapes."""
    message = {"role": "assistant", "content": text}
    body = {**chat_choice(index=0, message=message, finish_reason="stop"), "usage": CHAT_USAGE}
    return lambda _: (200, {"content-type": "application/json"}, json.dumps(body).encode())


def run_turns(
    log: Any, *conversations: str, answer: Callable[[dict[str, Any]], WebAnswer] | None = None, **changes: Any
) -> None:
    """Run a turn in each conversation."""
    with (
        serve_web(answer or answer_text(SECRET)) as server,
        Engine(make_spec(server.url, **changes), log=log) as engine,
    ):
        for conversation in conversations:
            engine.run("How does it open?", conversation=conversation)


def list_answers(store: Store, conversation: str = "c") -> list[Replied | Failed]:
    """The closing events of the model calls."""
    events = [step.record.decode_event() for step in replay_conversation(store, conversation)]
    return [event for event in events if isinstance(event, Replied | Failed)]


def compare(store: Store, conversation: str = "c") -> WireComparison:
    """Replay a conversation and compare it with the adapters."""
    comparison = WireComparison()
    for _ in comparison.compare_steps(replay_conversation(store, conversation)):
        pass
    return comparison


# -- what stands in the log --------------------------------------------------------------------------


def test_the_digest_is_always_there_and_the_bytes_on_request() -> None:
    """Each `replied` has the digest of the answer; its bytes only with `log_answers`."""
    for keeps in (False, True):
        store = MemoryStore()
        run_turns(store, "c", log_answers=keeps)
        (event,) = list_answers(store)
        body = answer_text(SECRET)({})[2]
        assert event.answer_digest == compute_answer_digest(body)
        assert (event.raw_answer is not None) == keeps
        if event.raw_answer is not None:
            assert read_raw_answer(event.raw_answer) == body


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((400, {"content-type": "application/json"}, b'{"error": {"message": "no"}}'), "bad_request"),
        ((200, {"content-type": "application/json"}, b'{"error": {"message": "no"}}'), "bad_response"),
        ((200, {"content-type": "application/json"}, b"<html>"), "bad_response"),
    ],
)
def test_a_failed_call_has_its_answer(answer: WebAnswer, kind: str) -> None:
    """Where an answer came, `failed` has its digest and bytes, and replay reads the same failure of them."""
    store = MemoryStore()
    run_turns(store, "c", answer=lambda _: answer, chart="tool_loop")
    event = list_answers(store)[0]
    assert isinstance(event, Failed)
    assert event.answer_digest == compute_answer_digest(answer[2])
    assert compare(store).answers == len(list_answers(store))


def test_where_no_host_answered_there_is_no_digest() -> None:
    """A script, a host that cannot be reached, and a fork that the log answers have no raw answer."""
    store = MemoryStore()
    with Engine("quickstart", log=store) as engine:
        engine.run("1+1", conversation="script")
    with Engine(make_spec("http://127.0.0.1:9"), log=store) as engine:
        engine.run("hi", conversation="unreachable")
    run_turns(store, "c")
    with Engine(make_spec("http://127.0.0.1:9"), log=store) as engine:
        fork = engine.conversation("c").fork(at=1, name="fork", from_log=True)
    assert fork.result is not None
    for name in ("script", "unreachable", "fork"):
        events = list_answers(store, name)
        assert events
        assert [(event.answer_digest, event.raw_answer) for event in events] == [(None, None)] * len(events)
        assert not compare(store, name).uncompared_answers


def test_equal_answers_are_stored_once(tmp_path: Path) -> None:
    """A kept answer is a large part: eight conversations with the same answer hold its bytes once."""
    names = [f"c{number}" for number in range(8)]
    text = " ".join(f"{number * 7919 % 104729}" for number in range(4000))
    with closing(open_store(tmp_path / "log.db")) as store:
        run_turns(store, *names, answer=answer_text(text))
        (event,) = list_answers(store, "c0")
    assert event.raw_answer is not None
    with closing(sqlite3.connect(tmp_path / "log.db")) as database:
        content = f"%{event.raw_answer.content}%"
        rows = database.execute("SELECT uses FROM parts WHERE CAST(data AS TEXT) LIKE ?", [content])
        assert rows.fetchall() == [(8,)]


def test_a_changed_answer_or_digest_is_told() -> None:
    """Kept bytes that do not have the recorded digest are refused, whatever they say."""
    store = MemoryStore()
    run_turns(store, "c")
    (event,) = list_answers(store)
    assert isinstance(event, Replied)
    assert event.raw_answer is not None
    body = read_raw_answer(event.raw_answer).replace(b"vault", b"tomb")
    raw = RawAnswer(content=b64encode(compress(body)).decode())
    for changed in ({"raw_answer": raw}, {"answer_digest": compute_answer_digest(body)}):
        steps = [
            replace_event(step, changed) if step.record.event["type"] == "replied" else step
            for step in replay_conversation(store, "c")
        ]
        with pytest.raises(ReplayMismatch, match="/event/answer_digest"):
            list(WireComparison().compare_steps(steps))


def replace_event(step: Any, changes: dict[str, Any]) -> Any:
    """A step whose record has other fields in its event."""
    event = {**step.record.event, **{key: to_builtins(value) for key, value in changes.items()}}
    return replace(step, record=replace(step.record, event=event))


# -- kept from the log -------------------------------------------------------------------------------


def test_a_redacted_log_keeps_no_answers() -> None:
    """`redact` and `log_answers` together are refused when the spec is loaded, with what to do."""
    spec = make_spec("http://127.0.0.1:9", redact={"patterns": ["email"]})
    with pytest.raises(SpecError) as caught:
        load_spec(spec)
    assert caught.value.path == "log_answers"
    assert "leave out" in str(caught.value)


def test_a_redacted_log_has_a_keyed_digest() -> None:
    """Nobody confirms a guessed secret by the digest; replay says that the log is redacted."""
    store = MemoryStore()
    redact = {"patterns": [r"/\d{4}-\d{4}/"]}
    run_turns(store, "c", "c", log_answers=False, redact=redact)
    event, _ = list_answers(store)
    body = answer_text(SECRET)({})[2]
    assert event.answer_digest is not None
    assert event.answer_digest != compute_answer_digest(body)
    comparison = compare(store)
    assert comparison.uncompared_answers == {"the log is redacted": 2}
    assert comparison.uncompared_bodies == {"the log is redacted": 1}, "the second one repeats the reply"
    assert comparison.bodies == 1, "nothing of the first request was redacted"


def test_a_redactor_keeps_the_digest_in_its_length() -> None:
    """The keyed digest has the form of the digest."""
    event = Replied(
        at="2026-01-01T00:00:00Z",
        effect=1,
        reply=Reply(finish_reason="stop"),
        answer_digest=compute_answer_digest(b"x"),
    )
    data = json.loads(make_plain_event(event)[1])
    redacted = Redactor(patterns=["email"]).redact_event(data)
    assert len(redacted["answer_digest"]) == len(data["answer_digest"])
    assert redacted["answer_digest"] != data["answer_digest"]


# -- what a log does not say -------------------------------------------------------------------------


def test_each_call_is_compared_with_the_host_that_it_asked() -> None:
    """An effect with an `llms` entry of its own is built and decoded by the adapter of that entry."""
    chart = {
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask_other",
                "transitions": [
                    {"event": "replied", "target": "done"},
                    {"event": "failed", "target": "done"},
                    {"event": "cancelled", "target": "done"},
                ],
            },
            "done": {"final": True, "enter": "say"},
        }
    }
    effects = {
        "ask_other": {"call_model": {"llm": "other", "prompt": "{{user_message}}", "as": "said"}},
        "say": {"answer": "{{said.content}}"},
    }
    message = {"role": "assistant", "content": "Hello"}
    body = {"model": "m", "message": message, "done": True, "done_reason": "stop"}
    store = MemoryStore()
    answer = (200, {"content-type": "application/json"}, json.dumps(body).encode())
    with serve_web(lambda _: answer) as server:
        spec = make_spec(server.url, chart=chart, effects=effects)
        spec["llms"]["other"] = {"provider": "ollama", "model": "o", "base_url": server.url}
        with Engine(spec, log=store) as engine:
            assert engine.run("hi", conversation="c").content == "Hello"
    comparison = compare(store)
    assert (comparison.bodies, comparison.answers) == (1, 1)


def test_an_address_from_the_environment_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has no address: its sound bodies are not accused where the variable is not set any more."""
    store = MemoryStore()
    with serve_web(answer_text("Hello")) as server:
        monkeypatch.setenv("WHERE_IT_IS", f"{server.url}/v1")
        spec = make_spec("")
        spec["llms"]["m"]["base_url"] = "${WHERE_IT_IS}"
        with Engine(spec, log=store) as engine:
            engine.run("hi", conversation="c")
    monkeypatch.delenv("WHERE_IT_IS")
    comparison = compare(store)
    assert comparison.answers == 1
    assert comparison.bodies + comparison.uncompared_bodies.total() == 1


# -- what was counted of an answer that was broken off --------------------------------------------------

OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
START = {"id": "r", "model": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}
TEXT = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hel"}}


def encode_events(events: list[Any]) -> WebAnswer:
    """A stream of server-sent events."""
    data = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return 200, {"content-type": "text/event-stream"}, data.encode()


BROKEN_OFF: dict[str, tuple[str, list[Any], list[Any], Usage]] = {
    "anthropic": (
        "",
        [{"type": "message_start", "message": START}, TEXT, OVERLOADED],
        [
            {"type": "message_start", "message": START},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hello."}},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"input_tokens": 5, "output_tokens": 7},
            },
            {"type": "message_stop"},
        ],
        Usage(input=5, output=1, total=6),
    ),
    "openai": (
        "/v1",
        [
            {
                "choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": "network_error"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
            }
        ],
        [
            {
                "choices": [{"index": 0, "delta": {"content": "Hello."}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
            }
        ],
        Usage(input=5, output=1, total=6),
    ),
    "gemini": (
        "",
        [
            {
                "candidates": [{"content": {"role": "model", "parts": [{"text": "Hel"}]}}],
                "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 1, "totalTokenCount": 6},
            },
            {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}},
        ],
        [
            {
                "candidates": [
                    {"content": {"role": "model", "parts": [{"text": "Hello."}]}, "finishReason": "STOP"}
                ],
                "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12},
            }
        ],
        Usage(input=5, output=1, total=6),
    ),
}


def run_broken_off(provider: str, log: MemoryStore, **changes: Any) -> Any:
    """A turn whose first answer is broken off, and the second is whole."""
    path, broken_off, whole, _ = BROKEN_OFF[provider]
    answers = iter([encode_events(broken_off), encode_events(whole)])
    with serve_web(lambda _: next(answers)) as server:
        entry = {"provider": provider, "model": "m", "api_key": "none", "base_url": server.url + path}
        spec = {
            "llms": {"m": entry},
            "responses": [{"llm": "m", "prompt": "x"}],
            "log_answers": True,
            **changes,
        }
        with Engine(spec, log=log) as engine:
            return engine.run("Hello?", conversation="c", on_delta=lambda _: None)


@pytest.mark.parametrize("provider", BROKEN_OFF)
def test_a_broken_off_answer_counts(provider: str) -> None:
    """The failed event has the tokens that the host had counted; the turn's usage, the totals in the log and
    what `replay` decodes of the kept bytes agree with it."""
    store = MemoryStore()
    result = run_broken_off(provider, store)
    assert result.content == "Hello."
    failed, replied = list_answers(store)
    assert isinstance(failed, Failed)
    usage = BROKEN_OFF[provider][-1]
    assert (failed.paid_usage, failed.content) == (usage, "Hel")
    assert result.usage == usage.plus(replied.paid_usage)
    (turn,) = read_turns(store, "c")
    assert [call.usage for call in turn.model_calls] == [usage, replied.paid_usage]
    assert compare(store).bodies == 2


def test_a_price_holds_for_a_broken_off_answer() -> None:
    """Its cost is that of its tokens by the price table."""
    result = run_broken_off(
        "anthropic", MemoryStore(), prices={"models": {"m": {"input": 1e6, "output": 2e6}}}
    )
    assert result.cost == 5 + 2 * 1 + 5 + 2 * 7


def test_another_count_than_the_answer_has_is_told() -> None:
    """`replay` decodes the kept answer again, and refuses a record with another count."""
    store = MemoryStore()
    run_broken_off("openai", store)
    failed, _ = list_answers(store)
    assert failed.reply is not None
    steps = [
        replace_event(step, {"reply": replace(failed.reply, usage=Usage(input=5, output=2, total=7))})
        if step.record.event["type"] == "failed"
        else step
        for step in replay_conversation(store, "c")
    ]
    with pytest.raises(ReplayMismatch, match="/event/reply/usage"):
        list(WireComparison().compare_steps(steps))
