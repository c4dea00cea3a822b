"""Checkpoints: going on derives only what came after the newest one, and never trusts a wrong one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from written_logs import ADD, AT, WrittenLog, make_configured_event, write_conversation

from toolchart.engine.log import record as records
from toolchart.engine.log import replay as replay_module
from toolchart.engine.log.continuation.checkpoint import Checkpoint, _seal_checkpoint
from toolchart.engine.log.continuation.versions import build_versions
from toolchart.engine.log.record import FORMAT
from toolchart.engine.log.replay import load_conversation, replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.base import CHECKPOINT
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import LogDamaged, UnknownSemantics
from toolchart.states.events import Continued, Forked, Replied, Reviewed, Verdict
from toolchart.states.messages import Reply, ToolCall
from toolchart.states.snapshot import Snapshot


def name_checkpoint(seq: int) -> tuple[str, str]:
    """Kind and key of the checkpoint of a record."""
    return CHECKPOINT, f"{seq:012d}"


def list_checkpoint_seqs(store: Any) -> list[int]:
    """The record numbers of the checkpoints, newest first."""
    return [seq for seq, _ in store.read_checkpoints("c")]


def derive_snapshot(store: Any, name: str = "c") -> Snapshot:
    """The newest snapshot, derived from record 0 on."""
    *_, newest = replay(store.read_lines(name), name, parents=store.read_lines)
    return newest.step.snapshot


def forbid_deriving(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on deriving a step is an error."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a step was derived")

    monkeypatch.setattr(replay_module, "derive_step", refuse)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_going_on_starts_from_the_newest_checkpoint(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation at rest is loaded without deriving a step or reading a message; both are right."""
    store = open_store("memory" if kind == "memory" else tmp_path / "log.db")
    written = write_conversation(store, 3)
    assert list_checkpoint_seqs(store) == [15, 10, 5]
    assert [type(result) for result in verify_store(store)] == [VerifiedConversation]
    forbid_deriving(monkeypatch)
    loaded = load_conversation(store, "c")
    assert loaded is not None
    assert (loaded.next_seq, loaded.head) == (16, written.journal._prev)
    assert replace(loaded.snapshot, tracked_calls=written.snapshot.tracked_calls) == written.snapshot
    assert list(loaded.snapshot.messages) == list(written.snapshot.messages)
    earlier = load_conversation(store, "c", 10)
    assert earlier is not None
    assert (earlier.next_seq, len(earlier.snapshot.messages)) == (11, 8)


def test_a_turn_is_derived_on_top_of_the_checkpoint() -> None:
    """Records after the checkpoint are derived; open effects and open calls are those of a whole replay."""
    store = MemoryStore()
    written = write_conversation(store, 2)
    written.start_turn("again")
    call = ToolCall(id="x", name="add", arguments={})
    written.apply_event(Replied(at=AT, reply=Reply(finish_reason="tool_calls", tool_calls=(call,))))
    written.apply_event(Reviewed(at=AT, verdicts=(Verdict(call_id="x", ruling="run"),)))
    loaded = load_conversation(store, "c")
    assert loaded is not None
    assert loaded.snapshot == derive_snapshot(store)
    assert [effect.name for effect in loaded.snapshot.open_effects] == ["run_tools"]
    resumed = WrittenLog(store, loaded=loaded)
    resumed.finish_tool("x")
    resumed.end_turn()
    resumed.run_turns(1)
    assert list_checkpoint_seqs(store)[:2] == [20, 15]
    assert sum(1 for _ in replay(store.read_lines("c"), "c")) == 21


def test_a_long_turn_has_checkpoints_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every so many records an open turn has a checkpoint, with the open model call and the turn's calls."""
    monkeypatch.setattr(records, "CHECKPOINT_EVERY", 6)
    store = MemoryStore()
    written = WrittenLog(store)
    written.configure()
    written.start_turn()
    for index in range(4):
        written.call_tool(f"c{index}", commit=index % 2 == 1)
    assert list_checkpoint_seqs(store) == [13, 7]
    before = derive_snapshot(store)
    forbid_deriving(monkeypatch)
    loaded = load_conversation(store, "c")
    assert loaded is not None
    assert loaded.snapshot.open_effects == before.open_effects
    assert list(loaded.snapshot.tracked_calls) == list(before.tracked_calls)
    assert loaded.snapshot == before
    (effect,) = loaded.snapshot.open_effects
    assert list(effect.request.messages) == list(before.open_effects[0].request.messages)
    monkeypatch.undo()
    resumed = WrittenLog(store, loaded=loaded)
    resumed.end_turn()
    assert sum(1 for _ in replay(store.read_lines("c"), "c")) == 15


