"""A file of `export --format jsonl`: the records of one or more conversations as lines, to be read only.

    {"conversation":"c","records":2,"head":"hash of record 1"}
    {"seq":0,...,"prev":"0000...","hash":"..."}
    {"seq":1,...,"prev":"hash of record 0","hash":"..."}

Each conversation begins with a heading, and its records follow byte for byte as they were hashed. The chain
shows a record that was changed, moved or left out; the heading shows one that was cut off at the end. So the
whole file is checked before anything of it is read, and whoever gets it needs no database. Files may be
joined. A head that was signed elsewhere (`verify --seal`) shows that nobody has written the file anew.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from toolchart.engine.log.conversation_ids import find_id_fault
from toolchart.engine.log.read_records import read_records
from toolchart.engine.log.record import GENESIS, compute_line_hash, has_hash_tail, read_hash
from toolchart.engine.log.stores.base import Change, SmallValue, StoreBase
from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import ForeignLog, LogDamaged, LogUnavailable, SpecError
from toolchart.states.json_bounds import MAX_RECORD_DEPTH, ExcessError, check_foreign_json, parse_foreign_json
from toolchart.states.ports import Store
from toolchart.states.reading_limits import READING, format_bytes, name_limit


class _Heading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The line before the records of a conversation."""

    conversation: str
    records: int
    head: str
    """Hash of the newest record."""


class _Place(msgspec.Struct, frozen=True):
    """Where the records of a conversation stand in the file."""

    start: int
    last: int
    """Offset of the newest record."""
    records: int


_TAIL_BYTES = 256
"""Of a line, with more than the keys after its content: `prev` and `hash`."""

_BEGINNING = b'{"conversation":"'

