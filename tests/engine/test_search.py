"""The search over conversations: every store finds what a plain scan finds, and nothing that was deleted, is
hidden or is somebody else's. The index is only a faster way to the same rows."""

from __future__ import annotations

import gc
import sqlite3
import string
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import child_agents
import pytest
from agents import make_engine, reply_with_calls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killed_process import die, run_forked
from postgres_database import create_database
from written_logs import AT, WrittenLog, write_conversation

from toolchart.engine.log.owned import KnownOwners, OwnedLog
from toolchart.engine.log.owners import delete_conversation
from toolchart.engine.log.stores import open_store, open_store_for_reading, sqlite
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.reading import search
from toolchart.engine.reading.listing import (
    ConversationFilter,
    ListedConversation,
    read_page,
    select_conversations,
)
from toolchart.engine.reading.search import (
    MAX_TEXT,
    catch_up,
    parse_search,
    read_choices,
    read_text,
    split_words,
)
from toolchart.states.errors import LogDamaged, LogUnavailable, SpecError
from toolchart.states.events import Failed
from toolchart.states.ports import Store

KINDS = ("memory", "sqlite", "postgres")

ASKING: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    if request.param == "postgres":
        address = create_database(request.getfixturevalue("postgres"), tmp_path)
    else:
        address = "memory" if request.param == "memory" else f"{tmp_path}/log/log.db"
    opened = open_store(address)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _search_without_catching_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search here reads what the index lacks; each test says when the index is written."""
    monkeypatch.setattr(search, "CATCH_UP_S", 0.0)


def find(store: Store, words: str, **conditions: Any) -> list[str]:
    """The ids that a search finds."""
    order = conditions.pop("order", "newest")
    page = read_page(store, ConversationFilter(search=words, **conditions), limit=100, order=order)
    assert page.next is None
    return [row.conversation for row in page.conversations]


def say(store: Store, name: str, *replies: Any, message: str = "Hello", **options: Any) -> None:
    """A conversation with one turn."""
    with make_engine(list(replies) or ["Fine."], log=store) as engine:
        engine.run(message, conversation=name, **options)


# -- what is found -------------------------------------------------------------------------------------


def test_words_of_every_kind_are_found(store: Store) -> None:
    """Messages, answers, arguments and results of tools, agent, owner, tags, and the beginning of the id; all
    words must be there, and only the last one may go on."""
    say(
        store,
        "first",
        reply_with_calls(("echo", {"text": "Zaunkoenig"})),
        "It cost 20 EUR.",
        message="Where is order-7731?",
        owner="anna",
        tags={"case": "K9"},
    )
    say(store, "second", "Ein Café in 東京都庁 an der Straße.", message="Where to?", owner="bert")
    expected = {
        "order-7731": ["first"],
        "order-77": ["first"],
        "order-77 ": [],
        "7731-order": [],
        "ZAUNKOENIG eur": ["first"],
        "cost 20 anna": ["first"],
        "cost bert": [],
        "where": ["second", "first"],
        "k9": ["first"],
        "sec": ["second"],
        "echo": ["first"],
        "CAFÉ": ["second"],
        "strasse": ["second"],
        "京都": ["second"],
        "京東": [],
        'wher" OR *': [],
        '"where" NEAR(to': [],
        '"where"': ["second", "first"],
        "a' OR 1=1 --": [],
        "\0where": ["second", "first"],
        "where\0 \ud800\udc00eur": ["first"],
        "7731\ud800": ["first"],
    }
    scanned = {words: find(store, words) for words in expected}
    assert scanned == expected
    catch_up(store)
    assert {words: find(store, words) for words in expected} == expected
    assert find(store, "where", owner="anna") == ["first"]
    assert find(store, "where", tags={"case": "K9"}) == ["first"]
    assert find(store, "where", status="finished", order="attention") == ["second", "first"]


def test_a_search_writes_what_the_index_lacks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever searches brings the index up to date first; also who sees the conversations of one owner, with
    those alone."""
    monkeypatch.setattr(search, "CATCH_UP_S", 5.0)
    say(store, "a", owner="anna")
    say(store, "b", owner="bert")
    log: Any = OwnedLog(store, "anna", KnownOwners(store))
    has_index = not isinstance(store, MemoryStore)
    assert find(log, "hello") == ["a"]
    assert [gap.conversation for gap in store.list_index_gaps()] == (["b"] if has_index else ["b", "a"])
    assert find(store, "hello") == ["b", "a"]
    assert len(store.list_index_gaps()) == (0 if has_index else 2)
    assert select_conversations(store, ConversationFilter(search="bert", status="finished")) == ["b"]


