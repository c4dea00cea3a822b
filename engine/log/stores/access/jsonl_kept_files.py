"""Files of the JSONL store that stay open from one append to the next, each locked only during an append.

Opening and closing the files of a conversation costs more than writing to them. A file is kept under the
conversation and its suffix. Who uses it again locks it first and then looks whether it is still the one at
its path: another process may have deleted the conversation or written it anew, or somebody has restored a
backup. Else it is opened by its path again.
"""

from __future__ import annotations

import fcntl
import os
import resource
from collections import OrderedDict
from pathlib import Path

from toolchart.engine.log.stores.access.jsonl_files import lock_file, open_private
from toolchart.engine.log.stores.access.replaced_files import get_identity

_MOST = 512
_SHARE = 4
"""At most so many files, and at most this part of those that the process may open."""


def is_at_path(status: os.stat_result, path: Path) -> bool:
    """Whether an open file, which has this status, is the one at a path."""
    try:
        return get_identity(os.stat(path)) == get_identity(status)
    except (FileNotFoundError, NotADirectoryError):
        return False


class KeptFiles:
    """The open files of one store; one thread at a time uses them, between `lock` and `unlock_all`."""

    def __init__(self) -> None:
        self._handles: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._locked: list[int] = []
        self._most = min(_MOST, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE))
        self._pid = os.getpid()

    def begin(self) -> None:
        """Begin an append. A forked child forgets what it has from its parent: their locks would be one."""
        if self._pid != os.getpid():
            self.close()
            self._pid = os.getpid()

    def lock_known(self, conversation: str, suffix: str, path: Path, *, wait: bool) -> tuple[int, int] | None:
        """The locked file and its size; None where it is not open, or is not the one at its path any more.

        Raises:
            LogBusy: another process has its lock, and `wait` is false.
        """
        handle = self._handles.get((conversation, suffix))
        if handle is None:
            return None
        self._lock(handle, wait=wait)
        status = os.fstat(handle)
        if not is_at_path(status, path):
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
        return handle, status.st_size

    def _lock(self, handle: int, *, wait: bool) -> None:
        lock_file(handle, wait=wait)
        self._locked.append(handle)

    def unlock_all(self) -> None:
        """End an append: unlock every file, and close those that were not used for the longest time."""
        for handle in self._locked:
            fcntl.flock(handle, fcntl.LOCK_UN)
        self._locked.clear()
        while len(self._handles) > self._most:
            os.close(self._handles.popitem(last=False)[1])

    def forget(self, conversation: str) -> None:
        """Close the files of a conversation."""
        for key in [key for key in self._handles if key[0] == conversation]:
            handle = self._handles.pop(key)
            self._locked = [other for other in self._locked if other != handle]
            os.close(handle)

    def close(self) -> None:
        """Close every file."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()
        self._locked.clear()
