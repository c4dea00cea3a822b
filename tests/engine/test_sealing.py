"""Seals of a whole log, tombstones, and the verifier of a stranger who knows the documents."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import strangers_verifier as stranger
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from written_logs import write_conversation

from toolchart.engine.log.sealing.journal import Journal, encode_entry, read_journal
from toolchart.engine.log.sealing.keys import SealSigner, SealVerifier, make_ed25519_signer, make_hmac_signer
from toolchart.engine.log.sealing.log_seals import check_log, read_leaf, seal_log
from toolchart.engine.log.sealing.merkle import compute_root
from toolchart.engine.log.secrecy.erasing import ErasureChoice, erase_content
from toolchart.engine.log.secrecy.keys import LogKeys
from toolchart.engine.log.secrecy.stand_ins import compute_line_hash
from toolchart.engine.log.stores.encrypted import EncryptedStore
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import LogDamaged, MissingKey, SpecError
from toolchart.tools.signing_keys import format_public_key

AT = "2026-01-01T00:00:00.000Z"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SIGNERS: dict[str, tuple[SealSigner, SealVerifier, str | None]] = {
    "none": (SealSigner(), SealVerifier(), None),
    "hmac": (make_hmac_signer(b"secret"), SealVerifier(b"secret"), "secret"),
    "ed25519": (
        make_ed25519_signer(KEY),
        SealVerifier(None, [KEY.public_key()]),
        format_public_key(KEY.public_key()),
    ),
}
LOGS = Path(__file__).resolve().parents[1] / "logs"


def write_log(names: str = "abc") -> MemoryStore:
    """A log with a conversation for each letter."""
    store = MemoryStore()
    for name in names:
        write_conversation(store, name=name)
    return store


def seal(store: MemoryStore, lines: list[bytes], kind: str = "ed25519") -> list[bytes]:
    """The journal with one more seal."""
    signer, verifier, _ = SIGNERS[kind]
    journal = read_journal(b"\n".join(lines), "seals", verifier) if lines else Journal()
    return [*lines, seal_log(store, journal, AT, signer)]


def find_problems(store: MemoryStore, lines: list[bytes], kind: str = "ed25519") -> str:
    """What the log lacks by its journal, as text."""
    journal = read_journal(b"\n".join(lines), "seals", SIGNERS[kind][1])
    return "\n".join(str(damage) for damage in check_log(store, journal))


# -- the tree --------------------------------------------------------------------------------------


def test_the_empty_tree() -> None:
    """Source: RFC 9162, section 2.1.1: the root of no leaves is the hash of nothing."""
    assert compute_root([]) == stranger.compute_root([])


# -- seals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SIGNERS)
def test_seals_find_what_is_gone(kind: str) -> None:
    """Seals hold while the log grows; a cut end, a rewritten or missing conversation is found."""
    store = write_log()
    lines = seal(store, [], kind)
    write_conversation(store, name="d")
    lines = seal(store, lines, kind)
    assert find_problems(store, lines, kind) == ""
    stranger.check_journal(lines, SIGNERS[kind][2])
    for change, words in (
        (lambda s: cut_end(s, "b"), "its end was cut off"),
        (lambda s: s.delete("c"), "gone, without a tombstone"),
        (lambda s: rewrite(s, "d"), "not what was sealed"),
    ):
        changed = copy_store(store)
        change(changed)
        assert words in find_problems(changed, lines, kind)
        with pytest.raises(LogDamaged):
            seal(changed, lines, kind)


def copy_store(store: MemoryStore) -> MemoryStore:
    """A store with the same records."""
    copied = MemoryStore()
    for name in store.list_conversations():
        copied.append(name, 0, list(store.read_lines(name)))
    return copied


def cut_end(store: MemoryStore, name: str) -> None:
    """Remove the newest record."""
    lines = list(store.read_lines(name))
    store.delete(name)
    store.append(name, 0, lines[:-1])


def rewrite(store: MemoryStore, name: str) -> None:
    """Replace a conversation by another one of the same length and id."""
    other = MemoryStore()
    write_conversation(other, name=name)
    lines = list(store.read_lines(name))
    changed = json.loads(lines[-1])
    changed["at"] = "2027-01-01T00:00:00.000Z"
    body = json.dumps({key: value for key, value in changed.items() if key != "hash"}).encode()
    digest = compute_line_hash(body[:-1] + b',"hash":"' + b"0" * 64 + b'"}')
    store.delete(name)
    store.append(name, 0, [*lines[:-1], body[:-1] + b',"hash":"%b"}' % digest.encode()])


@pytest.mark.parametrize("kind", SIGNERS)
def test_a_changed_journal_is_found(kind: str) -> None:
    """No byte of a journal can be changed, and no entry but the newest removed."""
    store = write_log()
    lines = seal(store, [], kind)
    write_conversation(store, name="d")
    lines = seal(store, lines, kind)
    data = b"\n".join(lines)
    dice = random.Random(7)
    for _ in range(200):
        place = dice.randrange(len(data))
        changed = bytearray(data)
        changed[place] ^= 1 << dice.randrange(8)
        try:
            read_journal(bytes(changed), "seals", SIGNERS[kind][1])
        except (LogDamaged, SpecError, MissingKey):
            continue
        # Only the time of the newest entry is covered by nothing but a signature.
        assert kind == "none", changed
        assert place > len(lines[0])
    with pytest.raises(LogDamaged, match="does not follow"):
        read_journal(lines[1], "seals", SIGNERS[kind][1])
    shortened = read_journal(lines[0], "seals", SIGNERS[kind][1])
    assert read_journal(data, "seals", SIGNERS[kind][1]).digests[-1] not in shortened.digests


def test_keys_are_strict() -> None:
    """A signed seal without its key is not checked; an unsigned one is refused where a key is given."""
    store = write_log()
    other = SealVerifier(None, [Ed25519PrivateKey.from_private_bytes(b"x" * 32).public_key()])
    for kind in ("hmac", "ed25519"):
        (line,) = seal(store, [], kind)
        for verifier in (SealVerifier(), other):
            with pytest.raises(MissingKey):
                read_journal(line, "seals", verifier)
    with pytest.raises(LogDamaged, match="not made with this key"):
        read_journal(seal(store, [], "hmac")[0], "seals", SealVerifier(b"wrong"))
    with pytest.raises(LogDamaged, match="not signed"):
        read_journal(seal(store, [], "none")[0], "seals", other)
    for empty in (b"", b"\n\n"):
        with pytest.raises(SpecError, match="there is no seal"):
            read_journal(empty, "seals", SealVerifier())


def test_tombstones_explain_what_retention_removed() -> None:
    """A conversation with a tombstone may be gone; the tree keeps its leaf, and later seals go on."""
    signer, verifier, key = SIGNERS["ed25519"]
    store = write_log()
    lines = seal(store, [])
    journal = read_journal(lines[0], "seals", verifier)
    leaves = [read_leaf(store, "a")]
    lines.append(encode_entry(journal, "tombstone", leaves, AT, signer, "older than 30d"))
    assert find_problems(store, lines) == "", "the tombstone is written first"
    store.delete("a")
    assert find_problems(store, lines) == ""
    write_conversation(store, name="e")
    lines = seal(store, lines)
    journal = read_journal(b"\n".join(lines), "seals", verifier)
    assert sorted(journal.leaves) == ["a", "b", "c", "e"]
    assert sorted(journal.tombstones) == ["a"]
    assert sorted(stranger.check_journal(lines, key)) == ["a", "b", "c", "e"]


# -- evidence --------------------------------------------------------------------------------------


# -- the stranger ----------------------------------------------------------------------------------


def test_the_stranger_checks_the_committed_logs() -> None:
    """The verifier of a stranger accepts every committed log, and finds a changed byte in each."""
    for path in sorted(LOGS.rglob("*.jsonl")):
        lines = path.read_bytes().splitlines()
        stranger.check_file(path)
        for seq in (0, len(lines) - 1):
            changed = lines[seq].replace(b'"turn":', b'"turn":1', 1)
            with pytest.raises(ValueError, match="was changed"):
                stranger.check_records([*lines[:seq], changed, *lines[seq + 1 :]])
        with pytest.raises(ValueError, match="does not follow"):
            stranger.check_records(lines[1:])


def test_the_stranger_checks_encrypted_and_erased_records(tmp_path: Path) -> None:
    """Without the key the stranger checks the chain of an encrypted log, and finds each changed byte; in an
    erased one also that stand-ins are those that the log names."""
    inner, plain = MemoryStore(), write_log("a")
    write_conversation(EncryptedStore(inner, LogKeys([bytes(32)])), name="a")  # type: ignore[arg-type]
    choice = ErasureChoice(everything=True)
    assert erase_content(plain, "a", choice, at=AT, by=None, reason=None)
    for store in (inner, plain):
        lines = list(store.read_lines("a"))
        stranger.check_records(lines)
        line = lines[1]
        for place in range(0, len(line), 3):
            changed = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
            with pytest.raises((ValueError, KeyError)):
                stranger.check_records([lines[0], changed, *lines[2:]])
    with pytest.raises(ValueError, match="what was erased"):
        stranger.check_records(list(plain.read_lines("a"))[:-1])
