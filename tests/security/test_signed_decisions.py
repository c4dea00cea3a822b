"""Grants: a signed decision proves who approved what, and counts for nothing else."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import strangers_verifier as stranger
from agents import make_engine, make_function_tool, reply_with_calls
from msgspec import to_builtins
from msgspec.structs import replace

from toolchart.engine import Engine
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.record import seal_line
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.decisions import check_decisions
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall
from toolchart.tools.approvers import DecisionSubject, Signer, parse_approvers
from toolchart.tools.signing_keys import create_key_file, read_private_key


@pytest.fixture
def anna(tmp_path: Path) -> tuple[Signer, str]:
    """An approver with a new key, and its public key."""
    public = create_key_file(tmp_path / "anna.pem")
    return Signer(name="anna", key=read_private_key(tmp_path / "anna.pem")), public


class Payments:
    """A tool that pays, and what it has paid."""

    def __init__(self, *, is_idempotent: bool = True) -> None:
        self.paid: list[Any] = []
        self.tool = replace(
            make_function_tool("pay", {"type": "object", "properties": {"amount": {}}}, self._pay),
            requires_approval=True,
            idempotent=is_idempotent,
        )

    def _pay(self, arguments: dict[str, Any]) -> str:
        self.paid.append(arguments["amount"])
        return "paid"


def make_payer(
    payments: Payments, store: Any, replies: Sequence[Any] | None = None, **changes: Any
) -> Engine:
    """An engine whose model pays 20."""
    pay = reply_with_calls(("pay", {"amount": 20}))
    signer = changes.pop("signer", None)
    return make_engine(
        [pay, "Done."] if replies is None else replies,
        log=store,
        functions=[payments.tool],
        signer=signer,
        **changes,
    )


AT = "2026-06-01T12:00:00.000Z"
NOW = datetime.fromisoformat(AT)
SUBJECT = DecisionSubject(
    conversation="c",
    asked="a" * 64,
    effect=3,
    call=ToolCall(id="call_1", name="pay", arguments={"amount": 20}),
)
STRICT = {"require_signatures": True, "default": "ask"}


def test_a_signed_decision_lets_its_call_run_once(anna: tuple[Signer, str]) -> None:
    """With a key of the spec, the call runs; the record names approver, key and expiry."""
    signer, public = anna
    payments, store = Payments(), MemoryStore()
    rules = {**STRICT, "rules": [{"tools": "pay", "decision": "ask", "expires_s": 600}]}
    engine = make_payer(payments, store, signer=signer, approval=rules, approvers={"anna": public})
    waiting = engine.run("Pay.", conversation="c")
    result = engine.conversation("c").resume(Decided(call_id=waiting.pending_approvals[0].id, approved=True))
    assert (result.content, payments.paid) == ("Done.", [20])
    line = next(line for line in store.read_lines("c") if b'"decided"' in line)
    for text in (b'"by":"anna"', b'"signature":{"key":"', b'"expires_at":"20'):
        assert text in line


@pytest.mark.parametrize("by", ["command line", "anna"])
def test_an_unsigned_decision_is_refused_where_signatures_are_required(
    anna: tuple[Signer, str], by: str
) -> None:
    """Nothing is written, the call waits, and neither approval nor denial counts without a signature."""
    payments, store = Payments(), MemoryStore()
    engine = make_payer(payments, store, approval=STRICT, approvers={"anna": anna[1]})
    call_id = engine.run("Pay.", conversation="c").pending_approvals[0].id
    count = len(list(store.read_lines("c")))
    for approved in (True, False):
        with pytest.raises(SpecError, match="it is not signed"):
            engine.conversation("c").resume(Decided(call_id=call_id, approved=approved, by=by))
    assert (len(list(store.read_lines("c"))), payments.paid) == (count, [])


def test_an_approver_without_a_key_leaves_the_call_open(anna: tuple[Signer, str]) -> None:
    """A callback's unsigned approval does not count either; the turn waits."""

    async def approve(call: ToolCall) -> Decided:
        return Decided(call_id=call.id, approved=True, by="anna")

    payments = Payments()
    engine = make_payer(
        payments, MemoryStore(), approval=STRICT, approvers={"anna": anna[1]}, approver=approve
    )
    assert engine.run("Pay.").pending_approvals
    assert payments.paid == []


