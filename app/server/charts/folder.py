"""The operator's folder of charts: lists, reads and saves its files, and nothing outside of it.

Every file is opened relative to a descriptor of the folder and without following links, so no name and no
exchange of a file for a link leads elsewhere. A save is one rename: readers see the old text or the new one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from toolchart.app.server.answers import Refusal
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import strike_secrets
from toolchart.states.chart.yaml_document import CHART_LIMITS, read_yaml
from toolchart.states.errors import SpecError

MAX_FILE_BYTES = 4 * CHART_LIMITS.characters
"""A character has at most four bytes."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\.ya?ml")
MAX_NAME_CHARACTERS = 100
_CHART_KEY = re.compile(rb"""^["']?(?:states|extends)["']?[ \t]*:""", re.MULTILINE)
_AGENT_KEY = re.compile(rb"""^["']?llms["']?[ \t]*:""", re.MULTILINE)
_CHART_KEYS = frozenset({"name", "description", "extends", "states", "effects"})
_AGENT_KEYS = frozenset(AgentSpec.model_fields) - _CHART_KEYS
"""Keys that only agents have."""


class ChartFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file as it was read."""

    name: str
    text: str
    digest: str
    """SHA-256 of its bytes; a save names the digest of the text that it began with."""
    saved_by: str = ""
    """The token that saved this text through this server; empty where somebody else wrote it."""
    saved_at: str = ""


class _Save(msgspec.Struct, frozen=True, kw_only=True):
    by: str
    at: str
    digest: str


class ChartFolder:
    """The charts of one folder.

    Args:
        path: must exist; where it is a link, the folder that it names now is meant for good.
        agent_files: files of agents that are served, wherever they lie; no new chart gets one of their names.
        files: how many are looked at, by name.

    Raises:
        SpecError: there is no such folder.
    """

    def __init__(self, path: str | Path, agent_files: Iterable[str | Path] = (), *, files: int = 500) -> None:
        self.path = Path(path)
        self._most_files = files
        self._agent_names = {_fold_name(Path(file).name) for file in agent_files}
        try:
            self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise SpecError(
                f"--edit {self.path}: {error.strerror}", hint="name a folder that exists: --edit charts"
            ) from None
        self.name = self.path.resolve().name
        """What pages and answers call the folder: where it lies on the server is nobody's business."""
        self._lock = threading.Lock()
        self._saves: dict[str, _Save] = {}

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._folder)

    def list_names(self) -> tuple[list[str], bool]:
        """The names of the files that are charts, and whether all files of the folder were looked at."""
        names = sorted(name for name in os.listdir(self._folder) if _is_name(name))
        most = self._most_files
        return [name for name in names[:most] if self._is_chart(name)], len(names) <= most

    def has_chart(self, name: str) -> bool:
        """Whether a file of this name is a chart."""
        return _is_name(name) and self._is_chart(name)

    def read(self, name: str) -> ChartFile:
        """One chart.

        Raises:
            Refusal: 400 for a name that no chart has, 404 where there is no such chart, 409 for one that
                holds a secret or is no text.
        """
        _require_name(name)
        data = self._read_plain_file(name)
        if data is None or not _looks_like_chart(data) or _classify_document(data) == "agent":
            raise Refusal(404, f"there is no chart {name!r} in {self.name}")
        try:
            text = data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise Refusal(
                409, f"{name} is not UTF-8 text (byte {error.start}); mend it with an editor"
            ) from None
        if strike_secrets(text) != text:
            raise Refusal(409, f"{name} holds a key or token, so it is not shown; take it out with an editor")
        digest = _compute_digest(data)
        save = self._find_save(name, digest)
        return ChartFile(name=name, text=text, digest=digest, saved_by=save.by, saved_at=save.at)

    def save(self, name: str, text: str, *, base: str, by: str) -> ChartFile:
        """Write a chart, whole or not at all.

        Args:
            base: digest of the file that the text was made from; empty for a file that does not exist yet.
            by: the token that saves it.

        Raises:
            Refusal: 400 for a name or a text that no chart may have, 409 where the file is not the one of
                `base`, is no chart, is a link or cannot be written, or where an agent has the name; 413 for a
                text that is too long.
        """
        _require_name(name)
        if len(text) > CHART_LIMITS.characters:
            raise Refusal(413, f"a chart has at most {CHART_LIMITS.characters:,} characters")
        with self._lock:
            old = self._read_plain_file(name)
            if old is None and not base:
                self._refuse_agent_name(name)
            if old is not None and _classify_document(old) != "chart":
                raise Refusal(
                    409,
                    f"{name} is no chart, so nothing was saved: only charts are written here. Choose another "
                    "name, or change the file with an editor",
                )
            self._require_base(name, old, base)
            data = _encode_lines(text, old)
            if not _looks_like_chart(data) or _classify_document(data) != "chart":
                raise Refusal(
                    400,
                    "a chart begins a line with the key `states` or `extends`, and has no key of an agent",
                )
            try:
                self._replace_file(name, data, old)
            except FileExistsError:
                raise _refuse_existing(name) from None
            except OSError as error:
                raise Refusal(409, f"{self.name}/{name} cannot be written: {error.strerror}") from None
            save = _Save(
                by=by, at=datetime.now(UTC).isoformat(timespec="seconds"), digest=_compute_digest(data)
            )
            self._saves[name] = save
        return ChartFile(name=name, text=text, digest=save.digest, saved_by=save.by, saved_at=save.at)

    # -- files -----------------------------------------------------------------------------------

    def _is_chart(self, name: str) -> bool:
        try:
            data = self._read_plain_file(name)
        except Refusal:
            return False
        return data is not None and _looks_like_chart(data)

    def _read_plain_file(self, name: str) -> bytes | None:
        """The bytes of a plain file; None where there is no entry of this name.

        Raises:
            Refusal: 409; it is a link, a folder or a device, too large, or may not be read.
        """
        try:
            # A pipe must not hold this thread up before it is known to be one.
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise Refusal(409, f"{self.name}/{name} cannot be opened: {reason}") from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Refusal(409, f"{self.name}/{name} cannot be opened: it is no plain file")
        with open(descriptor, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise Refusal(409, f"{self.name}/{name} is larger than {MAX_FILE_BYTES:,} bytes")
        return data

    def _refuse_agent_name(self, name: str) -> None:
        """Refuse names by which agents are loaded: those of the agents that are served, and those of files of
        the folder that are no charts, in any case of letters and with either end."""
        stem = _fold_name(name)
        others = [entry for entry in os.listdir(self._folder) if entry != name and _fold_name(entry) == stem]
        taken = next((entry for entry in others if _is_name(entry) and not self._is_chart(entry)), None)
        if stem in self._agent_names or taken is not None:
            raise Refusal(
                409,
                f"{taken or name} is the name of an agent or of another file that is no chart; nothing was "
                "saved. Choose another name for the chart",
            )

    def _replace_file(self, name: str, data: bytes, old: bytes | None) -> None:
        """Write to a file beside it, then put that in its place. A new file never replaces one.

        Args:
            old: what the file holds; None for a new one.

        Raises:
            FileExistsError: there is a file of this name by now, or it holds something else.
            OSError: it cannot be written; nothing was changed.
        """
        folder, is_new = self._folder, old is None
        with self._open_draft(name) as (draft, descriptor):
            with open(descriptor, "wb") as file:
                if not is_new:
                    os.fchmod(descriptor, self._read_mode(name))
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            else:
                # Writing to the disk takes long enough for another program to save: look once more.
                if self._read_plain_file(name) != old:
                    raise FileExistsError(errno.EEXIST, "it has just changed", name)
                os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)

    @contextmanager
    def _open_draft(self, name: str) -> Iterator[tuple[str, int]]:
        """A new file with a name that nobody can foresee; it is gone at the end unless it was renamed."""
        draft = f".{name}.{secrets.token_hex(8)}.draft"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(draft, flags, 0o666, dir_fd=self._folder)
        try:
            yield draft, descriptor
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=self._folder)

    def _read_mode(self, name: str) -> int:
        return stat.S_IMODE(os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode) & 0o777

    # -- who saved what --------------------------------------------------------------------------

    def _require_base(self, name: str, data: bytes | None, base: str) -> None:
        if data is None and base:
            raise Refusal(
                409,
                f"{name} is gone since you opened it; nothing was saved. Save again to write it anew",
                details={"digest": ""},
            )
        if data is None:
            return
        digest = _compute_digest(data)
        if not base:
            raise _refuse_existing(name)
        if digest != base:
            save = self._find_save(name, digest)
            who = f"{save.by} saved it at {save.at}" if save.by else "another program wrote it"
            raise Refusal(
                409,
                f"{name} has changed since you opened it: {who}. Nothing was saved; compare your text with "
                "it, or save yours under another name",
                details={"digest": digest, "saved_by": save.by},
            )

    def _find_save(self, name: str, digest: str) -> _Save:
        """Who saved this text of a file; empty where it was not saved here."""
        save = self._saves.get(name)
        return save if save is not None and save.digest == digest else _Save(by="", at="", digest=digest)


