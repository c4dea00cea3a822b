"""What is kept of a body that passes: its bytes up to a limit, and what they are without their encoding."""

from __future__ import annotations

from toolchart.providers.transport.reply_guard import BodyGuard
from toolchart.states.errors import ProviderError
from toolchart.states.reading_limits import READING, format_bytes, name_limit

_IDENTITY = ("", "identity")
_ENCODINGS = ("gzip", "x-gzip", "deflate")


class KeptBody:
    """Keeps the bytes of a body as they pass, at most `reply_bytes` of them.

    Keeping is one append a chunk: decoding waits until the exchange is over.
    """

    def __init__(self, whose: str) -> None:
        self._whose = whose
        """Names the body in words about it: `request`, `answer`."""
        self._pieces: list[bytes] = []
        self._size = 0
        self._max_bytes = READING.reply_bytes
        self.is_too_large = False

    def add(self, data: bytes) -> None:
        """Keep the next bytes, as far as the limit goes."""
        if self.is_too_large:
            return
        self._size += len(data)
        if self._size > self._max_bytes:
            self.is_too_large = True
            data = data[: self._max_bytes - self._size]
        self._pieces.append(data)

    def read(self, encoding: str) -> tuple[bytes, str]:
        """The bytes without their encoding, and what is missing of them in words; empty: nothing.

        Args:
            encoding: the header `content-encoding`.
        """
        data = b"".join(self._pieces)
        for name in reversed([word.strip().lower() for word in encoding.split(",")]):
            if name in _IDENTITY:
                continue
            if name not in _ENCODINGS:
                return (
                    b"",
                    f"the {self._whose} is encoded as {name!r}, which cannot be read here: it is not kept",
                )
            guard = BodyGuard("reply_bytes", name.removeprefix("x-"), is_cut=True)
            pieces: list[bytes] = []
            try:
                pieces.extend(guard.add_bytes(data))
            except ProviderError:
                return b"".join(pieces), f"the {self._whose} is not what its encoding {name!r} says"
            data = b"".join(pieces)
            self.is_too_large = self.is_too_large or guard.is_over
        if self.is_too_large:
            limit = f"{format_bytes(self._max_bytes)} {name_limit('reply_bytes')}"
            return data, f"the {self._whose} is larger than {limit}: it passed, and is not kept whole"
        return data, ""