def test_a_forged_log_runs_nothing(anna: tuple[Signer, str]) -> None:
    """A log in which somebody wrote an approval, with a valid chain, does not let the call run."""
    payments, store = Payments(), MemoryStore()
    # A spec that accepts unsigned decisions plays the forger; the log ends before the tool has run.
    forger = make_payer(payments, store, approval={"default": "ask"}, chart="approval")
    call_id = forger.run("Pay.", conversation="c").pending_approvals[0].id
    forger.conversation("c").resume(Decided(call_id=call_id, approved=True, by="anna"))
    assert payments.paid == [20]
    lines = list(store.read_lines("c"))
    decided_at = next(seq for seq, line in enumerate(lines) if b'"decided"' in line)
    forged = MemoryStore()
    forged.append("c", 0, lines[: decided_at + 1])
    engine = make_payer(
        payments, forged, ["Done."], approval=STRICT, approvers={"anna": anna[1]}, chart="approval"
    )
    assert engine.conversation("c").resume().content == "Done."
    assert payments.paid == [20]
    assert any(b"has not been approved" in line for line in forged.read_lines("c"))


@pytest.mark.parametrize(
    "change",
    [
        {"conversation": "other"},
        {"asked": "b" * 64},
        {"asked": ""},
        {"effect": 99},
        {"call": ToolCall(id="call_x", name="pay", arguments={"amount": 20})},
        {"call": ToolCall(id="call_1", name="refund", arguments={"amount": 20})},
        {"call": ToolCall(id="call_1", name="pay", arguments={"amount": 21})},
    ],
    ids=["conversation", "record that asked", "no record", "effect", "call id", "tool", "arguments"],
)
def test_a_signature_is_for_one_call_alone(anna: tuple[Signer, str], change: dict[str, Any]) -> None:
    """The same signature is worth nothing for another conversation, effect, call, tool or arguments."""
    signer, public = anna
    decision = signer.sign_decision(Decided(call_id="call_1", approved=True), SUBJECT, AT)
    approvers = parse_approvers({"anna": public})
    assert approvers.check_decision(decision, SUBJECT, NOW) == "valid"
    assert approvers.check_decision(decision, replace(SUBJECT, **change), NOW) in (
        *("wrong", "other_call", "other_question"),
    )


KEY_TIMES: list[tuple[dict[str, Any], str]] = [
    ({}, "valid"),
    ({"valid_from": "2026-01-01", "valid_until": "2027-01-01"}, "valid"),
    ({"valid_from": "2026-07-01"}, "not_yet_valid"),
    ({"valid_until": "2026-06-01T12:00:00Z"}, "expired"),
    ({"revoked_at": "2026-06-01T11:00:00Z"}, "revoked"),
    ({"revoked_at": "2026-06-02"}, "valid"),
]


@pytest.mark.parametrize(("times", "finding"), KEY_TIMES)
def test_a_key_counts_in_its_time(anna: tuple[Signer, str], times: dict[str, str], finding: str) -> None:
    """Too early, expired and revoked keys are told apart."""
    decision = anna[0].sign_decision(Decided(call_id="call_1", approved=True), SUBJECT, AT)
    approvers = parse_approvers({"anna": [{"key": anna[1], **times}]})
    assert approvers.check_decision(decision, SUBJECT, NOW) == finding


def test_keys_rotate(anna: tuple[Signer, str], tmp_path: Path) -> None:
    """An approver with two keys signs with either; a key of nobody, or of another approver, is missing."""
    new = create_key_file(tmp_path / "new.pem")
    approvers = parse_approvers({"anna": [anna[1], new], "ben": []})
    for path in ("anna.pem", "new.pem"):
        signer = Signer(name="anna", key=read_private_key(tmp_path / path))
        decision = signer.sign_decision(Decided(call_id="call_1", approved=True), SUBJECT, AT)
        assert approvers.check_decision(decision, SUBJECT, NOW) == "valid"
        for name in ("ben", "nobody"):
            claimed = replace(decision, by=name)
            assert approvers.check_decision(claimed, SUBJECT, NOW) == "missing_key"
    decision = anna[0].sign_decision(Decided(call_id="call_1", approved=True), SUBJECT, AT)
    assert parse_approvers({"anna": new}).check_decision(decision, SUBJECT, NOW) == "missing_key"
    assert approvers.check_decision(replace(decision, approved=False), SUBJECT, NOW) == "wrong"
    assert approvers.check_decision(replace(decision, signature=None), SUBJECT, NOW) == "unsigned"


