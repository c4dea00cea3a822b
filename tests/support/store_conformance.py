"""The conformance suite of stores: what every store promises, as tests that pytest runs over one.

Who writes a store in another package copies this file; it needs nothing else of `tests`.

    from store_conformance import StoreConformance

    class TestMyStore(StoreConformance):
        def open(self, folder, **options):
            return MyStore(folder / "log", **options)

`open` returns a store of one log for each folder, and the same log at each call. It gets the options of an
opener: `create` and `durable`. The promises stand in the docstring of `toolchart.engine.log.stores`; each
test says which one it holds.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolchart.engine.log.leases import name_worker
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores.base import Change, StoreBase, ValueCheck, ValueWrite
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.runtime.engine import Engine
from toolchart.states.errors import LeaseHeld, LeaseLost, LogConflict, LogUnavailable
from toolchart.states.ports import Lease, RecordBatch

LONG_S = 3600.0
"""A lease that does not expire in a test."""

ODD_NAMES = ("d/../e.x", "a b\n%", "ü" * 40, "x" * 300, "UPPER", "upper")
"""Ids of conversations that are no good names of files."""

_ALIVE, _OTHER = name_worker(1), name_worker(2)

_DEAD = _ALIVE.replace(":", ":9").replace("/", "9999/")
"""A worker of this machine whose process does not exist."""


def build_lines(count: int, first: int = 0, text: str = "") -> list[bytes]:
    """Lines that look like records."""
    return [
        b'{"seq":%d,"text":"%b","hash":"%064x"}' % (seq, text.encode(), seq)
        for seq in range(first, first + count)
    ]


class StoreConformance:
    """Tests of a store; inherit from it, with a name that begins with `Test`, and write `open`."""

    keeps_logs = True
    """Whether a log outlives the process. One that does not is opened once for each test."""

    keeps_files = True
    """Whether the store keeps all that it writes in the folder that `open` gets."""

    def open(self, folder: Path, **options: Any) -> StoreBase:
        """The store of the log in a folder; a missing one is created unless `create` is false."""
        raise NotImplementedError

    def open_for_reading(self, folder: Path) -> StoreBase | None:
        """The store of the log in a folder, which writes nothing; None where yours has no such way."""
        return None

    @pytest.fixture
    def open_log(self, tmp_path: Path) -> Iterator[Callable[..., StoreBase]]:
        """Opens the log of this test, once more at each call, and closes all at the end."""
        opened: list[StoreBase] = []

        def open_again(**options: Any) -> StoreBase:
            if opened and not self.keeps_logs:
                return opened[0]
            opened.append(self.open(tmp_path, **options))
            return opened[-1]

        yield open_again
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, open_log: Callable[..., StoreBase]) -> StoreBase:
        """A store with an empty log."""
        return open_log()

    # -- records ---------------------------------------------------------------------------------------

    @pytest.mark.parametrize("durable", [True, False])
    def test_lines_are_kept_as_they_were_written(
        self, durable: bool, open_log: Callable[..., StoreBase]
    ) -> None:
        """Lines are appended all or none, only at the end, and read byte for byte, also by another store of
        the same log."""
        store, lines = open_log(durable=durable), build_lines(6)
        store.append("c", 0, lines[:2])
        store.append("c", 2, lines[2:])
        for start in (0, 1, 5, 7, 8):
            with pytest.raises(LogConflict):
                store.append("c", start, lines[:1])
        with pytest.raises(LogConflict):
            store.append("unbegun", 3, lines[:1])
        other = open_log()
        assert list(other.read_lines("c")) == lines
        assert [list(other.read_lines("c", start)) for start in (4, 6, 9)] == [lines[4:], [], []]
        assert other.read_last_line("c") == (5, lines[5])
        assert list(other.read_lines("nobody")) == []
        assert other.read_last_line("nobody") is None
        assert list(other.list_conversations()) == ["c"]

    def test_hundreds_of_lines_are_read_in_order(self, store: StoreBase) -> None:
        """A log that is longer than a page is read whole, and from any record on."""
        lines = build_lines(700)
        for start in range(0, 700, 100):
            store.append("c", start, lines[start : start + 100])
        assert list(store.read_lines("c")) == lines
        assert list(store.read_lines("c", 513)) == lines[513:]
        assert store.read_last_line("c") == (699, lines[699])

    def test_any_text_is_an_id(self, store: StoreBase) -> None:
        """Ids with separators, line ends, capitals, many or other characters are kept apart."""
        for number, name in enumerate(ODD_NAMES):
            store.append(name, 0, build_lines(1, number))
            store.write_checkpoint(name, 0, b"%d" % number)
            store.post(name, "key", b"%d" % number)
        assert sorted(store.list_conversations()) == sorted(ODD_NAMES)
        for number, name in enumerate(ODD_NAMES):
            assert list(store.read_lines(name)) == build_lines(1, number)
            assert list(store.read_checkpoints(name)) == [(0, b"%d" % number)]
            assert [entry.data for entry in store.read_inbox([name])] == [b"%d" % number]

    def test_large_parts_are_whole(self, store: StoreBase) -> None:
        """Lines with large values, the same in many conversations, are read as they were written; deleting
        one conversation leaves those of the others."""
        part = b'{"text":"' + b"long " * 1000 + b'"}'
        lines = [b'{"event":{"type":"x","chart":%b,"n":%d}}' % (part, seq) for seq in range(3)]
        for name in ("a", "b", "c"):
            store.append(name, 0, lines)
        store.delete("b")
        store.append("d", 0, lines[:1])
        assert [list(store.read_lines(name)) for name in ("a", "b", "c", "d")] == [
            lines,
            [],
            lines,
            lines[:1],
        ]
        assert store.read_last_line("c") == (2, lines[2])

    def test_conversations_are_listed_as_they_began(self, store: StoreBase) -> None:
        """The conversation that began first is listed first, whichever was written last."""
        for number, name in enumerate(("z", "a", "m")):
            store.append(name, 0, [b'{"at":"2026-01-0%dT00:00:00Z"}' % (number + 1)])
        store.append("z", 1, build_lines(1))
        assert list(store.list_conversations()) == ["z", "a", "m"]

    def test_a_whole_conversation_is_deleted(self, store: StoreBase) -> None:
        """A deleted conversation is gone with its values, the others stay, and its id can be used again."""
        for name in ("c", "d", "e"):
            store.append(name, 0, build_lines(3))
            store.write_checkpoint(name, 2, b"state")
            store.post(name, "key", b"entry")
        store.delete("d")
        store.delete("nobody")
        assert sorted(store.list_conversations()) == ["c", "e"]
        assert (list(store.read_lines("d")), store.read_last_line("d")) == ([], None)
        assert list(store.read_checkpoints("d")) == []
        assert [entry.conversation for entry in store.read_inbox(["c", "d", "e"])] == ["c", "e"]
        assert store.post("d", "key", b"again"), "its keys are not known any more"
        store.append("d", 0, build_lines(1))
        assert list(store.read_lines("d")) == build_lines(1)
        store.append("c", 3, build_lines(1, 3))
        assert len(list(store.read_lines("c"))) == 4

    def test_a_group_is_refused_one_by_one(self, store: StoreBase) -> None:
        """Of a group each batch is appended or refused by itself, in the order of the group."""
        batches = [
            RecordBatch(name, seq, build_lines(1)) for name, seq in (("a", 0), ("b", 7), ("a", 1), ("c", 0))
        ]
        faults = store.append_many(batches)
        assert [type(fault) for fault in faults] == [type(None), LogConflict, type(None), type(None)]
        assert [len(list(store.read_lines(name))) for name in "abc"] == [2, 0, 1]

    def test_of_several_writers_one_wins(self, open_log: Callable[..., StoreBase]) -> None:
        """Of several stores of one log that append the same record, one succeeds."""
        stores = [open_log() for _ in range(4)]
        stores[0].append("c", 0, build_lines(1))
        outcomes: list[str] = []

        def write(number: int) -> None:
            try:
                stores[number].append("c", 1, [b"by %d" % number])
                outcomes.append("won")
            except LogConflict:
                outcomes.append("lost")

        _run_together([partial(write, number) for number in range(4)])
        assert sorted(outcomes) == ["lost", "lost", "lost", "won"]
        assert len(list(stores[0].read_lines("c"))) == 2

    # -- small values ----------------------------------------------------------------------------------

    def test_a_value_is_changed_where_it_fits(self, store: StoreBase) -> None:
        """A value is written only where the one before begins as the change says, or is not there."""

        def write(data: bytes, beginning: bytes | None) -> bool:
            check = ValueCheck("c", "lease", "", beginning)
            (conflict,) = store.commit(
                [Change("c", check=check, values=[ValueWrite("c", "lease", "", data)])]
            )
            return conflict is None

        assert store.read_value("c", "lease") is None
        assert not write(b"0", b"")
        assert write(b"1 a\n", None)
        assert not write(b"2", None)
        assert not write(b"2", b"1 b")
        assert not write(b"2", b"1 a\nx"), "longer than the value"
        assert write(b"", b"1 a")
        assert store.read_value("c", "lease") == b""
        assert write(bytes(range(256)), b"")
        assert store.read_value("c", "lease") == bytes(range(256))
        assert list(store.list_conversations()) == [], "values make no conversation"

    def test_values_of_a_kind_are_read_in_order(self, store: StoreBase) -> None:
        """Values of a kind come the greatest key first, from a key on; those of other kinds and conversations
        are not among them."""
        keys = [f"{number:03d}" for number in range(300)]
        for start in range(0, 300, 50):
            values = [ValueWrite("c", "checkpoint", key, key.encode()) for key in keys[start : start + 50]]
            store.commit([Change("c", values=values)])
        store.commit(
            [Change("c", values=[ValueWrite("c", "inbox", "150", b"x"), ValueWrite("d", "inbox", "1", b"x")])]
        )
        expected = [(key, key.encode()) for key in reversed(keys)]
        assert list(store.read_values("c", "checkpoint")) == expected
        assert list(store.read_values("c", "checkpoint", "007")) == expected[-7:]
        assert list(store.read_values("c", "lease")) == list(store.read_values("nobody", "checkpoint")) == []
        store.commit([Change("c", values=[ValueWrite("c", "checkpoint", "0075", b"late")])])
        store.commit([Change("c", values=[ValueWrite("c", "checkpoint", "007", b"again")])])
        expected[292:] = [("0075", b"late"), ("007", b"again"), *expected[293:]]
        assert list(store.read_values("c", "checkpoint")) == expected

    def test_a_name_that_no_database_holds_is_unknown(self, store: StoreBase) -> None:
        """Whoever asks for an id with NUL or half a surrogate pair hears that nothing is there, as for any
        other unknown id."""
        store.append("c", 0, build_lines(2))
        for name in ("c\0", "c\ud800"):
            assert store.read_last_line(name) is None
            assert list(store.read_lines(name)) == []
            assert list(store.read_values(name, "checkpoint")) == []
            assert store.read_value(name, "lease") is None
        assert len(list(store.read_lines("c"))) == 2

    def test_only_listed_values_are_listed(self, store: StoreBase) -> None:
        """A value is listed from a write that says so to one that does not; numbers grow with each write."""

        def write(name: str, key: str, data: bytes, *, is_listed: bool) -> None:
            store.commit([Change(name, values=[ValueWrite(name, "inbox", key, data, is_listed)])])

        for key in ("one", "two", "three"):
            write("c", key, key.encode(), is_listed=True)
        write("d", "ü/\n", b"\0\n", is_listed=True)
        write("c", "two", b"", is_listed=False)
        write("c", "four", b"4", is_listed=False)
        listed = list(store.list_values("inbox"))
        assert [(value.conversation, value.key, value.data) for value in listed] == [
            ("c", "one", b"one"),
            ("c", "three", b"three"),
            ("d", "ü/\n", b"\0\n"),
        ]
        write("c", "one", b"1", is_listed=True)
        again = list(store.list_values("inbox", ["c", "nobody"]))
        assert [value.key for value in again] == ["three", "one"]
        assert again[1].number > again[0].number > listed[0].number
        assert list(store.list_values("lease")) == list(store.list_values("inbox", [])) == []

    def test_a_refused_change_writes_nothing(self, store: StoreBase) -> None:
        """Lines and values of a change are written together or not at all, whatever refuses it."""
        value = ValueWrite("c", "checkpoint", "1", b"state")
        missing = ValueCheck("c", "lease", "", b"1 ")
        changes = [
            Change("c", 0, build_lines(2), check=missing, values=[value]),
            Change("c", 7, build_lines(2), values=[value]),
        ]
        conflicts = store.commit(changes)
        assert [isinstance(conflict, LogConflict) for conflict in conflicts] == [True, True]
        assert (list(store.read_lines("c")), store.read_value("c", "checkpoint", "1")) == ([], None)
        assert store.commit([Change("c", 0, build_lines(2), values=[value])]) == [None]
        assert (len(list(store.read_lines("c"))), store.read_value("c", "checkpoint", "1")) == (2, b"state")

    def test_no_comparison_is_lost(self, open_log: Callable[..., StoreBase]) -> None:
        """Several stores that count one value up, each by what it has read, count every step."""
        stores, steps = [open_log() for _ in range(3)], 10

        def count(store: StoreBase) -> None:
            for _ in range(steps):
                while True:
                    data = store.read_value("c", "lease")
                    value = ValueWrite("c", "lease", "", b"%d " % (int(data or b"0") + 1))
                    change = Change("c", check=ValueCheck("c", "lease", "", data), values=[value])
                    if store.commit([change]) == [None]:
                        break

        _run_together([partial(count, store) for store in stores])
        assert stores[0].read_value("c", "lease") == b"%d " % (3 * steps)

    # -- messages for workers --------------------------------------------------------------------------

    def test_a_submission_is_kept_until_it_is_taken(self, open_log: Callable[..., StoreBase]) -> None:
        """A message is kept once under its key. It goes with the records that it became, with the entry of an
        inbox, or when it is dropped; its digest stays and tells another message. Deleting leaves nothing."""
        store = open_log()
        for key in ("turn/a", "turn/b", "turn/c"):
            assert store.submit("c", key, "digest", b"said\n" + key.encode())
        assert (
            store.submit("c", "turn/a", "digest", b"said"),
            store.submit("c", "turn/a", "other", b"x"),
        ) == (True, False)
        assert open_log().read_submission("c", "turn/a") == b"said\nturn/a"
        assert [entry.key for entry in store.list_submissions()] == ["turn/a", "turn/b", "turn/c"]
        store.append_many([RecordBatch("c", 0, build_lines(1), taken=["turn/a"])])
        assert store.post("c", "key", b"said", ["turn/b"])
        store.drop_entries("c", ["turn/c", "turn/none"])
        assert [entry.key for entry in store.read_inbox(["c"])] == ["key"]
        for key in ("turn/a", "turn/b", "turn/c"):
            assert (store.read_submission("c", key), store.submit("c", key, "other", b"x")) == (b"", False)
            assert store.submit("c", key, "digest", b"x")
        assert list(open_log().list_submissions()) == []
        store.submit("c", "turn/d", "digest", b"said")
        store.delete("c")
        assert list(store.list_submissions()) == []
        assert [store.read_submission("c", key) for key in ("turn/a", "turn/d", "turn/none")] == [None] * 3

    def test_a_submission_is_withdrawn_or_taken(self, open_log: Callable[..., StoreBase]) -> None:
        """A message that was withdrawn becomes no record and no entry, and stays known as withdrawn. A worker
        that holds the conversation keeps its messages; one whose lease has expired appends nothing."""
        store = open_log()
        lines = build_lines(1)
        assert store.withdraw_submissions("c") == 0
        store.submit("c", "turn/a", "digest", b"said")
        store.submit("d", "turn/a", "digest", b"said")
        lease = store.acquire_lease("c", _ALIVE, LONG_S)
        with pytest.raises(LeaseHeld):
            store.withdraw_submissions("c")
        store.renew_leases([lease], -LONG_S)
        assert store.withdraw_submissions("c") == 1
        (fault,) = store.append_many([RecordBatch("c", 0, lines, lease=lease, taken=["turn/a"])])
        assert isinstance(fault, LeaseLost)
        assert (store.post("c", "key", b"said", ["turn/a"]), list(store.read_inbox(["c"]))) == (False, [])
        store.drop_entries("c", ["turn/a"])
        assert (store.read_submission("c", "turn/a"), store.is_withdrawn("c", "turn/a")) == (b"", True)
        assert store.submit("c", "turn/a", "digest", b"said") is False
        assert list(store.list_unfinished()) == []
        assert [entry.conversation for entry in store.list_submissions()] == ["d"]
        assert (list(store.list_submissions(["c"])), store.withdraw_submissions("c")) == ([], 0)
        assert (store.is_withdrawn("d", "turn/a"), store.is_withdrawn("none", "turn/a")) == (False, False)

    # -- leases ----------------------------------------------------------------------------------------

    def test_one_worker_holds_a_conversation(self, open_log: Callable[..., StoreBase]) -> None:
        """A second worker is refused until the lease is released or has expired, and each lease has a greater
        token; the lease of a dead process is taken at once."""
        first, second = open_log(), open_log()
        lease = first.acquire_lease("c", _ALIVE, LONG_S)
        with pytest.raises(LeaseHeld):
            second.acquire_lease("c", _OTHER, LONG_S)
        assert [held.worker for held in second.list_leases()] == [_ALIVE]
        assert list(first.renew_leases([lease], LONG_S)) == [True]
        assert first.release_lease(lease, is_open=False)
        assert list(first.renew_leases([lease], LONG_S)) == [False]
        expired = second.acquire_lease("c", _OTHER, 0.0)
        newest = first.acquire_lease("c", _DEAD, LONG_S)
        assert second.acquire_lease("c", _ALIVE, LONG_S).token > newest.token > expired.token > lease.token

    def test_of_several_workers_one_gets_the_lease(self, open_log: Callable[..., StoreBase]) -> None:
        """Of several workers that ask at once, one gets the lease."""
        stores = [open_log() for _ in range(4)]
        taken: list[Lease] = []

        def take(number: int) -> None:
            try:
                taken.append(stores[number].acquire_lease("c", name_worker(number), LONG_S))
            except LeaseHeld:
                return

        _run_together([partial(take, number) for number in range(4)])
        assert [lease.token for lease in taken] == [1]

    def test_who_lost_the_lease_appends_nothing(self, open_log: Callable[..., StoreBase]) -> None:
        """An append under an older token is refused, for a child too; so is one without a lease while a
        worker holds the conversation, and its deletion."""
        first, second = open_log(), open_log()
        lost = first.acquire_lease("c", _ALIVE, 0.0)
        assert _append(first, 0, lost) is None, "nobody has taken it"
        lease = second.acquire_lease("c", _OTHER, LONG_S)
        assert isinstance(_append(first, 1, lost), LeaseLost)
        assert isinstance(_append(first, 0, lost, "c.1"), LeaseLost)
        assert isinstance(_append(first, 1, None), LeaseHeld)
        assert first.release_lease(lost, is_open=False), "the lease of the other one stays"
        assert _append(second, 1, lease) is None
        assert _append(second, 0, lease, "c.1") is None
        for names in (["c"], ["free", "c"]):
            if "free" in names:
                second.append("free", 0, build_lines(1))
            with pytest.raises(LeaseHeld):
                first.delete_many(names)
        assert [len(list(first.read_lines(name))) for name in ("c", "c.1", "free")] == [2, 1, 1]

    def test_the_token_is_compared(self, store: StoreBase) -> None:
        """A worker that took its own lease again appends only under the newer one."""
        old = store.acquire_lease("c", _ALIVE, 0.0)
        new = store.acquire_lease("c", _ALIVE, LONG_S)
        assert new.token > old.token
        assert isinstance(_append(store, 0, old), LeaseLost)
        assert _append(store, 0, new) is None
        assert list(store.renew_leases([old, new], LONG_S)) == [False, True]

    def test_the_store_knows_what_is_unfinished(self, store: StoreBase) -> None:
        """Conversations of dead workers, with timers that are due, with entries, and those that no worker
        ever held can be gone on with; ended, held and waiting ones and children cannot, nor those that were
        over when somebody put them there."""

        def leave(name: str, worker: str = _ALIVE, **rest: Any) -> Lease:
            lease = store.acquire_lease(name, worker, LONG_S)
            assert _append(store, 0, lease, name) is None
            if rest:
                store.release_lease(lease, **rest)
            return lease

        now = store.read_time()
        held = leave("held")
        assert _append(store, 0, held, "held.1") is None
        leave("dead", _DEAD)
        leave("ended", is_open=False)
        leave("due", is_open=True, due=now - 1)
        leave("later", is_open=True, due=now + LONG_S)
        leave("waiting", is_open=True)
        leave("answered", is_open=True)
        store.post("answered", "key", b"yes")
        store.append("unknown", 0, build_lines(1))
        store.append("imported", 0, build_lines(1), is_over=True)
        assert sorted(store.list_unfinished()) == ["answered", "dead", "due", "unknown"]

    # -- inboxes and checkpoints -----------------------------------------------------------------------

    def test_what_waits_in_an_inbox_is_taken_once(self, open_log: Callable[..., StoreBase]) -> None:
        """An entry is kept once for each key, stays until a record was appended with it, and keeps the holder
        from giving the conversation back."""
        first, second = open_log(), open_log()
        lease = first.acquire_lease("c", _ALIVE, LONG_S)
        assert _append(first, 0, lease) is None
        assert second.post("c", "one", b"yes")
        assert not second.post("c", "one", b"again")
        assert second.post("c", "two", b"no")
        entries = first.read_inbox(["c", "d"])
        assert [(entry.key, entry.data) for entry in entries] == [("one", b"yes"), ("two", b"no")]
        assert not first.release_lease(lease, is_open=False)
        assert _append(first, 7, lease, taken=[entries[0].key]) is not None, "a batch that is refused"
        assert len(first.read_inbox(["c"])) == 2
        assert _append(first, 1, lease, taken=[entries[0].key]) is None
        assert [entry.key for entry in second.read_inbox(["c"])] == ["two"]
        second.drop_entries("c", [entries[1].key])
        assert list(first.read_inbox(["c"])) == []
        assert not second.post("c", "one", b"yes"), "its key stays known"
        assert first.release_lease(lease, is_open=False)

    def test_no_entry_waits_for_a_worker_that_has_gone(self, open_log: Callable[..., StoreBase]) -> None:
        """Where an entry is added while the worker releases its lease, the worker keeps the lease, or whoever
        added the entry sees that nobody holds it."""
        for number in range(10):
            worker, sender, name = open_log(), open_log(), f"c{number}"
            lease = worker.acquire_lease(name, _ALIVE, LONG_S)
            seen: dict[str, Any] = {}

            def release(worker: StoreBase = worker, lease: Lease = lease, seen: Any = seen) -> None:
                seen["released"] = worker.release_lease(lease, is_open=False)

            def send(sender: StoreBase = sender, name: str = name, seen: Any = seen) -> None:
                sender.post(name, "key", b"entry")
                seen["lease"] = sender.find_lease(name)

            _run_together([release, send])
            assert not seen["released"] or not seen["lease"].worker or worker.read_inbox([name]) == []

    def test_checkpoints_are_kept_beside_the_records(self, open_log: Callable[..., StoreBase]) -> None:
        """Checkpoints are read newest first, from a record on, by another store too."""
        store = open_log()
        for seq in range(30):
            store.append("c", seq, build_lines(1, seq))
            store.write_checkpoint("c", seq, b'{"number":%d}' % seq)
        lease = store.acquire_lease("c", _ALIVE, LONG_S)
        assert _append(store, 30, lease, checkpoint=(30, b'{"number":30}')) is None
        other = open_log()
        expected = [(seq, b'{"number":%d}' % seq) for seq in reversed(range(31))]
        assert list(other.read_checkpoints("c")) == expected
        assert list(other.read_checkpoints("c", 7)) == expected[-8:]
        assert list(other.read_checkpoints("nobody")) == []
        assert list(other.read_lines("c", 29)) == build_lines(2, 29)[:1] + list(other.read_lines("c", 30))

    # -- lifetime --------------------------------------------------------------------------------------

    def test_closing_twice_is_no_error(self, open_log: Callable[..., StoreBase]) -> None:
        """A store can be closed twice, and another one reads what it has written."""
        store = open_log()
        store.append("c", 0, build_lines(2))
        store.close()
        store.close()
        assert list(open_log().read_lines("c")) == build_lines(2)

    def test_what_was_acknowledged_survives_a_kill(self, tmp_path: Path) -> None:
        """A process that is killed while it appends leaves every record whose append has returned, and of the
        last batch all lines with its checkpoint, or none."""
        if not self.keeps_logs or not hasattr(os, "fork"):
            pytest.skip("the log ends with the process")
        self.open(tmp_path).close()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _append_until_killed(lambda: self.open(tmp_path), writing)
        os.close(writing)
        acknowledged = 0
        while acknowledged < 5:
            acknowledged += len(os.read(reading, 1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        acknowledged += len(os.read(reading, 1 << 16))
        os.close(reading)
        store = self.open(tmp_path)
        lines = list(store.read_lines("c"))
        assert len(lines) in (3 * acknowledged, 3 * acknowledged + 3)
        assert lines == build_lines(len(lines))
        assert [seq for seq, _ in store.read_checkpoints("c")] == list(range(len(lines) - 1, 0, -3))
        store.append("c", len(lines), build_lines(1, len(lines)))
        store.close()

    def test_a_log_that_is_open_for_reading_stays_as_it_is(self, tmp_path: Path) -> None:
        """A store that was opened for reading reads everything, refuses to write, and changes no file."""
        store = self.open(tmp_path)
        store.append("c", 0, build_lines(3))
        store.write_checkpoint("c", 2, b"state")
        store.close()
        before = _describe_files(tmp_path)
        reader = self.open_for_reading(tmp_path)
        if reader is None:
            pytest.skip("this store is not opened for reading alone")
        assert list(reader.read_lines("c")) == build_lines(3)
        assert list(reader.read_checkpoints("c")) == [(2, b"state")]
        assert list(reader.list_leases()) == []
        with pytest.raises(LogUnavailable):
            reader.append("c", 3, build_lines(1, 3))
        reader.close()
        assert _describe_files(tmp_path) == before

    def test_a_missing_log_is_not_created(self, tmp_path: Path) -> None:
        """With `create=False` a store that is not there is an error, and still not there afterwards."""
        if not self.keeps_logs or not self.keeps_files:
            pytest.skip("the log stands in no file")
        folder = tmp_path / "missing"
        with pytest.raises(LogUnavailable):
            self.open(folder, create=False)
        assert not folder.exists()

    def test_a_conversation_lives_in_the_store(self, open_log: Callable[..., StoreBase]) -> None:
        """A conversation of two turns runs, goes on in a store opened again, verifies and replays."""
        for message in ("2+2", "3+3"):
            with Engine("quickstart", log=open_log()) as engine:
                assert engine.run(message, conversation="c").is_over
        store = open_log()
        assert [type(outcome) for outcome in verify_store(store)] == [VerifiedConversation]
        assert sum(1 for _ in replay(store.read_lines("c"), "c")) == len(list(store.read_lines("c")))


def _append(store: StoreBase, seq: int, lease: Lease | None, name: str = "c", **more: Any) -> Any:
    """Append one line under a lease; the fault."""
    return store.append_many([RecordBatch(name, seq, build_lines(1, seq), lease, **more)])[0]


def _run_together(works: Sequence[Callable[[], None]]) -> None:
    """Run functions at the same time, each in a thread; the error of one is raised."""
    barrier = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _append_until_killed(open_log: Callable[[], StoreBase], acknowledge: int) -> None:
    """Append batches of three lines and a checkpoint, and write a byte after each; never returns."""
    try:
        store = open_log()
        lease = store.acquire_lease("c", _ALIVE, 0.0)
        for seq in range(0, 30_000, 3):
            batch = RecordBatch("c", seq, build_lines(3, seq), lease, (seq + 2, b"state"))
            if store.append_many([batch])[0] is None:
                os.write(acknowledge, b".")
            time.sleep(0.0005)
    finally:
        os._exit(1)


def _describe_files(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of change of every file."""
    files = [(path, path.stat()) for path in sorted(folder.rglob("*"))]
    return [(str(path), status.st_size, status.st_mtime_ns) for path, status in files]
