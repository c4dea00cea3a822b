"""The JetStream store: what it promises beyond the contract of all stores, and what befalls its server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from nats_server import NatsServer

from toolchart.engine.log.leases import name_worker
from toolchart.engine.log.stores import open_store, open_store_for_reading
from toolchart.engine.log.stores.base import Change, ValueWrite
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import (
    ForeignLog,
    LeaseHeld,
    LeaseLost,
    LogConflict,
    LogDamaged,
    LogUnavailable,
    NewerLog,
    SpecError,
)
from toolchart.states.ports import RecordBatch
from toolchart_nats.connection import ConnectionLost, Stream, compute_offset
from toolchart_nats.messages import decode_token, encode_token
from toolchart_nats.opening import check_stream
from toolchart_nats.store import JetStreamStore

pytestmark = pytest.mark.slow

FIRST, SECOND = name_worker(1), name_worker(2)

OpenLog = Callable[..., JetStreamStore]


@pytest.fixture
def address(nats_server: NatsServer, tmp_path: Path) -> str:
    """The address of this test's log."""
    return nats_server.build_address(tmp_path)


@pytest.fixture
def open_log(address: str) -> Iterator[OpenLog]:
    """A function that opens this test's log, each time by a connection of its own."""
    opened: list[Any] = []

    def open_it(place: str = address, **options: Any) -> Any:
        opened.append(open_store(place, **options))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def own_server(nats_server: NatsServer, tmp_path: Path) -> Iterator[NatsServer]:
    """A server that this test may end."""
    folder = tmp_path / "server"
    folder.mkdir()
    settings = f'jetstream {{ sync_interval: always, store_dir: "{folder}/data" }}'
    server = NatsServer(folder, settings, has_jetstream=False)
    yield server
    server.stop()


def ask(store: JetStreamStore, subject: str, body: Any = None) -> Any:
    """Ask the JetStream API, by no method of the store."""
    return store._stream.run(lambda _: store._stream.ask(subject, body))


def list_outcomes(store: Any) -> list[type]:
    """The kinds of results of verifying a store."""
    return [type(outcome) for outcome in verify_store(store)]


# -- the server -------------------------------------------------------------------------------------


def test_a_killed_server_loses_nothing(own_server: NatsServer, tmp_path: Path, open_log: OpenLog) -> None:
    """After SIGKILL of the server and a new start everything that was acknowledged is there: records,
    checkpoints, leases, inboxes; and the same store goes on by a new connection."""
    store = open_log(own_server.build_address(tmp_path))
    lease = store.acquire_lease("c", FIRST, 3600)
    for seq in range(20):
        assert store.append_many([RecordBatch("c", seq, [b"%d" % seq], lease)]) == [None]
    store.write_checkpoint("c", 19, b"kept")
    assert store.post("c", "key", b"yes")
    own_server.kill()
    with pytest.raises(LogUnavailable, match="cannot be reached"):
        store.read_last_line("c")
    own_server.start()
    assert list(store.read_lines("c")) == [b"%d" % seq for seq in range(20)]
    assert list(store.read_checkpoints("c")) == [(19, b"kept")]
    assert [entry.data for entry in store.read_inbox(["c"])] == [b"yes"]
    assert store.find_lease("c") == lease
    assert store.append_many([RecordBatch("c", 20, [b"20"], lease)]) == [None]


def test_writers_beside_a_server_that_is_killed(
    own_server: NatsServer, tmp_path: Path, open_log: OpenLog
) -> None:
    """Three writers append to one conversation, without a lease, while the server is killed and started again
    three times. Each line that was acknowledged is there once, in the order of its writer, and no number was
    given twice."""
    place = own_server.build_address(tmp_path)
    stores = [open_log(place) for _ in range(3)]
    acknowledged: list[list[bytes]] = [[] for _ in stores]
    ends = threading.Event()
    progress = threading.Semaphore(0)

    def write(number: int) -> None:
        store, tries = stores[number], 0
        while not ends.is_set():
            tries += 1
            line = b"%d of %d" % (tries, number)
            try:
                newest = store.read_last_line("c")
                store.append("c", newest[0] + 1 if newest else 0, [line])
            except (LogUnavailable, LogConflict):
                ends.wait(0.01)
                continue
            acknowledged[number].append(line)
            progress.release()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            for _ in range(20):
                assert progress.acquire(timeout=60), "no writer comes through"
            own_server.kill()
            own_server.start()
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    stored = list(stores[0].read_lines("c"))
    assert len(set(stored)) == len(stored)
    for lines in acknowledged:
        assert [line for line in stored if line in set(lines)] == lines