def _require_name(name: str) -> None:
    if not _is_name(name):
        raise Refusal(
            400,
            "the name of a chart has letters, digits, - and _, and ends with .yaml or .yml: support.yaml; "
            f"it has at most {MAX_NAME_CHARACTERS} characters and no folder",
        )


def _is_name(name: str) -> bool:
    return len(name) <= MAX_NAME_CHARACTERS and _NAME.fullmatch(name) is not None


def _looks_like_chart(data: bytes) -> bool:
    """Whether a file is a chart, and no agent: those may hold keys, and are not edited here."""
    return _CHART_KEY.search(data) is not None and _AGENT_KEY.search(data) is None


def _classify_document(data: bytes) -> Literal["chart", "agent", "other"]:
    """What a file is by its content: YAML has many spellings of one key, so the document is read."""
    try:
        document = read_yaml(data.decode("utf-8-sig"), None, limits=CHART_LIMITS).data
    except (UnicodeDecodeError, SpecError):
        return "other"
    if not isinstance(document, dict):
        return "other"
    if not _AGENT_KEYS.isdisjoint(key for key in document if isinstance(key, str)):
        return "agent"
    return "chart" if "states" in document or "extends" in document else "other"


def _fold_name(name: str) -> str:
    """A name without its end, as file systems compare names that do not tell capital letters apart."""
    return unicodedata.normalize("NFC", re.sub(r"\.ya?ml$", "", name, flags=re.IGNORECASE)).casefold()


def _encode_lines(text: str, old: bytes | None) -> bytes:
    """The bytes of a text, with the line ends of the file that it replaces."""
    lines = text.replace("\r\n", "\n")
    if old is not None and b"\r\n" in old and b"\n" not in old.replace(b"\r\n", b""):
        lines = lines.replace("\n", "\r\n")
    try:
        return lines.encode()
    except UnicodeEncodeError as error:
        raise Refusal(
            400, f"character {error.start} of the text is half of a pair, which no file can hold"
        ) from None


def _compute_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refuse_existing(name: str) -> Refusal:
    return Refusal(409, f"there is a file {name} already; nothing was saved. Open it, or choose another name")
