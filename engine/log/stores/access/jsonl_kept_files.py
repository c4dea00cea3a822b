"""Files of the JSONL store that stay open from one append to the next, each locked only during an append.

Opening and closing the files of a conversation costs more than writing to them. A file is kept under the
conversation and its suffix. Who uses it again locks it first and looks whether it still has a name, or is
still the one at its path: another process may have deleted the conversation or written it anew, or somebody
has restored a backup. Then it is opened by its path again.
"""

from __future__ import annotations

import fcntl
import os
import resource
from collections import OrderedDict
from pathlib import Path

from toolchart.engine.log.stores.access.jsonl_files import lock_file, open_private
from toolchart.engine.log.stores.replaced_files import Identity, get_identity

_MOST = 512
_SHARE = 4
"""At most so many files, and at most this part of those that the process may open."""


class KeptFiles:
    """The open files of one store; one thread at a time uses them, between `lock` and `unlock_all`."""

    def __init__(self) -> None:
        self._handles: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._places: dict[tuple[str, str], tuple[str, Identity]] = {}
        """Path and identity of each open file."""
        self._locked: list[int] = []
        self._most = min(_MOST, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE))
        self._pid = os.getpid()

    def begin(self) -> None:
        """Begin an append. A forked child forgets what it has from its parent: their locks would be one."""
        if self._pid != os.getpid():
            self.close()
            self._pid = os.getpid()

    def lock_known(
        self, conversation: str, suffix: str, *, wait: bool, looks_at_path: bool = False
    ) -> tuple[int, int] | None:
        """The locked file and its size; None where it is not open, or was deleted.

        Args:
            looks_at_path: None also where it is not the one at its path any more.

        Raises:
            LogBusy: another process has its lock, and `wait` is false.
        """
        handle = self._handles.get((conversation, suffix))
        if handle is None:
            return None
        self._lock(handle, wait=wait)
        status = os.fstat(handle)
        if not status.st_nlink or (looks_at_path and not self.is_in_place(conversation, suffix)):
            self.forget(conversation)
            return None
        self._handles.move_to_end((conversation, suffix))
        return handle, status.st_size

    def open_locked(
        self, conversation: str, suffix: str, path: Path, flags: int, *, wait: bool
    ) -> tuple[int, int]:
        """Open a file and lock it; the file and its size.

        Raises:
            OSError: it cannot be opened, or was deleted in this moment.
            LogBusy: another process has its lock, and `wait` is false.
        """
        handle = self._handles[conversation, suffix] = open_private(path, flags)
        self._lock(handle, wait=wait)
        status = os.fstat(handle)
        if not status.st_nlink:
            self.forget(conversation)
            raise FileNotFoundError(f"{path} was deleted")
        self._places[conversation, suffix] = str(path), get_identity(status)
        return handle, status.st_size

    def is_in_place(self, conversation: str, suffix: str) -> bool:
        """Whether an open file is the one at its path."""
        path, identity = self._places[conversation, suffix]
        try:
            return get_identity(os.stat(path)) == identity
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _lock(self, handle: int, *, wait: bool) -> None:
        lock_file(handle, wait=wait)
        self._locked.append(handle)

    def unlock_all(self) -> None:
        """End an append: unlock every file, and close those that were not used for the longest time."""
        for handle in self._locked:
            fcntl.flock(handle, fcntl.LOCK_UN)
        self._locked.clear()
        while len(self._handles) > self._most:
            key, handle = self._handles.popitem(last=False)
            self._places.pop(key, None)
            os.close(handle)

    def forget(self, conversation: str) -> None:
        """Close the files of a conversation."""
        for key in [key for key in self._handles if key[0] == conversation]:
            handle = self._handles.pop(key)
            self._places.pop(key, None)
            self._locked = [other for other in self._locked if other != handle]
            os.close(handle)

    def close(self) -> None:
        """Close every file."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()
        self._places.clear()
        self._locked.clear()
