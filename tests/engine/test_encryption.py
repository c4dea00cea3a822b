"""Encryption at rest: nothing stands in the clear, every change is found, and keys change."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from postgres_database import create_database

from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.secrecy.envelopes import find_envelope
from toolchart.engine.log.secrecy.keys import LogKeys, add_key, parse_keys, read_key_file
from toolchart.engine.log.stores import open_store, open_store_for_reading
from toolchart.engine.log.stores.encrypted import EncryptedStore
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import LogDamaged, MissingKey, SpecError
from toolchart.states.ports import RecordBatch, Store

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
WORD = "Zaunkoenig"


def run_turn(store: Store, conversation: str = "c", **changes: Any) -> None:
    """Run a turn in which user, model and a large tool result say the planted word."""
    replies = [reply_with_calls(("echo", {"text": f"{WORD} " * 400})), f"{WORD}!"]
    engine = make_engine(replies, log=store, **changes)
    assert engine.run(f"{WORD}?", conversation=conversation).state == "finished"


def list_outcomes(store: Store) -> list[type]:
    """The kinds of results of verifying a store."""
    return [type(outcome) for outcome in verify_store(store)]


@pytest.fixture(params=("sqlite", "jsonl", "postgres"))
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty log, in each kind of store."""
    if request.param == "postgres":
        yield create_database(request.getfixturevalue("postgres"), tmp_path)
    else:
        yield str(tmp_path / "log.db") if request.param == "sqlite" else f"{tmp_path}/log/"


def test_a_word_stands_nowhere_in_the_clear(tmp_path: Path) -> None:
    """No file of an encrypted log holds a word of user, model, tool, prompt or inbox; a plain log does."""
    found = {}
    for name, keys in (("plain", None), ("secret", LogKeys([NEW]))):
        for kind in ("log.db", "log/"):
            folder = tmp_path / name
            store = open_store(str(folder / kind) + "/" * (kind == "log/"), keys=keys)
            run_turn(store)
            store.post("c", "key", f"says {WORD}".encode())
            files = [path for path in folder.rglob("*") if path.is_file() and kind[:4] in str(path)]
            content = b"".join(path.read_bytes() for path in files)
            bare = base64.b64encode(f"says {WORD}".encode())[4:-4]
            found[name, kind] = [word in content for word in (WORD.encode(), bare, b"calculator")]
            store.close()
    assert not any(any(found["secret", kind]) for kind in ("log.db", "log/"))
    assert all(found["plain", kind][0] for kind in ("log.db", "log/")), "the test can see the word"


def test_wrong_missing_and_changed_keys(address: str) -> None:
    """Old keys read and the newest one writes; a wrong or missing key is told apart from damage, and a log
    without its key is not written in the clear."""
    store = open_store(address, keys=LogKeys([OLD]))
    run_turn(store)
    store.close()
    both = open_store(address, keys=LogKeys([OLD, NEW]))
    run_turn(both)
    inner = [find_envelope(line) for line in both.inner.read_lines("c")]  # type: ignore[attr-defined]
    ids = [envelope.key_id for envelope in inner if envelope is not None]
    assert (len(ids), len(set(ids)), ids) == (11, 2, sorted(ids, key=ids.index)), "old, then new"
    assert list_outcomes(both) == [VerifiedConversation]
    assert sum(1 for _ in replay_conversation(both, "c")) == 11
    both.close()
    for keys in (LogKeys([OLD]), LogKeys([b"x" * 32]), None):
        reader = open_store_for_reading(address, keys=keys)
        assert list_outcomes(reader) == [MissingKey]
        with pytest.raises(MissingKey, match="is encrypted with the key"):
            list(replay_conversation(reader, "c"))
        reader.close()
    with pytest.raises(MissingKey, match="--log-key"):
        open_store(address)


def test_every_changed_byte_is_found() -> None:
    """With the key every change of one byte of an envelope is found, and without it too: by its digest. Where
    the digest is computed anew, the key still finds it."""
    inner = MemoryStore()
    store = EncryptedStore(inner, LogKeys([NEW]))
    make_engine(["1"], log=store).run("a", conversation="c")
    assert list_outcomes(store) == [VerifiedConversation]
    lines = inner._lines["c"]
    for seq in (1, 2):
        line = lines[seq]
        for place in range(0, len(line), 1 if len(line) < 1500 else 7):
            lines[seq] = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
            assert LogDamaged in list_outcomes(store), f"byte {place}"
            assert LogDamaged in list_outcomes(inner), f"byte {place}, without the key"
        lines[seq] = line


