"""Redaction: secrets never reach the log, the log still replays, and the model sees the real values."""

from __future__ import annotations

from typing import Any

import agents
import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine.log.redaction import MARK_PATTERN, PATTERNS, Redactor
from toolchart.engine.log.replay import read_chain, replay
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_conversation
from toolchart.engine.runtime.performers import EffectPerformer
from toolchart.specs.secrets import hide_secrets
from toolchart.states.effects import Effect, compute_effect_digest
from toolchart.states.errors import SpecError

RULES = {"keys": ["password", "*token*"], "patterns": ["email", "card", "/ID-\\d+/"]}

SECRETS = ["hunter2secret", "tok-99-zebra", "ada@example.org", "4111 1111 1111 1111", "ID-7781"]


def make_script() -> list[Any]:
    """Scripted replies that contain every secret, some of them twice and in prose."""
    return [
        agents.reply_with_calls(
            ("echo", {"text": "hunter2secret"}),
            ("login", {"user": "ada@example.org", "password": "hunter2secret"}),
        ),
        agents.reply_with_calls(("login", '{"user": "x", "API_Token": "tok-99-zebra", "n": 1}')),
        "Your password hunter2secret and tok-99-zebra are known; mail ada@example.org about ID-7781.",
    ]


LOGIN = agents.make_function_tool(
    "login",
    {
        "type": "object",
        "properties": {"user": {"type": "string"}, "password": {}, "API_Token": {}, "n": {}},
        "required": ["user"],
    },
    lambda arguments: {"session": arguments, "auth_token": "tok-99-zebra", "card": "4111 1111 1111 1111"},
)


def run_conversation(**more: Any) -> tuple[Any, MemoryStore, Any]:
    """Run the scripted conversation; return engine, store and result."""
    store = MemoryStore()
    engine = agents.make_engine(make_script(), log=store, functions=[LOGIN], redact=RULES, **more)
    return engine, store, engine.run("I am ada@example.org, ID-7781", conversation="c")


def test_no_secret_reaches_the_log() -> None:
    """No secret is in the log: not in calls, argument texts, results, prose or user messages."""
    engine, store, result = run_conversation()
    text = b"\n".join(store.read_lines("c")).decode()
    records = text[text.index("turn_started") :]
    assert [secret for secret in SECRETS if secret in records] == []
    assert MARK_PATTERN.search(records)
    assert "hunter2secret" in result.content
    sent_messages = engine.hosts.providers["model"].requests[-1].messages
    assert any("4111 1111 1111 1111" in (message.content or "") for message in sent_messages)


def test_a_redacted_log_verifies_and_replays() -> None:
    """A redacted log verifies, and every step and request is derived again from it."""
    _, store, _ = run_conversation()
    assert verify_conversation(store.read_lines("c"), "c").records == 12
    assert len(list(replay(store.read_lines("c"), "c"))) == 12