@pytest.mark.parametrize("value", ["", "AAAA", "not base64!", "A" * 88])
def test_a_broken_signature_is_wrong(anna: tuple[Signer, str], value: str) -> None:
    """A signature of any form is checked, and never raises."""
    decision = anna[0].sign_decision(Decided(call_id="call_1", approved=True), SUBJECT, AT)
    assert decision.signature is not None
    broken = replace(decision, signature=replace(decision.signature, value=value))
    assert parse_approvers({"anna": anna[1]}).check_decision(broken, SUBJECT, NOW) == "wrong"


@pytest.mark.parametrize("field", ["asked", "shown", "arguments", "at", "expires_at"])
def test_every_field_of_a_signature_is_signed(anna: tuple[Signer, str], field: str) -> None:
    """What the signature says of itself cannot be changed to fit another question."""
    decision = anna[0].sign_decision(Decided(call_id="call_1", approved=True), SUBJECT, AT)
    assert decision.signature is not None
    changed = replace(decision, signature=replace(decision.signature, **{field: "c" * 64}))
    assert parse_approvers({"anna": anna[1]}).check_decision(changed, SUBJECT, NOW) == "wrong"


def test_a_signature_is_for_what_was_shown(anna: tuple[Signer, str]) -> None:
    """A decision that says that something else was shown is refused."""
    decision = anna[0].sign_decision(
        Decided(call_id="call_1", approved=True, shown_digest="seen"), SUBJECT, AT
    )
    approvers = parse_approvers({"anna": anna[1]})
    assert approvers.check_decision(decision, SUBJECT, NOW) == "valid"
    other = replace(decision, shown_digest="other")
    assert approvers.check_decision(other, SUBJECT, NOW) == "other_call"


class SignedPayment:
    """A conversation in which anna approves a payment, and parts of its log."""

    def __init__(self, anna: tuple[Signer, str], *, is_idempotent: bool = False, **approval: Any) -> None:
        self.payments, self.store = Payments(is_idempotent=is_idempotent), MemoryStore()
        self.changes: dict[str, Any] = {
            "approval": {**STRICT, **approval},
            "approvers": {"anna": anna[1]},
            "chart": "approval",
        }
        engine = make_payer(self.payments, self.store, signer=anna[0], **self.changes)
        call_id = engine.run("Pay.", conversation="c").pending_approvals[0].id
        engine.conversation("c").resume(Decided(call_id=call_id, approved=True))
        assert self.payments.paid == [20]
        self.lines = list(self.store.read_lines("c"))
        self.decided_at = next(seq for seq, line in enumerate(self.lines) if b'"decided"' in line)
        event = list(read_conversation(self.store, "c"))[self.decided_at].decode_event()
        assert isinstance(event, Decided)
        self.decision = event

    def copy_log(self, end: int) -> MemoryStore:
        """A copy of the log up to a record."""
        copied = MemoryStore()
        copied.append("c", 0, self.lines[:end])
        return copied

    def open_engine(self, store: MemoryStore, replies: Sequence[Any] = ("Done.",)) -> Engine:
        """An engine without a private key."""
        return make_payer(self.payments, store, list(replies), **self.changes)


def test_a_signed_decision_does_not_count_in_another_log(anna: tuple[Signer, str]) -> None:
    """Issue 32: the same conversation id, call and arguments in a log that began anew: refused, nothing is
    written, and the error says why."""
    first = SignedPayment(anna)
    store = MemoryStore()
    engine = first.open_engine(store, [reply_with_calls(("pay", {"amount": 20})), "Done."])
    call_id = engine.run("Pay.", conversation="c").pending_approvals[0].id
    assert call_id == first.decision.call_id
    count = len(list(store.read_lines("c")))
    with pytest.raises(SpecError, match="it was signed for another question"):
        engine.conversation("c").resume(first.decision)
    assert (len(list(store.read_lines("c"))), first.payments.paid) == (count, [20])


def test_a_decision_that_was_written_into_another_log_runs_nothing(anna: tuple[Signer, str]) -> None:
    """Whoever writes the signed record into another log, with a valid chain, gets no run; `verify` tells."""
    first = SignedPayment(anna)
    store = MemoryStore()
    forger = make_payer(first.payments, store, approval={"default": "ask"}, chart="approval")
    call_id = forger.run("Pay.", conversation="c").pending_approvals[0].id
    unsigned = replace(first.decision, signature=None)
    forger.conversation("c").resume(replace(unsigned, call_id=call_id))
    assert first.payments.paid.pop() == 20
    lines = list(store.read_lines("c"))
    seq = next(seq for seq, line in enumerate(lines) if b'"decided"' in line)
    record = orjson.loads(lines[seq])
    record["event"]["signature"] = to_builtins(first.decision.signature)
    for key in ("hash",):
        del record[key]
    forged = MemoryStore()
    forged.append("c", 0, [*lines[:seq], seal_line(orjson.dumps(record)[:-1] + b"}")[0]])
    findings = [one.finding for one in check_decisions(forged, "c", parse_approvers({"anna": anna[1]}))]
    assert findings == ["other_question"]
    assert first.open_engine(forged).conversation("c").resume().content == "Done."
    assert first.payments.paid == [20]
    assert any(b"has not been approved" in line for line in forged.read_lines("c"))


