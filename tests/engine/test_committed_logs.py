"""Logs of format 1 are verified and read as release 0.1 read them, and converted to go on."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from format1_logs import EXPECTED, NAMES, chain_lines, change_chart, make_store, read_log_lines

from toolchart.engine import Engine
from toolchart.engine.exchange.conversion import adapt_chart_document, plan_conversion
from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.exchange.otel import export_spans
from toolchart.engine.exchange.xes import export_xes
from toolchart.engine.log.diff import compare_conversations
from toolchart.engine.log.reading.format1 import LIMITS, TEXTS
from toolchart.engine.log.reading.records import ReadRecord, read_conversation, read_records
from toolchart.engine.log.reading.transcript import collect_transcript
from toolchart.engine.log.reading.visited_path import draw_conversation_path
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_conversation, verify_store
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.charts import list_shipped_charts
from toolchart.states.chart.loading import parse_chart
from toolchart.states.core.step import step
from toolchart.states.errors import LogDamaged, SpecError, UnknownSemantics
from toolchart.states.events import Configured
from toolchart.states.machine import get_machine
from toolchart.states.snapshot import Snapshot

APOLOGY = "I encountered an issue while answering"


def convert(store: MemoryStore, conversation: str) -> str:
    """Convert a conversation and store the result; its new id."""
    plan = plan_conversion(store, conversation, "0.2.0")
    for converted in plan:
        store.append(converted.name, 0, converted.lines)
    return plan[-1].name


def derive_snapshot(records: Iterable[ReadRecord]) -> Snapshot:
    """The snapshot that the core derives from the recorded events."""
    snapshot, machine = Snapshot(), None
    for record in records:
        event = record.decode_event()
        if isinstance(event, Configured):
            machine = get_machine(parse_chart(event.chart))
        assert machine is not None
        snapshot = step(machine, snapshot, event).snapshot
    return snapshot


# -- reading -------------------------------------------------------------------------------------


def test_every_chart_of_release_0_1_has_a_log() -> None:
    """There is a committed log for each chart that release 0.1 shipped."""
    assert set(NAMES) <= set(list_shipped_charts())
    assert len(NAMES) == 7


@pytest.mark.parametrize("name", [*NAMES, "diverges"])
def test_a_log_of_format_1_verifies(name: str) -> None:
    """A committed log is intact, and a byte that changed anywhere is found."""
    lines = read_log_lines(name)
    assert verify_conversation(lines, "c").records == len(lines)
    for seq in (0, len(lines) // 2, len(lines) - 1):
        changed_lines = [*lines]
        changed_lines[seq] = lines[seq].replace(b'"turn":', b'"turn": ', 1)
        with pytest.raises(LogDamaged) as damage:
            verify_conversation(changed_lines, "c")
        assert damage.value.seq == seq


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_format_1_is_read_as_release_0_1_read_it(name: str) -> None:
    """Messages, visits, rows, seconds and current states are those that release 0.1 derived by replay."""
    store, expected = make_store(name), EXPECTED[name]
    assert export_messages(store.read_lines("c"), "c") == expected["messages"]
    _, overlay = draw_conversation_path(store, "c")
    assert dict(overlay.states) == expected["states"]
    assert sorted([*key, count] for key, count in overlay.edges.items()) == expected["rows"]
    assert overlay.seconds == expected["seconds"]
    assert sorted(overlay.current) == expected["current"]
    assert "<trace>" in export_xes({"c": store.read_lines("c")})
    assert export_spans(store.read_lines("c"), "c")["resourceSpans"]


def test_a_fork_of_format_1_is_read_with_what_it_shares() -> None:
    """Messages and visits of a fork contain those of its parent, as release 0.1 read them."""
    store, expected = make_store(), EXPECTED["forks/of_tool_loop"]
    assert export_messages(store.read_lines("f"), "f", parents=store.read_lines) == expected["messages"]
    _, overlay = draw_conversation_path(store, "f")
    assert dict(overlay.states) == expected["states"]
    assert compare_conversations(store, "c", "f").common
    assert all(not isinstance(result, LogDamaged) for result in verify_store(store))


def test_a_record_of_format_1_cannot_have_what_format_2_has() -> None:
    """A line with the keys of format 1 and an event of format 2 is damage, although its hashes are right."""
    lines = read_log_lines("resilient")
    assert any(b'"type":"waited"' in line for line in lines)
    records = [json.loads(line) for line in lines]
    for record in records:
        if record["event"]["type"] == "waited":
            record["event"] = {"type": "elapsed"}
    with pytest.raises(LogDamaged, match="'elapsed' is not an event of format 1"):
        verify_conversation(chain_lines(records), "c")


def test_deriving_from_format_1_names_release_and_command() -> None:
    """Whoever needs the steps, and not only the records, learns who replays them and how to go on."""
    with pytest.raises(UnknownSemantics, match=r"release 0\.1 of Toolchart replays") as error:
        load_conversation(make_store("full"), "c")
    assert "toolchart convert c" in str(error.value)


# -- conversion ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_converted_conversation_says_the_same(name: str) -> None:
    """Each record keeps number, time, states and guards; only apologies are not messages any more."""
    store = make_store(name)
    new_name = convert(store, "c")
    old_records, new_records = list(read_conversation(store, "c")), list(read_conversation(store, new_name))
    assert [(r.seq, r.at, r.source, r.target, r.guards, r.turn, r.iteration) for r in old_records] == [
        (r.seq, r.at, r.source, r.target, r.guards, r.turn, r.iteration) for r in new_records
    ]
    assert verify_conversation(store.read_lines(new_name), new_name).records == len(old_records)
    kept_messages = [
        message for message in EXPECTED[name]["messages"] if not str(message["content"]).startswith(APOLOGY)
    ]
    assert export_messages(store.read_lines(new_name), new_name) == kept_messages
    first = new_records[0].event
    assert first["converted_from"] == old_records[-1].hash
    assert first["texts"] == TEXTS


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_is_converted_wherever_it_stopped(name: str) -> None:
    """Every beginning of a log converts, in the middle of a turn too, and its open effects are known."""
    lines = read_log_lines(name)
    for count in range(1, len(lines) + 1):
        store = MemoryStore()
        store.append("c", 0, lines[:count])
        new_name = convert(store, "c")
        records = list(read_conversation(store, new_name))
        snapshot = derive_snapshot(records)
        transcript = collect_transcript(records)
        assert transcript.messages == tuple(snapshot.messages)
        assert transcript.system == snapshot.system
        assert bool(snapshot.open_effects) == (not snapshot.is_over)


@pytest.mark.parametrize("name", NAMES)
def test_a_converted_conversation_goes_on(name: str) -> None:
    """Wherever it stopped, a converted conversation ends its open turn, takes a next one, and replays."""
    lines = read_log_lines(name)
    for count in range(2, len(lines) + 1, 4):
        store = MemoryStore()
        store.append("c", 0, lines[:count])
        new_name = convert(store, "c")
        spec = next(read_conversation(store, new_name)).event["spec"]
        model = ScriptedProvider(["well then"] * 9)
        with Engine(spec, log=store, providers={"model": model}) as engine:
            if engine.resume(new_name).is_over:
                assert engine.run("and now?", conversation=new_name).content == "well then"
        steps = list(replay_conversation(store, new_name))
        records = list(read_conversation(store, new_name))
        assert len(steps) == len(records) > count - 1
        assert collect_transcript(records).messages == tuple(steps[-1].step.snapshot.messages)
        assert verify_conversation(store.read_lines(new_name), new_name).records == len(records)


def test_limits_that_nothing_read_are_left_out_of_the_spec() -> None:
    """Release 0.1 ignored them; the converted spec says which they were and loads without them."""
    (converted,) = plan_conversion(make_store("approval"), "c", "0.2.0")
    assert converted.notes == (
        "limits.max_attempts is left out of its spec: nothing in its chart reads it",
        "limits.max_tokens is left out of its spec: nothing in its chart reads it",
    )


def test_a_fork_brings_its_parent_along() -> None:
    """A fork is converted with its parent, shares the converted records and keeps its messages."""
    store = make_store()
    assert convert(store, "f") == "f.2"
    assert next(read_conversation(store, "f.2")).event["parent"] == "c.2"
    assert export_messages(store.read_lines("f.2"), "f.2", parents=store.read_lines) == [
        message
        for message in EXPECTED["forks/of_tool_loop"]["messages"]
        if not str(message["content"]).startswith(APOLOGY)
    ]
    assert all(not isinstance(result, LogDamaged) for result in verify_store(store))


def test_a_fork_uses_a_parent_that_is_converted_already() -> None:
    """The parent is converted once, whichever of the two comes first."""
    store = make_store()
    convert(store, "c")
    assert [converted.name for converted in plan_conversion(store, "f", "0.2.0")] == ["f.2"]


def test_every_limit_of_release_0_1_is_written_down() -> None:
    """A converted turn has all limits in its record, so a later default cannot change it."""
    store = make_store("budgeted")
    name = convert(store, "c")
    started = next(r for r in read_conversation(store, name) if r.event_type == "turn_started")
    assert set(LIMITS) <= set(started.event["settings"]["limits"])


def test_a_log_that_release_0_1_would_not_replay_is_not_converted() -> None:
    """Where the core makes another step than the recorded one, the error names the record."""
    store = make_store("diverges")
    with pytest.raises(SpecError, match="cannot be converted: record 7: its guards"):
        plan_conversion(store, "c", "0.2.0")
    assert list(store.list_conversations()) == ["c"]


def test_a_chart_that_cannot_be_adapted_is_named() -> None:
    """A chart that today's rules refuse gives an error with the record and the key path."""
    store = MemoryStore()
    store.append(
        "c", 0, change_chart("tool_loop", "{final: true, enter: answer}", "{final: true, enter: call_model}")
    )
    with pytest.raises(SpecError) as error:
        plan_conversion(store, "c", "0.2.0")
    assert error.value.file == "the chart of conversation c, record 0"
    assert str(error.value.path).startswith("states.finished")


