"""The Merkle tree over the conversations of a log, hashed as RFC 9162 (Certificate Transparency) hashes.

A leaf is the JSON array `["CONVERSATION",RECORDS,"HEAD"]`: id, number of records and hash of the newest one.
The leaves stand in the order of the bytes of their JSON. A leaf is hashed behind a zero byte and an inner
node behind a one, so that neither can pass for the other.

Source: RFC 9162, sections 2.1.1 (root) and 2.1.3 (inclusion proof).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import msgspec


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """What a seal says about one conversation."""

    conversation: str
    records: int
    head: str
    """Hash of record `records - 1`."""

    def encode(self) -> bytes:
        """The bytes of the leaf: JSON in ASCII without spaces."""
        return json.dumps([self.conversation, self.records, self.head], separators=(",", ":")).encode()


def sort_leaves(leaves: Sequence[Leaf]) -> list[bytes]:
    """The bytes of all leaves, in the order of the tree."""
    return sorted(leaf.encode() for leaf in leaves)


def compute_root(leaves: Sequence[bytes]) -> bytes:
    """The Merkle tree hash of leaves in their order."""
    if not leaves:
        return hashlib.sha256().digest()
    level = [_hash_leaf(leaf) for leaf in leaves]
    while len(level) > 1:
        # An odd node at the end moves up unchanged: the same tree as by splitting at powers of two.
        pairs = [_hash_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def build_inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes that lead from a leaf to the root, from the bottom up."""
    proof = []
    level = [_hash_leaf(leaf) for leaf in leaves]
    while len(level) > 1:
        neighbour = index ^ 1
        if neighbour < len(level):
            proof.append(level[neighbour])
        pairs = [_hash_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
        index //= 2
    return proof


def compute_root_from_proof(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes | None:
    """The root that a leaf and its inclusion proof lead to; None where the proof has not the right length."""
    if not 0 <= index < size:
        return None
    node, last, steps = _hash_leaf(leaf), size - 1, list(proof)
    while last:
        if index % 2 or index < last:
            if not steps:
                return None
            neighbour = steps.pop(0)
            node = _hash_node(neighbour, node) if index % 2 else _hash_node(node, neighbour)
        index, last = index // 2, last // 2
    return None if steps else node


def _hash_leaf(leaf: bytes) -> bytes:
    return hashlib.sha256(b"\0" + leaf).digest()


def _hash_node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()
