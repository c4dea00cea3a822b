"""Programs of others, watched: one sign of where a call belongs at a time, and what cannot be read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from command_runs import RunCli, restored_loggers, run_cli
from foreign_loops import ENCODERS, Loop, make_exchange
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolchart.engine.log.record import compute_line_hash
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.watching.recorder import Recorder, WatchFigures
from toolchart.providers.prices import PriceTable
from toolchart.states.errors import LogUnavailable
from toolchart.states.messages import Message, Reply, ToolCall
from toolchart.states.ports import Store

__all__ = ["restored_loggers", "run_cli"]


class Watch:
    """A watch of one program, which asks by hand."""

    def __init__(self, wire: str = "chat", *, log: str = "memory", **options: Any) -> None:
        self.store: Store = open_store(log)
        self.loop = Loop(name="l", wire=wire, rng=Random(0), first="x")
        self._recorder = Recorder(self.store, {"watch": "w"}, **options)
        self._number = 0

    def ask(
        self, *messages: Message, reply: Reply | None = None, system: str = "Be brief.", **others: Any
    ) -> str:
        """Note a call with these messages; the kind of its failure where there is no reply."""
        self._number += 1
        self.loop.system = system
        kind = others.pop("kind", "")
        at = float(self._number)
        exchange = make_exchange(self.loop, self._number, at, at + 0.5, messages, reply, kind=kind)
        self._recorder.note(replace(exchange, **others))

    def close(self) -> WatchFigures:
        """The figures, once all is written and verifies."""
        figures = self._recorder.close()
        for verified in verify_store(self.store):
            assert isinstance(verified, VerifiedConversation)
        return figures

    def list_events(self, conversation: str) -> list[dict[str, Any]]:
        """The events of a conversation."""
        return [json.loads(line)["event"] for line in self.store.read_lines(conversation)]

    def list_types(self, conversation: str) -> list[str]:
        """Their types, without the configuration."""
        return [event["type"] for event in self.list_events(conversation) if event["type"] != "configured"]

    def list_warnings(self, conversation: str) -> list[str]:
        """What the replies of a conversation say about themselves."""
        events = self.list_events(conversation)
        return [words for event in events for words in (event.get("reply") or {}).get("warnings", ())]


def user(text: str) -> Message:
    return Message(role="user", content=text)


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def say(text: str) -> Reply:
    return Reply(content=text, finish_reason="stop")


def call(name: str, call_id: str = "c1", **arguments: Any) -> Reply:
    calls = (ToolCall(id=call_id, name=name, arguments=arguments),)
    return Reply(tool_calls=calls, finish_reason="tool_calls")


def asked(reply: Reply) -> Message:
    return Message(role="assistant", tool_calls=reply.tool_calls)


def result(text: str, call_id: str = "c1", name: str = "look_up") -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id, name=name)


LOOK_UP = call("look_up", text="it")


@pytest.mark.parametrize("kind", ["429", "cut"])
def test_a_request_that_failed_and_comes_again_is_asked_again(kind: str) -> None:
    """Both calls stand in one conversation, the failed one with what its host said; the turn is one."""
    watch = Watch()
    watch.ask(user("go"), kind=kind)
    watch.ask(user("go"), reply=say("done"))
    figures = watch.close()
    (name,) = figures.conversations
    assert watch.list_types(name) == ["turn_started", "failed", "replied"]
    assert (figures.calls, figures.failed, figures.retries) == (2, 1, 1)
    failed = watch.list_events(name)[2]
    assert failed["kind"] == ("rate_limited" if kind == "429" else "connection")


def test_a_program_may_ask_again_within_the_same_millisecond() -> None:
    """Times of requests are whole milliseconds, and a program may see a refusal before its end is noted. A
    request that was there before the other one failed is none that is made once more."""
    watch = Watch()
    watch.ask(user("go"), kind="429", asked_at="2026-01-01T00:00:01.000Z", first_ms=5.9, duration_ms=90.0)
    watch.ask(user("go"), reply=say("done"), asked_at="2026-01-01T00:00:01.005Z")
    assert watch.close().retries == 1
    watch = Watch()
    watch.ask(user("go"), kind="429", asked_at="2026-01-01T00:00:01.000Z", first_ms=50.0, duration_ms=50.0)
    watch.ask(user("go"), reply=say("done"), asked_at="2026-01-01T00:00:01.005Z")
    assert watch.close().retries == 0


def test_a_request_that_failed_for_good_ends_its_turn() -> None:
    """Where the program does not ask again, the turn ends as given up, and the log can be pruned."""
    watch = Watch()
    watch.ask(user("go"), kind="429")
    (name,) = watch.close().conversations
    assert watch.list_types(name) == ["turn_started", "failed", "cancelled"]


def test_another_prompt_over_the_same_messages_is_another_turn_of_the_conversation() -> None:
    """An agent that hands over to another one goes on with the same messages under another prompt."""
    watch = Watch()
    watch.ask(user("go"), reply=LOOK_UP)
    watch.ask(user("go"), asked(LOOK_UP), result("1"), reply=say("done"), system="You are the expert.")
    figures = watch.close()
    (name,) = figures.conversations
    assert watch.list_types(name) == [
        *("turn_started", "replied", "reviewed", "tool_finished", "cancelled"),
        *("turn_started", "replied"),
    ]
    systems = [event.get("system") for event in watch.list_events(name) if event["type"] == "turn_started"]
    assert systems == ["Be brief.", "You are the expert."]


def test_a_list_with_a_known_call_and_another_beginning_is_a_shorter_one() -> None:
    """A program that sums up its conversation goes on in another one, which names the first."""
    watch = Watch()
    watch.ask(user("go"), reply=LOOK_UP)
    watch.ask(user("what happened so far"), asked(LOOK_UP), result("1"), reply=say("done"))
    figures = watch.close()
    first, second = figures.conversations
    assert figures.shortened == 1
    assert watch.list_events(second)[0]["tags"] == {"watch": "w", "continues": first}
    assert "with a shorter or another list of messages" in " ".join(watch.list_warnings(second))


def test_a_program_that_goes_back_begins_another_conversation() -> None:
    """A list that begins with an earlier part of a conversation is a branch of it, and says so."""
    watch = Watch()
    watch.ask(user("go"), reply=say("one"))
    watch.ask(user("go"), said("one"), user("on"), reply=say("two"))
    watch.ask(user("go"), said("one"), user("back"), reply=say("three"))
    figures = watch.close()
    first, second = figures.conversations
    assert figures.branches == 1
    assert watch.list_events(second)[0]["tags"]["continues"] == first
    started = next(event for event in watch.list_events(second) if event["type"] == "turn_started")
    assert [message["content"] for message in started["history"]] == ["go", "one"]


def test_first_words_that_an_open_call_was_given_are_a_child_of_it() -> None:
    """An agent behind a tool is a child conversation: the outcome of the call names its newest record, and
    what it used."""
    task = "Find out when the train to Oslo leaves"
    ask_expert = call("ask_expert", text=task)
    watch = Watch()
    watch.ask(user("go"), reply=ask_expert)
    watch.ask(user(task), reply=say("at noon"), system="You are the expert.")
    watch.ask(user("go"), asked(ask_expert), result("at noon", name="ask_expert"), reply=say("At noon."))
    figures = watch.close()
    parent, child = figures.conversations
    assert figures.children == 1
    assert child.startswith(f"{parent}.")
    (finished,) = [event for event in watch.list_events(parent) if event["type"] == "tool_finished"]
    assert finished["conversation"] == child
    assert finished["usage"]["input"] > 0
    assert watch.list_events(child)[0]["parent"]["conversation"] == parent


def test_a_response_that_is_named_goes_on_with_what_it_said() -> None:
    """A stateful client sends the id of a response and what is new: the log has the whole conversation. One
    that was not seen is said."""
    watch = Watch("responses")
    watch.ask(user("go"), reply=LOOK_UP)
    body = {"model": "m", "previous_response_id": "resp1"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    watch.ask(user("?"), reply=say("done"), request=json.dumps({**body, "input": [output]}).encode())
    unseen = {**body, "previous_response_id": "resp9", "input": "and?"}
    watch.ask(user("?"), reply=say("fine"), request=json.dumps(unseen).encode())
    figures = watch.close()
    first = figures.conversations[0]
    assert watch.list_types(first).count("tool_finished") == 1
    assert "which was not seen" in " ".join(watch.list_warnings(figures.conversations[-1]))


def test_two_runs_that_begin_alike_are_two_conversations() -> None:
    """The same first words asked twice are two conversations; the second says that the first began alike."""
    watch = Watch()
    watch.ask(user("go"), reply=say("one"))
    watch.ask(user("go"), reply=say("two"))
    figures = watch.close()
    first, second = figures.conversations
    assert (figures.retries, figures.uncertain) == (0, 0)
    assert any(first in words for words in watch.list_warnings(second))


def test_where_two_conversations_fit_alike_the_call_says_so() -> None:
    """Two runs with the same words and no ids: what goes on with one of them may be of the other."""
    watch = Watch("gemini")
    for _ in range(2):
        watch.ask(user("go"), reply=say("one"))
    watch.ask(user("go"), said("one"), user("on"), reply=say("two"))
    figures = watch.close()
    assert figures.uncertain == 1
    assert any("is not certain" in words for words in watch.list_warnings(figures.conversations[0]))


def test_show_says_what_is_said_about_a_reply(run_cli: RunCli, tmp_path: Path) -> None:
    """`toolchart show` prints the warnings of a reply: here, which conversation began alike."""
    watch = Watch(log=str(tmp_path / "log.db"))
    for text in ("one", "two"):
        watch.ask(user("go"), reply=say(text))
    _, second = watch.close().conversations
    shown = run_cli("show", second, "--log", str(tmp_path / "log.db")).out
    assert "warning: " in shown
    assert "began with the same request" in shown


def test_a_session_that_the_program_names_tells_them_apart() -> None:
    """A header `X-Session-Id` decides between conversations that fit alike."""
    watch = Watch("gemini")
    for session in ("a", "b"):
        watch.ask(user("go"), reply=say("one"), session=session)
    watch.ask(user("go"), said("one"), user("on"), reply=say("two"), session="b")
    figures = watch.close()
    assert figures.uncertain == 0
    assert [watch.list_types(name).count("replied") for name in figures.conversations] == [1, 2]


def test_the_connection_makes_one_more_likely_and_is_not_certain() -> None:
    """Of two runs with the same words and no ids, the one of the same connection goes on. But clients lend a
    connection to whoever asks next: so both calls that go on say that they may be of the other run."""
    watch = Watch("gemini")
    for connection in (1, 2):
        watch.ask(user("go"), reply=say("one"), connection=connection)
    for connection in (2, 1):
        watch.ask(user("go"), said("one"), user("on"), reply=say("two"), connection=connection)
    figures = watch.close()
    assert figures.uncertain == 2
    assert [watch.list_types(name).count("replied") for name in figures.conversations] == [2, 2]
    for name, other in (figures.conversations, reversed(figures.conversations)):
        (words,) = [words for words in watch.list_warnings(name) if "is not certain" in words]
        assert other in words


def test_a_child_that_its_parent_leaves_is_ended() -> None:
    """A child whose own calls never had a result ends when its parent has the result of the call that ran it;
    so the parent's record names the child's newest one."""
    task = "Find out when the train to Oslo leaves"
    ask_expert = call("ask_expert", text=task)
    watch = Watch()
    watch.ask(user("go"), reply=ask_expert)
    watch.ask(user(task), reply=call("look_up", "c2", text="train"), system="You are the expert.")
    watch.ask(user("go"), asked(ask_expert), result("gave up", name="ask_expert"), reply=say("No."))
    parent, child = watch.close().conversations
    assert watch.list_types(child)[-1] == "cancelled"
    (finished,) = [event for event in watch.list_events(parent) if event["type"] == "tool_finished"]
    assert finished["head"] == compute_line_hash(list(watch.store.read_lines(child))[-1])


def test_the_time_of_a_call_goes_from_the_reply_to_the_request_with_its_result() -> None:
    """How long a tool took is seen from outside: here half a second."""
    watch = Watch()
    watch.ask(user("go"), reply=LOOK_UP)
    watch.ask(user("go"), asked(LOOK_UP), result("1"), reply=say("done"))
    (name,) = watch.close().conversations
    (finished,) = [event for event in watch.list_events(name) if event["type"] == "tool_finished"]
    assert finished["result"]["execution_time_ms"] == 500.0


def test_a_call_is_in_the_log_while_the_program_runs() -> None:
    """What was seen is read by others at once, and not only at the end."""
    watch = Watch()
    watch.ask(user("go"), reply=LOOK_UP)
    for _ in range(2_000):
        if watch.store.list_conversations():
            break
        time.sleep(0.005)
    (name,) = watch.store.list_conversations()
    assert watch.list_types(name) == ["turn_started", "replied", "reviewed"]
    watch.close()


def test_what_a_reply_cost_is_added_by_a_price_table() -> None:
    """Tokens come from the host, money from the table."""
    watch = Watch(prices=PriceTable.model_validate({"models": {"m": {"input": 1.0, "output": 2.0}}}))
    watch.ask(user("go"), reply=say("one"))
    figures = watch.close()
    assert figures.usage.cost is not None
    assert figures.usage.cost > 0


def test_a_log_that_cannot_be_written_is_said_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first failure ends the recording, never the program; `close` raises it."""
    watch = Watch()

    def fail(*_: Any) -> None:
        raise LogUnavailable("the disk is full")

    monkeypatch.setattr(watch.store, "append_many", fail)
    for _ in range(3):
        watch.ask(user("go"), reply=say("one"))
    with pytest.raises(LogUnavailable, match="the disk is full"):
        watch.close()