def test_an_answer_that_is_lost_is_no_second_append(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the connection breaks after the server has stored a message, the store finds it there and writes
    nothing twice: records, leases and entries of inboxes."""
    store = open_log()
    publish, lost = Stream._publish, []

    async def publish_and_lose(self: Stream, publication: Any, more: Any) -> int:
        sequence = await publish(self, publication, more)
        if not lost:
            lost.append(publication)
            raise ConnectionLost("the connection was lost")
        return sequence

    def lose_next() -> None:
        lost.clear()

    lease = store.acquire_lease("c", FIRST, 60)
    monkeypatch.setattr(Stream, "_publish", publish_and_lose)
    assert store.append_many([RecordBatch("c", 0, [b"zero", b"one"], lease)]) == [None]
    assert len(lost) == 1
    lose_next()
    assert store.post("c", "key", b"yes"), "the entry is ours"
    assert not store.post("c", "key", b"yes")
    lose_next()
    assert store.append_many([RecordBatch("c", 2, [b"two"], lease)]) == [None]
    lose_next()
    assert store.acquire_lease("d", FIRST, 60).worker == FIRST
    assert list(store.read_lines("c")) == [b"zero", b"one", b"two"]
    assert len(store.read_inbox(["c"])) == 1


def test_servers_that_cannot_keep_a_log(nats_server: NatsServer, tmp_path: Path) -> None:
    """A server that is away, one without JetStream, and one with a password say so in one clear error, which
    names the place and no secret."""
    with pytest.raises(LogUnavailable, match=r"nats://127\.0\.0\.1:1/log cannot be reached"):
        open_store("nats://anna:hidden@127.0.0.1:1/log")
    folder = tmp_path / "plain"
    folder.mkdir()
    rules = 'authorization { user: "anna", password: "hidden" }'
    server = NatsServer(folder, rules, has_jetstream=False)
    try:
        with pytest.raises(LogUnavailable, match="JetStream enabled") as without:
            open_store(f"nats://anna:hidden@{server.place}/log")
        with pytest.raises(LogUnavailable, match=r"(?i)authorization") as refused:
            open_store(f"nats://anna:wrong@{server.place}/log")
    finally:
        server.stop()
    for problem in (without, refused):
        assert server.place in str(problem.value)
        assert "hidden" not in str(problem.value)
        assert "anna" not in str(problem.value)
    with pytest.raises(LogUnavailable, match="there is no log at"):
        open_store_for_reading(nats_server.build_address(tmp_path / "none"))


@pytest.mark.parametrize(
    "address",
    [
        "nats://127.0.0.1",
        "nats:///log",
        "nats://h/a/b",
        "nats://h:x/log",
        "nats://h/log?replica=3",
        "nats://h/l?replicas=3",
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    """An address without a host or a name, with an unknown option or a wrong value is refused before any
    connection, without its password."""
    with pytest.raises(SpecError) as refused:
        open_store(address.replace("//", "//anna:hidden@"))
    assert "hidden" not in str(refused.value)


def test_streams_of_others_are_left_alone(open_log: OpenLog, nats_server: NatsServer, tmp_path: Path) -> None:
    """A stream that is no log, one that would lose records, and one of a later format are refused; nothing in
    them changes."""
    store = open_log()
    for name, more, error, words in [
        ("foreign", {"subjects": ["orders.>"]}, ForeignLog, "is no log of Toolchart"),
        ("short", {"max_age": 3_600_000_000_000}, LogUnavailable, "`max_age` is 0"),
        ("memory", {"storage": "memory"}, LogUnavailable, "`storage` is `file`"),
        ("later", {"metadata": {"toolchart_format": "9"}}, NewerLog, "format '9'"),
    ]:
        config = {"name": name, "subjects": [f"toolchart.{name}.>"], "storage": "file", "retention": "limits"}
        config |= {"allow_direct": True, "allow_rollup_hdrs": True, "allow_atomic": True, **more}
        created = ask(store, f"STREAM.CREATE.{name}", config)
        with pytest.raises(error, match=words):
            open_store(f"nats://{nats_server.place}/{name}")
        assert ask(store, f"STREAM.INFO.{name}")["config"] == created["config"]


def test_a_stream_with_several_copies_is_refused(open_log: OpenLog) -> None:
    """Any copy answers a read, also one that is behind: a writer could decide on its answer and write a
    number twice, which happened in a cluster of three servers."""
    store = open_log()
    answer = ask(store, f"STREAM.INFO.{store._address.name}")
    check_stream(answer, store._address, store._subjects)
    answer["config"]["num_replicas"] = 3
    with pytest.raises(LogUnavailable, match="`num_replicas` is 1"):
        check_stream(answer, store._address, store._subjects)


def test_clocks_that_agree_are_one() -> None:
    """The clock of a server counts where it differs from this machine's; the time of an answer does not."""
    assert [compute_offset(10.0, answered, 12.0) for answered in (10.0, 11.7, 12.0)] == [0.0, 0.0, 0.0]
    assert (compute_offset(10.0, 31.0, 12.0), compute_offset(10.0, 1.0, 12.0)) == (20.0, -10.0)


# -- writers ----------------------------------------------------------------------------------------


def test_ids_stand_in_subjects() -> None:
    """Every id becomes one token of a subject and comes back."""
    for name in ("c", "d/../e.x", "a b", "*", ">", "=2a", "ä\u2028", "\ud800", "x" * 300):
        token = encode_token(name)
        assert decode_token(token) == name
        assert not set(token) & set(".*> \n")


def test_large_lines_are_read_as_written(open_log: OpenLog) -> None:
    """Lines, checkpoints and entries that are larger than a message of the server may be are stored in pieces
    and read as they were written; deleting the conversation deletes the pieces."""
    store = open_log()
    large = b"x" * 3_000_000
    store.append("c", 0, [b"small", large])
    store.append("c", 2, [large + b"y"])
    store.write_checkpoint("c", 2, large)
    store.post("c", "key", large)
    assert list(store.read_lines("c")) == [b"small", large, large + b"y"]
    assert store.read_last_line("c") == (2, large + b"y")
    assert list(store.read_checkpoints("c")) == [(2, large)]
    assert [entry.data for entry in store.read_inbox(["c"])] == [large]
    store.delete("c")
    info = ask(store, f"STREAM.INFO.{store._address.name}")
    assert info["state"]["messages"] == 0


def test_a_lease_covers_what_began_alone(open_log: OpenLog) -> None:
    """A conversation that began without a parent is appended to under the lease of another one, as long as
    that is the newest, and each number once."""
    first, second = open_log(), open_log()
    first.append("alone", 0, [b"zero"])
    lease = first.acquire_lease("root", FIRST, 0.0)
    assert first.append_many([RecordBatch("alone", 1, [b"one"], lease)]) == [None]
    (fault,) = second.append_many([RecordBatch("alone", 1, [b"other"], lease)])
    assert isinstance(fault, LogConflict)
    newer = second.acquire_lease("root", SECOND, 60)
    (fault,) = first.append_many([RecordBatch("alone", 2, [b"late"], lease)])
    assert isinstance(fault, LeaseLost)
    assert second.append_many([RecordBatch("alone", 2, [b"two"], newer)]) == [None]
    assert list(first.read_lines("alone")) == [b"zero", b"one", b"two"]


def test_a_late_worker_is_refused_by_the_server(open_log: OpenLog) -> None:
    """A worker that knows nothing of its loss is refused by the server itself, for the conversation and for a
    child, also where the other worker has written nothing."""
    late, next_ = open_log(), open_log()
    lease = late.acquire_lease("c", FIRST, 0.0)
    assert late.append_many([RecordBatch("c", 0, [b"0"], lease), RecordBatch("c.1", 0, [b"0"], lease)]) == [
        None,
        None,
    ]
    next_.acquire_lease("c", SECOND, 60)
    for name in ("c.1", "c"):
        (fault,) = late.append_many([RecordBatch(name, 1, [b"late"], lease)])
        assert isinstance(fault, LeaseLost)
    with pytest.raises(LeaseHeld):
        late.append("c", 1, [b"without"])
    assert [list(next_.read_lines(name)) for name in ("c", "c.1")] == [[b"0"], [b"0"]]


def test_a_deleted_conversation_takes_no_late_record(open_log: OpenLog) -> None:
    """Whoever had a lease before a conversation was deleted appends nothing; its children stay, and its id
    can be used again."""
    late, other = open_log(), open_log()
    lease = late.acquire_lease("c", FIRST, 0.0)
    for name in ("c", "c.1"):
        assert late.append_many([RecordBatch(name, 0, [b"0"], lease)]) == [None]
    other.delete("c")
    (fault,) = late.append_many([RecordBatch("c", 1, [b"late"], lease)])
    assert isinstance(fault, LogConflict)
    assert list(other.list_conversations()) == ["c.1"]
    assert list(other.read_lines("c.1")) == [b"0"]
    other.append("c", 0, [b"again"])
    assert list(late.read_lines("c")) == [b"again"]
    other.delete("c")
    other.delete("c.1")
    assert ask(other, f"STREAM.INFO.{other._address.name}")["state"]["messages"] == 0


def test_an_entry_that_its_worker_could_not_remove(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record and the mark of the entry that it took are one change: where a worker dies before it has
    removed the entry, nobody takes it again."""
    first, second = open_log(), open_log()
    lease = first.acquire_lease("c", FIRST, 60)
    assert first.append_many([RecordBatch("c", 0, [b"0"], lease)]) == [None]
    second.post("c", "one", b"yes")
    second.post("c", "two", b"no")
    one, two = second.read_inbox(["c"])
    with monkeypatch.context() as patch:

        async def delete_nothing(self: Stream, sequence: int) -> None:
            """The worker dies before."""

        patch.setattr(Stream, "delete_message", delete_nothing)
        assert first.append_many([RecordBatch("c", 1, [b"1"], lease, None, [one.key])]) == [None]
    assert [entry.key for entry in second.read_inbox(["c"])] == ["two"]
    assert not second.post("c", "one", b"yes")
    second.drop_entries("c", [two.key])
    assert second.read_inbox(["c"]) == []


def test_an_entry_that_comes_while_a_lease_is_released(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that gives a conversation back keeps it where an entry came at that moment."""
    holder, sender = open_log(), open_log()
    lease = holder.acquire_lease("c", FIRST, 60)
    list_values, looks = JetStreamStore.list_values, []

    def list_and_post(self: JetStreamStore, *words: Any) -> Any:
        values = list_values(self, *words)
        if not looks:
            looks.append(values)
            sender.post("c", "key", b"yes")
        return values

    monkeypatch.setattr(JetStreamStore, "list_values", list_and_post)
    assert not holder.release_lease(lease, is_open=False)
    assert looks == [[]]
    assert holder.find_lease("c") == lease
    assert [held.worker for held in sender.list_leases()] == [FIRST]


def test_keys_of_any_length_come_back(open_log: OpenLog) -> None:
    """Values are found under short and long keys, with dots, spaces and wildcards, and listed with the
    greatest key first."""
    store = open_log()
    keys = ["", "a.b", "c *", ">", "=h", "k" * 300]
    writes = [ValueWrite("c", "note", key, key.encode()) for key in keys]
    assert store.commit([Change("c", values=writes)]) == [None]
    assert [store.read_value("c", "note", key) for key in keys] == [key.encode() for key in keys]
    found = list(store.read_values("c", "note"))
    assert found == [(key, key.encode()) for key in sorted(keys, reverse=True)]
    assert [key for key, _ in store.read_values("c", "note", "a.b")] == [">", "=h", ""]


# -- verifying and erasing --------------------------------------------------------------------------


def write_conversation(store: Any, name: str = "c") -> None:
    """One turn with a tool call."""
    make_engine([reply_with_calls(("echo", {"text": "x"})), "end"], log=store).run("go", conversation=name)


def find_sequence(store: JetStreamStore, name: str, kind: str) -> int:
    """The number in the stream of the newest message of a kind."""
    subject = store._subjects.build_of_conversation(name, name, kind)
    message: Any = store._stream.run(lambda _: store._stream.get_message(last_by_subj=subject))
    return int(message.sequence)


def test_what_is_missing_or_foreign_in_a_stream_is_found(open_log: OpenLog) -> None:
    """`verify` reports a message that is gone, a conversation without its beginning, and messages that no log
    has."""
    store = open_log()
    for name in ("whole", "headless", "gap"):
        write_conversation(store, name)
        assert list_outcomes(store)[-1] is VerifiedConversation
    name = store._address.name
    ask(store, f"STREAM.MSG.DELETE.{name}", {"seq": find_sequence(store, "headless", "b")})
    first = store._stream.run(
        lambda _: store._stream.get_message(
            seq=1, next_by_subj=store._subjects.build_of_conversation("gap", "gap", "r")
        )
    )
    assert first is not None
    ask(store, f"STREAM.MSG.DELETE.{name}", {"seq": first.sequence})
    store._stream.run(lambda _: store._stream._get_client().request(f"toolchart.{name}.other", b"x"))
    damages = [out for out in verify_store(store) if isinstance(out, LogDamaged)]
    found = {(damage.conversation, damage.problem.split(" which ")[0]) for damage in damages}
    assert found == {
        ("gap", "it is missing"),
        ("headless", "it has 3 messages with records, and no first record"),
        (None, "it has 2 checkpoints or totals of a conversation that it does not have"),
        (None, f"it has messages of the subject toolchart.{name}.other,"),
    }


def test_erased_lines_are_gone_from_the_files_of_the_server(
    own_server: NatsServer, tmp_path: Path, open_log: OpenLog
) -> None:
    """Lines that are replaced are in no file of the server, in the first append and in later ones, and an
    erasure that was cut off after its commit is ended by the next one."""
    store = open_log(own_server.build_address(tmp_path))
    for seq in range(6):
        store.append("c", seq, [b"%d says SECRETWORD" % seq])
    store.append("d", 0, [b"other"])
    store.write_checkpoint("c", 5, b"SECRETWORD")
    with pytest.MonkeyPatch.context() as patch:

        async def delete_nothing(self: Stream, sequence: int) -> None:
            """The process dies before."""

        patch.setattr(Stream, "delete_message", delete_nothing)
        store.rewrite_lines(RecordBatch("c", 6, [b"first erasure"]), {0: b"0 erased", 3: b"3 erased"})
    expected = [b"0 erased", *(b"%d says SECRETWORD" % seq for seq in (1, 2)), b"3 erased"]
    assert list(store.read_lines("c"))[:4] == expected
    lines = {seq: b"%d erased" % seq for seq in range(6)}
    store.rewrite_lines(RecordBatch("c", 7, [b"second erasure"]), lines)
    assert list(store.read_checkpoints("c")) == []
    erased = [*lines.values(), b"first erasure", b"second erasure"]
    for start in range(9):
        assert list(store.read_lines("c", start)) == erased[start:]
    assert list(store.list_conversations()) == ["c", "d"], "the order stays"
    with pytest.raises(LogConflict):
        store.rewrite_lines(RecordBatch("c", 7, [b"late"]), {0: b"late"})
    store.append("c", 8, [b"next"])
    assert list(store.read_lines("c", 7)) == [b"second erasure", b"next"]
    own_server.stop()
    files = [path for path in (tmp_path / "server" / "data").rglob("*") if path.is_file()]
    assert any(b"second erasure" in path.read_bytes() for path in files), "the test can see lines"
    assert not [path.name for path in files if b"SECRETWORD" in path.read_bytes()]
