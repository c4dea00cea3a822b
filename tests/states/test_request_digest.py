"""The digest of a request: a function of what the request says, and of nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolchart.states import message_list
from toolchart.states.content import ImagePart, TextPart
from toolchart.states.message_list import (
    MessageList,
    OfferedTools,
    PersistentList,
    RequestMessages,
    StoredMessages,
    compute_request_digest,
    estimate_message,
)
from toolchart.states.messages import Message, Request, ToolCall, ToolDefinition

ARGUMENTS: dict[str, Any] = {"place": "Bonn", "n": 1, "deep": {"list": [1, 2.5, None, True]}}
CALL = ToolCall(id="a", name="look_up", arguments=ARGUMENTS, raw='{"n":1}', problem="no", native_id="x")
MESSAGES = [
    Message(role="user", content="Where?"),
    Message(role="assistant", content=None, tool_calls=(CALL,), provider_data={"provider": "p", "data": 1}),
    Message(role="tool", content="{}", tool_call_id="a", name="look_up"),
]
TOOLS = (
    ToolDefinition(name="look_up", description="Look it up."),
    ToolDefinition(name="note", description="Note it.", parameters={"type": "object", "required": ["a"]}),
)
REQUEST = Request(
    model="m",
    messages=[Message(role="system", content="Be brief."), *MESSAGES],
    tools=TOOLS,
    options={"temperature": 0.5, "max_tokens": 9, "response_format": {"type": "json"}},
)


def build_in_every_way() -> list[Request]:
    """The same request from a list, a tuple, the core's lists, and a list that is loaded from a store."""
    appended = MessageList()
    for message in MESSAGES:
        appended = appended.append(message)
    half = MessageList(MESSAGES[:2])
    head = StoredMessages(2, lambda: MESSAGES[:2])
    stored = MessageList.from_store(head, half.digest).append(MESSAGES[2])
    lists = [MessageList(MESSAGES), appended, stored]
    return [
        REQUEST,
        replace(REQUEST, messages=tuple(REQUEST.messages)),
        replace(REQUEST, messages=MessageList(REQUEST.messages)),
        *(replace(REQUEST, messages=RequestMessages("Be brief.", messages)) for messages in lists),
        replace(REQUEST, tools=OfferedTools(TOOLS)),
        replace(REQUEST, options=dict(reversed(list(REQUEST.options.items())))),
        msgspec.json.decode(
            msgspec.json.encode(REQUEST), type=msgspec.defstruct("R", []) and PlainRequest
        ).build(),
    ]


class PlainRequest(msgspec.Struct):
    """A request as JSON holds it."""

    model: str
    messages: list[Message]
    tools: tuple[ToolDefinition, ...]
    options: dict[str, Any]

    def build(self) -> Request:
        """The request."""
        return Request(model=self.model, messages=self.messages, tools=self.tools, options=self.options)


def test_the_way_in_which_messages_were_built_does_not_matter() -> None:
    """Equal requests have one digest, whatever lists hold their messages and tools."""
    assert {compute_request_digest(request) for request in build_in_every_way()} == {
        compute_request_digest(REQUEST)
    }
    assert len(compute_request_digest(REQUEST)) == 32