def test_the_hit_says_where_the_words_stand(store: Store) -> None:
    """A row has the number of the record, and a part of its text with the places of the words."""
    say(store, "c", "x" * 300 + " the Wren " + "y" * 300, message="A wren?", owner="anna")
    for _ in range(2):
        (row,) = read_page(store, ConversationFilter(search="the wren"), limit=1).conversations
        assert isinstance(row, ListedConversation)
        assert row.hit is not None
        assert row.hit.seq == 2
        assert [row.hit.text[start:end] for start, end in row.hit.marks] == ["the", "Wren"]
        assert len(row.hit.text) < 300
        (other,) = read_page(store, ConversationFilter(search="c "), limit=1).conversations
        assert isinstance(other, ListedConversation)
        assert other.hit is None, "only the id has it"
        catch_up(store)


def test_the_hit_is_the_same_however_old_the_index_is(store: Store) -> None:
    """The record with all words is shown also where the index has only earlier ones with some of them."""
    log = WrittenLog(store, "c")
    log.configure()
    log.start_turn("wren alone")
    log.end_turn("Fine.")
    catch_up(store)
    log.start_turn("wren and robin")
    for _ in range(2):
        (row,) = read_page(store, ConversationFilter(search="wren robin"), limit=1).conversations
        assert isinstance(row, ListedConversation)
        assert row.hit is not None
        assert row.hit.seq == 3
        catch_up(store)


def test_a_long_text_is_searched_up_to_its_limit(store: Store) -> None:
    """Of a record the first characters count, as `MAX_TEXT` says."""
    say(store, "c", "early " + "x " * MAX_TEXT + "late")
    catch_up(store)
    assert (find(store, "early"), find(store, "late")) == (["c"], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no letter"), (' -*" ', "no letter"), ("a" * 401, "401 characters"), ("a " * 21, "21 words")],
)
def test_a_search_for_nothing_is_refused(text: str, message: str) -> None:
    """A search without a letter or digit is refused, and one that is too long."""
    with pytest.raises(SpecError, match=message):
        read_page(MemoryStore(), ConversationFilter(search=text), limit=1)


WORDS = st.lists(st.sampled_from(["ab", "abc", "b", "c7", "é", "Éa", "東", "京", "東京"]), max_size=4)
TEXTS = st.tuples(WORDS, st.sampled_from([" ", "-", "_", ". "])).map(lambda pair: pair[1].join(pair[0]))


