"""Whatever a host once sent, and whatever a history holds, the next request is one that its host takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import is_
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.providers.registry import create_body_builder
from toolchart.providers.shared.host_rows import find_message_form, find_row
from toolchart.providers.shared.sent_messages import EMPTY_TEXT, NO_RESULT, fit_messages
from toolchart.providers.transport.raw_answers import AnswerCapture
from toolchart.specs.models import LLMConfig
from toolchart.states.message_list import MessageList, RequestMessages
from toolchart.states.messages import Message, Request, ToolCall, ToolDefinition
from toolchart.testing.emulators.checks import check_request, read_view

TOOLS = (ToolDefinition(name="look_up", description="Looks up."),)

ENTRIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "chat": ("chat", "", {"provider": "openai", "base_url": "http://127.0.0.1:1/v1"}),
    "openai": ("chat", "openai", {"provider": "openai", "api": "chat", "model": "gpt-4.1"}),
    "vllm": (
        "chat",
        "vllm",
        {"provider": "openai", "host_profile": "vllm", "base_url": "http://127.0.0.1:1"},
    ),
    "llamacpp": (
        *("chat", "llamacpp"),
        {"provider": "openai", "host_profile": "llamacpp", "base_url": "http://127.0.0.1:1"},
    ),
    "mistral": ("chat", "mistral", {"provider": "openai", "base_url": "https://api.mistral.ai/v1"}),
    "responses": ("responses", "openai", {"provider": "openai", "api": "responses", "model": "gpt-4.1"}),
    "messages": ("messages", "anthropic", {"provider": "anthropic"}),
    "gemini": ("gemini", "gemini", {"provider": "gemini", "model": "gemini-3-pro"}),
    "ollama": ("ollama", "ollama", {"provider": "ollama"}),
    "converse": ("converse", "bedrock", {"provider": "bedrock", "region": "eu-central-1"}),
}
"""By name: wire format, word of the row, and an `llms` entry."""


def build_body(name: str, messages: list[Message], **keys: Any) -> tuple[dict[str, Any], list[str]]:
    """The body of a request at a host, and the kinds of changes that its record names."""
    entry = {"model": "m", "api_key": "k", **ENTRIES[name][2]}
    builder: Any = create_body_builder(LLMConfig.model_validate(entry), resolve=str)
    request = Request(model=entry["model"], messages=messages, tools=TOOLS, **keys)
    with AnswerCapture() as capture:
        body = builder.build_body(request, stream=False)
    return json.loads(json.dumps(body)), [
        one.reason for one in capture.adaptations if one.field == "/messages"
    ]


def find_refusals(name: str, body: dict[str, Any]) -> list[str]:
    """What the host of an entry refuses of a body, also where somebody only said so."""
    wire, row, _ = ENTRIES[name]
    refusals = check_request(find_row(row), read_view(wire, body))  # type: ignore[arg-type]
    return [refusal.message for refusal in refusals if refusal.is_certain or refusal.param != "tools"]


QUESTION = Message(role="user", content="Where?")
NEXT = Message(role="user", content="And now?")


def make_reply(*calls: ToolCall, content: str | None = None, **keys: Any) -> Message:
    """A reply of a model."""
    return Message(role="assistant", content=content, tool_calls=calls, **keys)


def make_call(call_id: str = "c1", name: str = "look_up", **keys: Any) -> ToolCall:
    """A call; without `raw` it has no arguments."""
    return ToolCall(id=call_id, name=name, **(keys or {"arguments": {}}))


def make_result(call_id: str | None = "c1", name: str | None = "look_up", content: str = "found") -> Message:
    """A result of a tool."""
    return Message(role="tool", tool_call_id=call_id, name=name, content=content)


def make_broken(raw: str) -> ToolCall:
    """A call whose arguments could not be read."""
    return make_call(raw=raw, problem="no JSON")


PAIR = (make_reply(make_call()), make_result())

HISTORIES: dict[str, tuple[tuple[Message, ...], str, tuple[str, ...]]] = {
    "arguments that are cut": (
        (make_reply(make_broken('{"a": "Br')), make_result(), NEXT),
        "as one",
        ('{"a": "Br',),
    ),
    "arguments that are a list": ((make_reply(make_broken('["Brno"]')), make_result()), "as one", ("Brno",)),
    "arguments that are words": ((make_reply(make_broken("Brno")), make_result()), "as one", ("Brno",)),
    "arguments with half a character": (
        (make_reply(make_broken('{"a": "\\ud800"')), make_result()),
        *("as one", ("ud800",)),
    ),
    "arguments encoded twice": (
        (make_reply(make_call(raw='"{\\"a\\": 1}"', arguments={"a": 1})), make_result()),
        *("as one", ()),
    ),
    "arguments `null`": ((make_reply(make_call(raw="null", arguments={})), make_result()), "as one", ()),
    "no arguments": ((make_reply(make_call(raw="", arguments={})), make_result()), "", ()),
    "an empty name": ((make_reply(make_call(name="")), make_result(name="")), "names of calls", ()),
    "a name with a space and an accent": (
        (make_reply(make_call(name="jít dál")), make_result(name="jít dál"), NEXT),
        *("names of calls", ()),
    ),
    "names that would become one": (
        (
            make_reply(make_call("c1", "a b"), make_call("c2", "a/b"), make_call("c3", "look up")),
            *(make_result("c1", "a b"), make_result("c2", "a/b"), make_result("c3", "look up")),
        ),
        *("names of calls", ()),
    ),
    "a long name": (
        (make_reply(make_call(name="n" * 300)), make_result(name="n" * 300)),
        "names of calls",
        (),
    ),
    "an empty id": ((make_reply(make_call("")), make_result("")), "id of its own", ("found",)),
    "an id that two calls of a reply have": (
        (make_reply(make_call(), make_call()), make_result(content="one"), make_result(content="two")),
        *("id of its own", ("one", "two")),
    ),
    "an id that two replies have": (
        (*PAIR, make_reply(make_call()), make_result(content="two")),
        *("id of its own", ("found", "two")),
    ),
    "a call without a result": ((make_reply(make_call()), NEXT), "without a result", (NO_RESULT, "And now?")),
    "a call at the end": ((make_reply(make_call()),), "without a result", (NO_RESULT,)),
    "one of two calls without a result": (
        (make_reply(make_call("c1"), make_call("c2")), make_result("c2"), NEXT),
        *("without a result", (NO_RESULT, "found")),
    ),
    "a result without a call": ((make_result("c9"), NEXT), "no open call", ("found",)),
    "a result without an id": ((*PAIR, make_result(None, None, "lost"), NEXT), "no open call", ("lost",)),
    "two results of one call": (
        (*PAIR, make_result(content="again"), NEXT),
        "no open call",
        ("found", "again"),
    ),
    "a result before its call": (
        (make_result(content="early"), make_reply(make_call())),
        "no open",
        ("early",),
    ),
    "a user between call and result": (
        (make_reply(make_call()), NEXT, make_result()),
        "right after",
        ("found",),
    ),
    "a reply between call and result": (
        (make_reply(make_call()), make_reply(content="Wait."), make_result(), NEXT),
        *("right after", ("found", "Wait.")),
    ),
    "results in another order": (
        (make_reply(make_call("c1"), make_call("c2")), make_result("c2"), make_result("c1"), NEXT),
        *("", ()),
    ),
    "a result without a name": ((make_reply(make_call()), make_result(name=None)), "", ("found",)),
    "an empty reply after a result": ((*PAIR, make_reply(content=""), NEXT), "", ("And now?",)),
    "an empty reply": ((make_reply(), NEXT), "", ("And now?",)),
    "an empty reply at the end": ((*PAIR, make_reply(content="")), "empty reply at the end", ("found",)),
    "nothing wrong": ((*PAIR, make_reply(content="Here."), NEXT), "", ("found", "Here.")),
}
"""By what is odd: the messages after a question, a part of what the record says, and texts that go out."""


@pytest.mark.parametrize("host", ENTRIES)
@pytest.mark.parametrize("case", HISTORIES)
def test_a_host_takes_what_goes_back(case: str, host: str) -> None:
    """At every wire and host the request has valid names, arguments, ids, and pairs of calls and
    results, whatever the conversation holds; nothing of it is lost, and the record says what was changed."""
    messages, said, texts = HISTORIES[case]
    body, changes = build_body(host, [QUESTION, *messages])
    assert find_refusals(host, body) == []
    if said:
        assert any(said in change for change in changes), changes
    else:
        assert changes == [] or host == "mistral", changes
    data = json.dumps(body, ensure_ascii=False).replace("\\", "")
    assert all(text.replace("\\", "") in data for text in texts)
    assert build_body(host, [QUESTION, *messages])[0] == body
    longer, _ = build_body(host, [QUESTION, *messages, make_reply(content="Yes."), NEXT])
    assert find_refusals(host, longer) == []


def test_broken_arguments_have_one_spelling_on_every_wire() -> None:
    """The text of arguments that are no JSON object stands under `unreadable` at every host."""
    for host in ENTRIES:
        body, _ = build_body(host, [QUESTION, make_reply(make_broken("Brno")), make_result(), NEXT])
        view = read_view(ENTRIES[host][0], body)  # type: ignore[arg-type]
        [arguments] = [one for entry in view.entries for one in entry.arguments]
        assert (json.loads(arguments) if isinstance(arguments, str) else arguments) == {"unreadable": "Brno"}


def test_names_of_offered_tools_stay() -> None:
    """A tool with a name of an unusual form is called by that name, as long as it is offered."""
    tools = (ToolDefinition(name="docs.search", description="Searches."),)
    reply, result = make_reply(make_call(name="docs.search")), make_result(name="docs.search")
    form = find_message_form("chat", "", "m")
    for offered, name in ((tools, "docs.search"), ((), "docs_search")):
        request = Request(model="m", messages=[QUESTION, reply, result], tools=offered)
        sent, _ = fit_messages(request, form)
        assert [message.tool_calls[0].name for message in sent.messages if message.tool_calls] == [name]
        assert [message.name for message in sent.messages if message.role == "tool"] == [name]


def test_messages_that_are_good_are_the_same_objects() -> None:
    """A conversation that its host takes goes out as it is: no message is made anew, and what was made of an
    odd one is made once."""
    good = [QUESTION, *PAIR, make_reply(content="Here."), NEXT]
    odd = [QUESTION, make_reply(make_broken("Brno")), make_result(), *PAIR, NEXT]
    for host, (wire, row, _) in ENTRIES.items():
        form = find_message_form(wire, row, "m")  # type: ignore[arg-type]
        sent, changes = fit_messages(Request(model="m", messages=good), form)
        if host != "mistral":  # its ids have another form
            assert all(map(is_, good, sent.messages))
            assert changes == ()
        first, _ = fit_messages(Request(model="m", messages=odd), form)
        again, _ = fit_messages(Request(model="m", messages=odd), form)
        assert all(map(is_, first.messages, again.messages))


@given(st.lists(st.sampled_from(sorted(HISTORIES)), max_size=4), st.sampled_from(sorted(ENTRIES)), st.data())
def test_a_conversation_that_grows_is_fitted_as_a_whole(cases: list[str], host: str, data: Any) -> None:
    """What is known of the beginning of a conversation changes nothing: each longer list, and each shorter
    one, which a fork goes on from, goes out as if it were new."""
    wire, row, _ = ENTRIES[host]
    form = find_message_form(wire, row, "m")  # type: ignore[arg-type]
    messages = [message for case in cases for message in (QUESTION, *HISTORIES[case][0])]
    lists = [MessageList()]
    for message in messages:
        lists.append(lists[-1].append(message))
    odd_tools = (*TOOLS, ToolDefinition(name="a b", description="Has an odd name."))
    for conversation in data.draw(st.lists(st.sampled_from(lists), max_size=8)):
        tools = data.draw(st.sampled_from([TOOLS, odd_tools, ()]))
        grown = RequestMessages("p", conversation)
        plain = [Message(role="system", content="p"), *conversation]
        sent, changes = fit_messages(Request(model="m", messages=grown, tools=tools), form)
        again, same_changes = fit_messages(Request(model="m", messages=plain, tools=tools), form)
        assert ([*sent.messages], changes) == ([*again.messages], same_changes)


def test_an_empty_reply_keeps_its_place_where_it_is_refused() -> None:
    """Mistral refuses an assistant message with neither text nor calls, so words stand in its place,
    and messages of the user and of the assistant still alternate."""
    for content in ("", None):
        body, [change] = build_body("mistral", [QUESTION, make_reply(content=content), NEXT])
        assert [message["content"] for message in body["messages"]] == ["Where?", EMPTY_TEXT, "And now?"]
        assert "empty reply" in change


OWN_DATA: dict[str, dict[str, Any]] = {
    "responses": {
        "provider": "openai",
        "output": [
            {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "c1", "name": "a b", "arguments": "Brno"},
        ],
    },
    "messages": {
        "provider": "anthropic",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": " "},
            {"type": "tool_use", "id": "c1", "name": "a b", "input": "Brno"},
        ],
    },
    "gemini": {
        "provider": "gemini",
        "content": {
            "role": "model",
            "parts": [
                {"text": ""},
                {"functionCall": {"name": "a b", "args": "Brno"}, "thoughtSignature": "s"},
            ],
        },
    },
    "converse": {
        "provider": "bedrock",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
            {"text": ""},
            {"toolUse": {"toolUseId": "c1", "name": "a b", "input": "Brno"}},
        ],
    },
}
"""What hosts sent of a reply, with a call."""


def test_what_a_host_itself_sent_goes_back_valid() -> None:
    """Blocks, parts and items that go back as the host sent them have the names, arguments and ids
    that go out; what the host would refuse of them is left out."""
    call = make_call("c1", "a b", raw="Brno", problem="no JSON")
    kept = {
        "responses": "encrypted_content",
        "messages": "signature",
        "gemini": '"s"',
        "converse": "signature",
    }
    for host, data in OWN_DATA.items():
        reply = make_reply(call, provider_data=data)
        body, changes = build_body(host, [QUESTION, reply, make_result(name="a b"), NEXT])
        assert find_refusals(host, body) == [], host
        assert kept[host] in json.dumps(body)
        assert len(changes) == 2
        empty = {key: [{"type": "reasoning", "id": "rs", "summary": []}] for key in ("output", "content")}
        body, _ = build_body(host, [QUESTION, make_reply(provider_data={**data, **empty}), NEXT])
        assert find_refusals(host, body) == [], host


def put_nulls(value: Any) -> Iterator[Any]:
    """The value with null in the place of one of its texts and lists, once for each."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in entries:
        if key in ("type", "provider", "role", "call_id") or (
            isinstance(value, list) and not isinstance(item, dict)
        ):
            continue
        for changed in (*([None] if isinstance(value, dict) else []), *put_nulls(item)):
            copy: Any = list(value) if isinstance(value, list) else dict(value)
            copy[key] = changed
            yield copy