def test_a_conversation_of_format_2_is_not_converted() -> None:
    """Converting twice is an error and not a copy."""
    store = make_store("full")
    name = convert(store, "c")
    with pytest.raises(SpecError, match="not of format 1"):
        plan_conversion(store, name, "0.2.0")
    with pytest.raises(SpecError, match="already"):
        plan_conversion(store, "c", "0.2.0")


def test_a_chart_is_adapted_without_changing_the_given_one() -> None:
    """`waited` becomes `elapsed`, and only a state that waits for decisions on its own asks for them."""
    chart = {
        "name": "x",
        "states": {
            "pausing": {"enter": "wait", "transitions": [{"event": "waited", "target": "asking"}]},
            "reviewing": {"enter": "review_calls", "transitions": [{"event": "reviewed decided"}]},
            "outer": {"states": {"asking": {"transitions": [{"event": "decided", "target": "pausing"}]}}},
        },
    }
    before = json.dumps(chart)
    states = adapt_chart_document(chart)["states"]
    assert json.dumps(chart) == before
    assert states["pausing"]["transitions"] == [{"event": "elapsed", "target": "asking"}]
    assert states["reviewing"]["enter"] == "review_calls"
    assert states["outer"]["states"]["asking"]["enter"] == "ask_approval"


def test_records_of_format_1_show_what_they_have() -> None:
    """The view of a record of format 1 has its effects without ids and claims nothing else."""
    records = list(read_records(read_log_lines("approval"), "c"))
    asks = [ask for record in records for ask in record.asks]
    assert {ask.id for ask in asks} == {None}
    assert {record.fired for record in records} == {None}
    assert any(ask.name == "run_tools" and ask.data["calls"] for ask in asks)
