"""Evidence: one file from which somebody without the log can check what happened in a conversation.

It holds the records of the conversation and of those that it is linked with (the parents of a fork, the
agents that it ran), its chart, what `check` says about that chart, who decided about tool calls, and, where
the log is sealed, the seal with a proof that this conversation belongs to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from toolchart import __version__
from toolchart.engine.log.family import find_parent, iterate_family
from toolchart.engine.log.reading.records import ReadRecord, read_conversation
from toolchart.engine.log.reading.visited_path import find_configuration, load_recorded_chart
from toolchart.engine.log.sealing.journal import Entry, read_entry, read_journal
from toolchart.engine.log.sealing.keys import SealVerifier
from toolchart.engine.log.sealing.merkle import Leaf, build_inclusion_proof, compute_root_from_proof
from toolchart.engine.log.secrecy.stand_ins import compute_line_hash
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.core.encoding import decode
from toolchart.states.errors import LogDamaged, SpecError, ToolchartError
from toolchart.states.events import Limits
from toolchart.states.ports import Store
from toolchart.states.proofs.check import check

EVIDENCE_VERSION = 1


class LeafProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The proof that a conversation belongs to a seal."""

    leaf: tuple[str, int, str]
    """Conversation, number of records and hash of the newest one, at the time of the seal."""
    index: int
    """Place of the leaf in the tree, from 0."""
    proof: list[str]
    """The hashes that lead from the leaf to the root, from the bottom up."""


class SealProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A seal of the whole log, and the proofs that the conversations of the evidence belong to it."""

    entry: str
    """The line of the seal journal."""
    leaves: list[LeafProof]
    """One for each conversation that the seal covers."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file, as JSON."""

    evidence: int
    """`EVIDENCE_VERSION`."""
    toolchart: str
    """The release that wrote it."""
    conversation: str
    conversations: dict[str, list[str]]
    """The lines of the records: of the conversation, and of all that it is linked with."""
    chart: str
    """The chart in force, as YAML text; it stands in a record too."""
    check: dict[str, Any]
    """What `check` says about the chart with the limits of the newest turn."""
    approvals: list[dict[str, Any]]
    """The decisions about calls: number of the record, its time, and the fields of the event."""
    seal: SealProof | None
    """None where the log was not sealed, or no seals were named."""


def export_evidence(store: Store, conversation: str, *, seals: str | None = None) -> str:
    """The evidence of a conversation, as JSON text.

    Args:
        seals: path of the seal journal of the log.

    Raises:
        LogDamaged: a record or the seals are not what was written.
        SpecError: the seals do not cover the conversation, or cannot be read.
    """
    names = list(_list_linked_conversations(store, conversation))
    lines = {name: [record.line.decode() for record in read_conversation(store, name)] for name in names}
    records = list(read_conversation(store, conversation, include_shared=True))
    evidence = Evidence(
        evidence=EVIDENCE_VERSION,
        toolchart=__version__,
        conversation=conversation,
        conversations=lines,
        chart=str(find_configuration(records)["chart"]),
        check=_describe_check(records),
        approvals=_list_approvals(records),
        seal=_build_seal_proof(Path(seals), conversation, names) if seals is not None else None,
    )
    return json.dumps(msgspec.to_builtins(evidence), indent=1) + "\n"


def _list_linked_conversations(store: Store, conversation: str) -> Iterator[str]:
    """The conversation, what it was forked from or works for, and what all of these run; each once."""
    names = set(store.list_conversations())
    waiting, listed = [conversation], set()
    while waiting:
        name = waiting.pop()
        if name in listed or name not in names:
            continue
        listed.add(name)
        yield name
        waiting += [child for _, child in iterate_family(store, name)]
        first = next(iter(read_conversation(store, name)), None)
        if first is not None:
            link = find_parent(first)
            waiting += [str(link["conversation"])] if link is not None else []
            waiting += [str(first.event["parent"])] if first.event_type == "forked" else []


def _describe_check(records: list[ReadRecord]) -> dict[str, Any]:
    """What `check` says about the recorded chart; the reason where it cannot be checked."""
    started = [record.event for record in records if record.event_type == "turn_started"]
    limits = decode(Limits, started[-1].get("settings", {}).get("limits", {})) if started else Limits()
    described = {"limits": msgspec.to_builtins(limits)}
    try:
        report = check(load_recorded_chart(find_configuration(records)), limits=limits)
    except (ToolchartError, ValueError) as error:
        return {**described, "problem": str(error)}
    data: dict[str, Any] = json.loads(msgspec.json.encode(report, enc_hook=str))
    return {**described, **data}


def _list_approvals(records: Iterable[ReadRecord]) -> list[dict[str, Any]]:
    return [
        {"seq": record.seq, "at": record.at, **record.event}
        for record in records
        if record.event_type == "decided"
    ]


