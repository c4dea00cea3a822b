"""Seals of a log, and the verifier of a stranger who knows the documents."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import strangers_verifier as stranger
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from golden_logs import list_golden_logs, load_golden_store, read_golden_log, split_conversations
from written_logs import write_conversation

from toolchart.engine.log.record import seal_line
from toolchart.engine.log.seal import encode_seal, find_lost_records, read_seal, write_seal
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.record_file import iterate_file_lines
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.tools.signing_keys import format_public_key

AT = "2026-01-01T00:00:00.000Z"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def write_log(names: str = "abc") -> MemoryStore:
    """A log with a conversation for each letter."""
    store = MemoryStore()
    for name in names:
        write_conversation(store, name=name)
    return store


def seal(store: MemoryStore, folder: Path, key: Ed25519PrivateKey | None) -> Path:
    """The file of a seal over all conversations."""
    intact = [outcome for outcome in verify_store(store) if isinstance(outcome, VerifiedConversation)]
    path = folder / f"{len(list(folder.iterdir()))}.json"
    heads = [(outcome.conversation, outcome.records, outcome.head) for outcome in intact]
    write_seal(str(path), encode_seal(heads, AT, key))
    return path


def find_problems(store: MemoryStore, path: Path, keys: list[Ed25519PublicKey]) -> str:
    """What the log lacks by its seal, as text."""
    return "\n".join(str(damage) for damage in find_lost_records(store, read_seal(str(path), keys)))


def check_as_stranger(path: Path, store: MemoryStore, key: Ed25519PrivateKey | None) -> None:
    """Check log and seal as somebody does who knows the documents only."""
    logs = {name: list(store.read_lines(name)) for name in store.list_conversations()}
    public = None if key is None else format_public_key(key.public_key())
    stranger.check_seal(path.read_bytes(), logs, public)


# -- seals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY])
def test_seals_find_what_is_gone(key: Ed25519PrivateKey | None, tmp_path: Path) -> None:
    """A seal holds while the log grows; cut ends, a rewritten and a missing conversation are found, here and
    by the stranger. Every shortened log has a valid chain."""
    store = write_log()
    path, public = seal(store, tmp_path, key), [] if key is None else [key.public_key()]
    write_conversation(store, name="d")
    assert find_problems(store, path, public) == ""
    check_as_stranger(path, store, key)
    count = len(list(store.read_lines("b")))
    for change, words in (
        *(
            (partial(cut_end, name="b", left=left), f"and has {left}: its end was")
            for left in range(1, count)
        ),
        (lambda s: s.delete("c"), "is gone"),
        (partial(rewrite, name="a"), "not the record that was sealed"),
    ):
        changed = copy_store(store)
        change(changed)
        assert {type(outcome) for outcome in verify_store(changed)} == {VerifiedConversation}
        assert words in find_problems(changed, path, public)
        with pytest.raises(ValueError, match="is not what was sealed"):
            check_as_stranger(path, changed, key)


def copy_store(store: MemoryStore) -> MemoryStore:
    """A store with the same records."""
    copied = MemoryStore()
    for name in store.list_conversations():
        copied.append(name, 0, list(store.read_lines(name)))
    return copied


def cut_end(store: MemoryStore, name: str, left: int) -> None:
    """Remove the newest records."""
    lines = list(store.read_lines(name))
    store.delete(name)
    store.append(name, 0, lines[:left])


def rewrite(store: MemoryStore, name: str) -> None:
    """Replace a conversation by another one of the same length and id."""
    lines = list(store.read_lines(name))
    line, _ = seal_line(lines[-1][:-75].replace(b'"at":"2', b'"at":"3') + b"}")
    store.delete(name)
    store.append(name, 0, [*lines[:-1], line])


def test_no_byte_of_a_signed_seal_can_be_changed(tmp_path: Path) -> None:
    """A changed seal is refused, also where a key of it stands twice."""
    path = seal(write_log(), tmp_path, KEY)
    data = path.read_bytes().strip()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises((LogDamaged, SpecError)):
            read_seal(str(path), [KEY.public_key()])
    for twice in (data[:-1] + b',"heads":[]}', data.replace(b',"key"', b',"heads":[],"key"')):
        path.write_bytes(twice)
        with pytest.raises((LogDamaged, SpecError)):
            read_seal(str(path), [KEY.public_key()])


def test_keys_are_strict(tmp_path: Path) -> None:
    """A signed seal without its key is not checked; an unsigned one is refused where a key is given."""
    store, other = write_log(), Ed25519PrivateKey.from_private_bytes(b"x" * 32).public_key()
    signed = seal(store, tmp_path, KEY)
    for keys in ([], [other]):
        with pytest.raises(SpecError, match="nothing was checked"):
            read_seal(str(signed), keys)
    with pytest.raises(ValueError, match="another key"):
        check_as_stranger(seal(store, tmp_path, None), store, KEY)
    with pytest.raises(LogDamaged, match="not signed"):
        read_seal(str(seal(store, tmp_path, None)), [other])


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\n\n", b"no", b"[]", b"{}", b'{"seal":1}', b"[" * 5000, b"\xff"),
        b'{"seal":1,"at":"t","heads":[["c",0,"h"]],"signature":""}',
        b'{"seal":1,"at":"t","heads":[]}',
        b'{"seal":2,"at":"t","heads":[],"signature":""}',
    ],
)
def test_other_files_are_no_seal(data: bytes, tmp_path: Path) -> None:
    """A file of another form, or of another version, is refused with its name."""
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(SpecError, match="file"):
        read_seal(str(path))


# -- the stranger ----------------------------------------------------------------------------------


def test_the_stranger_checks_exported_logs(tmp_path: Path) -> None:
    """The verifier of a stranger accepts exports of golden logs, and finds changed and missing records."""
    path = tmp_path / "log.jsonl"
    for name in list_golden_logs()[::10]:
        store = load_golden_store(split_conversations(read_golden_log(name)))
        lines = list(iterate_file_lines(store, store.list_conversations()))
        path.write_bytes(b"".join(lines))
        stranger.check_file(path)
        for place in (1, len(lines) - 1):
            changed = lines[place].replace(b'"turn":', b'"turn":1', 1)
            path.write_bytes(b"".join([*lines[:place], changed, *lines[place + 1 :]]))
            with pytest.raises(ValueError, match="was changed"):
                stranger.check_file(path)
        path.write_bytes(b"".join(lines[:-1]))
        with pytest.raises(ValueError, match="records are missing"):
            stranger.check_file(path)
        path.write_bytes(b"".join([lines[0], *lines[2:]]))
        with pytest.raises(ValueError, match="does not follow"):
            stranger.check_file(path)