# -- what cannot be read -----------------------------------------------------------------------------

_KEYS = st.sampled_from(
    [
        *("role", "content", "messages", "input", "contents", "parts", "text", "type", "tools", "tool_calls"),
        *(
            "functionCall",
            "function",
            "arguments",
            "choices",
            "message",
            "candidates",
            "output",
            "system",
            "id",
        ),
    ]
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    wire=st.sampled_from(list(ENCODERS)),
    request=_values,
    answer=_values,
    status=st.sampled_from([0, 200, 500]),
)
def test_whatever_strangers_send_the_others_are_recorded(
    wire: str, request: Any, answer: Any, status: int
) -> None:
    """A request or an answer that is nonsense is counted with a reason, or recorded; what came before and
    what comes after it is in the log, which verifies."""
    watch = Watch(wire)
    watch.ask(user("go"), reply=LOOK_UP)
    odd = {"request": json.dumps(request).encode(), "answer": json.dumps(answer).encode(), "status": status}
    watch.ask(user("x"), reply=say("x"), **odd)
    watch.ask(user("go"), asked(LOOK_UP), result("1"), reply=say("done"))
    figures = watch.close()
    assert figures.calls + figures.problems.total() >= 3
    assert watch.list_types(figures.conversations[0])[-1] == "replied"


