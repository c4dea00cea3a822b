"""What is kept of a log: seals that show a cut tail, an order that records must have, retention."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import agents
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine import Engine
from toolchart.engine.log import record as records
from toolchart.engine.log.retention import Aged, aged, to_prune
from toolchart.engine.log.seal import Seal, check_seal, read_seals, seal
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_lines, verify_store
from toolchart.states.errors import LogDamaged, SpecError

AT = "2026-01-01T00:00:00.000Z"


def logged(turns: int = 1) -> MemoryStore:
    """A conversation with a call in each turn."""
    store = MemoryStore()
    engine = agents.engine([agents.calls(("echo", {"text": "x"})), "done"] * turns, log=store)
    for _ in range(turns):
        engine.run("go", conversation="c")
    return store


# -- seals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, b"secret"])
def test_every_cut_tail_breaks_the_seal(key: bytes | None) -> None:
    """Each shorter log verifies by its chain and fails by its seal; a longer one is sound by both."""
    store = logged(2)
    lines = list(store.read("c"))
    made = seal(store, "c", AT, key)
    check_seal(store, made, key)
    agents.engine(["more"], log=store).run("and?", conversation="c")
    check_seal(store, made, key)
    for count in range(1, len(lines)):
        cut = MemoryStore()
        cut.append("c", 0, lines[:count])
        assert verify_lines(cut.read("c"), "c").records == count
        with pytest.raises(LogDamaged, match="its end was cut off"):
            check_seal(cut, made, key)
    with pytest.raises(LogDamaged, match="has 0"):
        check_seal(MemoryStore(), made, key)


def test_a_seal_shows_another_past() -> None:
    """A log that was written anew, as long as the old one, is not the one that was sealed."""
    store, other = logged(), logged()
    with pytest.raises(LogDamaged, match="not the record that was sealed"):
        check_seal(other, seal(store, "c", AT))


def test_a_signed_seal_cannot_be_made_without_the_key() -> None:
    """Whoever changes log and seal still lacks the signature."""
    store = logged()
    made = seal(store, "c", AT, b"right")
    unsigned = seal(store, "c", AT)
    for false in (made, unsigned, Seal(**{**_data(made), "records": 2})):
        with pytest.raises(LogDamaged, match="not made with this key"):
            check_seal(store, false, b"wrong" if false is made else b"right")


def _data(one: Seal) -> dict[str, Any]:
    data = one.to_dict()
    del data["seal"]
    return data


def test_seals_are_read_as_they_were_written() -> None:
    """A file has one seal a line; a line that is none is named."""
    made = seal(logged(), "c", AT, b"k")
    text = json.dumps(made.to_dict()).encode()
    assert list(read_seals(text + b"\n\n" + text, "f")) == [made, made]
    for wrong in (b"[]", b"{}", b"no", b'{"seal": 1}', text.replace(b'"seal": 1', b'"seal": 2')):
        with pytest.raises(SpecError, match="f:2"):
            list(read_seals(text + b"\n" + wrong, "f"))


# -- order -----------------------------------------------------------------------------------------


def rewritten(lines: list[bytes], change: dict[int, Any]) -> list[bytes]:
    """The log with some records changed, and every hash made right again."""
    import hashlib

    import orjson

    prev, made = records.GENESIS, []
    for place, line in enumerate(lines):
        data = orjson.loads(line)
        del data["hash"]
        change.get(place, lambda _: None)(data)
        data["prev"] = prev
        body = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
        prev = hashlib.sha256(body).hexdigest()
        made.append(body[:-1] + b',"hash":"' + prev.encode() + b'"}')
    return made


@pytest.mark.parametrize(
    ("seq", "change", "words"),
    [
        (2, lambda d: d.update(source="finished"), "the one before ended in 'prompting'"),
        (5, lambda d: d.update(turn=7), "due is 1"),
        (4, lambda d: d["event"].update(call_id="other"), "no call 'other' is open"),
        (5, lambda d: d.update(iteration=0), "goes backwards"),
        (0, lambda d: d.update(event={"type": "cancelled"}), "begins with its configuration"),
    ],
)
def test_records_that_cannot_follow_each_other_are_found(seq: int, change: Any, words: str) -> None:
    """Even where every hash is right: states, turns, iterations and calls must follow each other."""
    lines = rewritten(list(logged().read("c")), {seq: change})
    with pytest.raises(LogDamaged, match=words) as found:
        verify_lines(lines, "c")
    assert found.value.seq == seq


def test_a_call_cannot_end_twice() -> None:
    """A second outcome of a call is found, though its hash and its states are right."""
    import orjson

    lines = list(logged().read("c"))
    second = orjson.loads(lines[4]) | {"seq": 5, "source": "prompting", "target": "prompting"}
    twice = rewritten([*lines[:5], orjson.dumps(second)], {})
    with pytest.raises(LogDamaged, match="has ended already"):
        verify_lines(twice, "c")


# -- retention -------------------------------------------------------------------------------------

NOW = datetime(2026, 6, 1, tzinfo=UTC)

kept = st.lists(
    st.tuples(st.integers(0, 90), st.booleans(), st.integers(-1, 8)), min_size=1, max_size=9
)


@settings(max_examples=300)
@given(
    kept,
    st.none() | st.integers(0, 90).map(lambda days: timedelta(days=days)),
    st.none() | st.integers(0, 9),
)
def test_retention_keeps_what_it_must(
    given_: list[tuple[int, bool, int]], older_than: timedelta | None, keep: int | None
) -> None:
    """The newest N, open turns, young ones, and everything that a kept fork goes on from."""
    found = [
        Aged(
            conversation=str(place),
            newest_at=(NOW - timedelta(days=days)).isoformat(),
            parent=str(parent) if 0 <= parent < place else None,
            open=is_open,
        )
        for place, (days, is_open, parent) in enumerate(given_)
    ]
    go = set(to_prune(found, NOW, older_than=older_than, keep=keep))
    for one in found:
        if one.conversation in go:
            assert not one.open
            assert older_than is None or NOW - datetime.fromisoformat(one.newest_at) > older_than
        elif one.parent is not None:
            assert one.parent not in go
    assert len(found) - len(go) >= min(keep or 0, len(found))


def test_what_retention_leaves_verifies() -> None:
    """Whole conversations go; a fork keeps the one that it goes on from."""
    store = logged()
    engine = agents.engine(["x", "y", "z"], log=store)
    engine.run("go", conversation="old")
    engine.run("go", conversation="parent")
    engine.fork("parent", name="fork")
    go = to_prune(aged(store), NOW.replace(year=2999), older_than=timedelta(days=1), keep=1)
    assert sorted(go) == ["c", "old"]
    for name in go:
        store.delete(name)
    assert not [one for one in verify_store(store) if isinstance(one, LogDamaged)]
    assert sorted(store.conversations()) == ["fork", "parent"]


def test_an_open_turn_is_not_let_go() -> None:
    """A turn that waits for a person, or was broken off, may still be resumed."""
    waiting = MemoryStore()
    Engine("careful", log=waiting).run("delete a.txt", conversation="c")
    assert [one.open for one in aged(waiting)] == [True]
    lines = list(logged().read("c"))
    for count, is_open in ((1, False), (2, True), (3, True), (4, True), (5, True), (6, False)):
        broken = MemoryStore()
        broken.append("c", 0, lines[:count])
        assert [one.open for one in aged(broken)] == [is_open], count
