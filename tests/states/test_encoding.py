"""Values: frozen structs, and their JSON in log format 1."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from toolchart.states.core.encoding import decode, decode_event, encode, encode_event
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.events import EVENTS, Limits, Replied, Settings, ToolFinished, Waited
from toolchart.states.messages import Message, Reply, Request, ToolCall, Usage
from toolchart.states.snapshot import Snapshot, SnapshotBuilder

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


def test_a_default_is_left_out_even_if_it_was_computed() -> None:
    """Format 1 leaves a field out if it equals its default, whichever object holds the value."""
    assert encode_event(Waited(at="now", seconds=sum([0.0, 0.0]))) == {"type": "waited"}
    settings = Settings(service="s", provider="p", model="m", limits=Limits(max_iterations=2 + 3))
    assert encode(settings) == {"service": "s", "provider": "p", "model": "m"}


def test_an_event_is_read_as_it_was_written() -> None:
    """Nested values, tuples and numbers survive the way through JSON data."""
    event = Replied(at="2026-01-01T00:00:00.000Z", reply=REPLY, deltas=({"kind": "text"},))
    assert decode_event(encode_event(event), event.at) == event


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"type": "zzz"}, "/event/type: not a known event"),
        ({"type": "waited", "second": 1}, "/event: object contains unknown field `second`"),
        ({"type": "tool_finished", "call_id": "c", "outcome": "succeeded"}, "missing required field"),
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
    with pytest.raises(ValueError, match=r"^/: expected `object`"):
        decode(Settings, [])


def test_every_event_is_tagged_by_its_type() -> None:
    """The tag of each event in the union is its `TYPE`, the word that charts and records use."""
    assert {name: kind.__struct_config__.tag for name, kind in EVENTS.items()} == {
        name: name for name in EVENTS
    }


@pytest.mark.parametrize(
    "effect",
    [
        CallModel(
            name="call_model", request=Request(model="m", messages=(Message(role="user", content="x"),))
        ),
        ReviewCalls(name="review_calls", calls=REPLY.tool_calls, allowed=("add",)),
        RunTools(name="run_tools", calls=REPLY.tool_calls, refused=((REPLY.tool_calls[0], "denied", "no"),)),
        Wait(name="wait", seconds=1.5),
        Answer(name="answer_at_limit", content="x"),
    ],
)
def test_an_effect_is_read_as_it_was_written(effect: Effect) -> None:
    """Effects are a tagged union: JSON data of any of them gives the same kind with the same fields again."""
    data = msgspec.to_builtins(effect)
    again = msgspec.convert(data, Effect)  # type: ignore[call-overload]
    assert type(again) is type(effect)
    assert msgspec.json.encode(again) == msgspec.json.encode(effect)


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
    """Nothing that a step changes can be lost between the builder and the snapshot."""
    assert Snapshot.__struct_fields__ == SnapshotBuilder.__struct_fields__
    assert ToolFinished.__struct_config__.frozen
