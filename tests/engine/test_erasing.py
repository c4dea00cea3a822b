"""Erasing: content of a kept conversation goes, its chain and steps stay, and every reader says so."""

from __future__ import annotations

import gc
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import child_agents
import pytest
from agents import make_engine, reply_with_calls
from postgres_database import create_database

from toolchart.engine import Engine
from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.log.leases import name_worker
from toolchart.engine.log.reading.records import read_conversation
from toolchart.engine.log.record import SALT_CHARACTERS, generate_salt, seal_line
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.secrecy.erasing import ErasedConversation, ErasureChoice, erase_content
from toolchart.engine.log.secrecy.stand_ins import add_digest, is_undamaged
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import LeaseHeld, LogDamaged, LogUnavailable, ReplayMismatch, SpecError
from toolchart.states.ports import RecordBatch, Store

WORD, AT = "Zaunkoenig", "2026-01-01T00:00:00.000Z"


def erase(store: Store, conversation: str = "c", **choice: Any) -> list[ErasedConversation]:
    """Erase what is chosen."""
    return erase_content(store, conversation, ErasureChoice(**choice), at=AT, by="anna", reason="asked for")


def run_two_turns(store: Store) -> Engine:
    """Run a turn in which user, model and a large result say the word, and one without it; the engine."""
    replies = [reply_with_calls(("echo", {"text": f"{WORD} " * 400})), f"{WORD}!", "Good.", "Bye.", "More."]
    engine = make_engine(replies, log=store)
    engine.run(f"{WORD}?", conversation="c")
    engine.run("And now?", conversation="c")
    return engine


def list_outcomes(store: Store) -> list[type]:
    """The kinds of results of verifying a store."""
    return [type(outcome) for outcome in verify_store(store)]


def count_steps(store: Store, conversation: str = "c") -> int:
    """Replay a conversation; the number of its steps."""
    return sum(1 for _ in replay_conversation(store, conversation))