def test_null_never_goes_back() -> None:
    """Hosts send null in the place of a text or a list that is not there, and refuse it when it comes back:
    it is left out, or an empty text, so that a conversation goes on."""
    call = make_call("c1", "a b", arguments={"city": None})
    count = 0
    for host, data in OWN_DATA.items():
        more = {
            "responses": {
                "type": "reasoning",
                "id": "r2",
                "summary": [{"type": "summary_text", "text": "Hm."}],
            },
            "messages": {"type": "redacted_thinking", "data": "x"},
            "gemini": {"text": "Hm.", "thoughtSignature": "s"},
            "converse": {"reasoningContent": {"redactedContent": "x"}},
        }[host]
        kept = json.loads(json.dumps(data))
        blocks = kept.get("output") or kept["content"]
        (blocks if isinstance(blocks, list) else blocks["parts"]).insert(0, more)
        for nulls in put_nulls(kept):
            reply = make_reply(call, provider_data=nulls)
            body, _ = build_body(host, [QUESTION, reply, make_result(name="a b"), NEXT])
            assert find_refusals(host, body) == [], (host, nulls)
            has_arguments = '"args": null' not in json.dumps(nulls)
            assert not has_arguments or "city" in json.dumps(body), (host, nulls)
            count += 1
    assert count > 20