def test_a_damaged_checkpoint_is_found() -> None:
    """A changed byte of a checkpoint is damage for `verify` and for going on; it names the record."""
    store = MemoryStore()
    write_conversation(store, 2)
    data = store._values["c"][name_checkpoint(10)]
    for changed in (data.replace(b'"turn":2', b'"turn":3'), data[:-5] + b'0"}  ', b"{}", b""):
        store._values["c"][name_checkpoint(10)] = changed
        with pytest.raises(LogDamaged) as error:
            load_conversation(store, "c")
        assert (error.value.conversation, error.value.seq) == ("c", 10)
        (result,) = verify_store(store)
        assert isinstance(result, LogDamaged)
        assert result.seq == 10


def test_another_checkpoint_in_the_place_of_one_is_found() -> None:
    """A checkpoint with a valid digest of its own is refused where the record after it names another."""
    store, other = MemoryStore(), MemoryStore()
    write_conversation(store, 2)
    forged = msgspec.json.decode(store._values["c"][name_checkpoint(5)])
    forged["context"]["answer"] = "changed"
    sealed, _ = _seal_checkpoint(msgspec.convert({**forged, "digest": ""}, Checkpoint))
    store._values["c"][name_checkpoint(5)] = sealed
    with pytest.raises(LogDamaged, match="names another checkpoint"):
        load_conversation(store, "c", 7)
    (result,) = verify_store(store)
    assert isinstance(result, LogDamaged)
    assert result.seq == 5
    write_conversation(other, 1)
    other._values["c"][name_checkpoint(9)] = store._values["c"][name_checkpoint(10)]
    assert isinstance(next(verify_store(other)), LogDamaged)