def _build_seal_proof(path: Path, conversation: str, names: list[str]) -> SealProof:
    """The proof from a journal whose signatures are checked by whoever reads the evidence."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SpecError(f"the seals cannot be read: {error.strerror}", file=str(path)) from None
    journal = read_journal(data, str(path), SealVerifier(checks_signatures=False))
    if conversation not in journal.leaves:
        raise SpecError(
            f"no seal covers conversation {conversation!r}",
            file=str(path),
            hint="seal the log first: toolchart seal --to FILE",
        )
    tree = [leaf.encode() for leaf in journal.leaves.values()]
    return SealProof(
        entry=[line for line in data.split(b"\n") if line.strip()][-1].rstrip(b"\r").decode(),
        leaves=[_build_leaf_proof(tree, journal.leaves[name]) for name in names if name in journal.leaves],
    )


def _build_leaf_proof(tree: list[bytes], leaf: Leaf) -> LeafProof:
    index = tree.index(leaf.encode())
    proof = [node.hex() for node in build_inclusion_proof(tree, index)]
    return LeafProof(leaf=(leaf.conversation, leaf.records, leaf.head), index=index, proof=proof)


# -- checking --------------------------------------------------------------------------------------


class CheckedEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence without damage."""

    conversation: str
    records: int
    findings: int
    """What `check` found in the chart."""
    approvals: int
    sealed_records: int | None
    """How many of the records the seal covers; None where the evidence has no seal."""
    sealed_at: str | None
    """Time of the seal."""


def check_evidence(data: bytes, source: str, verifier: SealVerifier) -> CheckedEvidence:
    """Check evidence without the log: chain, links, chart, proof, approvals and seal.

    Args:
        verifier: knows the keys that may have signed the seal.

    Raises:
        LogDamaged: something in it is not what was recorded or sealed.
        MissingKey: the seal is signed, and its key is not given.
        SpecError: the file is no evidence that this release reads.
    """
    evidence = _decode_evidence(data, source)
    store = _build_store(evidence)
    for outcome in verify_store(store):
        if not isinstance(outcome, VerifiedConversation):
            raise outcome
    records = list(read_conversation(store, evidence.conversation, include_shared=True))
    if not records:
        raise LogDamaged("it has no records", conversation=evidence.conversation)
    derived = (str(find_configuration(records)["chart"]), _list_approvals(records))
    if (evidence.chart, evidence.approvals) != derived:
        raise LogDamaged(
            "chart or approvals are not those of its records", conversation=evidence.conversation
        )
    if evidence.toolchart == __version__ and evidence.check != _describe_check(records):
        raise LogDamaged("`check` does not say this about its chart", conversation=evidence.conversation)
    sealed_at = _check_seal_proof(evidence, store, source, verifier)
    return CheckedEvidence(
        conversation=evidence.conversation,
        records=sum(1 for _ in store.read_lines(evidence.conversation)),
        findings=len(evidence.check.get("findings", ())),
        approvals=len(evidence.approvals),
        sealed_records=_count_sealed_records(evidence),
        sealed_at=sealed_at,
    )


def load_evidence(data: bytes, source: str) -> tuple[Store, str]:
    """The records of evidence as a log in memory, unchecked, and the conversation in question.

    Raises:
        SpecError: the file is no evidence that this release reads.
    """
    evidence = _decode_evidence(data, source)
    return _build_store(evidence), evidence.conversation


def _build_store(evidence: Evidence) -> MemoryStore:
    store = MemoryStore()
    for name, lines in evidence.conversations.items():
        store.append(name, 0, [line.encode("utf-8", "surrogatepass") for line in lines])
    return store


def _count_sealed_records(evidence: Evidence) -> int | None:
    proofs = evidence.seal.leaves if evidence.seal is not None else []
    return next((proof.leaf[1] for proof in proofs if proof.leaf[0] == evidence.conversation), None)


def _decode_evidence(data: bytes, source: str) -> Evidence:
    try:
        evidence = msgspec.convert(json.loads(data), Evidence)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"this is no evidence: {error}", file=source) from None
    if evidence.evidence != EVIDENCE_VERSION:
        raise SpecError(
            f"this evidence has version {evidence.evidence}; this Toolchart reads {EVIDENCE_VERSION}",
            file=source,
        )
    return evidence


def _check_seal_proof(evidence: Evidence, store: Store, source: str, verifier: SealVerifier) -> str | None:
    """The time of the seal; None where there is none."""
    if evidence.seal is None:
        return None
    entry = read_entry(evidence.seal.entry.encode("utf-8", "surrogatepass"), source, verifier)
    for leaf_proof in evidence.seal.leaves:
        _check_leaf_proof(leaf_proof, entry, store)
    if evidence.conversation not in {proof.leaf[0] for proof in evidence.seal.leaves}:
        raise LogDamaged("its seal does not cover it", conversation=evidence.conversation)
    return entry.at


def _check_leaf_proof(leaf_proof: LeafProof, entry: Entry, store: Store) -> None:
    """Check that a leaf belongs to the seal, and that the conversation still is what was sealed."""
    conversation, count, head = leaf_proof.leaf
    try:
        nodes = [bytes.fromhex(node) for node in leaf_proof.proof]
    except ValueError:
        nodes = []
    leaf = Leaf(conversation=conversation, records=count, head=head).encode()
    root = compute_root_from_proof(leaf, leaf_proof.index, entry.size, nodes)
    if root is None or root.hex() != entry.root:
        raise LogDamaged("its seal does not cover it", conversation=conversation)
    last = next(iter(store.read_lines(conversation, count - 1)), b"") if count > 0 else b""
    if not last or compute_line_hash(last) != head:
        raise LogDamaged("it is not what was sealed", conversation=conversation, seq=count - 1)
