"""Witnesses: places outside the log that keep its seal journal, so that a rolled back log is noticed.

The hash chain cannot show that the newest records of a log are missing: a copy from yesterday is a whole log.
A witness can, as long as nobody rolls back both. It is a seal journal (`journal.py`) in a place of its own:

    a path          a file, on another disk or machine
    git:FOLDER      a folder of a git repository: a file and a commit for each entry
    https://...     an address that takes entries and gives them back (`docs/log-format.md`)

A place keeps lines in their order and knows nothing of their content. It appends a line only where it has as
many as the writer believes. So two workers never write two entries with the same predecessor.

To add a kind of place, write its class and add a row to the table.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import msgspec

from toolchart.engine.log.sealing.journal import Journal, add_lines, encode_entry
from toolchart.engine.log.sealing.keys import (
    SealSigner,
    SealVerifier,
    make_ed25519_signer,
    parse_public_keys,
    read_private_key,
)
from toolchart.engine.log.sealing.merkle import Leaf
from toolchart.specs.secrets import read_secret_file
from toolchart.states.errors import LogDamaged, LogUnavailable, SpecError, ToolchartError
from toolchart.states.flows.times import parse_duration
from toolchart.states.starts import Start

if TYPE_CHECKING:
    import httpx

    from toolchart.specs.models import AgentSpec
    from toolchart.specs.sections.keeping import WitnessConfig

MAX_LEAVES = 4_000
"""Most leaves of one entry, so that it fits into an answer of a place."""

_ATTEMPTS = 20
"""How often an entry is made anew because another writer was first."""


class WitnessPlace(Protocol):
    """Keeps the lines of one journal."""

    def read_lines(self, start: int) -> list[bytes]:
        """The lines from number `start` on, which counts from 0.

        Raises:
            LogUnavailable: the place cannot be read.
            LogDamaged: it has fewer lines than before.
        """
        ...

    def append(self, line: bytes, count: int) -> bool:
        """Append a line, durable on return; false where there are not `count` lines.

        Raises:
            LogUnavailable: the place cannot be written.
        """
        ...

    def close(self) -> None:
        """Close connections; may be called twice."""
        ...


class WitnessKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of place."""

    name: str
    accepts: Callable[[str], bool]
    """Whether an address is one of this kind. The first row that accepts it opens it."""
    open: Callable[[str, str | None], WitnessPlace]
    """Opens an address; a token, where the place asks for one, is the second argument."""
    list_starts: Callable[[str], Start]
    """What using an address starts, reaches or writes, for the manifest of an agent."""


# -- a file ----------------------------------------------------------------------------------------


class FilePlace:
    """A file of lines. An incomplete last line, which a killed writer left, does not count."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._count, self._offset = 0, 0
        """How many lines were read, and where the next one begins."""

    def read_lines(self, start: int) -> list[bytes]:
        """See `WitnessPlace`."""
        if start != self._count:
            self._count = self._offset = 0
            return self.read_lines(0)[start:]
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    raise LogDamaged(f"the witness {self._path} was cut: it had {self._count} entries")
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            if self._offset:
                raise LogDamaged(f"the witness {self._path} is gone: it had {self._count} entries") from None
            return []
        except OSError as error:
            raise _build_failure(str(self._path), error.strerror) from None
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        self._count, self._offset = self._count + len(lines), self._offset + len(whole)
        return lines

    def append(self, line: bytes, count: int) -> bool:
        """See `WitnessPlace`."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not self._path.exists()
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                if count != self._count or self.read_lines(count):
                    self._count = self._offset = 0
                    return False
                os.ftruncate(handle, self._offset)
                os.write(handle, line + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)
            if is_new:
                _sync_folder(self._path.parent)
        except OSError as error:
            raise _build_failure(str(self._path), error.strerror) from None
        self._count, self._offset = count + 1, self._offset + len(line) + 1
        return True

    def close(self) -> None:
        """Nothing stays open."""


def _build_failure(place: str, problem: str | None) -> LogUnavailable:
    return LogUnavailable(f"the witness {place} cannot be used: {problem}")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- a git repository ------------------------------------------------------------------------------

