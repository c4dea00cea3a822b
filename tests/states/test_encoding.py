"""Values: frozen structs, and their JSON in log format 2."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolchart.states.canonical_json import encode_escaped_json
from toolchart.states.content import CitationPart, FilePart, ImagePart, TextPart
from toolchart.states.core.encoding import (
    CHANGE_WARNING,
    decode,
    decode_event,
    encode_event,
    encode_event_json,
    make_plain_event,
    read_json,
)
from toolchart.states.events import (
    AgentFailed,
    AgentFinished,
    AgentRested,
    Answered,
    CallsStarted,
    CallSubmitted,
    Cancelled,
    Configured,
    Continued,
    Counted,
    Decided,
    Elapsed,
    Event,
    EventDescriptor,
    Failed,
    Forked,
    Limits,
    Migrated,
    Replied,
    Resumed,
    Returned,
    Reviewed,
    Settings,
    ToolFinished,
    TurnStarted,
    UserSaid,
    Verdict,
    Versions,
)
from toolchart.states.messages import DecisionSignature, Message, Reply, ToolCall, ToolDefinition, Usage
from toolchart.states.snapshot import Snapshot, SnapshotBuilder, SnapshotFields
from toolchart.states.vocabulary import get_events

REPLY = Reply(
    finish_reason="tool_calls",
    content="é",
    tool_calls=(ToolCall(id="c", name="add", arguments={"a": [1, 2.5, None]}),),
    usage=Usage(input=3, cost=0.5),
)


def test_a_value_never_changes() -> None:
    """A value refuses assignment; `replace` gives another one and leaves the first as it was."""
    call = ToolCall(id="c", name="add")
    with pytest.raises(AttributeError):
        call.name = "other"  # type: ignore[misc]
    assert replace(call, name="other").name == "other"
    assert call == ToolCall(id="c", name="add")


def test_only_empty_values_are_left_out() -> None:
    """Limits and texts are written in full, so that a release may change them; empty fields are left out."""
    assert encode_event_json(Elapsed(at="now", effect=3)) == b'{"type":"elapsed","effect":3}'
    settings = Settings(service="s", provider="p", model="m", limits=Limits(max_iterations=2 + 3))
    data = msgspec.json.decode(encode_event_json(TurnStarted(at="now", message="", settings=settings)))
    assert set(data) == {"type", "message", "settings"}
    assert set(data["settings"]) == {"service", "provider", "model", "limits"}
    # This one acts before a reply is recorded: what it let through is in the record.
    assert set(data["settings"]["limits"]) == set(Limits.__struct_fields__) - {"max_calls_per_reply"}


def test_people_see_no_empty_field_of_an_event() -> None:
    """What `encode_event` shows has the fields that were set, and no empty object or list."""
    event = Configured(format=1, conversation="c", chart="states: {}", spec={"name": "a"})
    assert set(encode_event(event)) == {"type", "format", "conversation", "chart", "spec"}


@pytest.mark.parametrize("row", get_events().values(), ids=lambda row: row.name)
def test_a_default_that_is_left_out_is_empty(row: EventDescriptor) -> None:
    """No release changes what an old record says by changing a default: each one left out is empty."""
    kinds = [row.type]
    for kind in kinds:
        assert kind.__struct_config__.omit_defaults or kind in (Limits, ToolDefinition), kind
        for field in msgspec.structs.fields(kind):
            kinds += [
                part for part in _list_struct_types(field.type) if part not in kinds and part is not Limits
            ]
            if kind.__struct_config__.omit_defaults and field.default is not msgspec.NODEFAULT:
                assert not field.default, f"{kind.__name__}.{field.name}"


def _list_struct_types(annotation: Any) -> list[Any]:
    """The struct classes in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [part for argument in get_args(annotation) for part in _list_struct_types(argument)]


TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
"""Any text, control characters and lone surrogates included."""

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**120), 10**120)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(
        [1e16, 2**63, -(2**63) - 1, 2**64, 10**100, -0.0, "\ud800", "\ud83d\ude00", "\x00", "\u2028"]
    ),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXTS, children, max_size=3),
    max_leaves=8,
)
"""Hostile values that JSON can hold."""

CALLS = st.builds(
    ToolCall,
    id=TEXTS,
    name=TEXTS,
    arguments=st.none() | st.dictionaries(TEXTS, JSON_VALUES),
    raw=st.none() | TEXTS,
)

PARTS = st.lists(
    st.builds(TextPart, text=TEXTS)
    | st.builds(ImagePart, data=st.just("AAAA"), media_type=st.just("image/png"), name=TEXTS)
    | st.builds(FilePart, url=TEXTS)
    | st.builds(CitationPart, url=TEXTS, title=TEXTS),
    max_size=3,
).map(tuple)