def test_a_stranger_checks_a_signed_decision(anna: tuple[Signer, str]) -> None:
    """A verifier that was written from the documents accepts it, and nothing that was changed since."""
    first = SignedPayment(anna)
    lines, seq, key = first.lines, first.decided_at, anna[1]
    stranger.check_decision(lines, seq, "c", key)
    for before, after in (
        (b'"by":"anna"', b'"by":"anne"'),
        (b'"approved":true', b'"approved":false'),
        (b'"asked":"', b'"asked":"0'),
        (b'"shown_digest":"', b'"shown_digest":"0'),
    ):
        changed = [*lines[:seq], lines[seq].replace(before, after), *lines[seq + 1 :]]
        assert changed != lines
        with pytest.raises(ValueError, match=r"the signature is wrong|another (question|text)"):
            stranger.check_decision(changed, seq, "c", key)
    with pytest.raises(ValueError, match="the signature is wrong"):
        stranger.check_decision(lines, seq, "d", key)


@pytest.mark.parametrize("end", ["before the decision", "after the decision"])
def test_a_receipt_outlives_the_log(anna: tuple[Signer, str], tmp_path: Path, end: str) -> None:
    """Issue 32: in a copy and after a roll-back of the same log, whose bytes are those that were asked, the
    approval lets nothing run a second time, and the model is told why."""
    first = SignedPayment(anna, receipts=str(tmp_path / "receipts"))
    (receipt,) = (tmp_path / "receipts").iterdir()
    assert b'"tool":"pay"' in receipt.read_bytes()
    is_decided = end == "after the decision"
    store = first.copy_log(first.decided_at + is_decided)
    engine = first.open_engine(store)
    result = (
        engine.conversation("c").resume() if is_decided else engine.conversation("c").resume(first.decision)
    )
    assert (result.content, first.payments.paid) == ("Done.", [20])
    assert any(b"its signed approval was used before" in line for line in store.read_lines("c"))


def test_an_idempotent_call_is_repeated_under_its_receipt(anna: tuple[Signer, str], tmp_path: Path) -> None:
    """After a crash an approved idempotent call runs again with its key; a call with another key does not."""
    first = SignedPayment(anna, is_idempotent=True, receipts=str(tmp_path / "receipts"))
    store = first.copy_log(first.decided_at + 1)
    assert first.open_engine(store).conversation("c").resume().content == "Done."
    assert first.payments.paid == [20, 20]
    (receipt,) = (tmp_path / "receipts").iterdir()
    receipt.write_bytes(receipt.read_bytes().replace(b'"key":"', b'"key":"x'))
    store = first.copy_log(first.decided_at + 1)
    assert first.open_engine(store).conversation("c").resume().content == "Done."
    assert first.payments.paid == [20, 20]


def test_without_receipts_a_copy_is_the_same_log(anna: tuple[Signer, str]) -> None:
    """A copy has the bytes that were asked: only what stands outside of the log tells it from the log."""
    first = SignedPayment(anna)
    first.open_engine(first.copy_log(first.decided_at)).conversation("c").resume(first.decision)
    assert first.payments.paid == [20, 20]


def test_a_new_decision_gets_a_new_receipt(anna: tuple[Signer, str], tmp_path: Path) -> None:
    """After a roll-back a person may approve once more; that decision is another one."""
    first = SignedPayment(anna, receipts=str(tmp_path / "receipts"))
    store = first.copy_log(first.decided_at)
    engine = make_payer(first.payments, store, ["Done."], signer=anna[0], **first.changes)
    engine.conversation("c").resume(Decided(call_id=first.decision.call_id, approved=True))
    assert first.payments.paid == [20, 20]
    assert len(list((tmp_path / "receipts").iterdir())) == 2


