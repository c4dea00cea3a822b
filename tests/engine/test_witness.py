"""A witness notices a log that was rolled back, copied or replaced, before anybody goes on with it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import agents
import pytest
import strangers_verifier as stranger
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolchart.engine import Engine
from toolchart.engine.log.sealing import merkle
from toolchart.engine.log.sealing.journal import compute_anchor
from toolchart.engine.log.sealing.keys import SealSigner, SealVerifier
from toolchart.engine.log.sealing.merkle import Leaf, MerkleTree, compute_root
from toolchart.engine.log.sealing.restoring import declare_restore, list_losses
from toolchart.engine.log.sealing.witness import FilePlace, HttpPlace, Witness
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import LogDamaged, LogUnavailable, MissingKey, SpecError
from toolchart.tools.signing_keys import format_public_key

AT = "2026-01-01T00:00:00Z"
LOGS = ["log.db", "logs/"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of this test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_engine(log: str, to: str = "seals.jsonl", **witness: Any) -> Engine:
    """An engine whose witness is a file beside the log, with a calculator that some turns call."""
    call = agents.reply_with_calls(("calculator", {"expression": "6*7"}))
    section = {"to": to, **witness} if to else None
    replies = [call, "42", "again", "more", "and more", "last"]
    return agents.make_engine(replies, log=log, **({"witness": section} if section else {}))


def run_turns(log: str, count: int, to: str = "seals.jsonl", name: str = "talk") -> None:
    """Run turns of one conversation, each in an engine of its own."""
    for number in range(count):
        with make_engine(log, to) as engine:
            engine.run(f"message {number}", conversation=name)


def copy_log(log: str, to: str) -> None:
    """Copy a log as a backup does; what was there goes, with a WAL."""
    source, target = Path(log), Path(to)
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        return
    for suffix in ("", "-wal", "-shm"):
        Path(f"{to}{suffix}").unlink(missing_ok=True)
    shutil.copy(source, target)


def count_records(log: str, name: str = "talk") -> int:
    """How many records a conversation has."""
    store = open_store(log)
    newest = store.read_last_line(name)
    store.close()
    return 0 if newest is None else newest[0] + 1


def read_seals(path: str = "seals.jsonl") -> list[bytes]:
    """The lines of a witness, which a stranger's program has checked."""
    lines = Path(path).read_bytes().splitlines()
    stranger.check_journal(lines)
    return lines


DOORS: dict[str, Callable[[Engine], Any]] = {
    "run": lambda engine: engine.run("go on", conversation="talk"),
    "run once": lambda engine: engine.run_once("message 0", conversation="talk"),
    "resume": lambda engine: engine.resume("talk"),
    "stream": lambda engine: asyncio.run(read_stream(engine)),
    "handle": lambda engine: asyncio.run(engine.conversation("talk").asend("go on")),
}


async def read_stream(engine: Engine) -> None:
    """Run a turn by `stream`."""
    async for _ in engine.stream("go on", conversation="talk"):
        pass


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("door", DOORS)
def test_a_rolled_back_log_does_not_go_on(log: str, door: str) -> None:
    """A copy from before the newest turns is refused by each door, with the numbers of the missing records
    and what to do; nothing is written."""
    run_turns(log, 1)
    old = count_records(log)
    copy_log(log, "copy/" if log.endswith("/") else "copy")
    run_turns(log, 2)
    newest = count_records(log)
    copy_log("copy", log)
    with make_engine(log) as engine, pytest.raises(LogDamaged) as caught:
        DOORS[door](engine)
    text = str(caught.value)
    assert text.startswith(f"conversation talk, record {old}: it had {newest} records")
    assert f"records {old} to {newest - 1} are missing (witness " in text
    assert "toolchart restore talk --spec SPEC --reason WHY" in text
    assert count_records(log) == old
    read_seals()