def scan(texts: dict[str, list[str]], terms: Any) -> list[str]:
    """The definition: each term stands in a text of the conversation, as its words one after the other."""

    def has(words: list[str], term: Any) -> bool:
        count = len(term.words)
        for start in range(len(words) - count + 1):
            run = tuple(words[start : start + count])
            if run == term.words or (
                term.is_prefix and run[:-1] == term.words[:-1] and run[-1].startswith(term.words[-1])
            ):
                return True
        return False

    return [
        name
        for name in reversed(texts)
        if all(
            name.startswith(term.text) or any(has(split_words(text), term) for text in texts[name])
            for term in terms
        )
    ]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_search_finds_what_a_scan_finds(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    """Whatever is said, deleted and indexed in which order: the rows are those of the plain definition."""
    folder = tmp_path_factory.mktemp("search")
    if kind == "postgres":
        address = create_database(request.getfixturevalue("postgres"), folder)
    else:
        address = "memory" if kind == "memory" else f"{folder}/log.db"
    store = open_store(address)
    try:
        logs: dict[str, WrittenLog] = {}
        texts: dict[str, list[str]] = {}
        for step in range(data.draw(st.integers(1, 8))):
            action = data.draw(st.sampled_from(["begin", "begin", "go on", "delete", "catch up"]))
            if action == "begin" or not logs:
                name = f"c{step}"
                logs[name], texts[name] = WrittenLog(store, name), []
                logs[name].configure()
            elif action == "go on":
                name = data.draw(st.sampled_from(sorted(logs)))
                said, answer = data.draw(TEXTS), data.draw(TEXTS)
                logs[name].start_turn(said)
                logs[name].end_turn(answer)
                texts[name] += [said, answer]
            elif action == "delete":
                name = data.draw(st.sampled_from(sorted(logs)))
                store.delete(name)
                del logs[name], texts[name]
            else:
                assert catch_up(store) == (len(logs) if kind == "memory" else 0)
        for words in data.draw(st.lists(TEXTS.filter(lambda text: bool(split_words(text))), max_size=5)):
            ending = data.draw(st.sampled_from(["", " "]))
            assert find(store, words + ending) == scan(texts, parse_search(words + ending))
        assert not list(store.check_storage())
    finally:
        store.close()


@given(st.text(string.printable + "ÉßǅЖ東ก\u0301ﬁ½\ud800\0"))
def test_words_have_letters_and_digits_only(text: str) -> None:
    """No word holds what a database could take for an operator, a separator or the end of a text."""
    for word in split_words(text):
        assert word.replace("_", "-").isalnum()
        assert split_words(word) == [word]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "message", "reply", "history", "tool_calls", "content", "result"]),
                inner,
                max_size=3,
            )
        ),
    )
)
def test_the_text_of_any_event_can_be_read(event: Any) -> None:
    """An event of any form has a text: a log that somebody else wrote is searched too."""
    data = event if isinstance(event, dict) else {"result": event}
    for kind in ("turn_started", "replied", "tool_finished"):
        assert isinstance(read_text({**data, "type": kind}), str)


# -- catching up ---------------------------------------------------------------------------------------