@pytest.mark.parametrize(
    ("request_body", "words"),
    [
        (b"{", "the request is no JSON"),
        (b"[]", "the request is no JSON object"),
        (b'{"messages": [{"role": "tune", "content": "x"}]}', "[1].role: unknown role 'tune'"),
        (b"[" * 100_000, "nested"),
    ],
)
def test_a_request_that_cannot_be_read_is_counted_with_its_reason(request_body: bytes, words: str) -> None:
    """The figures say how many calls are in no conversation, and why."""
    watch = Watch()
    watch.ask(user("x"), reply=say("x"), request=request_body)
    figures = watch.close()
    (problem,) = figures.problems
    assert words in problem
    assert not figures.conversations


def test_a_request_without_messages_is_a_turn_without_words() -> None:
    """A host may keep the prompt under an id: the call, and what it cost, is in the log all the same."""
    watch = Watch("responses")
    request = {"model": "m", "prompt": {"id": "pmpt_1"}}
    watch.ask(user("x"), reply=say("done"), request=json.dumps(request).encode())
    figures = watch.close()
    (name,) = figures.conversations
    assert watch.list_types(name) == ["turn_started", "replied"]


def test_an_exchange_that_asks_no_model_is_nothing_to_record() -> None:
    """Lists of models and the like are in no conversation."""
    watch = Watch()
    watch.ask(user("x"), reply=say("x"), wire="")
    assert watch.close() == WatchFigures()