def test_requests_that_say_the_same_are_equal() -> None:
    """The messages of two requests are compared by content."""
    first, second = (RequestMessages("Be brief.", MessageList(MESSAGES)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != RequestMessages(None, MessageList(MESSAGES))
    assert first != RequestMessages("Be brief.", MessageList(MESSAGES[:2]))
    assert first != list(first)
    assert list(first) == list(REQUEST.messages)
    assert [first[index] for index in range(-4, 4)] == [*REQUEST.messages, *REQUEST.messages]
    for index in (4, -5):
        with pytest.raises(IndexError):
            first[index]


# -- every single change -------------------------------------------------------------------------


def change_value(value: Any) -> list[Any]:
    """Other values near this one."""
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1, -value - 1]
        case str():
            return [value + " ", value[1:], value.upper() + "x", value + "\u00e9"]
        case None:
            return ["", "x"]
        case dict():
            return [
                {**value, "new": None},
                *({k: v for k, v in value.items() if k != key} for key in value),
                *({**value, key: other} for key in value for other in change_value(value[key])),
            ]
        case list():
            return [
                [*value, None],
                value[1:],
                value[::-1],
                *(
                    [*value[:i], other, *value[i + 1 :]]
                    for i, item in enumerate(value)
                    for other in change_value(item)
                ),
            ]
        case _:
            return []


def change_struct(value: Any, skipped: tuple[str, ...] = ()) -> list[Any]:
    """The struct with one field changed, once for each field and change."""
    fields = [field.name for field in msgspec.structs.fields(value) if field.name not in skipped]
    return [
        replace(value, **{name: other})
        for name in fields
        for other in change_value(getattr(value, name))
        if other != getattr(value, name)
    ]


def list_changes() -> list[Request]:
    """The request with a single change of a call, a message, a tool, an option or the order of things."""
    messages: list[Message] = list(REQUEST.messages)
    changed: list[Request] = change_struct(
        replace(REQUEST, messages=()), ("messages", "turn", "iteration", "tools")
    )
    requests = [replace(request, messages=messages) for request in changed]
    for index, message in enumerate(messages):
        others = change_struct(message, ("role", "tool_calls"))
        others += [
            replace(message, role=role) for role in ("user", "assistant", "tool") if role != message.role
        ]
        others += [replace(message, tool_calls=(call,)) for call in change_struct(CALL)]
        others += [replace(message, tool_calls=(*message.tool_calls, replace(CALL, id="b")))]
        requests += [
            replace(REQUEST, messages=[*messages[:index], other, *messages[index + 1 :]])
            for other in others
            if other != message
        ]
        requests.append(replace(REQUEST, messages=[*messages[:index], *messages[index + 1 :]]))
        requests.append(replace(REQUEST, messages=[*messages[: index + 1], *messages[index:]]))
    requests.append(replace(REQUEST, messages=messages[::-1]))
    for index, tool in enumerate(TOOLS):
        others_of_tool = [*change_struct(tool)]
        requests += [replace(REQUEST, tools=(*TOOLS[:index], t, *TOOLS[index + 1 :])) for t in others_of_tool]
        requests.append(replace(REQUEST, tools=(*TOOLS[:index], *TOOLS[index + 1 :])))
    requests.append(replace(REQUEST, tools=TOOLS[::-1]))
    return requests


def test_every_single_change_is_seen() -> None:
    """A change of any field of any message, call, tool or option gives another digest."""
    changes = list_changes()
    assert len(changes) > 250
    digest = compute_request_digest(REQUEST)
    unseen = [change for change in changes if compute_request_digest(change) == digest]
    assert unseen == []
    by_core = [
        replace(
            change, messages=RequestMessages(change.messages[0].content, MessageList(change.messages[1:]))
        )
        for change in changes
        if change.messages
        and change.messages[0] == Message(role="system", content=change.messages[0].content)
    ]
    assert all(compute_request_digest(change) != digest for change in by_core)


texts = st.text(max_size=4) | st.sampled_from(["\ud800", "\x00", "\u2028"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
calls = st.builds(
    ToolCall,
    id=texts,
    name=texts,
    arguments=st.none() | st.dictionaries(texts, json_values, max_size=2),
    raw=st.none() | texts,
)
messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool"]),
    content=st.none() | texts,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
)


@given(st.lists(messages, max_size=3), st.lists(messages, max_size=3))
def test_digests_are_equal_exactly_where_requests_are(first: list[Message], second: list[Message]) -> None:
    """Any texts and arguments, with lone surrogates and great integers, as plain lists and as the core's."""
    digests = [
        compute_request_digest(Request(model="m", messages=make(items)))
        for items in (first, second, copy.deepcopy(first))
        for make in (list, MessageList, lambda items: RequestMessages(None, MessageList(items)))
    ]
    assert len(set(digests[:3] + digests[6:])) == 1
    encoded = [[message_list._encode_value(message) for message in items] for items in (first, second)]
    assert (digests[0] == digests[3]) == (encoded[0] == encoded[1])


# -- lists -----------------------------------------------------------------------------------------

appends = st.tuples(st.integers(0, 30), st.sampled_from([None, "a", "b", "c"]))


@given(st.lists(appends, max_size=30))
@example([(0, "a"), (0, None), (1, "a"), (2, "a"), (1, "b")])
def test_no_view_of_a_list_sees_what_another_one_appended(steps: list[tuple[int, str | None]]) -> None:
    """Appending to any view, the newest or an older one, makes one more: the others keep their items, and and
    each finds the newest item of a key among its own."""
    views = [PersistentList[int]()]
    expected_views: list[list[tuple[str | None, int]]] = [[]]
    for number, (place, key) in enumerate(steps):
        place %= len(views)
        views.append(views[place].append(number, key))
        expected_views.append([*expected_views[place], (key, number)])
    for view, expected in zip(views, expected_views, strict=True):
        assert view.list_keyed_items() == expected
        assert list(view) == [item for _, item in expected]
        newest = dict(expected)
        assert [view.find_newest(key) for key in "abc"] == [newest.get(key) for key in "abc"]


def test_a_picture_counts_more_than_its_text() -> None:
    """A message takes four tokens, a token for four bytes, and a thousand for a picture or a file."""
    picture = ImagePart(media_type="image/png", data="eA==")
    assert estimate_message(Message(role="user", content="x" * 40)) == 14
    parts = (TextPart(text="x" * 40), picture, picture)
    assert estimate_message(Message(role="user", content="x" * 40, parts=parts)) == 2014


# -- cost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [10, 1000])
def test_the_cost_does_not_depend_on_the_length(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more message and its request encode that message, at any length of the conversation."""
    conversation = MessageList(Message(role="user", content=str(n)) for n in range(length))
    encode: Callable[[Any], bytes] = message_list._encode
    encoded: list[Any] = []
    monkeypatch.setattr(message_list, "_encode", lambda value: encoded.append(value) or encode(value))
    longer = conversation.append(Message(role="assistant", content="so"))
    compute_request_digest(
        Request(model="m", messages=RequestMessages("Be.", longer), tools=OfferedTools(TOOLS))
    )
    assert len([value for value in encoded if isinstance(value, Message)]) == 1
    assert len(encoded) <= 4


def test_a_stored_list_is_not_loaded_for_its_digest() -> None:
    """The digest of a conversation that goes on needs none of its earlier messages."""

    def refuse() -> list[Message]:
        raise AssertionError("the messages were loaded")

    digest = MessageList(MESSAGES).digest
    stored = MessageList.from_store(StoredMessages(3, refuse), digest)
    request = Request(model="m", messages=RequestMessages("Be.", stored.append(MESSAGES[0])))
    plain = Request(model="m", messages=[Message(role="system", content="Be."), *MESSAGES, MESSAGES[0]])
    assert compute_request_digest(request) == compute_request_digest(plain)


@pytest.mark.parametrize("stored", [0, 2, 30])
@pytest.mark.parametrize("added", [0, 1, 40])
def test_a_branch_equals_its_list_and_leaves_it_alone(stored: int, added: int) -> None:
    """A branch reads like the list that it was made of, also where that has grown; and what is appended to
    the branch is not in the way of the list."""
    turns = [Message(role=role, content=str(n)) for n in range(40) for role in ("user", "assistant")]
    kept = MessageList(turns[:stored])
    messages = MessageList.from_store(StoredMessages(stored, lambda: list(kept)), kept.digest)
    for message in (*turns[stored : stored + added], *MESSAGES):
        messages = messages.append(message)
    branch, said = messages.branch(), Message(role="assistant", content="x")
    longer_branch = branch.append(said)
    longer = messages.append(said)
    assert longer._tail._shared is messages._tail._shared
    for one, other in ((branch, messages), (longer_branch, longer)):
        assert (one, list(one), one[:], one.length) == (other, list(other), other[:], other.length)
        assert list(reversed(one)) == list(reversed(other))
        assert one.list_last("assistant") == other.list_last("assistant")
        assert one.find_newest("a") == other.find_newest("a") is not None
        assert one.find_nth_last("user", 2) == other.find_nth_last("user", 2)