def test_without_a_receipt_nothing_runs(anna: tuple[Signer, str], tmp_path: Path) -> None:
    """Where no receipt can be written, the call is refused with the folder and the reason."""
    (tmp_path / "receipts").write_text("no folder")
    payments, store = Payments(), MemoryStore()
    rules = {**STRICT, "receipts": str(tmp_path / "receipts")}
    engine = make_payer(
        payments, store, signer=anna[0], approval=rules, approvers={"anna": anna[1]}, chart="approval"
    )
    call_id = engine.run("Pay.", conversation="c").pending_approvals[0].id
    engine.conversation("c").resume(Decided(call_id=call_id, approved=True))
    assert payments.paid == []
    assert any(b"no receipt can be written" in line for line in store.read_lines("c"))


def test_a_wrong_folder_of_receipts_is_refused() -> None:
    """The section names a path."""
    with pytest.raises(SpecError, match="expected the path of a folder"):
        make_engine(["x"], approval={"receipts": 7})


def test_a_fork_carries_no_signature(anna: tuple[Signer, str]) -> None:
    """A fork asks again, also where the parent's decision was signed."""
    signer, public = anna
    payments, store = Payments(), MemoryStore()
    engine = make_payer(
        payments, store, signer=signer, approval=STRICT, approvers={"anna": public}, chart="approval"
    )
    waiting = engine.run("Pay.", conversation="c")
    engine.conversation("c").resume(Decided(call_id=waiting.pending_approvals[0].id, approved=True))
    asked_at = next(seq for seq, line in enumerate(store.read_lines("c")) if b'"reviewed"' in line)
    fork = engine.conversation("c").fork(at=asked_at, run_tools=True)
    assert fork.result is not None
    assert fork.result.pending_approvals
    assert payments.paid == [20]


def test_the_log_names_no_approver_key(anna: tuple[Signer, str]) -> None:
    """The spec in the log has no `approvers`: whoever trusts a log takes no keys from it."""
    store = MemoryStore()
    make_payer(Payments(), store, approval=STRICT, approvers={"anna": anna[1]}).run("Pay.", conversation="c")
    text = b"".join(store.read_lines("c")).decode()
    assert anna[1] not in text
    assert '"approvers"' not in text


def test_a_key_file_is_private(tmp_path: Path) -> None:
    """A key is readable by its owner alone and never overwritten; one that others can read is refused."""
    path = tmp_path / "key.pem"
    create_key_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(SpecError, match="exists already"):
        create_key_file(path)
    path.chmod(0o644)
    with pytest.raises(SpecError, match="others can read"):
        read_private_key(path)
    (tmp_path / "other.pem").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    (tmp_path / "other.pem").chmod(0o600)
    with pytest.raises(SpecError, match="no Ed25519 private key"):
        read_private_key(tmp_path / "other.pem")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (["anna"], "expected a mapping"),
        ({"anna": "ssh-ed25519 AAAA"}, "expected `ed25519:`"),
        ({"anna": {"kee": "x"}}, "unknown key 'kee'"),
        ({"anna": {"key": 7}}, "expected `ed25519:`"),
        ({"anna": [{"key": "ed25519:" + "A" * 43 + "=", "revoked_at": "soon"}]}, "'soon' is no time"),
    ],
)
def test_a_wrong_section_is_refused(section: Any, message: str) -> None:
    """Errors name the place and what is allowed."""
    with pytest.raises(SpecError, match=message):
        make_engine(["x"], approvers=section)


def test_signatures_need_approvers() -> None:
    """A spec in which nobody could approve is refused when it is loaded."""
    with pytest.raises(SpecError, match="nobody could approve"):
        make_engine(["x"], approval={"require_signatures": True})


def test_a_decision_for_a_named_approver_is_theirs(anna: tuple[Signer, str]) -> None:
    """Where the chart names approvers, nobody else decides; with a key, the name is proved."""
    signer, public = anna
    chart = {"extends": "approval", "name": "named", "states": {"awaiting_approval": {"enter": "ask_anna"}}}
    payments, store = Payments(), MemoryStore()
    changes: dict[str, Any] = {
        "chart": chart,
        "effects": {"ask_anna": {"ask_approval": {"to": ["anna"]}}},
        "approvers": {"anna": public},
    }
    engine = make_payer(payments, store, **changes)
    call_id = engine.run("Pay.", conversation="c").pending_approvals[0].id
    for name in (None, "ben"):
        with pytest.raises(IllegalEvent, match="approvers: anna"):
            engine.conversation("c").resume(Decided(call_id=call_id, approved=True, by=name))
    signing = make_payer(payments, store, ["Done."], signer=signer, **changes)
    assert signing.conversation("c").resume(Decided(call_id=call_id, approved=True)).content == "Done."
    assert payments.paid == [20]