_GIT_SCHEME = "git:"
_GIT_FOLDER = "toolchart-seals"
_GIT_SECONDS = 60

_GIT = (
    *("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false"),
    *("-c", "user.name=Toolchart", "-c", "user.email=toolchart@localhost"),
)
"""Nothing that the repository configures is run: no hooks, no monitor, no signing program."""


class GitPlace:
    """A folder of a git repository, with a file for each line and a commit for each file.

    A commit of one growing file would store the whole journal again each time. Nothing is pushed: a remote is
    the operator's.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._seals = self._folder / _GIT_FOLDER

    def read_lines(self, start: int) -> list[bytes]:
        """See `WitnessPlace`."""
        if not self._folder.is_dir():
            raise _build_failure(str(self._folder), "there is no such folder")
        if start and not self._find_file(start - 1).exists():
            raise LogDamaged(f"the witness {self._folder} was cut: it had {start} entries")
        lines: list[bytes] = []
        try:
            while (path := self._find_file(start + len(lines))).exists():
                lines.append(path.read_bytes().rstrip(b"\n"))
        except OSError as error:
            raise _build_failure(str(self._folder), error.strerror) from None
        return lines

    def append(self, line: bytes, count: int) -> bool:
        """See `WitnessPlace`."""
        path = self._find_file(count)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _lock_folder(self._seals):
                if path.exists() or (count and not self._find_file(count - 1).exists()):
                    return False
                # A complete file appears at once, and is an entry from then on: where the process dies before
                # the commit, the next one takes it along.
                new_path = path.with_suffix(".new")
                new_path.write_bytes(line + b"\n")
                new_path.rename(path)
                try:
                    self._run_git("add", "--", _GIT_FOLDER)
                    self._run_git("commit", "--quiet", "-m", f"Seal {count}", "--", _GIT_FOLDER)
                except LogUnavailable:
                    path.unlink()
                    raise
        except OSError as error:
            raise _build_failure(str(self._folder), error.strerror) from None
        return True

    def close(self) -> None:
        """Nothing stays open."""

    def _find_file(self, number: int) -> Path:
        return self._seals / f"{number // 1000:06}" / f"{number % 1000:03}.json"

    def _run_git(self, *words: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        try:
            done = subprocess.run(
                [*_GIT, *words],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_GIT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _build_failure(str(self._folder), f"git: {error}") from None
        if done.returncode:
            text = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[:500]
            raise _build_failure(str(self._folder), f"git {words[0]}: {text}")


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Within the block no other process writes to the folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# -- an address ------------------------------------------------------------------------------------

MAX_ANSWER = 1_048_576
"""Most bytes of one answer of an HTTP witness."""

_HTTP_SECONDS = 10.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class HttpPlace:
    """An address that keeps lines; `docs/log-format.md` describes what it must do.

    Args:
        token: is sent as a bearer token.
    """

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            raise SpecError(
                "a witness over HTTP needs https", path="witness.to", hint="http is for this machine only"
            )
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client: httpx.Client | None = None

    def read_lines(self, start: int) -> list[bytes]:
        """See `WitnessPlace`."""
        lines: list[bytes] = []
        while True:
            status, data = self._send("GET", {"after": start + len(lines)})
            if status != 200:
                raise _build_failure(self._url, f"it answered {status} to GET")
            if not data.strip():
                return lines
            lines += [line for line in data.splitlines() if line]

    def append(self, line: bytes, count: int) -> bool:
        """See `WitnessPlace`. What was sent is read back: an answer alone keeps nothing."""
        status, _ = self._send("POST", {}, line + b"\n")
        if status == 409:
            return False
        if status not in (200, 201, 204):
            raise _build_failure(self._url, f"it answered {status} to POST")
        if self.read_lines(count)[:1] != [line]:
            raise _build_failure(self._url, "it does not give back what it was sent")
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(self, method: str, query: dict[str, int], body: bytes | None = None) -> tuple[int, bytes]:
        import httpx  # late: few logs have a witness

        if self._client is None:
            self._client = httpx.Client(timeout=_HTTP_SECONDS, headers=self._headers)
        data = b""
        try:
            with self._client.stream(method, self._url, params=query, content=body) as answer:
                for part in answer.iter_bytes():
                    data += part
                    if len(data) > MAX_ANSWER:
                        raise _build_failure(self._url, f"its answer has more than {MAX_ANSWER:,} bytes")
                return answer.status_code, data
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _build_failure(self._url, str(error) or type(error).__name__) from None


# -- the table -------------------------------------------------------------------------------------

WITNESSES = (
    WitnessKind(
        name="git",
        accepts=lambda address: address.startswith(_GIT_SCHEME),
        open=lambda address, _: GitPlace(address.removeprefix(_GIT_SCHEME)),
        list_starts=lambda address: Start(
            kind="command",
            subject=" ".join((*_GIT, "commit")),
            words=(*_GIT, "commit"),
            purpose=f"commits the seals of the log in {address.removeprefix(_GIT_SCHEME)}",
            place="witness",
        ),
    ),
    WitnessKind(
        name="http",
        accepts=lambda address: address.startswith(("https://", "http://")),
        open=HttpPlace,
        list_starts=lambda address: Start(
            kind="address", subject=address, purpose="gets the seals of the log", place="witness"
        ),
    ),
    WitnessKind(
        name="file",
        accepts=lambda address: "://" not in address,
        open=lambda address, _: FilePlace(address),
        list_starts=lambda address: Start(
            kind="file", subject=address, purpose="gets the seals of the log", place="witness"
        ),
    ),
)
"""Every kind of place."""


def find_witness_kind(address: str) -> WitnessKind:
    """The kind of place that an address names.

    Raises:
        SpecError: there is none.
    """
    for row in WITNESSES:
        if row.accepts(address):
            return row
    raise SpecError(
        f"{address!r} is no witness", path="witness.to", hint="write a path, git:FOLDER, or https://..."
    )


def list_witness_starts(section: WitnessConfig, folder: Path) -> Iterator[Start]:
    """What the section `witness` of a spec starts, reaches and reads; nothing of it is done here."""
    address = _resolve_address(section.to, folder)
    yield find_witness_kind(address).list_starts(address)
    if section.key_file:
        path = str(folder / section.key_file)
        yield Start(kind="file", subject=path, purpose="is read: key that signs seals", place="witness")
    if section.token:
        purpose = "is sent to the witness"
        yield Start(kind="variable", subject=section.token, purpose=purpose, place="witness")


def open_spec_witness(spec: AgentSpec) -> Witness | None:
    """The witness that an agent spec names, with its keys; None without the section.

    Raises:
        SpecError: the section cannot be used.
    """
    section = spec.witness
    if section is None:
        return None
    folder = Path(spec.source).parent if spec.source else Path()
    public_keys = [key for word in spec.seal_keys for key in parse_public_keys(word, "seal_keys")]
    signer = SealSigner()
    if section.key_file:
        path = folder / section.key_file
        key = read_private_key(read_secret_file(path), str(path))
        if key is None:
            raise SpecError("no Ed25519 key in PEM", file=str(path), path="witness.key_file")
        signer = make_ed25519_signer(key)
        public_keys.append(key.public_key())
    token = os.environ.get(section.token) if section.token else None
    if section.token and not token:
        raise SpecError(
            f"the environment variable {section.token} is not set", file=spec.source, path="witness.token"
        )
    return Witness(_resolve_address(section.to, folder), signer, SealVerifier(None, public_keys), token)


def read_seal_interval(section: WitnessConfig) -> float:
    """The seconds between two seals; 0 for one at the end of each turn.

    Raises:
        SpecError: it is no duration.
    """
    seconds = 0.0 if section.every == "turn" else parse_duration(section.every)
    if seconds is None:
        raise SpecError(
            f"{section.every!r} is no time", path="witness.every", hint="write turn, or a time such as 10m"
        )
    return seconds


def _resolve_address(address: str, folder: Path) -> str:
    """An address in which a path is relative to the folder of the spec."""
    if "://" in address:
        return address
    scheme = _GIT_SCHEME if address.startswith(_GIT_SCHEME) else ""
    return f"{scheme}{folder / address.removeprefix(scheme)}"


# -- the journal in a place ------------------------------------------------------------------------


class Witness:
    """The seal journal in one place: reads what is new there, and appends entries. Safe to use in threads.

    Args:
        address: where it is.
        signer: signs the entries that are appended.
        verifier: checks those that are read.
        token: for places that ask for one.
    """

    def __init__(
        self, address: str, signer: SealSigner, verifier: SealVerifier, token: str | None = None
    ) -> None:
        self.address = address
        self._signer, self._verifier = signer, verifier
        self._place = find_witness_kind(address).open(address, token)
        self._journal = Journal(keeps_history=False)
        self._lock = threading.Lock()

    @property
    def journal(self) -> Journal:
        """The newest leaf of each conversation, as of the newest reading."""
        return self._journal

    def read_newest(self) -> Journal:
        """The newest leaf of each conversation, with what other writers have added meanwhile.

        Raises:
            LogUnavailable: the witness cannot be reached.
            LogDamaged: an entry was changed, or entries are missing.
            MissingKey: an entry is signed with a key that is not given.
        """
        with self._lock:
            self._read_new_lines()
            return self._journal

    def read_history(self) -> Journal:
        """The whole journal, each entry checked.

        Raises:
            LogUnavailable, LogDamaged, MissingKey: see `read_newest`.
        """
        journal = Journal()
        with self._lock:
            lines = self._place.read_lines(0)
        self._add_lines(journal, lines, checks_each=True)
        return journal

    def add_seal(self, leaves: Sequence[Leaf], at: str, *, is_forced: bool = False) -> bytes:
        """Seal the leaves that say more than the witness has; returns the entry, empty where there is none.

        Args:
            is_forced: whether an entry is made though no leaf says more: it has the time.

        Raises:
            LogUnavailable, LogDamaged, MissingKey: see `read_newest`; nothing was appended.
        """
        return self._append("seal", leaves, at, only_new=True, is_forced=is_forced)

    def add(self, kind: str, leaves: Sequence[Leaf], at: str, reason: str) -> bytes:
        """Append a tombstone or a restore; returns the entry.

        Raises:
            LogUnavailable, LogDamaged, MissingKey: see `read_newest`; nothing was appended.
        """
        return self._append(kind, leaves, at, reason=reason, is_forced=True)

    def close(self) -> None:
        """Close connections."""
        self._place.close()

    def _append(
        self,
        kind: str,
        leaves: Sequence[Leaf],
        at: str,
        *,
        reason: str = "",
        only_new: bool = False,
        is_forced: bool = False,
    ) -> bytes:
        line = b""
        with self._lock:
            for first in range(0, max(len(leaves), 1), MAX_LEAVES):
                some = leaves[first : first + MAX_LEAVES]
                line = self._append_entry(kind, some, at, reason, only_new, is_forced) or line
        return line

    def _append_entry(
        self, kind: str, leaves: Sequence[Leaf], at: str, reason: str, only_new: bool, is_forced: bool
    ) -> bytes:
        for _ in range(_ATTEMPTS):
            self._read_new_lines()
            journal = self._journal
            new = [leaf for leaf in leaves if not only_new or journal.needs_seal(leaf)]
            if not (new or is_forced):
                return b""
            line = encode_entry(journal, kind, new, at, self._signer, reason)
            if self._place.append(line, journal.count):
                self._add_lines(journal, [line], checks_each=False)
                return line
        raise _build_failure(self.address, "other writers were first each time")

    def _read_new_lines(self) -> None:
        lines = self._place.read_lines(self._journal.count)
        try:
            self._add_lines(self._journal, lines, checks_each=False)
        except ToolchartError:
            self._journal = Journal(keeps_history=False)
            raise

    def _add_lines(self, journal: Journal, lines: Sequence[bytes], *, checks_each: bool) -> None:
        try:
            add_lines(journal, lines, f"witness {self.address}", self._verifier, checks_each=checks_each)
        except SpecError as error:
            raise LogDamaged(str(error)) from None
