"""Plain lines in an encrypted log, and keys that do not fit: refused by everything that reads or opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, make_function_tool, reply_with_calls
from postgres_database import create_database

from toolchart.engine.log.reading.records import read_conversation
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.secrecy.copying import copy_log
from toolchart.engine.log.secrecy.keys import LogKeys
from toolchart.engine.log.stores import open_store, open_store_for_reading
from toolchart.engine.log.stores.jsonl import JsonlStore
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.runtime.ownership import Message, encode_message
from toolchart.states.errors import LogDamaged, LogUnavailable, MissingKey
from toolchart.states.events import Cancelled
from toolchart.states.ports import Store

OLD, NEW, OTHER = bytes(range(32)), bytes(range(1, 33)), b"x" * 32


@pytest.fixture(params=("sqlite", "jsonl", "postgres"))
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty log, in each kind of store."""
    if request.param == "postgres":
        yield create_database(request.getfixturevalue("postgres"), tmp_path)
    else:
        yield str(tmp_path / "log.db") if request.param == "sqlite" else f"{tmp_path}/log/"


def write_turns(address: str, keys: LogKeys | None, *names: str) -> None:
    """Run one turn in each of these conversations."""
    store = open_store(address, keys=keys or False)
    with make_engine(["one"] * len(names), log=store) as engine:
        for name in names:
            engine.run("hi", conversation=name)
    store.close()


def read_plain(address: str, conversation: str) -> MemoryStore:
    """A conversation of an encrypted log with its checkpoints, in the clear."""
    copy, store = MemoryStore(), open_store_for_reading(address, keys=LogKeys([NEW]))
    copy.append(conversation, 0, list(store.read_lines(conversation)))
    for seq, data in store.read_checkpoints(conversation):  # type: ignore[attr-defined]
        copy.write_checkpoint(conversation, seq, data)
    store.close()
    return copy


def plant(address: str, kind: str) -> tuple[str, int | None]:
    """Write something plain into an encrypted log, as somebody without the key can; its conversation and
    record. All of it is what Toolchart itself writes: only the encryption is missing."""
    plain = read_plain(address, "c")
    inner: Any = open_store(address, keys=LogKeys([NEW])).inner  # type: ignore[attr-defined]
    try:
        if kind == "record":
            count = len(list(plain.read_lines("c")))
            make_engine(["two"], log=plain).run("and?", conversation="c")
            inner.append("c", count, list(plain.read_lines("c", count)))
            return "c", count
        if kind == "conversation":
            make_engine(["one"], log=plain).run("hi", conversation="planted")
            inner.append("planted", 0, list(plain.read_lines("planted")))
            return "planted", 0
        if kind == "checkpoint":
            seq, data = next(iter(plain.read_checkpoints("c")))
            if isinstance(inner, JsonlStore):  # it writes none for what another store has appended
                inner._known_ends["c"] = (seq + 1, inner._build_path("c").stat().st_size)
            inner.write_checkpoint("c", seq, data)
            return "c", seq
        event = Cancelled(reason="planted")
        inner.post("c", "cancelled/planted", encode_message(Message(conversation="c", event=event)))
        return "c", None
    finally:
        inner.close()


def list_damages(store: Store) -> list[LogDamaged]:
    """The damages of a log."""
    return [outcome for outcome in verify_store(store) if isinstance(outcome, LogDamaged)]


@pytest.mark.parametrize("kind", ["record", "conversation", "checkpoint", "entry"])
def test_what_is_not_encrypted_is_refused(address: str, kind: str) -> None:
    """With the key, a plain record, conversation, checkpoint or entry is named by `verify`, and refused by
    whatever reads it: show, replay, run, resume and recover. All else of the log can be read and goes on.
    Without the key `verify` names it too."""
    keys = LogKeys([NEW])
    write_turns(address, keys, "c", "d")
    name, seq = plant(address, kind)
    for reader in (open_store_for_reading(address, keys=keys), open_store_for_reading(address)):
        (damage,) = list_damages(reader)
        assert (damage.conversation, damage.seq) == (name, seq)
        assert "is not encrypted" in damage.problem
        assert "convert --to" in damage.problem
        reader.close()
    reader = open_store_for_reading(address, keys=keys)
    store = open_store(address, keys=keys)
    engine = make_engine(["never", "never"], log=store)
    recovered = {turn.conversation: turn.error or "" for turn in engine.recover()}
    if kind == "conversation":
        assert "is not encrypted" in recovered["planted"]
    doors: list[Callable[[], Any]] = []
    if kind in ("record", "conversation"):
        doors += [
            lambda: list(read_conversation(reader, name)),
            lambda: list(replay_conversation(reader, name)),
        ]
    if kind != "entry":
        doors += [
            lambda: engine.run("go on", conversation=name),
            lambda: engine.resume(name),
            lambda: engine.describe_turn(name),
        ]
    for door in doors:
        with pytest.raises(LogDamaged, match="is not encrypted"):
            door()
    assert len(list(read_conversation(reader, "d"))) > 2
    if kind == "entry":
        assert list_damages(store) == [], "the entry is gone from the inbox, and no event of it was recorded"
        assert b"planted" not in b"".join(store.read_lines("c"))
    assert make_engine(["two"], log=store).run("and?", conversation="d").content == "two"
    store.close()
    reader.close()