EVENT_STRATEGIES: dict[str, st.SearchStrategy[Event]] = {
    "resumed": st.builds(Resumed, repeatable=st.lists(TEXTS, max_size=2).map(tuple)),
    "call_submitted": st.builds(
        CallSubmitted, effect=st.integers(0, 9), key=TEXTS, calls=st.integers(1, 9), job=TEXTS
    ),
    "calls_started": st.builds(
        CallsStarted, effect=st.integers(0, 9), calls=st.lists(TEXTS, max_size=2).map(tuple)
    ),
    "returned": st.builds(Returned, value=JSON_VALUES),
    "answered": st.builds(Answered, content=st.dictionaries(TEXTS, JSON_VALUES), by=st.none() | TEXTS),
    "agent_finished": st.builds(
        AgentFinished,
        conversation=TEXTS,
        head=TEXTS,
        item=st.integers(0, 9),
        content=TEXTS,
        output=st.none() | st.dictionaries(TEXTS, JSON_VALUES),
    ),
    "agent_failed": st.builds(AgentFailed, conversation=TEXTS, kind=TEXTS, message=TEXTS),
    "agent_rested": st.builds(AgentRested, conversation=TEXTS, head=TEXTS, content=TEXTS),
    "elapsed": st.builds(Elapsed, effect=st.integers(0, 9)),
    "cancelled": st.builds(Cancelled, reason=st.none() | TEXTS, content=st.none() | TEXTS),
    "user_said": st.builds(UserSaid, message=TEXTS, parts=PARTS),
    "failed": st.builds(
        Failed, kind=TEXTS, message=TEXTS, retry_after_s=st.none() | st.floats(0, 1e300), content=TEXTS
    ),
    "reviewed": st.builds(
        Reviewed,
        verdicts=st.lists(
            st.builds(Verdict, call_id=TEXTS, ruling=st.just("run"), notes=st.lists(TEXTS).map(tuple)),
            max_size=2,
        ).map(tuple),
    ),
    "forked": st.builds(
        Forked,
        format=st.just(2),
        conversation=TEXTS,
        parent=TEXTS,
        seq=st.integers(0, 2**53 - 1),
        head=TEXTS,
        system=TEXTS,
    ),
    "continued": st.builds(
        Continued, versions=st.builds(Versions, tools=st.dictionaries(TEXTS, TEXTS), sources=st.just({}))
    ),
    "configured": st.builds(
        Configured,
        format=st.just(2),
        conversation=TEXTS,
        chart=TEXTS,
        spec=st.dictionaries(TEXTS, JSON_VALUES),
    ),
    "migrated": st.builds(
        Migrated, format=st.just(2), conversation=TEXTS, chart=TEXTS, spec=st.dictionaries(TEXTS, JSON_VALUES)
    ),
    "turn_started": st.builds(
        TurnStarted,
        message=TEXTS,
        parts=PARTS,
        system=st.none() | TEXTS,
        settings=st.builds(
            Settings, service=TEXTS, provider=TEXTS, model=TEXTS, options=st.dictionaries(TEXTS, JSON_VALUES)
        ),
    ),
    "replied": st.builds(
        Replied,
        effect=st.integers(0, 9),
        reply=st.builds(
            Reply,
            content=st.none() | TEXTS,
            tool_calls=st.lists(CALLS, max_size=2).map(tuple),
            finish_reason=st.just("stop"),
            parts=PARTS,
            usage=st.none() | st.builds(Usage, input=st.integers(0, 10**40)),
            provider_data=st.none() | st.dictionaries(TEXTS, JSON_VALUES),
        ),
    ),
    "tool_finished": st.builds(
        ToolFinished,
        call_id=TEXTS,
        outcome=st.just("succeeded"),
        result=st.dictionaries(TEXTS, JSON_VALUES),
        shown=st.none() | TEXTS,
        parts=PARTS,
    ),
    "counted": st.builds(
        Counted, tokens=st.integers(0, 10**40), messages=st.integers(0, 99), source=TEXTS, problem=TEXTS
    ),
    "decided": st.builds(
        Decided,
        call_id=TEXTS,
        approved=st.booleans(),
        signature=st.none()
        | st.builds(DecisionSignature, key=TEXTS, at=TEXTS, arguments=TEXTS, asked=TEXTS, value=TEXTS),
        arguments=st.none() | st.dictionaries(TEXTS, JSON_VALUES),
    ),
}


def test_every_kind_of_event_has_a_strategy() -> None:
    """A new event does not escape the property below."""
    assert set(EVENT_STRATEGIES) == set(get_events())


@given(event=st.one_of(*EVENT_STRATEGIES.values()))
def test_every_event_equals_its_json(event: Event) -> None:
    """Whatever JSON can hold survives exactly: long integers with every digit, lone surrogates, any text."""
    event = replace(event, at="2026-01-01T00:00:00.000Z")
    plain, data = make_plain_event(event)
    again = decode_event(read_json(data), event.at)
    assert again == plain
    assert repr(again) == repr(plain)
    has_pair = re.search(r"\\ud[89ab]..\\ud[c-f]", repr(event))  # two surrogates that make one character
    if "nan" not in repr(event) and "inf" not in repr(event) and not has_pair:
        assert plain == event
    assert encode_event_json(plain) == data


