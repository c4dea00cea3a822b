"""Redaction: secrets never reach the log, the log still derives again, and the model saw the truth."""

from __future__ import annotations

from typing import Any

import agents
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine.log.redaction import MARK, PATTERNS, Redactor
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_lines
from toolchart.states.errors import SpecError

RULES = {"keys": ["password", "*token*"], "patterns": ["email", "card", "/ID-\\d+/"]}

SECRETS = ["hunter2secret", "tok-99-zebra", "ada@example.org", "4111 1111 1111 1111", "ID-7781"]


def script() -> list[Any]:
    """A conversation in which every secret comes by, some of them twice and in prose."""
    return [
        agents.calls(
            ("echo", {"text": "hunter2secret"}),
            ("login", {"user": "ada@example.org", "password": "hunter2secret"}),
        ),
        agents.calls(("login", '{"user": "x", "API_Token": "tok-99-zebra", "n": 1}')),
        "Your password hunter2secret and tok-99-zebra are known; mail ada@example.org about ID-7781.",
    ]


LOGIN = agents.fixed_tool(
    "login",
    {"type": "object", "properties": {"user": {"type": "string"}}, "required": ["user"]},
    lambda given: {"session": given, "auth_token": "tok-99-zebra", "card": "4111 1111 1111 1111"},
)


def told(**more: Any) -> tuple[Any, MemoryStore, Any]:
    """The engine, the log and the result of the conversation above."""
    store = MemoryStore()
    engine = agents.engine(script(), log=store, functions=[LOGIN], redact=RULES, **more)
    return engine, store, engine.run("I am ada@example.org, ID-7781", conversation="c")


def test_no_secret_reaches_the_log() -> None:
    """By key and by pattern, in calls, argument texts, results, prose and the user's words."""
    engine, store, result = told()
    text = b"\n".join(store.read("c")).decode()
    records = text[text.index("turn_started") :]
    assert [secret for secret in SECRETS if secret in records] == []
    assert MARK.search(records)
    assert "hunter2secret" in result.content
    seen = engine.hosts.made["model"].requests[-1].messages
    assert any("4111 1111 1111 1111" in (message.content or "") for message in seen)


def test_a_redacted_log_verifies_and_derives_again() -> None:
    """The chain holds and every step and request re-derives from what was written."""
    _, store, _ = told()
    assert verify_lines(store.read("c"), "c").records == 10
    assert len(list(replay(store.read("c"), "c"))) == 10


def test_a_redacted_conversation_goes_on() -> None:
    """A further turn, in this process or after a restart, stands on what is there, and replays."""
    engine, store, _ = told()
    engine.hosts.made["model"]._replies.append("more")
    engine.run("and?", conversation="c")
    other = agents.engine(["later"], log=store, functions=[LOGIN], redact=RULES)
    assert other.run("later?", conversation="c").content == "later"
    assert len(list(replay(store.read("c"), "c")))
    assert b"hunter2secret" not in b"".join(list(store.read("c"))[1:])


def test_equal_secrets_stay_equal() -> None:
    """A mark tells secrets apart, so that a call that is repeated is still seen to be."""
    same = agents.calls(("login", {"user": "a", "password": "one-secret"}))
    other = agents.calls(("login", {"user": "a", "password": "two-secret"}))
    store = MemoryStore()
    engine = agents.engine([same, same, other, "done"], log=store, functions=[LOGIN], redact=RULES)
    engine.run("go", conversation="c")
    repeats = [call.repeat for call in engine._conversations._at_hand["c"].snapshot.tracked]
    replayed = list(replay(store.read("c"), "c"))[-1].step.snapshot
    assert repeats == [call.repeat for call in replayed.tracked] == [1, 2, 1]


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.sampled_from(["ada@example.org", "ID-1", "[redacted:0123abcd]", "x[redacted:ID-2]"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "password", "b"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_what_is_redacted_stays_as_it_is(value: Any) -> None:
    """Redacting twice is redacting once: what a replay reads is what was written."""
    redactor = Redactor(**RULES)
    data = {
        "type": "tool_finished",
        "call_id": "c",
        "outcome": "succeeded",
        "result": {"success": True, "result": value, "tool_name": "t"},
    }
    once = redactor.event(data)
    assert redactor.event(once) == once
    assert Redactor(**RULES).event(once) == once


def test_only_secrets_change_in_a_text_of_json() -> None:
    """A long number, the order of keys and another alphabet stay as the model wrote them."""
    raw = '{"to": "Zoë", "id": 123456789012345678901234567890, "password": "hunter2secret", "at": 1.50}'
    call = {"id": "c", "name": "t", "arguments": None, "raw": raw, "problem": None}
    event = {"type": "model_replied", "reply": {"content": None, "tool_calls": [call]}}
    told = Redactor(**RULES).event(event)["reply"]["tool_calls"][0]["raw"]
    assert MARK.sub("*", told) == (
        '{"to": "Zoë", "id": 123456789012345678901234567890, "password": "*", "at": 1.5}'
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("email", "a.b+c@x-y.org"),
        ("phone", "+420 603 123 456"),
        ("card", "4111-1111-1111-1111"),
        ("iban", "DE89 3704 0044 0532 0130 00"),
        ("ipv4", "10.0.0.12"),
        ("token", "sk-abcdefghijklmnop1234"),
        ("token", "eyJhbGciOiJI.eyJzdWIiOiIx.abc"),
    ],
)
def test_known_patterns_find_what_they_are_for(name: str, text: str) -> None:
    """Each named pattern takes its kind out of a sentence and leaves the rest."""
    event = {"type": "turn_started", "message": f"so {text} it is"}
    told = Redactor(patterns=[name]).event(event)["message"]
    assert MARK.sub("*", told) == "so * it is"
    assert name in PATTERNS


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("mail", "did you mean 'email'"), ("/(/", "no regular"), ("/x*/", "empty text")],
)
def test_a_pattern_that_cannot_be_is_refused(pattern: str, words: str) -> None:
    """An unknown name, a broken expression, or one that finds everything: a clear error."""
    with pytest.raises(SpecError, match=words):
        Redactor(patterns=[pattern])