def test_a_plain_entry_of_a_running_turn_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that finds a plain entry while its turn runs drops it with a warning, and the turn ends."""
    address, keys = str(tmp_path / "log.db"), LogKeys([NEW])
    store: Any = open_store(address, keys=keys)

    def post(arguments: dict[str, Any]) -> str:
        """Plant a cancellation while the turn runs."""
        event = Cancelled(reason="planted")
        store.inner.post("c", "cancelled/x", encode_message(Message(conversation="c", event=event)))
        return "posted"

    tool = make_function_tool("post", {"type": "object"}, post)
    engine = make_engine([reply_with_calls(("post", {})), "done"], log=store, functions=[tool])
    assert engine.run("go", conversation="c").content == "done"
    assert store.read_inbox(["c"]) == []
    assert "has no place" in caplog.text
    assert "is not encrypted" in caplog.text
    engine.close()
    store.close()


def test_an_entry_under_a_missing_key_holds_no_other_one_up(tmp_path: Path) -> None:
    """Entries that can be decrypted are read beside one whose key is missing, which is neither taken nor
    lost."""
    address = str(tmp_path / "log.db")
    first = open_store(address, keys=LogKeys([OLD]))
    first.post("c", "a", b"old")  # type: ignore[attr-defined]
    first.close()
    second: Any = open_store(address, keys=LogKeys([NEW]))
    second.post("c", "b", b"new")
    old, new = second.read_inbox(["c"])
    assert (type(old.fault), old.data) == (MissingKey, b"")
    assert (new.fault, new.data) == (None, b"new")
    second.close()


def test_wrong_keys_are_refused_where_a_log_is_opened_for_writing(address: str) -> None:
    """Other keys than those of the log, a key for a plain log, and keys from before a change are refused, and
    nothing is written; the error names the ids of the keys, or how a plain log is copied. The newest key
    alone, and all keys, open the log; so do they where somebody has planted a plain conversation."""
    write_turns(address, LogKeys([OLD]), "a")
    with pytest.raises(MissingKey, match=LogKeys([OLD]).newest_id) as error:
        open_store(address, keys=LogKeys([OTHER]))
    assert LogKeys([OTHER]).newest_id in str(error.value)
    write_turns(address, LogKeys([OLD, NEW]), "b", "c", "d")
    plant(address, "conversation")
    for keys in (LogKeys([NEW]), LogKeys([OLD, NEW])):
        open_store(address, keys=keys).close()
    for keys in (LogKeys([OTHER]), LogKeys([OLD])):
        with pytest.raises(MissingKey, match=LogKeys([NEW]).newest_id):
            open_store(address, keys=keys)
    with pytest.raises(MissingKey, match="no key is given"):
        open_store(address, keys=False)


def test_a_plain_log_is_not_opened_with_keys(address: str) -> None:
    """An empty log is encrypted from its first record on; one that holds plain conversations is refused, with
    the way to copy it."""
    open_store(address, keys=LogKeys([NEW])).close()
    write_turns(address, None, "a")
    with pytest.raises(LogUnavailable, match="convert --to NEW --to-key FILE --accept-plain"):
        open_store(address, keys=LogKeys([NEW]))
    open_store(address, keys=False).close()


def test_a_mixed_log_is_copied_where_the_operator_accepts_it(tmp_path: Path) -> None:
    """`copy_log` refuses plain records beside encrypted ones; of a log that was opened with `accept_plain` it
    copies them, and the copy is encrypted throughout."""
    address, keys = str(tmp_path / "log.db"), LogKeys([NEW])
    write_turns(address, keys, "c", "d")
    plant(address, "conversation")
    plant(address, "record")
    strict, target = open_store(address, keys=keys), open_store(tmp_path / "a.db", keys=keys)
    with pytest.raises(LogDamaged, match="is not encrypted"):
        list(copy_log(strict, target))
    strict.close()
    target.close()
    source, target = (
        open_store(address, keys=keys, accept_plain=True),
        open_store(tmp_path / "b.db", keys=keys),
    )
    assert list(copy_log(source, target)) == ["c", "d", "planted"]
    assert [type(outcome) for outcome in verify_store(target)] == [VerifiedConversation] * 3
    source.close()
    target.close()