SHARED_PAGE_START = b'<script type="text/plain" id="records">\n'
SHARED_PAGE_END = b"</script>"
PAGE_BEGINNING = b"<!doctype html>"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""What stands around the lines in a run that was shared as one page; in it `<` and `&` are escaped."""
_encode = msgspec.json.Encoder().encode
_decode_heading = msgspec.json.Decoder(_Heading).decode


# -- writing -------------------------------------------------------------------------------------


def iterate_file_lines(store: Store, conversations: Iterable[str]) -> Iterator[bytes]:
    """The lines of a file with these conversations, each with its line end; one at a time is in memory.

    Records that are appended meanwhile are left out.

    Raises:
        LogDamaged: names the first record that is not the one that was written.
        SpecError: a record holds a secret of this process, which cannot be struck from bytes that are hashed;
            an id cannot be read back; or a record is larger than is read again.
    """
    for name in conversations:
        if fault := find_id_fault(name):
            raise SpecError(f"{fault}, so no file can have it")
        newest = store.read_last_line(name)
        if newest is None:
            continue  # it was deleted meanwhile
        count, head = newest[0] + 1, compute_line_hash(newest[1])
        yield _encode(_Heading(name, count, head)) + b"\n"
        seq = -1
        for seq, record in enumerate(read_records(islice(store.read_lines(name), count), name)):
            text = record.line.decode()
            if strike_secrets(text) is not text:
                raise SpecError(
                    f"record {seq} of conversation {name!r} holds a secret that this process knows",
                    hint="export it where the secret is not set, to people who may have it",
                )
            _check_size(record.line, name, seq)
            yield record.line + b"\n"
        if seq + 1 != count:
            raise LogDamaged("it is missing", conversation=name, seq=seq + 1)


def _check_size(line: bytes, conversation: str, seq: int) -> None:
    """Refuse a record that could not be read again: a file that was written is one that can be read.

    How deep it is nested needs no look: the encoder of records takes less than `MAX_RECORD_DEPTH`.
    """
    try:
        if len(line) >= READING.record_bytes:
            raise ExcessError(_describe_excess())
        check_foreign_json(line, "record_values", max_depth=MAX_RECORD_DEPTH)
    except ExcessError as error:
        raise SpecError(f"record {seq} of conversation {conversation!r}: {error}") from None


def _describe_excess() -> str:
    return f"it is longer than {format_bytes(READING.record_bytes)} {name_limit('record_bytes')}"


# -- reading -------------------------------------------------------------------------------------


class RecordFile(StoreBase):
    """The conversations of a file, with their hashes, numbers and links checked when it is opened.

    Args:
        place: what messages call it, where that is not its path.

    Raises:
        LogUnavailable: there is no such file, or it cannot be read, or it is a pipe or a folder.
        ForeignLog: it does not begin as such a file does.
        LogDamaged: it is not as it was written; names the line.
    """

    def __init__(self, path: str | Path, place: str = "") -> None:
        self.path = Path(path)
        self._place = place or str(self.path)
        self._lock = threading.Lock()
        require_regular_file(self.path)
        try:
            self._file: BinaryIO = self.path.open("rb")
        except OSError as error:
            raise LogUnavailable(f"{self.path} cannot be read: {error.strerror}") from None
        try:
            self._places = _check_lines(self._file, self._place)
        except BaseException:
            self.close()
            raise

    def commit(self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True) -> NoReturn:
        """Refused: the file is only read."""
        raise build_read_only_error(self.path)

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on."""
        place = self._places.get(conversation)
        if place is None:
            return
        offset = place.start
        for seq in range(place.records):
            line, offset = self._read_line(offset)
            if seq >= start:
                yield line

    def _read_line(self, offset: int) -> tuple[bytes, int]:
        """The line at an offset, without its end, and the offset of the next one."""
        with self._lock:
            self._file.seek(offset)
            line = self._file.readline(READING.record_bytes)
        return line.removesuffix(b"\n"), offset + len(line)

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        place = self._places.get(conversation)
        return None if place is None else (place.records - 1, self._read_line(place.last)[0])

    def read_value(self, conversation: str, kind: str, key: str = "") -> None:
        """None: a file has only records."""

    def read_values(
        self, conversation: str, kind: str, before: str | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """None, as above."""
        return iter(())

    def list_values(self, kind: str, conversations: Sequence[str] | None = None) -> Iterable[SmallValue]:
        """None, as above."""
        return ()

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, as they stand in the file."""
        return list(self._places)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()


def begins_as_record_file(path: Path) -> bool:
    """Whether a file begins with the heading of a conversation; false where it cannot be read."""
    try:
        with path.open("rb") as file:
            return is_heading(file.readline(READING.record_bytes))
    except OSError:
        return False


def is_heading(line: bytes) -> bool:
    """Whether a line is the heading of a conversation."""
    try:
        _decode_heading(line)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True


def read_shared_page(path: Path) -> bytes | None:
    """The lines of records in a run that was shared as one page of HTML, also where mail or an editor has
    changed its line ends; None for any other file.

    Raises:
        LogDamaged: it is such a page, and was cut off.
    """
    try:
        with path.open("rb") as file:
            beginning = file.read(len(_BYTE_ORDER_MARK + PAGE_BEGINNING)).removeprefix(_BYTE_ORDER_MARK)
            if not beginning.lower().startswith(PAGE_BEGINNING):
                return None
        page = path.read_bytes().replace(b"\r\n", b"\n")  # no record has a bare one: JSON escapes it
        _, start, rest = page.partition(SHARED_PAGE_START)
    except OSError:
        return None
    if not start:
        return None
    lines, end, _ = rest.partition(SHARED_PAGE_END)
    if not end:
        raise LogDamaged(f"{path} is a run that was shared, and its end is missing")
    return lines.replace(b"&lt;", b"<").replace(b"&amp;", b"&")


def require_regular_file(path: Path) -> None:
    """Refuse a pipe, a device or a folder: records are read more than once, from any place.

    Raises:
        LogUnavailable: it is one.
    """
    if path.exists() and not path.is_file():
        raise LogUnavailable(
            f"{path} is no regular file\n  records are checked before they are read: write it to a file first"
        )


def _check_lines(file: BinaryIO, name: str) -> dict[str, _Place]:
    """Where each conversation stands in a file in which every line is as it was written; messages call it
    by a name."""
    places: dict[str, _Place] = {}
    check, start = _LineCheck(name), 0
    while line := file.readline(READING.record_bytes):
        check.number += 1
        if not line.endswith(b"\n"):
            check.refuse(_describe_excess() if len(line) == READING.record_bytes else "its end is missing")
        line = line[:-1]
        try:
            check_foreign_json(line, "record_values", max_depth=MAX_RECORD_DEPTH)
        except ExcessError as error:
            check.refuse(str(error))
        if check.missing:
            check.check_record(line)
            if not check.missing:
                last = file.tell() - len(line) - 1
                places[check.heading.conversation] = _Place(start, last, check.heading.records)
        else:
            check.check_heading(line, places)
            start = file.tell()
    if check.missing or not places:
        check.number += 1
        check.refuse(check.describe_end() if check.number > 1 else "the file is empty")
    return places


def _read_conversation(line: bytes) -> str | None:
    """The conversation that a first record names."""
    try:
        return str(parse_foreign_json(line, "record_values")["event"]["conversation"])
    except (ValueError, LookupError, TypeError):
        return None


class _LineCheck:
    """Compares each line with those before it."""

    def __init__(self, name: str) -> None:
        self.number = 0
        """Of the line, from 1 on."""
        self.missing = 0
        """Records that must follow."""
        self.heading = _Heading("", 0, "")
        self._name = name
        self._prev = GENESIS

    def check_heading(self, line: bytes, places: dict[str, _Place]) -> None:
        """Begin with a conversation."""
        if self.number == 1 and not line.startswith(_BEGINNING):
            raise ForeignLog(
                f"{self._name} is no file of records: it does not begin with the heading of a conversation\n"
                "  `toolchart export --format jsonl` writes such files"
            )
        try:
            heading = _decode_heading(line)
        except (msgspec.DecodeError, UnicodeError):
            heading = None
        if heading is None or _encode(heading) != line or heading.records < 1:
            self.refuse("it is no heading of a conversation, as one was expected here")
        if fault := find_id_fault(heading.conversation):
            self.refuse(f"its heading is wrong: {fault}")
        self.heading, self.missing, self._prev = heading, heading.records, GENESIS
        if heading.conversation in places:
            self.refuse("the file has this conversation before")

    def check_record(self, line: bytes) -> None:
        """Compare a record with its own hash, the record before it and the heading."""
        heading, seq = self.heading, self.heading.records - self.missing
        if line.startswith(_BEGINNING):
            self.refuse(self.describe_end())
        if not has_hash_tail(line):
            self.refuse("it does not end with a hash")
        if read_hash(line) != compute_line_hash(line):
            self.refuse("its hash does not match its content")
        if not line.startswith(b'{"seq":%d,' % seq):
            self.refuse(f"it is not record {seq}")
        if b',"prev":"%b"' % self._prev.encode() not in line[-_TAIL_BYTES:]:
            self.refuse("it does not follow the record before it")
        if not seq and _read_conversation(line) != heading.conversation:
            self.refuse("it belongs to another conversation")
        self._prev = read_hash(line)
        self.missing -= 1
        if not self.missing and self._prev != heading.head:
            self.refuse("it is not the newest record that the heading names")

    def describe_end(self) -> str:
        """What is missing where no more records follow."""
        heading = self.heading
        return f"the heading says {heading.records} records, and {heading.records - self.missing} are there"

    def refuse(self, problem: str) -> NoReturn:
        """Raise the damage of the present line.

        Raises:
            LogDamaged: always.
        """
        seq = self.heading.records - self.missing if self.missing else None
        raise LogDamaged(
            f"line {self.number} of {self._name}: {problem}\n"
            "  nothing of a file with such a line is read: take another copy of it, or export the log again",
            conversation=self.heading.conversation or None,
            seq=seq,
        )


# -- addresses -----------------------------------------------------------------------------------


def build_read_only_error(path: str | Path) -> LogUnavailable:
    """The error of whoever would write to a file of records."""
    return LogUnavailable(
        f"{path} is a file of records, which is only read\n"
        f"  to go on with its conversations, put them into a database: toolchart import {path} --log FILE.db"
    )


def refuse_to_write(address: str, *, create: bool = True, durable: bool = True) -> NoReturn:
    """Open a file of records for writing, which nobody can.

    Raises:
        LogUnavailable: always.
    """
    raise build_read_only_error(address)