def test_cut_and_pasted_ciphertext_is_found() -> None:
    """A ciphertext that is moved to another record, conversation or kind is found, and so is one whose shown
    hash was changed, though the digest of the envelope is right."""
    from toolchart.engine.log.secrecy.stand_ins import add_digest, read_hash

    inner = MemoryStore()
    store = EncryptedStore(inner, LogKeys([NEW]))
    for name in ("c", "d"):
        make_engine(["1"], log=store).run("a", conversation=name)
    lines, other = inner._lines["c"], inner._lines["d"]

    def paste(line: bytes, data: bytes, line_hash: str) -> bytes:
        body = re.sub(rb',"digest":"[0-9a-f]{64}","hash":"[0-9a-f]{64}"', b"", line)
        return add_digest(re.sub(rb'"data":"[^"]*"', b'"data":"%b"' % data, body), line_hash)

    def read_data(line: bytes) -> bytes:
        envelope = find_envelope(line)
        assert envelope is not None
        return envelope.data

    original, checkpoint = lines[1], next(iter(inner.read_checkpoints("c")))[1]
    own_hash = read_hash(original)
    lines[1] = paste(original, read_data(original), own_hash)
    assert (lines[1], list_outcomes(store)) == (original, [VerifiedConversation] * 2), "the control"
    for data, line_hash in (
        (read_data(lines[2]), own_hash),
        (read_data(other[1]), own_hash),
        (read_data(checkpoint), own_hash),
        (read_data(original), "0" * 64),
        (read_data(original)[:-8] + b"AAAAAAA=", own_hash),
    ):
        lines[1] = paste(original, data, line_hash)
        assert list_outcomes(store)[0] is LogDamaged
    lines[1] = original
    for seq, _ in list(inner.read_checkpoints("c")):
        inner.write_checkpoint("c", seq, next(iter(inner.read_checkpoints("d")))[1])
    assert list_outcomes(store)[0] is LogDamaged


def test_no_two_messages_have_the_same_key_and_nonce() -> None:
    """Equal lines have different ciphertexts, keys and nonces."""
    inner = MemoryStore()
    store = EncryptedStore(inner, LogKeys([NEW]))
    for name in range(300):
        store.append_many([RecordBatch(str(name), 0, [b"the same"])])  # type: ignore[attr-defined]
    envelopes = [find_envelope(inner._lines[str(name)][0]) for name in range(300)]
    beginnings = {base64.b64decode(envelope.data)[:28] for envelope in envelopes if envelope is not None}
    assert len(beginnings) == 300


def test_key_files(tmp_path: Path) -> None:
    """A key file is made 0600 and grows; one that others can read, or that is none, is refused without a word
    of it in the message."""
    path = tmp_path / "log.keys"
    ids = [add_key(path), add_key(path)]
    assert (path.stat().st_mode & 0o777, read_key_file(path).list_ids()) == (0o600, ids)
    assert read_key_file(path).newest_id == ids[1]
    path.chmod(0o640)
    with pytest.raises(SpecError, match="chmod 600"):
        read_key_file(path)
    with pytest.raises(SpecError) as error:
        parse_keys(["toolchart-log-key:abcdefgh"], "FILE")
    assert "abcdefgh" not in str(error.value)
    with pytest.raises(SpecError, match="cannot be read"):
        read_key_file(tmp_path / "none")


def test_the_spec_names_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`log_key` of the spec names a variable or a file; both or none is an error. It is not logged."""
    add_key(tmp_path / "log.keys")
    text = (tmp_path / "log.keys").read_text("utf-8").strip()
    monkeypatch.setenv("MY_LOG_KEYS", text)
    for number, section in enumerate(({"env": "MY_LOG_KEYS"}, {"file": str(tmp_path / "log.keys")})):
        address = str(tmp_path / f"{number}.db")
        with make_engine(["1"], log=address, log_key=section) as engine:
            engine.run("a", conversation="c")
            assert b"log_key" not in b"".join(engine.store.read_lines("c"))
        reader = open_store_for_reading(address, keys=parse_keys([text], "FILE"))
        assert list_outcomes(reader) == [VerifiedConversation]
        reader.close()
        with pytest.raises(MissingKey):
            open_store(address)
    for section in ({}, {"env": "A", "file": "B"}):
        with pytest.raises(SpecError, match="either `env` or `file`"):
            make_engine(["1"], log=os.devnull + "x", log_key=section)
    with pytest.raises(SpecError, match="NO_SUCH_KEYS is not set"):
        make_engine(["1"], log=str(tmp_path / "3.db"), log_key={"env": "NO_SUCH_KEYS"})
