"""Raw answers: the bytes of a host's answer to one model call, in order, before anything decodes them.

Every HTTP client of an `llms` entry has the hook that guards replies (`reply_guard.py`), and every byte of an
answer passes there, after its compression (`content-encoding`) is undone. So the digest is taken there, at
one place for all hosts: no adapter can forget it, or take it of something else than what it then decodes.

    with AnswerCapture() as answer:
        reply = await provider.complete(request)
    answer.digest      # None where no host answered: a script, an answer from a log

The bytes themselves are kept only where the log is to have them, compressed as they come. `RawAnswer` is
their form in the log.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextvars import ContextVar
from hashlib import sha256
from typing import Any

from toolchart.specs.secrets import strike_secret_bytes
from toolchart.states.effects import encode_digest
from toolchart.states.events import Adaptation
from toolchart.states.messages import RawAnswer, Usage

MAX_KEPT_BYTES = 4 * 2**20
"""Most bytes of an answer that the log keeps, before compression. Of a larger one it has the digest only."""


def compute_answer_digest(content: bytes) -> str:
    """The digest of a raw answer: the first 192 bits of the SHA-256 of its bytes, 32 characters."""
    return encode_digest(sha256(content).digest())


def _read_no_usage() -> Usage | None:
    return None


_current_capture: ContextVar[AnswerCapture | None] = ContextVar("current_capture", default=None)


class AnswerCapture:
    """The raw answer to one model call. Where a call has several, as with a redirect, the last one counts.

    Within its `with` block, the answers that this task reads from model hosts go to it.

    Args:
        keeps_bytes: whether the bytes are kept too, and not only their digest.
    """

    __slots__ = (
        *("_compressor", "_hash", "_keeps_bytes", "_pieces", "_size", "_status"),
        *("_token", "adaptations", "is_whole", "read_usage"),
    )

    def __init__(self, *, keeps_bytes: bool = False) -> None:
        self._keeps_bytes = keeps_bytes
        self._hash: Any = None
        self._compressor: Any = None
        self._pieces: list[bytes] = []
        self._size = self._status = 0
        self.is_whole = False
        """Whether the answer was read to its end."""
        self.adaptations: tuple[Adaptation, ...] = ()
        """What of the request was left out or changed for the host."""
        self.read_usage: Callable[[], Usage | None] = _read_no_usage
        """What the host has counted so far, of an answer that is no reply."""

    def __enter__(self) -> AnswerCapture:
        self._token = _current_capture.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current_capture.reset(self._token)

    def begin(self, status: int) -> Callable[[bytes], None]:
        """Begin with an answer; returns the function that takes its bytes, piece by piece.

        Args:
            status: of HTTP.
        """
        self._hash, self._status, self.is_whole = sha256(), status, False
        if not self._keeps_bytes:
            update: Callable[[bytes], None] = self._hash.update  # the only work for a piece
            return update
        self._compressor, self._pieces, self._size = zlib.compressobj(), [], 0
        return self._keep_bytes

    def _keep_bytes(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)
        if self._size > MAX_KEPT_BYTES:
            self._compressor = None
        elif compressed := self._compressor.compress(data):
            self._pieces.append(compressed)

    @property
    def digest(self) -> str | None:
        """The digest of the bytes that were read; None where no host answered."""
        return None if self._hash is None else encode_digest(self._hash.digest())

    def build_raw_answer(self, *, is_streamed: bool) -> RawAnswer | None:
        """The bytes as the log keeps them; call it once, at the end.

        None where they are not kept: nobody wants them, no host answered, they are more than
        `MAX_KEPT_BYTES`, or they have a secret that this process knows (a host may repeat the key that it
        refuses).

        Args:
            is_streamed: whether the answer was asked for as a stream.
        """
        if self._compressor is None:
            return None
        data = b"".join([*self._pieces, self._compressor.flush()])
        self._compressor = None
        # Searched as a whole: a secret may stand across two pieces.
        content = zlib.decompress(data)
        if strike_secret_bytes(content) is not content:
            return None
        return RawAnswer(
            content=b64encode(data).decode(),
            status=0 if self._status == 200 else self._status,
            is_streamed=is_streamed,
            is_cut=not self.is_whole,
        )


def read_raw_answer(raw: RawAnswer) -> bytes:
    """The bytes of a kept answer.

    Raises:
        ValueError: they are damaged, or more than a log keeps.
    """
    decompressor = zlib.decompressobj()
    try:
        # One byte more than a log keeps: that tells that there is more, however far it expands.
        content = decompressor.decompress(b64decode(raw.content, validate=True), MAX_KEPT_BYTES + 1)
    except zlib.error:
        content = None
    is_whole = decompressor.eof and not decompressor.unused_data
    if content is None or not is_whole or len(content) > MAX_KEPT_BYTES:
        raise ValueError("the kept answer is no compressed text, or a larger one than a log keeps")
    return content


def note_adaptations(adaptations: tuple[Adaptation, ...]) -> None:
    """Have the record of the call that runs now say what was changed for its host."""
    capture = _current_capture.get()
    if capture is not None:
        capture.adaptations = adaptations


def note_usage(read_usage: Callable[[], Usage | None]) -> None:
    """Have the record of the call that runs now say what its host has counted, should the call fail.

    Args:
        read_usage: called when the call has failed.
    """
    capture = _current_capture.get()
    if capture is not None:
        capture.read_usage = read_usage


def find_capture() -> AnswerCapture | None:
    """The capture of the call that is made now; None outside of model calls."""
    return _current_capture.get()