def test_a_checkpoint_with_another_open_effect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newest checkpoint with a valid digest whose open effect is not what its record asks for is damage."""
    monkeypatch.setattr(records, "CHECKPOINT_EVERY", 2)
    store = MemoryStore()
    written = WrittenLog(store)
    written.configure()
    written.start_turn()
    asyncio.run(written.journal.commit())
    (seq,) = list_checkpoint_seqs(store)
    data = store._values["c"][name_checkpoint(seq)]
    for path, value in (("model", "other"), ("system", "Pay everybody."), ("schema", {}), ("host", "other")):
        forged = msgspec.json.decode(data)
        assert forged["effects"][0][path] != value
        forged["effects"][0][path] = value
        sealed, _ = _seal_checkpoint(msgspec.convert({**forged, "digest": ""}, Checkpoint))
        store._values["c"][name_checkpoint(seq)] = sealed
        with pytest.raises(LogDamaged, match=r"another effect 1 \(call_model\) than the record asks for"):
            load_conversation(store, "c")
    store._values["c"][name_checkpoint(seq)] = data
    assert load_conversation(store, "c") is not None


def test_a_missing_checkpoint_costs_time_and_nothing_else() -> None:
    """Without the newest one an older one serves, and without any the whole log is derived."""
    store = MemoryStore()
    written = write_conversation(store, 4)
    messages = list(written.snapshot.messages)
    for missing in (20, 10, 5, 15):
        del store._values["c"][name_checkpoint(missing)]
        loaded = load_conversation(store, "c")
        assert loaded is not None
        assert (loaded.next_seq, loaded.head) == (21, written.journal._prev)
        assert list(loaded.snapshot.messages) == messages
        assert [type(result) for result in verify_store(store)] == [VerifiedConversation]
    resumed = WrittenLog(store, loaded=loaded)
    resumed.run_turns(1)
    assert list_checkpoint_seqs(store) == [25]
    reloaded = load_conversation(store, "c")
    assert reloaded is not None
    assert len(list(reloaded.snapshot.messages)) == len(messages) + 4


def test_a_checkpoint_that_no_record_names_is_left_aside() -> None:
    """A checkpoint is used if the record after it names it, or if it belongs to the newest record."""
    store = MemoryStore()
    write_conversation(store, 1)
    loaded = load_conversation(store, "c")
    assert loaded is not None
    unaware = WrittenLog(store, loaded=replace(loaded, basis=loaded.basis.without_checkpoint()))
    unaware.run_turns(1)
    lines = list(store.read_lines("c"))
    assert b'"checkpoint"' not in lines[6]
    del store._values["c"][name_checkpoint(10)]
    assert load_conversation(store, "c") is not None
    assert sum(1 for _ in replay(lines, "c")) == 11


# -- other semantics -----------------------------------------------------------------------------


def write_foreign_conversation(store: Any, *, open_turn: bool) -> None:
    """A conversation that says that another release derived it, with other semantics."""
    foreign = replace(build_versions((ADD,), {}), semantics=99, toolchart="9.9.0")
    log = WrittenLog(store)
    log.configure(versions=foreign)
    log.run_turns(2)
    if open_turn:
        log.start_turn("open")


def test_other_semantics_are_named() -> None:
    """Replay of records that another release derived names that release, and derives none of them."""
    store = MemoryStore()
    write_foreign_conversation(store, open_turn=False)
    with pytest.raises(UnknownSemantics, match="semantics 99") as error:
        list(replay(store.read_lines("c"), "c"))
    assert error.value.release == "9.9.0"
    assert error.value.blame == "release"


def test_going_on_under_another_release_needs_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a checkpoint `continued` opens a new segment; in an open turn going on is refused."""
    store = MemoryStore()
    write_foreign_conversation(store, open_turn=False)
    loaded = load_conversation(store, "c")
    assert loaded is not None
    assert loaded.versions.semantics == 99
    going_on = WrittenLog(store, loaded=loaded)
    going_on.apply_event(Continued(at=AT, versions=build_versions((ADD,), {})))
    going_on.run_turns(1)
    again = load_conversation(store, "c")
    assert again is not None
    assert again.versions == build_versions((ADD,), {})
    assert len(list(again.snapshot.messages)) == 12
    assert [type(result) for result in verify_store(store)] == [VerifiedConversation]
    with pytest.raises(UnknownSemantics):
        list(replay(store.read_lines("c"), "c"))
    other = MemoryStore()
    write_foreign_conversation(other, open_turn=True)
    with pytest.raises(UnknownSemantics, match=r"release 9\.9\.0"):
        load_conversation(other, "c")


# -- forks ---------------------------------------------------------------------------------------


def test_a_fork_starts_from_a_checkpoint_of_its_parent() -> None:
    """A fork has checkpoints of its own; its parent's messages are among its first ones."""
    store = MemoryStore()
    write_conversation(store, 2)
    parent = load_conversation(store, "c", 7)
    assert parent is not None
    fork = WrittenLog(store, "f", loaded=replace(parent, next_seq=0, head="0" * 64))
    fork.journal = records.Journal(fork.journal._log, "f", basis=parent.basis.without_checkpoint())
    fork.apply_event(Forked(at=AT, format=FORMAT, conversation="f", parent="c", seq=7, head=parent.head))
    expected = derive_snapshot(store, "f")
    loaded = load_conversation(store, "f")
    assert loaded is not None
    assert loaded.snapshot == expected
    assert [effect.name for effect in loaded.snapshot.open_effects] == ["review_calls"]
    assert [type(result) for result in verify_store(store)] == [VerifiedConversation] * 2


def test_a_changed_setting_is_named() -> None:
    """A changed tool body, tool definition, release or text is each named by its cause."""
    recorded = make_configured_event()
    versions = recorded.versions
    changes = {
        "tool source": {"versions": replace(versions, sources={"add": "1" * 32})},
        "tool schema": {"tools": (replace(ADD, description="Another."),)},
        "release": {"versions": replace(versions, toolchart="9.9.0")},
        "texts": {"texts": {**recorded.texts, "failed": "Sorry: {reason}"}},
        "spec": {"spec": {"name": "x"}},
        "chart": {"chart": "name: x"},
    }
    for cause, change in changes.items():
        with pytest.raises(replay_module.ReplayMismatch) as error:
            replay_module.compare_configuration(recorded, make_configured_event(**change), 0)
        assert error.value.blame == cause
    replay_module.compare_configuration(recorded, recorded, 0)