def test_what_was_performed_is_covered_by_a_keyed_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest of an ask is that of the redacted effect. Where another one was performed, an HMAC of its
    digest stands beside it, for tools as for models; where none does, just this one was performed."""
    performed: dict[int, Effect] = {}
    perform = EffectPerformer.perform

    async def note_effect(performer: EffectPerformer, effect: Effect) -> None:
        performed[effect.id] = effect
        await perform(performer, effect)

    monkeypatch.setattr(EffectPerformer, "perform", note_effect)
    engine, store, _ = run_conversation()
    redactor = engine._conversations._redactor
    asks = [ask for record in read_chain(store.read_lines("c"), "c") for ask in record.asks]
    open_asks = [ask for ask in asks if ask.id in performed]
    for ask in open_asks:
        digest = compute_effect_digest(performed[ask.id])
        assert ask.sent == (redactor.sign_digest(digest) if ask.digest != digest else "")
    assert {ask.effect for ask in open_asks if ask.sent} == {"call_model", "review_calls", "run_tools"}


def test_a_redacted_conversation_continues() -> None:
    """A further turn, in this process or after a restart, works, and the log replays."""
    engine, store, _ = run_conversation()
    engine.hosts.providers["model"]._replies.append("more")
    engine.run("and?", conversation="c")
    other = agents.make_engine(["later"], log=store, functions=[LOGIN], redact=RULES)
    assert other.run("later?", conversation="c").content == "later"
    assert len(list(replay(store.read_lines("c"), "c")))
    assert b"hunter2secret" not in b"".join(list(store.read_lines("c"))[1:])


def test_equal_secrets_stay_equal() -> None:
    """Equal secrets have equal marks and different ones different marks, so repeated calls are counted."""
    same = agents.reply_with_calls(("login", {"user": "a", "password": "one-secret"}))
    other = agents.reply_with_calls(("login", {"user": "a", "password": "two-secret"}))
    store = MemoryStore()
    engine = agents.make_engine([same, same, other, "done"], log=store, functions=[LOGIN], redact=RULES)
    engine.run("go", conversation="c")
    repeats = [call.repeat for call in engine._conversations._resting.take("c").snapshot.tracked_calls]
    replayed_snapshot = list(replay(store.read_lines("c"), "c"))[-1].step.snapshot
    assert repeats == [call.repeat for call in replayed_snapshot.tracked_calls] == [1, 2, 1]


@settings(max_examples=choose_count(short=50, long=200), deadline=None)
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
def test_redacting_twice_changes_nothing(value: Any) -> None:
    """Redacting a redacted event changes nothing, so a replay of the log is not redacted again."""
    redactor = Redactor(**RULES)
    data = {
        "type": "tool_finished",
        "call_id": "c",
        "outcome": "succeeded",
        "result": {"success": True, "result": value, "tool_name": "t"},
    }
    redacted_event = redactor.redact_event(data)
    assert redactor.redact_event(redacted_event) == redacted_event
    assert Redactor(**RULES).redact_event(redacted_event) == redacted_event


def test_only_secrets_change_in_a_text_of_json() -> None:
    """Long numbers, the order of keys and non-ASCII letters in a JSON text stay as the model wrote them."""
    raw = '{"to": "Zoë", "id": 123456789012345678901234567890, "password": "hunter2secret", "at": 1.50}'
    call = {"id": "c", "name": "t", "arguments": None, "raw": raw, "problem": None}
    event = {"type": "model_replied", "reply": {"content": None, "tool_calls": [call]}}
    run_conversation = Redactor(**RULES).redact_event(event)["reply"]["tool_calls"][0]["raw"]
    assert MARK_PATTERN.sub("*", run_conversation) == (
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
def test_each_named_pattern_matches_its_kind(name: str, text: str) -> None:
    """Each named pattern removes its kind of secret from a sentence and leaves the rest."""
    event = {"type": "turn_started", "message": f"so {text} it is"}
    run_conversation = Redactor(patterns=[name]).redact_event(event)["message"]
    assert MARK_PATTERN.sub("*", run_conversation) == "so * it is"
    assert name in PATTERNS


@pytest.mark.parametrize(
    ("pattern", "words"), [("mail", "did you mean 'email'"), ("/(/", "no regular"), ("/x*/", "empty text")]
)
def test_an_invalid_pattern_is_refused(pattern: str, words: str) -> None:
    """An unknown name, a broken expression, or one that matches the empty text gives a clear error."""
    with pytest.raises(SpecError, match=words):
        Redactor(patterns=[pattern])


# -- what stands in texts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"password": "hunter22", "x": 1',
        "{'password': 'hunter22'}",
        'the tool said {"a": {"password": "hunter22"}} twice',
        'twice encoded: "{\\"password\\": \\"hunter22\\"}"',
        "https://example.org/?user=a&password=hunter22&b=1",
        "export PASSWORD=hunter22",
        "password: hunter22",
        '{"password":"hunter22',
        '{"note": "password = hunter22"}',
    ],
)
def test_values_behind_secret_keys_are_struck_in_texts(text: str) -> None:
    """A value behind a secret key is replaced in JSON inside a text, broken JSON, queries and settings."""
    redactor = Redactor(keys=["password"])
    event = {"type": "user_said", "message": text}
    redacted = redactor.redact_event(event)["message"]
    assert "hunter22" not in redacted
    assert MARK_PATTERN.search(redacted)
    assert redactor.redact_event({"type": "user_said", "message": redacted})["message"] == redacted


def test_arguments_that_were_not_parsed_are_struck() -> None:
    """The raw text of arguments that are no JSON is searched for keys too."""
    call = {"id": "a", "name": "f", "raw": "{'password': 'hunter22'", "problem": "not JSON"}
    event = {"type": "replied", "reply": {"finish_reason": "tool_calls", "tool_calls": [call]}}
    assert "hunter22" not in str(Redactor(keys=["password"]).redact_event(event))


def test_keys_of_results_are_struck() -> None:
    """A key of a result that matches a pattern is replaced; two keys stay two."""
    content = {"success": True, "tool_name": "f", "result": {"a@example.org": 1, "b@example.org": 2}}
    event = {"type": "tool_finished", "call_id": "a", "outcome": "succeeded", "result": content}
    redacted = Redactor(patterns=["email"]).redact_event(event)["result"]["result"]
    assert len(redacted) == 2
    assert "example" not in str(redacted)


def test_texts_without_secret_keys_stay() -> None:
    """Other names and values stay as they are, however often they occur."""
    text = "a: 1, passwords are hard; b=2 \"c\": {'d': 3} " * 50
    event = {"type": "user_said", "message": text}
    assert Redactor(keys=["password"]).redact_event(event)["message"] == text


def test_the_recorded_spec_hides_env_headers_and_queries() -> None:
    """Secrets in URL queries are hidden always, those that `redact.keys` names in `env` and headers too."""
    document = {
        "env": {"ACCOUNT_NUMBER": "123", "HOME": "/x", "API_KEY": "k"},
        "headers": {"X-Account-Number": "123", "Accept": "text"},
        "url": "https://example.org/a?token=abc&page=2&account=9#x",
        "query": "${KEY}",
    }
    hidden = hide_secrets(document, globs=["*account*"])
    assert hidden["env"] == {"ACCOUNT_NUMBER": "(secret)", "HOME": "/x", "API_KEY": "(secret)"}
    assert hidden["headers"] == {"X-Account-Number": "(secret)", "Accept": "text"}
    assert hidden["url"] == "https://example.org/a?token=(secret)&page=2&account=(secret)#x"
    assert hide_secrets(document)["url"] == "https://example.org/a?token=(secret)&page=2&account=9#x"
