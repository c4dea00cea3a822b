"""The Merkle tree over the conversations of a log, hashed as RFC 9162 (Certificate Transparency) hashes.

A leaf is the JSON array `["CONVERSATION",RECORDS,"HEAD"]`: id, number of records and hash of the newest one.
The leaves stand in the order in which the journal first names their conversations, so that a new one changes
one path to the root only. A leaf is hashed behind a zero byte and an inner node behind a one, so that neither
can pass for the other.

Source: RFC 9162, section 2.1.1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii

import msgspec


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """What a seal says about one conversation."""

    conversation: str
    records: int
    head: str
    """Hash of record `records - 1`."""

    def encode(self) -> bytes:
        """The bytes of the leaf: JSON in ASCII without spaces."""
        name, head = encode_basestring_ascii(self.conversation), encode_basestring_ascii(self.head)
        return f"[{name},{self.records},{head}]".encode()


class MerkleTree:
    """A tree that keeps its inner nodes: a changed or new leaf costs one path to the root."""

    def __init__(self) -> None:
        self._levels: list[list[bytes]] = [[]]
        """The nodes of each level, the hashes of the leaves first."""
        self._changed: dict[int, bytes] = {}
        """Hashes of leaves whose paths were not computed yet, by index."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, index: int, leaf: bytes) -> None:
        """Replace a leaf, or add one at the end: then the index is the size."""
        self._changed[index] = _hash_leaf(leaf)
        self._size = max(self._size, index + 1)

    def compute_root(self, changes: Mapping[int, bytes] | None = None) -> bytes:
        """The root; with leaves that are put into a copy, where `changes` has some."""
        if self._changed:
            self._climb(self._changed, self._size, is_kept=True)
            self._changed = {}
        hashes = {index: _hash_leaf(leaf) for index, leaf in (changes or {}).items()}
        return self._climb(hashes, max([self._size, *(index + 1 for index in hashes)]), is_kept=False)

    def _climb(self, nodes: dict[int, bytes], size: int, *, is_kept: bool) -> bytes:
        """The root of a tree in which these leaves have changed.

        Args:
            nodes: hashes of the changed leaves, by index.
            size: how many leaves the tree has then.
            is_kept: whether the nodes on the way are kept.
        """
        if not size:
            return hashlib.sha256().digest()
        height = 0
        while True:
            if height == len(self._levels):
                self._levels.append([])
            level = self._levels[height]
            if is_kept:
                for index in sorted(nodes):
                    level[index : index + 1] = [nodes[index]]
            if size == 1:
                return nodes[0] if nodes else level[0]
            parents = {}
            for parent in {index // 2 for index in nodes}:
                left, right = 2 * parent, 2 * parent + 1
                node = nodes.get(left) or level[left]
                # An odd node at the end moves up unchanged, as below.
                parents[parent] = _hash_node(node, nodes.get(right) or level[right]) if right < size else node
            nodes, size, height = parents, (size + 1) // 2, height + 1


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


def _hash_leaf(leaf: bytes) -> bytes:
    return hashlib.sha256(b"\0" + leaf).digest()


def _hash_node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()