@pytest.fixture(params=("memory", "sqlite", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind; the files of it are in a folder `log`."""
    if request.param == "postgres":
        address = create_database(request.getfixturevalue("postgres"), tmp_path)
    else:
        address = "memory" if request.param == "memory" else f"{tmp_path}/log/log.db"
    opened = open_store(address)
    yield opened
    opened.close()


def test_what_is_erased_is_gone_and_the_rest_holds(store: Store, tmp_path: Path) -> None:
    """After a turn is erased no file has its words; chain and replay hold; other
    turns are as they were; the conversation goes on, in the same engine too."""
    engine = run_two_turns(store)
    heads = [record.hash for record in read_conversation(store, "c")]
    (result,) = erase(store, turns=(1,))
    assert (result.content, result.digests, result.is_derivable) == ((1, 2, 4, 5), (3, 6, 7), True)
    lines = list(store.read_lines("c"))
    assert WORD.encode() not in b"".join(lines)
    gc.collect()
    for path in (tmp_path / "log").rglob("*"):
        assert WORD.encode() not in path.read_bytes(), path.name
    assert [record.hash for record in read_conversation(store, "c")][:8] == heads
    assert list_outcomes(store) == [VerifiedConversation]
    assert count_steps(store) == 9
    assert b'"message":"And now?"' in lines[6]
    assert b'"by":"anna","reason":"asked for"' in lines[8]
    assert engine.run("Go on", conversation="c").content == "Bye."
    assert (list_outcomes(store), count_steps(store)) == ([VerifiedConversation], 11)
    assert erase(store, turns=(1,)) == [], "there is nothing left to erase"
    engine.close()


def test_stand_ins_cannot_be_changed() -> None:
    """Found are: any changed byte of a stand-in, a stand-in with a right digest that no record names, and
    content that stands there again."""
    store = MemoryStore()
    run_two_turns(store)
    originals = list(store.read_lines("c"))
    erase(store, records=(5,))
    lines = store._lines["c"]
    assert [is_undamaged(line) for line in lines] == [False] * 5 + [True] * 3 + [False]
    stand_in = lines[5]
    for place in range(len(stand_in)):
        lines[5] = stand_in[:place] + bytes([stand_in[place] ^ 1]) + stand_in[place + 1 :]
        assert list_outcomes(store) == [LogDamaged], f"byte {place}"
    changed = stand_in.replace(b"[erased]", b"Certainly.")
    body = changed[: changed.index(b',"digest":"', len(changed) - 160)] + b"}"
    lines[5] = add_digest(body, json.loads(stand_in)["hash"])
    assert is_undamaged(lines[5])
    assert [str(outcome) for outcome in verify_store(store)] == [
        "conversation c, record 5: it was changed after its content was erased"
    ]
    lines[5] = originals[5]
    assert "stands there again" in str(next(iter(verify_store(store))))
    lines[5], lines[8:] = stand_in, []
    assert "no record says so" in str(next(iter(verify_store(store))))


def test_the_hash_of_an_erased_record_cannot_be_guessed() -> None:
    """Equal conversations have other hashes, because each record has a salt; a stand-in has none."""
    heads, salts = set(), set()
    for _ in range(2):
        store = MemoryStore()
        run_two_turns(store)
        salts.add(json.loads(store._lines["c"][5])["salt"])
        erase(store, everything=True)
        assert "salt" not in json.loads(store._lines["c"][5])
        heads.add(json.loads(store._lines["c"][5])["hash"])
    assert (len(heads), len(salts)) == (2, 2)


def test_shared_parts_stay_for_others(tmp_path: Path) -> None:
    """A large part that two conversations hold goes with the last of them."""
    store = open_store(tmp_path / "log.db")
    for name in ("c", "d"):
        engine = make_engine([reply_with_calls(("echo", {"text": WORD * 300})), "ok"], log=store)
        engine.run("Echo it", conversation=name)
    erase(store, "c", everything=True)
    assert WORD.encode() in b"".join(store.read_lines("d"))
    assert list_outcomes(store) == [VerifiedConversation] * 2
    erase(store, "d", everything=True)
    assert WORD.encode() not in (tmp_path / "log.db").read_bytes()
    assert list_outcomes(store) == [VerifiedConversation] * 2
    store.close()


def test_forks_and_texts(tmp_path: Path) -> None:
    """A fork shares what is erased, still replays and goes on; `texts` finds what a fork repeats itself."""
    store = open_store(tmp_path / "log.db")
    engine = run_two_turns(store)
    fork = engine.fork("c", changes=ForkChanges(system="Be long."), name="f")
    assert fork.result is not None
    erased = erase(store, turns=(1,))
    assert [result.conversation for result in erased] == ["c", "f"]
    assert erased[1].content == ()
    assert (list_outcomes(store), count_steps(store, "f") > 0) == ([VerifiedConversation] * 2, True)
    assert engine.run("Go on", conversation="f").state == "finished"
    (result,) = erase(store, "f", texts=("go ON",))
    assert len(result.content) == 1
    assert "Go on" not in b"".join(store.read_lines("f")).decode()
    assert list_outcomes(store) == [VerifiedConversation] * 2
    store.close()


def test_agents_that_a_turn_ran_are_erased_with_it() -> None:
    """A child that a chosen record names is erased whole; the family verifies and replays."""
    store, model = MemoryStore(), child_agents.FunctionModel(child_agents.repeat_words)
    work = {"run_agent": {"chart": child_agents.ONE_CALL, "as": "outcome"}}
    effects = {"work": work, "publish": {"answer": "{{outcome}}"}}
    spec = child_agents.make_spec(child_agents.make_parent_chart(), effects)
    with child_agents.make_engine(spec, model, log=store) as engine:
        assert engine.run(f"{WORD} and b", conversation="c").content
        names = list(store.list_conversations())
        assert (len(names), WORD.upper().encode() in b"".join(store.read_lines(names[1]))) == (2, True)
        erased = erase(store, turns=(1,))
        assert [result.conversation for result in erased] == names
        assert list_outcomes(store) == [VerifiedConversation] * 2
        assert [count_steps(store, name) > 1 for name in names] == [True, True]
    lines = b"".join(line for name in names for line in store.read_lines(name))
    assert (WORD.encode() in lines, WORD.upper().encode() in lines) == (False, False)


def test_an_erased_value_may_decide_a_step() -> None:
    """Where a guard read what was erased, the recorded path stays, and replay names `erased content`."""
    store = MemoryStore()
    schema = {"type": "object", "required": ["score"], "properties": {"score": {"type": "integer"}}}
    states = {
        "judging": {
            "initial": True,
            "enter": "judge",
            "transitions": [
                {"event": "replied", "target": "praised", "cond": "verdict.score >= 8"},
                {"event": "replied", "target": "scolded"},
                {"event": "failed", "target": "scolded"},
                {"event": "cancelled", "target": "scolded"},
            ],
        },
        "praised": {"final": True, "enter": "praise"},
        "scolded": {"final": True, "enter": "answer_with_error"},
    }
    spec = {
        "chart": {"states": states},
        "effects": {
            "judge": {"call_model": {"as": "verdict", "prompt": "Judge.", "schema": schema}},
            "praise": {"answer": "Good: {{verdict.score}}"},
        },
        "llms": {"m": {"provider": "scripted", "model": "m", "replies": ["unused"]}},
        "responses": [{"llm": "m", "prompt": "p"}],
    }
    valid = '{"score": 9}'
    with Engine(spec, log=store, providers={"m": ScriptedProvider([valid] * 3)}) as engine:
        assert engine.run("Judge", conversation="c").state == "praised"
        targets = [record.target for record in read_conversation(store, "c")]
        engine.fork("c", name="f")
        assert engine.run("Once more", conversation="f").state == "praised"
        assert [result.is_derivable for result in erase(store, everything=True)] == [False, False]
        assert b"Once more" not in b"".join(store.read_lines("f"))
        assert erase(store, everything=True) == []
        assert [record.target for record in read_conversation(store, "c")][:-1] == targets
        assert list_outcomes(store) == [VerifiedConversation] * 2
        for name in ("c", "f"):
            with pytest.raises(ReplayMismatch, match="erased content"):
                count_steps(store, name)
            with pytest.raises(ReplayMismatch, match="erased content"):
                engine.run("Again", conversation=name)


def test_what_cannot_be_erased_now() -> None:
    """An open turn, a conversation that a worker has, and one that does not exist are refused; what the
    author wrote is never erased."""
    store = MemoryStore()
    approval = {"default": "ask"}
    with make_engine([reply_with_calls(("echo", {"text": WORD}))], log=store, approval=approval) as waiting:
        waiting.run("Echo", conversation="open")
    with pytest.raises(SpecError, match="a turn of conversation 'open' is open"):
        erase(store, "open", everything=True)
    engine = run_two_turns(store)
    before = list(store.read_lines("c"))
    assert erase(store, records=(0,)) == []
    store.acquire_lease("c", name_worker(99), 60)
    with pytest.raises(LeaseHeld):
        erase(store, turns=(1,))
    assert list(store.read_lines("c")) == before
    with pytest.raises(SpecError, match="no conversation"):
        erase(store, "nobody", everything=True)
    engine.close()


FORKED_SALTS = """
import os, sys
from toolchart.engine.log.record import generate_salt
generate_salt()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, "\\n".join(generate_salt() for _ in range(100)).encode())
    os._exit(0)
os.wait()
childs = os.read(reader, 100_000).decode().split()
own = [generate_salt() for _ in range(100)]
sys.exit(not (len(childs) == 100 and set(childs).isdisjoint(own)))
"""


def test_salts_are_used_once() -> None:
    """Salts are drawn many at once, and yet no two records get the same one: not from several threads, and
    not on both sides of a fork."""
    with ThreadPoolExecutor(4) as threads:
        salts = [salt for some in threads.map(lambda _: draw_salts(200), range(8)) for salt in some]
    assert len(set(salts)) == 1600
    assert {len(salt) for salt in salts} == {SALT_CHARACTERS}
    subprocess.run([sys.executable, "-c", FORKED_SALTS], check=True, timeout=300)


def draw_salts(count: int) -> list[str]:
    """So many salts."""
    return [generate_salt() for _ in range(count)]


HIDDEN = [
    ("ZAUNkoenig", {"text": json.dumps({"name": WORD})}),
    ("Zaunk\u00f6nig", {"text": json.dumps({"name": "Zaunk\u00f6nig"})}),
    ("Zaunk\u00f6nig", {"text": "Zaunko\u0308nig"}),
    ('the "Zaun" king', {"text": json.dumps([json.dumps({"a": 'the "Zaun" king'})])}),
    (WORD, {"text": {"erased": WORD}}),
    (WORD, {"text": f"[erased by {WORD}"}),
    (WORD, {WORD: 1}),
    ("4711471147", {"text": 4711471147}),
]


@pytest.mark.parametrize(("text", "arguments"), HIDDEN)
def test_a_text_is_found_however_it_is_written(text: str, arguments: dict[str, Any]) -> None:
    """`texts` finds words in JSON within a text, in escapes, in another composition of accents, in names of
    arguments, in numbers, and in what looks like a mark of erasing; keys of the log format are no content."""
    store = MemoryStore()
    engine = make_engine([reply_with_calls(("echo", arguments)), "Done."], log=store)
    engine.run("Do it", conversation="c")
    assert erase(store, texts=("turn_started", "message", "finish_reason", "calculator")) == []
    (result,) = erase(store, texts=(text,))
    assert 2 in result.content
    lines = b"".join(store.read_lines("c")).decode()
    assert not any(part in lines for part in ("Zaun", "4711471147", "K\\u00f6nig", "k\\\\u00f6nig"))
    assert b"Do it" in b"".join(store.read_lines("c"))
    assert list_outcomes(store) == [VerifiedConversation]
    engine.close()


def test_reasons_and_prompts_of_forks_can_be_erased() -> None:
    """The reason of an earlier erasing and the system prompt that somebody gave a fork go by a text of
    theirs; `everything` takes the prompt and leaves the reasons."""
    store = MemoryStore()
    engine = run_two_turns(store)
    engine.fork("c", changes=ForkChanges(system=f"Speak of {WORD}."), name="f")
    erase_content(store, "c", ErasureChoice(turns=(1,)), at=AT, by="anna", reason="Kleiber asked")
    erased = erase(store, "c", texts=("kleiber",))
    assert [result.conversation for result in erased] == ["c", "f"]
    assert b"Kleiber" not in b"".join([*store.read_lines("c"), *store.read_lines("f")])
    assert WORD.encode() in b"".join(store.read_lines("f"))
    erase(store, "c", everything=True)
    lines = b"".join(store.read_lines("f"))
    assert (WORD.encode() in lines, b'"asked for"' in lines) == (False, True)
    assert list_outcomes(store) == [VerifiedConversation] * 2
    assert count_steps(store, "f") > 0
    engine.close()


def test_a_timer_stays_due_and_no_lease_is_left() -> None:
    """Erasing gives a lease back as it was: a conversation that goes on by itself later still does."""
    store = MemoryStore()
    engine = run_two_turns(store)
    lease = store.acquire_lease("c", "elsewhere:1", 60)
    store.release_lease(lease, is_open=True, due=4e9)
    assert erase(store, turns=(1,))
    lease = store.find_lease("c")
    assert lease is not None
    assert (lease.worker, lease.is_open, lease.due) == ("", True, 4e9)
    engine.close()


def test_a_reader_that_holds_old_pages_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process reads, SQLite cannot drop its write-ahead log: that is said, and the same call
    made again when it has ended leaves no byte."""
    store = open_store(tmp_path / "log.db")
    run_two_turns(store).close()
    store = open_store(tmp_path / "log.db")
    monkeypatch.setattr("toolchart.engine.log.stores.sqlite.BUSY_TIMEOUT_S", 0.05)
    reader = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM records").fetchone()[0] > 5
    with pytest.raises(LogUnavailable, match="another process reads the log"):
        erase(store, turns=(1,))
    reader.close()
    assert erase(store, turns=(1,)) == []
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or WORD.encode() not in path.read_bytes(), path
    assert list_outcomes(store) == [VerifiedConversation]
    store.close()


def test_what_was_said_to_an_agent_goes_from_the_inbox_of_its_root(tmp_path: Path) -> None:
    """Answers for an agent come through the inbox of the conversation that it works for: the entry that was
    taken goes with the record that it became, also where only the agent is erased."""
    store = open_store(tmp_path / "log.db")
    model = child_agents.FunctionModel(child_agents.repeat_words)
    work = {"run_agent": {"chart": child_agents.ONE_CALL, "as": "outcome"}}
    spec = child_agents.make_spec(
        child_agents.make_parent_chart(), {"work": work, "publish": {"answer": "{{outcome}}"}}
    )
    with child_agents.make_engine(spec, model, log=store) as engine:
        engine.run("a and b", conversation="c")
    _, child = store.list_conversations()
    store.post("c", "k", WORD.encode())
    (entry,) = store.read_inbox(["c"])
    seq, _ = store.read_last_line(child) or (0, b"")
    lease = store.acquire_lease("c", name_worker(7), 60)
    line = seal_next_line(store, child)
    store.append_many([RecordBatch(child, seq + 1, [line], lease, None, [entry.key])])  # type: ignore[attr-defined]
    assert store.release_lease(lease, is_open=False)
    assert any(WORD.encode() in path.read_bytes() for path in tmp_path.iterdir())
    assert erase(store, child, everything=True)
    assert not any(WORD.encode() in path.read_bytes() for path in tmp_path.iterdir())
    store.close()


def seal_next_line(store: Store, conversation: str) -> bytes:
    """A harmless next record of a conversation: one more `erased` that names none."""
    last = list(read_conversation(store, conversation))[-1]
    notice = {"type": "erased", "records": []}
    data = {"seq": last.seq + 1, "at": AT, "turn": 1, "iteration": 1, "event": notice}
    data |= {"source": last.target, "target": last.target, "prev": last.hash}
    return seal_line(json.dumps(data, separators=(",", ":")).encode())[0]