@pytest.mark.parametrize(
    ("value", "expected", "has_losses"),
    [
        (float("nan"), None, True),
        ([float("inf"), 1], [None, 1], True),
        ((1, (2,)), [1, [2]], False),
        ({1: "x"}, {"1": "x"}, True),
        (10**5000, "(integer of 16610 bits)", True),
        (complex(1, 2), "(1+2j)", True),
    ],
    ids=["nan", "infinity", "tuple", "key", "integer", "object"],
)
def test_what_json_cannot_hold_is_replaced(value: Any, expected: Any, has_losses: bool) -> None:
    """The event that the core acts on has the replaced value, as the log has; a loss is reported."""
    event = ToolFinished(at="now", call_id="c", outcome="succeeded", result={"result": value})
    plain, data = make_plain_event(event)
    assert isinstance(plain, ToolFinished)
    assert (plain.result["result"], CHANGE_WARNING in plain.notes) == (expected, has_losses)
    assert decode_event(read_json(data), "now") == plain


def test_a_structure_without_end_is_cut() -> None:
    """A list that holds itself does not stop the log: where it begins again stands a text that says so."""
    endless: list[Any] = []
    endless.append(endless)
    event = ToolFinished(at="now", call_id="c", outcome="succeeded", result={"result": endless})
    plain, data = make_plain_event(event)
    assert isinstance(plain, ToolFinished)
    assert plain.result["result"] == ["(refers to itself)"]
    assert plain.notes == (CHANGE_WARNING,)
    assert decode_event(read_json(data), "now") == plain


def test_what_is_nested_too_deeply_is_cut() -> None:
    """Where a value cannot be written as it is and nests without measure, a text stands for its depths."""
    deep: Any = float("nan")
    for _ in range(1000):
        deep = [deep]
    event = ToolFinished(at="now", call_id="c", outcome="succeeded", result={"result": deep})
    plain, data = make_plain_event(event)
    assert isinstance(plain, ToolFinished)
    assert plain.notes == (CHANGE_WARNING,)
    assert decode_event(read_json(data), "now") == plain
    inner, depth = plain.result["result"], 0
    while isinstance(inner, list):
        (inner,), depth = inner, depth + 1
    assert (inner, depth) == ("(nested too deeply)", 198)  # the event and its result stand around it


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"type": "zzz"}, "/event/type: not a known event"),
        ({"type": "elapsed", "second": 1}, "/event: .*second"),
        ({"type": "tool_finished", "call_id": "c", "outcome": "succeeded"}, "/event: .*result"),
        (
            {"type": "replied", "reply": {"finish_reason": "stop", "usage": {"input": "x"}}},
            "/event/reply/usage/input",
        ),
        ({"type": "replied", "reply": {"finish_reason": "because"}}, "/event/reply/finish_reason"),
    ],
)
def test_reading_is_strict(data: dict[str, object], words: str) -> None:
    """An unknown key, a missing key or a wrong type is refused, and the error names the place."""
    with pytest.raises(ValueError, match=words):
        decode_event(data, "now")


def test_a_whole_value_is_named_by_its_root() -> None:
    """An error about the value itself has the place `/`."""
    with pytest.raises(ValueError, match=r"^/: "):
        decode(Settings, [])


def test_every_event_is_tagged_by_its_type() -> None:
    """The tag of each event in the union is its `TYPE`, the word that charts and records use."""
    assert {
        name: kind.__struct_config__.tag
        for name, kind in ((row.name, row.type) for row in get_events().values())
    } == {name: name for name in list(get_events())}


def test_a_builder_changes_alone() -> None:
    """Changes of a builder reach neither the snapshot it came from nor one that it has built."""
    snapshot = Snapshot(turn=1)
    builder = SnapshotBuilder.from_snapshot(snapshot)
    builder.turn = 2
    built = builder.build()
    builder.turn = 3
    builder.messages = builder.messages.append(Message(role="user", content="x"))
    assert (snapshot.turn, built.turn) == (1, 2)
    assert (len(snapshot.messages), len(built.messages)) == (0, 0)
    with pytest.raises(AttributeError):
        built.turn = 4  # type: ignore[misc]


def test_builder_and_snapshot_have_the_same_fields() -> None:
    """Nothing that a step changes can be lost between the builder and the snapshot: they begin with the same
    fields, and what follows is computed anew or belongs to one step."""
    shared = SnapshotFields.__struct_fields__
    assert Snapshot.__struct_fields__[: len(shared)] == shared
    assert Snapshot.__struct_fields__[len(shared) :] == ("state", "has_ended", "awaits_user", "is_over")
    assert SnapshotBuilder.__struct_fields__[: len(shared)] == shared
    assert ToolFinished.__struct_config__.frozen


def test_json_for_readers_is_always_json() -> None:
    """Issue 25: lone surrogates, integers beyond 64 bits, infinities and keys that are no text give JSON
    that any reader takes, compact or indented."""
    value = {"half": "\ud800", "long": 2**70, "nan": [float("nan"), (float("inf"),)], 7: None, "é": "é"}
    for is_indented in (False, True):
        read = json.loads(encode_escaped_json(value, is_indented=is_indented).decode("utf-8"))
        assert read == {"half": "\ud800", "long": 2**70, "nan": [None, [None]], "7": None, "é": "é"}
