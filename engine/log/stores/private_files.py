"""Files and folders of a log that only their owner can read, and what a failed system call means."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from toolchart.states.errors import LogUnavailable, StorageFailure

_FAILURE_ERRNOS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)


def create_private_file(path: Path) -> None:
    """Create a file that only its owner can read, with its folders, where it is missing."""
    create_private_folder(path.parent)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def create_private_folder(folder: Path) -> None:
    """Create a folder that only its owner can read, with those above it, where they are missing."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def build_os_failure(error: OSError, message: str) -> LogUnavailable:
    """The error for a system call that failed: of the machine, or of the path that was given."""
    kind = StorageFailure if error.errno in _FAILURE_ERRNOS else LogUnavailable
    return kind(message)
