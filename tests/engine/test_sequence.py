"""Sequence pictures: who said what to whom, as the records say."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from agents import make_engine, reply_with_calls
from hostile_texts import HOSTILE_TEXTS, find_foreign_svg

from toolchart.engine.exchange.sequence import SequenceDiagram, draw_sequence, read_sequence
from toolchart.engine.exchange.sequence.model import Divider, Message, Note, Participant
from toolchart.engine.log.read_records import AskedEffect, ReadRecord, read_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall

FORMATS = ("text", "ascii", "mermaid", "svg")


def run_approved_conversation() -> SequenceDiagram:
    """A conversation with two calls that a person decides."""

    async def decide(call: ToolCall) -> Decided:
        return Decided(call_id=call.id, approved=call.arguments == {"text": "yes"}, by="eve")

    run = make_engine(
        [reply_with_calls(("echo", {"text": "yes"}), ("echo", {"text": "no"})), "the end"],
        chart="approval",
        tools={"registry": [{"name": "echo", "requires_approval": True}]},
        approver=decide,
    )
    run.run("go", conversation="c")
    return read_sequence("c", read_conversation(run.store, "c"))


def list_messages(sequence: SequenceDiagram) -> list[tuple[str, str, str]]:
    """Sender, receiver and text of every message."""
    return [(e.source, e.target, e.text) for e in sequence.entries if isinstance(e, Message)]


def draw_text(sequence: SequenceDiagram, format_name: str) -> str:
    """A sequence in a format, as text."""
    drawing = draw_sequence(sequence, format_name)
    return drawing.decode() if isinstance(drawing, bytes) else drawing


def make_record(seq: int, event: dict[str, Any], **changes: Any) -> ReadRecord:
    """A record as a reader gets it, with the states of no particular chart."""
    fields: dict[str, Any] = {"source": "a", "target": "b", "guards": {}, "prev": "", "hash": "", "line": b""}
    return ReadRecord(
        seq=seq, at="2026-01-01T00:00:00.000Z", turn=1, iteration=1, event=event, **(fields | changes)
    )


def test_every_message_of_a_turn() -> None:
    """The user asks, the model calls, a person decides, tools run, and the chart answers."""
    messages = list_messages(run_approved_conversation())
    messages[7:9] = sorted(messages[7:9])  # two tools run at once
    assert messages == [
        ("user", "chart", "go"),
        ("chart", "model", "call_model"),
        ("model", "chart", "replied: calls echo x2"),
        ("chart", "person", "ask_approval: echo x2"),
        ("person", "chart", "decided: echo approved by eve (unsigned)"),
        ("person", "chart", "decided: echo denied by eve (unsigned)"),
        ("chart", "tools", "run_tools: echo x2"),
        ("tools", "chart", "tool_finished: echo denied"),
        ("tools", "chart", "tool_finished: echo succeeded"),
        ("chart", "model", "call_model"),
        ("model", "chart", "replied: the end"),
        ("chart", "user", "answer: the end"),
    ]


def test_states_and_turns_stand_between() -> None:
    """Each state that is entered is a note at the chart, and each turn begins with a line."""
    entries = run_approved_conversation().entries
    states = [entry.text for entry in entries if isinstance(entry, Note) and entry.is_state]
    assert states[:3] == ["state prompting", "state awaiting_tools", "state awaiting_approval"]
    assert states[-1] == "state finished"
    assert [entry.text for entry in entries if isinstance(entry, Divider)] == ["turn 1"]


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_has_every_text(format_name: str) -> None:
    """Every format has every text of the sequence, in order."""
    sequence = run_approved_conversation()
    drawing = draw_text(sequence, format_name).replace("#58;", ":")
    position = 0
    for entry in sequence.entries:
        position = drawing.index(entry.text, position)


def test_pictures_are_read_by_parsers() -> None:
    """SVG is XML with one group per message and note, named by its record; PNG has its signature."""
    sequence = run_approved_conversation()
    root = ElementTree.fromstring(draw_text(sequence, "svg"))
    groups = [e.get("class", "") for e in root.iter() if e.get("data-seq")]
    assert len(groups) == sum(not isinstance(entry, Divider) for entry in sequence.entries)
    assert "message record-2" in groups
    image = draw_sequence(sequence, "png")
    assert isinstance(image, bytes)
    assert image.startswith(b"\x89PNG")


def test_heads_stand_apart() -> None:
    """The boxes of participants with long names do not touch."""
    keys = ("chart", "model", "tools")
    sequence = SequenceDiagram(
        title="c",
        participants=tuple(
            Participant(key=key, label=f"{key} of {'a' * 30}", kind=kind)
            for key, kind in zip(keys, ("chart", "model", "tools"), strict=True)
        ),
        entries=(),
    )
    root = ElementTree.fromstring(draw_text(sequence, "svg"))
    boxes = [e for e in root.iter() if e.get("class") == "box"]
    sides = [(float(e.get("x", "0")), float(e.get("x", "0")) + float(e.get("width", "0"))) for e in boxes]
    assert len(sides) == 3
    assert all(second[0] - first[1] >= 12 for first, second in itertools.pairwise(sides))


def test_a_fork_begins_with_what_it_shares() -> None:
    """The sequence of a fork has the records of its parent first."""
    store = MemoryStore()
    with make_engine([reply_with_calls(("echo", {"text": "x"})), "done", "again"], log=store) as engine:
        engine.run("go", conversation="c")
        engine.conversation("c").fork(5, name="f")
        engine.run("once more", conversation="f")
    shared = read_sequence("f", read_conversation(store, "f", include_shared=True))
    own = read_sequence("f", read_conversation(store, "f"))
    assert len(shared.entries) > len(own.entries)
    assert shared.entries[-len(own.entries) :] == own.entries


def test_unknown_words_are_drawn_as_recorded() -> None:
    """Effects and events of a package that is not installed are drawn; nothing is derived from a chart."""
    records = [
        make_record(0, {"type": "turn_started", "message": "go"}, asks=(AskedEffect(name="look_up", id=1),)),
        make_record(1, {"type": "stock_found", "effect": 1, "stock": 3}),
        make_record(2, {"type": "tool_finished", "call_id": "x", "outcome": "succeeded"}, is_late=True),
        make_record(3, {"type": "cancelled", "reason": "enough"}, is_untaken=True, cancels=(1, 2)),
        make_record(4, {}),
    ]
    texts = [entry.text for entry in read_sequence("c", records).entries]
    assert "stock_found" in texts
    assert "tool_finished: x succeeded (late)" in texts
    assert "cancelled: enough (not taken)" in texts
    assert "cancels 2" in texts


def make_long_conversation(turns: int) -> Iterator[ReadRecord]:
    """Records of that many turns of four records."""
    for turn in range(turns):
        ask = AskedEffect(name="call_model", id=turn + 1)
        yield make_record(4 * turn, {"type": "turn_started", "message": f"question {turn}"}, asks=(ask,))
        for part in (1, 2):
            yield make_record(4 * turn + part, {"type": "user_said", "message": f"more {turn}.{part}"})
        reply = {"content": f"answer {turn} " + "<&#;>" * 40}
        yield make_record(
            4 * turn + 3,
            {"type": "replied", "effect": turn + 1, "reply": reply},
            asks=(AskedEffect(name="answer", id=0),),
        )


def test_a_long_conversation_is_folded_in_pictures() -> None:
    """Of 1,000 records a picture shows the beginning and the end and says what is left out; text has all."""
    sequence = read_sequence("c", make_long_conversation(250))
    text = draw_text(sequence, "text")
    assert all(f"question {turn}" in text for turn in range(250))
    for format_name in ("mermaid", "svg"):
        drawing = draw_text(sequence, format_name)
        assert "question 0" in drawing
        assert "question 249" in drawing
        assert "question 125" not in drawing
        assert "are left out" in drawing
    assert len(draw_text(sequence, "mermaid")) <= 50_000


def test_a_format_without_sequences_is_refused() -> None:
    """The error names the formats that there are."""
    with pytest.raises(SpecError, match="'dot'") as caught:
        draw_sequence(run_approved_conversation(), "dot")
    assert "mermaid" in str(caught.value.hint)


SEQUENCE_LINE = re.compile(
    r"""
      sequenceDiagram
    | \ +(actor|participant)\ p\d+\ as\ [^:;\n]+
    | \ +p\d+--?>>p\d+:\ [^:;\n]+
    | \ +Note\ over\ p\d+(,p\d+)?:\ [^:;\n]+
    """,
    re.VERBOSE,
)


def make_hostile_sequence(text: str) -> SequenceDiagram:
    """A sequence whose every text is this one."""
    reply = {"content": text, "tool_calls": [{"id": text, "name": text}]}
    effects = ("call_model", "run_tools", "ask_approval", "wait", "answer", text)
    asks = tuple(AskedEffect(name=name, id=n, data={"content": text}) for n, name in enumerate(effects))
    records = [
        make_record(0, {"type": "turn_started", "message": text, "settings": {"service": text}}, asks=asks),
        make_record(1, {"type": "replied", "effect": 0, "reply": reply}, target=text),
        make_record(2, {"type": "tool_finished", "effect": 1, "call_id": text, "outcome": text}),
        make_record(3, {"type": "failed", "effect": 0, "kind": text}),
        make_record(4, {"type": text, "effect": 5}),
    ]
    return read_sequence(text, records)


@pytest.mark.parametrize("text", ["", *HOSTILE_TEXTS, "x" * 5000])
def test_hostile_texts_stay_texts(text: str) -> None:
    """No text ends its line, becomes an element, or turns the direction of the text, in any format."""
    sequence = make_hostile_sequence(text)
    assert find_foreign_svg(draw_text(sequence, "svg")) == []
    for line in draw_text(sequence, "mermaid").splitlines():
        assert SEQUENCE_LINE.fullmatch(re.sub(r"#\w+;", "?", line)), line
        assert "<" not in line
    for format_name in FORMATS:
        drawing = draw_text(sequence, format_name)
        assert re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", drawing) is None
    assert len(draw_text(sequence, "text").splitlines()) == len(sequence.entries) + 2
    assert json.dumps(draw_text(sequence, "mermaid"))
