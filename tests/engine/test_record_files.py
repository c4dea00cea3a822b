"""Files of `export --format jsonl`: the same bytes come back, and no change of a file passes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import tracemalloc
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine
from golden_logs import list_golden_logs, load_golden_store, read_golden_log, split_conversations
from hypothesis import given
from hypothesis import strategies as st
from written_logs import write_conversation

from toolchart.engine.log.family import list_relatives
from toolchart.engine.log.record import seal_line
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.seal import SEAL_VERSION, Seal, find_lost_records
from toolchart.engine.log.stores import open_store, open_store_for_reading
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.record_file import RecordFile, begins_as_record_file, iterate_file_lines
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import ForeignLog, LogDamaged, LogUnavailable, SpecError
from toolchart.states.ports import Store
from toolchart.states.reading_limits import READING

GOLDEN = list_golden_logs()
FAMILIES = ("children-ask", "forks", "children-that-fail")


@pytest.fixture(scope="module")
def store() -> Store:
    """Two conversations."""
    store = MemoryStore()
    for name in ("c", 'ä"b'):
        write_conversation(store, 1, name=name)
    return store


def export(store: Store, *names: str) -> bytes:
    """The file of these conversations, or of all."""
    return b"".join(iterate_file_lines(store, names or store.list_conversations()))


def open_file(folder: Path, data: bytes) -> RecordFile:
    """A file with these bytes, opened."""
    path = folder / "log.jsonl"
    path.write_bytes(data)
    return RecordFile(path)


def read_all(store: Store) -> dict[str, list[bytes]]:
    """The lines of each conversation."""
    return {name: list(store.read_lines(name)) for name in store.list_conversations()}


@pytest.mark.parametrize("name", GOLDEN)
def test_every_golden_log_comes_back(name: str, tmp_path: Path) -> None:
    """Each golden log is exported and read again byte for byte, and verifies as before; its export from a
    SQLite log into which the file was copied is the same file."""
    store = load_golden_store(split_conversations(read_golden_log(name)))
    data = export(store)
    with_file = open_file(tmp_path, data)
    assert read_all(with_file) == read_all(store)
    assert list(verify_store(with_file)) == list(verify_store(store))
    database = open_store(tmp_path / "log.db", durable=False)
    for conversation in with_file.list_conversations():
        assert with_file.read_last_line(conversation) == store.read_last_line(conversation)
        database.append(conversation, 0, list(with_file.read_lines(conversation)))
    assert export(database) == data
    database.close()


def test_parts_of_a_conversation_are_read(store: Store, tmp_path: Path) -> None:
    """Lines are read from any number on, side by side; an unknown conversation has none."""
    file = open_file(tmp_path, export(store))
    lines = list(store.read_lines("c"))
    for start in range(len(lines) + 1):
        assert list(file.read_lines("c", start)) == lines[start:]
    pairs = zip(file.read_lines("c"), file.read_lines("c"), strict=True)
    assert [first == second for first, second in pairs] == [True] * len(lines)
    assert list(file.read_lines("d")) == []
    assert file.read_last_line("d") is None
    assert file.find_lease("c") is None
    assert file.read_inbox(["c"]) == []
    file.close()
    file.close()


def test_every_changed_byte_is_refused(store: Store, tmp_path: Path) -> None:
    """A byte that is changed, removed or added anywhere in a file is damage, and its line or the next one is
    named, or what the heading says; in the first bytes the file is no file of records any more."""
    data = export(store, "c")
    places = list(choose_places(data))
    changes = chain(
        (data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :] for at in places for flip in (1, 32)),
        (data[:at] + data[at + 1 :] for at in places),
        (data[:at] + b"0" + data[at:] for at in (*places, len(data))),
    )
    for changed in changes:
        with pytest.raises((LogDamaged, ForeignLog)) as raised:
            open_file(tmp_path, changed)
        pairs = zip(changed, data, strict=False)
        first = next((at for at, (new, old) in enumerate(pairs) if new != old), len(data))
        if isinstance(raised.value, ForeignLog):
            assert first < len(b'{"conversation":"')
        else:
            line = data.count(b"\n", 0, min(first, len(data) - 1)) + 1
            words = f"line ({line}|{line + 1}) of " if line > 1 else "heading|belongs to another"
            assert re.search(words, str(raised.value))


def choose_places(data: bytes) -> Iterator[int]:
    """Places all over a file: each of the heading and around the ends of lines, and some others."""
    heading = data.index(b"\n")
    ends = {at + distance for at, byte in enumerate(data) if byte == 10 for distance in range(-80, 10)}
    yield from (at for at in range(len(data)) if at <= heading or at in ends or at % 97 == 0)


@given(st.data())
def test_lines_that_are_moved_are_refused(data: st.DataObject) -> None:
    """Lines that are left out, repeated, swapped or cut off at the end are damage, wherever they stand. Whole
    conversations may be left out, joined and put into another order."""
    store = MemoryStore()
    for name in ("c", "d"):
        write_conversation(store, 1, name=name)
    lines = export(store).splitlines(keepends=True)
    places = st.integers(0, len(lines) - 1)
    first, second = sorted((data.draw(places), data.draw(places)))
    kind, end = data.draw(st.sampled_from(["swap", "drop", "repeat", "cut", "turn"])), second + 1
    swapped = list(lines)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    changed = {
        "swap": swapped,
        "drop": lines[:first] + lines[first + 1 :],
        "repeat": [*lines[:second], lines[first], *lines[second:]],
        "cut": lines[:end],
        "turn": lines[end:] + lines[:end],
    }[kind]
    whole = [len(lines), *(at for at, line in enumerate(lines) if line.startswith(b'{"conversation":'))]
    with tempfile.TemporaryDirectory() as folder:
        if changed == lines or (kind in ("cut", "turn") and end in whole):
            outcomes = list(verify_store(open_file(Path(folder), b"".join(changed))))
            assert {type(outcome) for outcome in outcomes} == {VerifiedConversation}
        else:
            with pytest.raises((LogDamaged, ForeignLog)):
                open_file(Path(folder), b"".join(changed))


def test_a_heading_that_was_written_anew_is_shown_by_a_sealed_head(store: Store, tmp_path: Path) -> None:
    """Who cuts records off and writes the heading anew leaves a file that agrees with itself; a head that was
    kept elsewhere does not agree with it."""
    whole = open_file(tmp_path, export(store, "c"))
    (outcome,) = verify_store(whole)
    assert isinstance(outcome, VerifiedConversation)
    seal = Seal(seal=SEAL_VERSION, at="2026-01-01", heads=[("c", outcome.records, outcome.head)])
    assert list(find_lost_records(whole, seal)) == []
    shorter = MemoryStore()
    shorter.append("c", 0, list(store.read_lines("c"))[:-1])
    file = open_file(tmp_path, export(shorter))
    assert [type(outcome) for outcome in verify_store(file)] == [VerifiedConversation]
    (damage,) = find_lost_records(file, seal)
    assert "its end was cut off" in str(damage)


@pytest.mark.parametrize("golden", GOLDEN)
def test_an_export_has_all_that_it_refers_to(golden: str, tmp_path: Path) -> None:
    """The file of one conversation alone verifies and replays: agents, parents and forks are in it."""
    store = load_golden_store(split_conversations(read_golden_log(golden)))
    for conversation in store.list_conversations():
        names = list_relatives(store, conversation)
        assert conversation in names
        file = open_file(tmp_path, export(store, *names))
        outcomes = {type(outcome) for outcome in verify_store(file)}
        assert outcomes == {type(outcome) for outcome in verify_store(store, names)}
        if outcomes == {VerifiedConversation} and golden in FAMILIES:
            assert len(list(replay_conversation(file, conversation))) > 0


@pytest.mark.parametrize(
    ("heading", "names"), [({"tags": {"a": "b"}}, ["c", "f"]), ({"owner": "bert"}, ["f"])]
)
def test_what_belongs_to_another_owner_is_left_out(heading: dict[str, Any], names: list[str]) -> None:
    """A fork brings the conversation that it was forked from, but not where that has another owner."""
    store = MemoryStore()
    with make_engine(["hello"], log=store) as engine:
        engine.run("hi", conversation="c")
        engine.conversation("c").fork(name="f")
    record = json.loads(next(store.read_lines("f")))
    record["event"] |= heading
    body = {key: value for key, value in record.items() if key != "hash"}
    changed = MemoryStore()
    changed.append("c", 0, list(store.read_lines("c")))
    changed.append("f", 0, [seal_line(json.dumps(body, separators=(",", ":")).encode())[0]])
    assert list_relatives(changed, "f") == names


def test_what_is_appended_meanwhile_is_left_out(store: Store, tmp_path: Path) -> None:
    """An export that runs while the conversation goes on holds the records that were there when it began."""
    growing = MemoryStore()
    lines = list(store.read_lines("c"))
    growing.append("c", 0, lines[:3])
    exported = iterate_file_lines(growing, ["c", "gone"])
    data = next(exported)
    growing.append("c", 3, lines[3:])
    file = open_file(tmp_path, data + b"".join(exported))
    assert list(file.read_lines("c")) == lines[:3]


def test_a_damaged_log_is_not_exported(store: Store) -> None:
    """An export stops at the first damaged record, and its file is then one whose end is missing."""
    damaged = MemoryStore()
    lines = list(store.read_lines("c"))
    damaged.append("c", 0, [*lines[:2], lines[2].replace(b"1", b"2", 1), *lines[3:]])
    exported: list[bytes] = []
    with pytest.raises(LogDamaged):
        exported.extend(iterate_file_lines(damaged, ["c"]))
    assert len(exported) == 3


def test_a_secret_is_not_exported(store: Store) -> None:
    """A record that holds a secret of this process is not handed on: its bytes cannot be struck."""
    remember_secret(next(iter(store.read_lines("c"))).decode()[200:260])
    with pytest.raises(SpecError, match="record 0 of conversation 'c' holds a secret"):
        list(iterate_file_lines(store, ["c"]))


def test_one_line_at_a_time_is_in_memory(tmp_path: Path) -> None:
    """To write and to read a file takes the memory of some lines, and not that of the file."""
    store = open_store(tmp_path / "log.db", durable=False)
    for number in range(180):
        write_conversation(store, 3, name=f"c{number}")
    path = tmp_path / "log.jsonl"
    list(iterate_file_lines(store, ["c0"]))  # what is imported late is not counted
    tracemalloc.start()
    with path.open("wb") as file:
        for line in iterate_file_lines(store, store.list_conversations()):
            file.write(line)
    opened = RecordFile(path)
    for name in opened.list_conversations():
        for _ in opened.read_lines(name):
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    opened.close()
    store.close()
    assert peak < path.stat().st_size / 3


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", LogDamaged, "line 1 of .*: the file is empty"),
        (b"\n", ForeignLog, "it does not begin with the heading of a conversation"),
        (b'{"role":"user","content":"hi"}\n', ForeignLog, "toolchart export --format jsonl"),
        (b'{"conversation":"c"}\n', LogDamaged, "line 1 of .*: it is no heading"),
        (b'{"conversation":"c","records":0,"head":""}\n', LogDamaged, "line 1 of .*: it is no heading"),
        (b'{"conversation":"c","records":3,"head":""}\n', LogDamaged, "says 3 records, and 0 are there"),
        (
            b'{"conversation":"c","records":3,"head":""}\n{}\n',
            LogDamaged,
            "line 2 of .*: it does not end with a hash",
        ),
        (b'{"conversation":"c","records":1,"head":""}', LogDamaged, "line 1 of .*: its end is missing"),
    ],
)
def test_what_is_no_file_of_records(data: bytes, error: type[Exception], words: str, tmp_path: Path) -> None:
    """An error says what is wrong with a file, and in which line."""
    with pytest.raises(error, match=words):
        open_file(tmp_path, data)
    assert begins_as_record_file(tmp_path / "log.jsonl") == data.startswith(b'{"conversation":"c","records"')


def test_a_line_without_an_end_is_not_read_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A line is read up to a limit that no record reaches."""
    monkeypatch.setattr(READING, "record_bytes", 1000)
    heading = b'{"conversation":"c","records":1,"head":""}\n'
    with pytest.raises(LogDamaged, match=r"line 2 of .*: it is longer than 1,000 bytes"):
        open_file(tmp_path, heading + b"x" * 2000)


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "a\x1b[2J", "a\u202eb", "a\u2028b", "x" * 513, "x" * 513 + ".1.y"]
)
def test_an_id_that_no_command_gives_is_refused(name: str, tmp_path: Path) -> None:
    """A file with an id that cannot be typed or is too long is damage, in its line; nothing writes one."""
    store = MemoryStore()
    write_conversation(store, 1, name=name)
    with pytest.raises(SpecError, match=r"cannot be the id of a conversation|at most 512 characters"):
        export(store, name)
    store = MemoryStore()
    write_conversation(store, 1, name="c")
    lines = export(store).splitlines(keepends=True)
    heading = json.loads(lines[0]) | {"conversation": name}
    first = json.dumps(heading, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    for data, line in ((first + b"".join(lines[1:]), 1), (b"".join(lines) + first, len(lines) + 1)):
        with pytest.raises(
            LogDamaged, match=f"line {line} of .*: it is no heading|line {line} of .*: .*id of a"
        ):
            open_file(tmp_path, data)


def test_the_ids_of_agents_may_be_longer(tmp_path: Path) -> None:
    """The id of an agent is that of its parent with numbers, so it may be longer than a given one."""
    store, name = MemoryStore(), "x" * 512 + ".3.1"
    write_conversation(store, 1, name=name)
    assert list(open_file(tmp_path, export(store)).list_conversations()) == [name]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_file_of_records(tmp_path: Path) -> None:
    """What is no regular file is refused without waiting for somebody who writes into it."""
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(LogUnavailable, match=r"no regular file\n.*write it to a file first"):
        open_store_for_reading(tmp_path / "log.jsonl")


def test_nobody_writes_to_a_file(store: Store, tmp_path: Path) -> None:
    """A path that ends in `.jsonl` is opened for reading alone; who would write is told what to do."""
    file = open_file(tmp_path, export(store))
    before = file.path.read_bytes()
    for write in (
        lambda: file.append("c", 0, [b"x"]),
        lambda: file.delete("c"),
        lambda: file.post("c", "key", b"x"),
        lambda: file.acquire_lease("c", "w", 10),
        lambda: open_store(file.path),
        lambda: open_store(tmp_path / "new.jsonl"),
    ):
        with pytest.raises(LogUnavailable, match=r"only read\n.*toolchart import .*\.jsonl --log FILE\.db"):
            write()
    assert not (tmp_path / "new.jsonl").exists()
    assert file.path.read_bytes() == before
    opened = open_store_for_reading(file.path)
    assert read_all(opened) == read_all(store)
    assert asyncio.run(asyncio.to_thread(read_all, opened)) == read_all(store)
    with pytest.raises(LogUnavailable, match="cannot be read: No such file"):
        open_store_for_reading(tmp_path / "new.jsonl")