@pytest.mark.parametrize("log", LOGS)
def test_only_the_comparison_refuses(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that takes what the witness says without comparing goes on with the copy: so the tests above
    would tell this fault."""
    run_turns(log, 1)
    copy_log(log, "copy")
    run_turns(log, 1)
    copy_log("copy", log)
    monkeypatch.setattr("toolchart.engine.runtime.witnessing.find_lost_records", lambda *_: None)
    with make_engine(log) as engine:
        assert engine.run("go on", conversation="talk").ok


def test_a_lost_wal_is_noticed() -> None:
    """A SQLite file without the WAL that held its newest records is refused."""
    run_turns("log.db", 1)
    old = count_records("log.db")
    with make_engine("log.db") as engine:
        engine.run("in the WAL", conversation="talk")
        assert Path("log.db-wal").stat().st_size
        shutil.copy("log.db", "copy.db")
    with make_engine("copy.db") as engine, pytest.raises(LogDamaged, match=rf"records {old} to \d+ are miss"):
        engine.run("go on", conversation="talk")


@pytest.mark.parametrize("log", LOGS)
def test_a_log_that_went_on_elsewhere_is_noticed(log: str) -> None:
    """A copy that went on without the witness is refused though it has more records, from the first record
    on that may be another one."""
    run_turns(log, 1)
    shared = count_records(log)
    copy_log(log, "copy")
    run_turns(log, 1)
    copy_log("copy", log)
    run_turns(log, 3, to="")
    expected = rf"records {shared} to \d+ are not what was sealed: it went on from an older copy"
    with make_engine(log) as engine, pytest.raises(LogDamaged, match=expected):
        engine.run("go on", conversation="talk")


@pytest.mark.parametrize("log", LOGS)
def test_a_conversation_that_is_gone_is_noticed(log: str) -> None:
    """A new log in place of the old one is refused where the witness knows the conversation, and by name."""
    run_turns(log, 1)
    count = count_records(log)
    shutil.rmtree(log) if log.endswith("/") else Path(log).unlink()
    with make_engine(log) as engine:
        with pytest.raises(LogDamaged, match=rf"is gone, .* records 0 to {count - 1} are missing"):
            engine.run("go on", conversation="talk")
        assert engine.run("another", conversation="other").ok


def test_open_turns_and_people_are_held_up_too() -> None:
    """`recover` reports a rolled back conversation, and neither `say`, an answer, a decision nor `cancel`
    reaches it."""
    changes: dict[str, Any] = {"chart": "approval", "approval": [{"tools": "*", "decision": "ask"}]}
    replies = [agents.reply_with_calls(("calculator", {"expression": "1+1"})), "2"]
    witness = {"to": "seals.jsonl"}
    with agents.make_engine(replies, log="log.db", witness=witness, **changes) as engine:
        result = engine.run("compute", conversation="talk")
        assert not result.is_over
    copy_log("log.db", "copy.db")
    with agents.make_engine(replies, log="log.db", witness=witness, **changes) as engine:
        asyncio.run(engine.asay("talk", "are you there?"))
    copy_log("copy.db", "log.db")
    with agents.make_engine(replies, log="log.db", witness=witness, **changes) as engine:
        with pytest.raises(LogDamaged, match="is missing"):
            asyncio.run(engine.asay("talk", "hello?"))
        with pytest.raises(LogDamaged, match="is missing"):
            engine.cancel("talk")
        with pytest.raises(LogDamaged, match="is missing"):
            engine.run("hello?", conversation="talk")
        recovered = [turn.error or "" for turn in engine.recover()]
        assert all("is missing" in error for error in recovered)
    assert count_records("log.db") == count_records("copy.db")


# -- restores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", LOGS)
def test_a_declared_restore_goes_on(log: str) -> None:
    """What the operator declares lost stands in the log and at the witness; then turns go on, the log
    verifies and says what is lost, and a later rollback is noticed as before."""
    run_turns(log, 1)
    first = count_records(log)
    copy_log(log, "copy")
    run_turns(log, 1)
    last = count_records(log) - 1
    copy_log("copy", log)
    declare(log, "the disk failed")
    with make_engine(log) as engine:
        assert engine.run("go on", conversation="talk").ok
    store = open_store(log)
    (verified,) = verify_store(store)
    assert isinstance(verified, VerifiedConversation)
    ((seq, event),) = verified.restores
    assert (seq, event.first, event.last, event.reason) == (first, first, last, "the disk failed")
    store.close()
    assert [json.loads(line)["kind"] for line in read_seals()] == ["seal", "seal", "restore", "seal"]
    run_turns(log, 1)
    copy_log("copy", log)
    with make_engine(log) as engine, pytest.raises(LogDamaged):
        engine.run("go on", conversation="talk")


def declare(log: str, reason: str) -> None:
    """Declare a restore of everything that a log lacks."""
    store = open_store(log)
    witness = Witness("seals.jsonl", SealSigner(), SealVerifier())
    losses = list_losses(store, witness)
    assert losses
    asyncio.run(declare_restore(store, witness, losses, AT, reason))
    assert not list_losses(store, witness)
    store.close()


# -- several workers, kills, and a witness that is away ----------------------------------------------


def test_workers_share_a_witness() -> None:
    """Two engines on one log, in threads with their own conversations and in turns with one, write one
    journal that a stranger accepts, and neither takes the other's records for a loss."""
    with make_engine("log.db") as one, make_engine("log.db") as two:
        threads = [
            threading.Thread(target=engine.run, args=("go",), kwargs={"conversation": f"{index}-{number}"})
            for index, engine in enumerate((one, two))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for engine in (one, two, one):
            assert engine.run("go", conversation="shared").is_over
    leaves = stranger.check_journal(read_seals())
    assert {*leaves} == {"shared", *(f"{index}-{number}" for index in (0, 1) for number in range(4))}
    store = open_store("log.db")
    assert list_losses(store, Witness("seals.jsonl", SealSigner(), SealVerifier())) == []
    store.close()


def test_turns_that_end_together_share_a_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a slow witness takes one seal, turns that end meanwhile wait for one common entry: twelve turns
    make a few entries, and all of them are sealed when their results are there."""
    release = threading.Event()
    real_append = FilePlace.append

    def append(place: FilePlace, line: bytes, count: int) -> bool:
        release.wait(20)
        return real_append(place, line, count)

    async def run_turns_at_once(engine: Engine) -> None:
        turns = [asyncio.ensure_future(engine.arun("go", conversation=f"c{index}")) for index in range(12)]
        for _ in range(1000):
            ends = [engine.store.read_last_line(f"c{index}") or (0, b"") for index in range(12)]
            if all(seq >= 2 for seq, _ in ends):
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        release.set()
        await asyncio.gather(*turns)
        assert {*stranger.check_journal(read_seals())} == {f"c{index}" for index in range(12)}

    monkeypatch.setattr(FilePlace, "append", append)
    with agents.make_engine(["ok"] * 12, log="log.db", witness={"to": "seals.jsonl"}) as engine:
        asyncio.run(run_turns_at_once(engine))
    assert len(read_seals()) < 12


KILLED = """
import os, signal, sys
sys.path[:0] = [{support!r}]
from toolchart.engine.log.sealing import witness
import agents
real_write = witness.os.write
def write(handle, data):
    real_write(handle, data[:{written}])
    os.kill(os.getpid(), signal.SIGKILL)
witness.os.write = write
engine = agents.make_engine(["killed"], log={log!r}, witness={{"to": "seals.jsonl"}})
engine.run("killed", conversation="talk")
"""


@pytest.mark.parametrize("written", [0, 10, 10_000])
@pytest.mark.parametrize("log", LOGS)
def test_a_kill_between_the_turn_and_its_seal(log: str, written: int) -> None:
    """Whether nothing, a part or all of an entry was written when a worker was killed: the next one goes on,
    the journal is whole again, and a rollback is noticed as before."""
    run_turns(log, 1)
    support = str(Path(agents.__file__).parent)
    script = KILLED.format(support=support, written=written, log=log)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    expire_leases(log)
    copy_log(log, "copy")
    run_turns(log, 1)
    newest = json.loads(read_seals()[-1])
    assert newest["leaves"][0][1] == count_records(log)
    copy_log("copy", log)
    with make_engine(log) as engine, pytest.raises(LogDamaged, match="missing"):
        engine.run("go on", conversation="talk")


def expire_leases(log: str) -> None:
    """Let the leases of a killed worker run out now."""
    store = open_store(log)
    for lease in store.list_leases():
        store.renew_leases([lease], 0.0)
    store.close()


def test_a_witness_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """A witness that cannot be reached is a warning, and what it missed is in its next seal; a required one
    lets nothing go on."""
    Path("away").write_text("no folder", "utf-8")
    with make_engine("log.db", "away/seals.jsonl") as engine, caplog.at_level(logging.WARNING):
        assert engine.run("one", conversation="a").is_over
        assert "goes on without a comparison" in caplog.text
        assert "was not sealed, which is tried again" in caplog.text
        Path("away").unlink()
        engine.run("two", conversation="b")
    assert {*stranger.check_journal(read_seals("away/seals.jsonl"))} == {"a", "b"}
    shutil.rmtree("away")
    Path("away").write_text("no folder", "utf-8")
    before = count_records("log.db", "a")
    engine = make_engine("log.db", "away/seals.jsonl", required=True)
    with engine, pytest.raises(LogUnavailable, match="cannot be used"):
        engine.run("three", conversation="a")
    assert before == count_records("log.db", "a")


def test_seals_at_most_every_so_often() -> None:
    """With `every: 10m` turns share a seal; the end of the engine writes what is left."""
    with make_engine("log.db", every="10m") as engine:
        for name in ("a", "b", "c"):
            engine.run("go", conversation=name)
        assert not Path("seals.jsonl").exists()
    (line,) = read_seals()
    assert {leaf[0] for leaf in json.loads(line)["leaves"]} == {"a", "b", "c"}
    with pytest.raises(SpecError, match="is no time"):
        make_engine("log.db", every="often")


def test_a_changed_witness_is_refused() -> None:
    """An entry that was changed or taken out is damage of the witness, and nobody goes on."""
    run_turns("log.db", 3)
    lines = Path("seals.jsonl").read_bytes().splitlines(keepends=True)
    for changed in ([lines[0], lines[2]], [*lines[:2], lines[2].replace(b'"size":1', b'"size":2')]):
        Path("seals.jsonl").write_bytes(b"".join(changed))
        with make_engine("log.db") as engine, pytest.raises(LogDamaged, match=r"seals\.jsonl"):
            engine.run("go on", conversation="talk")


def test_signed_seals_need_their_key(folder: Path) -> None:
    """Seals that are signed with the spec's key are accepted with it, and by an engine without it nobody goes
    on; a turn that shares the failed reading neither."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    Path("seal.pem").write_bytes(pem)
    Path("seal.pem").chmod(0o600)
    for _ in range(2):
        with make_engine("log.db", key_file="seal.pem") as engine:
            engine.run("go", conversation="talk")
    public_key = format_public_key(key.public_key())
    stranger.check_journal(Path("seals.jsonl").read_bytes().splitlines(), public_key)

    async def run_two(engine: Engine) -> list[Any]:
        turns = (engine.arun("go", conversation=name) for name in ("talk", "new"))
        return await asyncio.gather(*turns, return_exceptions=True)

    with make_engine("log.db") as engine:
        assert [type(error) for error in asyncio.run(run_two(engine))] == [MissingKey, MissingKey]


# -- other places ------------------------------------------------------------------------------------


def test_a_git_repository_as_witness() -> None:
    """Each entry is a file and a commit of a repository whose hooks are not run; a rollback is noticed."""
    repository = Path("repository")
    git("init", "--quiet", str(repository))
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ntouch ran\nexit 1\n", "utf-8")
    hook.chmod(0o755)
    run_turns("log.db", 1, "git:repository")
    copy_log("log.db", "copy.db")
    run_turns("log.db", 2, "git:repository")
    assert git("-C", "repository", "log", "--format=%s").split("\n")[:3] == ["Seal 2", "Seal 1", "Seal 0"]
    assert git("-C", "repository", "status", "--porcelain") == ""
    assert not (repository / "ran").exists()
    files = sorted((repository / "toolchart-seals").rglob("*.json"))
    stranger.check_journal([file.read_bytes().rstrip(b"\n") for file in files])
    copy_log("copy.db", "log.db")
    with make_engine("log.db", "git:repository") as engine, pytest.raises(LogDamaged, match="are missing"):
        engine.run("go on", conversation="talk")


def git(*words: str) -> str:
    """Run git, and return what it prints."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()


def read_example_server() -> str:
    """The server of the documents."""
    page = Path(__file__).resolve().parents[2] / "docs" / "log-format.md"
    return re.findall(r"```python title=\"witness.py\"\n(.*?)```", page.read_text("utf-8"), re.DOTALL)[0]


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """The address of the witness of the documents, as a process."""
    Path("witness.py").write_text(read_example_server(), "utf-8")
    server = subprocess.Popen([sys.executable, "witness.py"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    server.kill()
    server.wait()


def test_an_address_as_witness(address: str) -> None:
    """The example server of the documents keeps a journal for two workers, and a rollback is noticed."""
    run_turns("log.db", 1, address)
    copy_log("log.db", "copy.db")
    with make_engine("log.db", address) as one, make_engine("log.db", address) as two:
        for engine in (one, two, one):
            engine.run("go", conversation="talk")
    witness = Witness(address, SealSigner(), SealVerifier())
    assert witness.read_history().count == 4
    copy_log("copy.db", "log.db")
    with make_engine("log.db", address) as engine, pytest.raises(LogDamaged, match="are missing"):
        engine.run("go on", conversation="talk")
    place = HttpPlace(address, None)
    assert not place.append(b'{"previous":"' + b"0" * 64 + b'"}', 0), "another writer was first"


def test_what_an_address_must_not_do(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is too long, an entry that is not given back, and plain http elsewhere are refused."""
    monkeypatch.setattr("toolchart.engine.log.sealing.witness.MAX_ANSWER", 50)
    witness = Witness(address, SealSigner(), SealVerifier())
    with pytest.raises(LogUnavailable, match="more than 50 bytes"):
        witness.add_seal([Leaf(conversation="a", records=1, head="0" * 64)], AT)
    monkeypatch.setattr("toolchart.engine.log.sealing.witness.MAX_ANSWER", 1_000_000)
    place = HttpPlace(address, None)
    newest = compute_anchor(place.read_lines(0)[-1])
    monkeypatch.setattr(HttpPlace, "read_lines", lambda self, start: [])
    with pytest.raises(LogUnavailable, match="does not give back"):
        place.append(b'{"previous":"%b"}' % newest.encode(), 1)
    with pytest.raises(SpecError, match="needs https"):
        HttpPlace("http://example.org/seals", None)


# -- the tree ----------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=60), st.integers(0, 5))
def test_the_growing_tree_has_the_root_of_all_leaves(puts: list[tuple[int, int]], more: int) -> None:
    """Whatever leaves change or come, in whatever groups: the root is that of RFC 9162 over all of them, and
    asking for the root with further leaves changes nothing."""
    tree, leaves = MerkleTree(), [b"first"]
    tree.put(0, b"first")
    for index, value in puts:
        place = min(index, len(leaves))
        leaf = b"%d/%d" % (place, value)
        leaves[place : place + 1] = [leaf]
        tree.put(place, leaf)
        if value % 2:
            assert tree.compute_root() == compute_root(leaves)
    changes = {len(leaves) + number: b"new %d" % number for number in range(more)} | {0: b"other"}
    assert tree.compute_root(changes) == compute_root([b"other", *leaves[1:], *list(changes.values())[:more]])
    assert tree.compute_root() == compute_root(leaves)


def test_a_seal_costs_one_path_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 5,000 conversations the seal of one turn, of an old or a new conversation, hashes one path of the
    tree for the root and one to keep it, and reads no old entry."""
    witness = Witness("seals.jsonl", SealSigner(), SealVerifier())
    leaves = [Leaf(conversation=f"c{number}", records=1, head="0" * 64) for number in range(5_000)]
    witness.add_seal(leaves, AT)
    hashed: list[bytes] = []
    monkeypatch.setattr(merkle, "_hash_node", lambda left, right: hashed.append(left) or b"0" * 32)
    monkeypatch.setattr(merkle, "_hash_leaf", lambda leaf: hashed.append(leaf) or b"0" * 32)
    for leaf in (replace(leaves[2_500], records=2), Leaf(conversation="new", records=1, head="1" * 64)):
        hashed.clear()
        witness.add_seal([leaf], AT)
        assert len(hashed) <= 2 * 14


def test_a_place_reads_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read from where the reading before ended, however long it is."""
    place = FilePlace("seals.jsonl")
    for number in range(200):
        assert place.append(b"x" * 1000 + b"%d" % number, number)
    assert place.read_lines(200) == []
    assert not place.append(b"y", 100)
    assert len(place.read_lines(0)) == 200
    assert os.stat("seals.jsonl").st_mode & 0o077 == 0