def test_a_page_follows_the_other(store: Store) -> None:
    """Pages of a search have each conversation once, whether the index has all, some or none of them."""
    for number in range(7):
        write_conversation(store, 1, name=f"c{number}")
        if number == 3:
            catch_up(store)
    for order in ("newest", "attention"):
        names, before = [], None
        while True:
            page = read_page(store, ConversationFilter(search="add"), limit=2, before=before, order=order)
            names += [row.conversation for row in page.conversations]
            before = page.next
            if before is None:
                break
        assert names == [f"c{number}" for number in reversed(range(7))]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_who_is_killed_while_catching_up_loses_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A process that dies between or within the commits of the index leaves one that goes on from there."""
    address = f"{tmp_path}/log.db"
    if kind == "postgres":
        address = create_database(request.getfixturevalue("postgres"), tmp_path)
    store = open_store(address)
    for number in range(12):
        write_conversation(store, 1, name=f"c{number}")
    store.close()

    def catch_up_and_die(last: int) -> None:
        own = open_store(address)
        write, count = type(own)._write_index, 0

        def write_some(self: Any, db: Any, entries: Any) -> int:
            nonlocal count
            size = write(self, db, entries)
            count += 1
            if count > last:
                die()
            return size

        with (
            patch.object(type(own), "_write_index", write_some),
            patch.object(search, "_CONVERSATIONS_AT_ONCE", 2),
        ):
            catch_up(own)

    for last in (0, 1, 3):
        assert run_forked(lambda last=last: catch_up_and_die(last))
        store = open_store(address)
        assert find(store, "add") == [f"c{number}" for number in reversed(range(12))]
        assert not list(store.check_storage())
        store.close()
    store = open_store(address)
    assert 0 < len(store.list_index_gaps()) < 12
    assert catch_up(store) == 0
    assert not store.list_index_gaps()
    assert find(store, "add") == [f"c{number}" for number in reversed(range(12))]
    store.close()


def test_two_who_catch_up_write_the_same_once(store: Store) -> None:
    """An entry that another process has written meanwhile, or whose conversation went, is left out."""
    write_conversation(store, 1, name="a")
    write_conversation(store, 1, name="b")
    reader = search.IndexReader(store)
    entries = [entry for gap in store.list_index_gaps() for entry in reader.build_entries(gap, None)]
    catch_up(store)
    store.delete("a")
    store.write_index(entries)
    assert not list(store.check_storage())
    assert find(store, "add") == ["b"]


def test_a_log_that_nobody_may_write_is_read(tmp_path: Path) -> None:
    """Opened for reading, a search reads what the index lacks from the records, and writes nothing."""
    path = tmp_path / "log.db"
    own = SqliteStore(path)
    write_conversation(own, 1, name="a")
    catch_up(own)
    write_conversation(own, 1, name="b")
    own.close()
    before = path.read_bytes()
    reader = open_store_for_reading(str(path))
    assert catch_up(reader) == 1
    assert find(reader, "add") == ["b", "a"]
    assert read_choices(reader).statuses == ("finished",)
    reader.close()
    assert path.read_bytes() == before


def test_a_search_does_not_wait_long_for_who_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process writes the log for long, a search reads the records after a second at most."""
    path = tmp_path / "log.db"
    store = SqliteStore(path)
    write_conversation(store, 1, name="a")
    clock, waited = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        waited.append(seconds)

    monkeypatch.setattr(sqlite, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    writer = sqlite3.connect(path, isolation_level=None)
    for _ in range(2):
        writer.execute("BEGIN IMMEDIATE")
        waited.clear()
        assert catch_up(store) == 1
        assert 0 < sum(waited) < 2
        assert find(store, "add") == ["a"] * len(store.list_index_gaps())
        writer.execute("ROLLBACK")
        catch_up(store)
        store.delete("a")
        write_conversation(store, 1, name="a")
    writer.close()
    store.close()


@pytest.mark.parametrize("change", ["DELETE FROM outlines", "UPDATE outlines SET records = 1"])
def test_an_index_that_somebody_changed_is_written_again(tmp_path: Path, change: str) -> None:
    """Words of records that the index does not say it has are written anew, and a search finds all."""
    path = tmp_path / "log.db"
    store = SqliteStore(path)
    for name in ("a", "b"):
        write_conversation(store, 1, name=name)
    catch_up(store)
    with sqlite3.connect(path) as database:
        database.execute(change)
    database.close()
    assert catch_up(store) == 0
    assert find(store, "add") == ["b", "a"]
    assert not list(store.check_storage())
    store.close()


def test_without_fts5_the_records_are_read(tmp_path: Path) -> None:
    """Where SQLite has no FTS5 there is no index and the search still finds; where somebody else has made
    one, deleting says what is missing and deletes nothing."""
    path = tmp_path / "log.db"
    store = SqliteStore(path)
    write_conversation(store, 1, name="a")
    with patch.object(sqlite, "HAS_FTS5", "SELECT 1 WHERE 0"):
        assert catch_up(store) == 1
        assert find(store, "add") == ["a"]
    catch_up(store)
    with patch.object(sqlite, "HAS_FTS5", "SELECT 1 WHERE 0"):
        assert find(store, "add") == ["a"]
        with pytest.raises(LogUnavailable, match="no FTS5"):
            store.delete("a")
    assert find(store, "add") == ["a"]
    store.close()


# -- what is not found ---------------------------------------------------------------------------------


def test_what_is_deleted_is_not_in_the_index(store: Store, tmp_path: Path) -> None:
    """No row and, after the vacuum that deleting an owner makes, no byte has the words of a deleted
    conversation; others keep theirs."""
    say(store, "gone", "zaunkoenigwort", message="Where is zaunkoenigwort?", owner="anna")
    say(store, "kept", "rotkehlchenwort", owner="bert")
    catch_up(store)
    say(store, "gone", "zaunkoenigwort again")
    catch_up(store)
    assert find(store, "zaunkoenigwort") == ["gone"]
    delete_conversation(store, "gone")
    assert (find(store, "zaunkoenigwort"), find(store, "rotkehlchenwort")) == ([], ["kept"])
    assert {type(outcome) for outcome in verify_store(store)} == {VerifiedConversation}
    store.vacuum()
    gc.collect()
    for path in (tmp_path / "log").rglob("*"):
        assert path.is_dir() or b"zaunkoenig" not in path.read_bytes(), path.name


def test_a_redacted_conversation_is_found_by_its_heading_alone(store: Store) -> None:
    """Where the spec redacts what is recorded, no message is searched, neither in agents that it runs nor in
    its forks; agent, owner, tags and id are. The choices say that there are such conversations."""
    with make_engine(["Reply wrenword."], log=store, redact={"patterns": ["email"]}) as engine:
        engine.run("Say wrenword", conversation="hidden", owner="anna", tags={"case": "K9"})
        engine.conversation("hidden").fork(name="fork")
    for _ in range(2):
        assert find(store, "wrenword") == []
        assert find(store, "anna k9") == ["fork", "hidden"]
        assert find(store, "hid") == ["hidden"]
        assert read_choices(store).redacted
        catch_up(store)


def test_nobody_finds_words_of_somebody_else(store: Store) -> None:
    """Who sees the conversations of one owner finds, pages through and chooses from nothing else; so also
    where the owner is named, and where the index is incomplete."""
    say(store, "of-anna", "secretword anna1", owner="anna", tags={"team": "red"})
    say(store, "of-bert", "secretword bert1", owner="bert", tags={"team": "blue"})
    say(store, "of-nobody", "secretword")
    log: Any = OwnedLog(store, "anna", KnownOwners(store))
    for _ in range(2):
        assert find(log, "secretword") == ["of-anna"]
        assert find(log, "bert1") == find(log, "bert") == find(log, "of-b") == find(log, "blue") == []
        assert find(log, "secretword", owner="bert") == []
        assert find(log, "secretword", order="attention") == ["of-anna"]
        where = ConversationFilter(search="secretword")
        assert read_page(log, where, limit=5, before="of-bert").conversations == ()
        choices = read_choices(log)
        assert (choices.owners, choices.tags) == (("anna",), {"team": ("red",)})
        catch_up(store)


# -- how a conversation stands -------------------------------------------------------------------------


def test_who_waits_and_what_failed_come_first(store: Store) -> None:
    """By attention, calls that wait for a decision come first, in agents that a conversation runs too, then
    what failed, then the others; a status chooses among them."""
    say(store, "done")
    with make_engine([reply_with_calls(("echo", {"text": "x"}))], log=store, **ASKING) as engine:
        engine.run("ask", conversation="asks")
    log = WrittenLog(store, "failed")
    log.configure()
    log.start_turn()
    log.apply_event(Failed(at=AT, kind="bad_request", message="no such model"))
    say(store, "last")
    log = WrittenLog(store, "new")
    log.configure()
    log = WrittenLog(store, "runs")
    log.configure()
    log.start_turn()
    for _ in range(2):
        page = read_page(store, ConversationFilter(), limit=9, order="attention")
        rows = {row.conversation: row.status for row in page.conversations}  # type: ignore[union-attr]
        assert list(rows.items()) == [
            ("asks", "approval"),
            ("failed", "failed"),
            ("last", "finished"),
            ("done", "finished"),
            ("runs", "open"),
            ("new", "new"),
        ]
        for status in ("waiting", "approval"):
            page = read_page(store, ConversationFilter(status=status), limit=9)
            assert [row.conversation for row in page.conversations] == ["asks"]
        catch_up(store)
    with pytest.raises(SpecError, match="awaiting"):
        read_page(store, ConversationFilter(status="awaiting"), limit=9)
    assert set(read_choices(store).statuses) == {"approval", "open", "failed", "finished", "new"}


def test_what_waits_in_an_agent_waits_in_whoever_runs_it(store: Store) -> None:
    """A call of a child that waits for a decision makes its parent one that waits, and no longer once it is
    decided; the child itself is listed only where children are."""
    child = {"chart": "tool_loop", "message": "do it", "as": "outcome"}
    effects = {"work": {"run_agent": child}, "publish": {"answer": "{{outcome}}"}}
    replies = [reply_with_calls(("echo", {"text": "Wren"})), "the child is done"]
    chart = child_agents.make_parent_chart()
    catch_up(store)
    with make_engine(replies, log=store, chart=chart, effects=effects, approval=ASKING["approval"]) as engine:
        turn = engine.run("hi", conversation="parent")
        for _ in range(2):
            page = read_page(store, ConversationFilter(status="waiting"), limit=9)
            assert [row.conversation for row in page.conversations] == ["parent"]
            assert find(store, "wren") == []
            page = read_page(store, ConversationFilter(search="wren"), limit=9, with_children=True)
            assert [row.conversation.startswith("parent.") for row in page.conversations] == [True]
            assert catch_up(store) in (0, 2)
        engine.conversation("parent").approve(turn.waiting.approvals[0].id)
    assert read_page(store, ConversationFilter(status="waiting"), limit=9).conversations == ()
    catch_up(store)
    assert read_page(store, ConversationFilter(status="waiting"), limit=9).conversations == ()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_parent_waits_with_its_child_however_old_the_index_is(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Where the index has the parent and not what its child has asked since, the parent is one that waits:
    for a reader who may not write, and after a process that was killed while it wrote the index."""
    address = f"{tmp_path}/log.db"
    if kind == "postgres":
        address = create_database(request.getfixturevalue("postgres"), tmp_path)
    child = {"chart": "tool_loop", "message": "do it", "as": "outcome"}
    effects = {"work": {"run_agent": child}, "publish": {"answer": "{{outcome}}"}}
    replies = [reply_with_calls(("echo", {"text": "Wren"})), "the child is done"]
    whole: Any = MemoryStore()
    chart = child_agents.make_parent_chart()
    with make_engine(replies, log=whole, chart=chart, effects=effects, approval=ASKING["approval"]) as engine:
        engine.run("hi", conversation="parent")
    lines = {name: list(whole.read_lines(name)) for name in whole.list_conversations()}
    (name,) = set(lines) - {"parent"}
    store = open_store(address)
    store.append("parent", 0, lines["parent"])
    store.append(name, 0, lines[name][:-1])
    catch_up(store)
    assert list_waiting(store) == []
    store.append(name, len(lines[name]) - 1, lines[name][-1:])
    reader = open_store_for_reading(address)
    assert list_waiting(reader) == ["parent"]
    reader.close()
    store.close()

    def catch_up_and_die() -> None:
        own = open_store(address)
        write = own.write_index

        def write_some(entries: Any) -> bool:
            is_done = write(entries)
            if entries:
                die()
            return is_done

        with patch.object(own, "write_index", write_some):
            catch_up(own)

    assert run_forked(catch_up_and_die)
    store = open_store(address)
    assert not store.list_index_gaps()
    assert list_waiting(store) == ["parent"]
    store.close()


def test_a_damaged_parent_hinders_no_search(store: Store) -> None:
    """Where the record of a parent cannot be read, its child is found by its id: whether the parent redacts
    what its child says cannot be known."""
    parent: dict[str, Any] = {"conversation": "parent", "effect": 1, "head": "0" * 64}
    child = WrittenLog(store, "parent.1")
    child.configure(parent=parent)
    child.start_turn("Wren")
    store.append("parent", 0, [b"no record"])
    for _ in range(2):
        page = read_page(store, ConversationFilter(search="parent.1"), limit=9, with_children=True)
        assert "parent.1" in [row.conversation for row in page.conversations]
        catch_up(store)


def list_waiting(store: Store) -> list[str]:
    """The ids of what waits for a person."""
    page = read_page(store, ConversationFilter(status="waiting"), limit=9)
    return [row.conversation for row in page.conversations]


def test_verify_looks_at_the_index_too(tmp_path: Path) -> None:
    """Words of records that are not there, and outlines of conversations that are not there, are damage; so
    is an object that no index has, before anything is read."""
    path = tmp_path / "log.db"
    store = SqliteStore(path)
    write_conversation(store, 1, name="a")
    catch_up(store)
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO search_words (rowid, words) VALUES (?, 'x')", (77 << 32,))
        database.execute("INSERT INTO outlines SELECT 77, 1, '', '', '', '', '', '[]', '{}', 0, 0")
    database.close()
    store = SqliteStore(path)
    problems = [outcome for outcome in verify_store(store) if not isinstance(outcome, VerifiedConversation)]
    assert [str(problem).count("that are not there") for problem in problems] == [1, 1]
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TRIGGER t AFTER UPDATE ON outlines BEGIN DELETE FROM records; END")
    database.close()
    with pytest.raises(LogDamaged, match="trigger 't', which no log has"):
        SqliteStore(path)
