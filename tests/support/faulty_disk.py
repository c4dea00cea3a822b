"""A disk under real files that can fail, lose its power and forget what was not synced.

The files are real ones. What a store does to them goes through a `Disk`, which notes each write until it is
synced. Then a loss of power is a new folder: each file has what was synced, and of the rest some writes or
some sectors of a write. A file grows after its data, as in ext4, XFS and Btrfs: what was appended is there
up to some byte. Names of files (created, replaced, deleted) are as they were at the last sync of the folder
or at some moment since. After a failed sync nobody knows what is on the disk, and no later sync makes it up:
the system counts these pages as clean.

SQLite reaches its files through a VFS, so `SqliteDisk` registers one that hands writes, syncs and deletions
to the `Disk` and everything else to the one of the system. The store itself writes `-wal` again after a
failed sync, through `os` (`SimulatedOs`).
"""

from __future__ import annotations

import _sqlite3
import contextlib
import ctypes
import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SECTOR_BYTES, _PAGE_BYTES = 512, 4096

_PENDING, _DOUBTFUL, _SYNCED = range(3)


class Dead(BaseException):
    """The worker that calls has died: it does nothing more."""


class _File:
    """What the disk has of one file."""

    def __init__(self, data: bytes = b"") -> None:
        self.base = bytearray(data)
        """What was synced, as far as nothing doubtful stands before it."""
        self.writes: list[list[Any]] = []
        """Offset, bytes (None: the file is cut there) and fate of each write since."""
        self.failures = 0
        """How many syncs have failed."""

    def sync(self) -> None:
        # The system writes whole pages: what it had lost in one goes with it when it is written again.
        pages = {page for write in self.writes if write[2] == _PENDING for page in _list_pages(write)}
        for write in self.writes:
            if write[2] == _PENDING or (write[2] == _DOUBTFUL and pages.issuperset(_list_pages(write))):
                write[2] = _SYNCED
        while self.writes and self.writes[0][2] == _SYNCED:
            offset, data, _ = self.writes.pop(0)
            _apply(self.base, offset, data)

    def fail_to_sync(self) -> None:
        self.failures += 1
        writes, self.writes = self.writes, []
        for offset, data, fate in writes:
            if fate != _PENDING or data is None:
                self.writes.append([offset, data, _DOUBTFUL if fate == _PENDING else fate])
                continue
            start, end = offset, offset + len(data)
            while start < end:
                stop = min(end, (start // _PAGE_BYTES + 1) * _PAGE_BYTES)
                self.writes.append([start, data[start - offset : stop - offset], _DOUBTFUL])
                start = stop

    def survive(self, rng: random.Random) -> bytes:
        """What is there after a loss of power."""
        content, has_end = bytearray(self.base), True
        for offset, data, fate in self.writes:
            choice = 0 if fate == _SYNCED else rng.randrange(4)
            if fate != _SYNCED and data is not None and offset + len(data) > len(content):
                part = [data, b"", data[: rng.randrange(len(data))], data][choice]
                if part and has_end:  # else what stands before it is not there
                    _apply(content, offset, part)
                has_end = fate == _DOUBTFUL or (has_end and len(part) == len(data))
            elif choice == 0:
                _apply(content, offset, data)
            elif choice == 1 and data is not None:
                for start in range(0, len(data), SECTOR_BYTES):
                    if rng.random() < 0.5:
                        _apply(content, offset + start, data[start : start + SECTOR_BYTES])
        return bytes(content)


def _list_pages(write: list[Any]) -> range:
    offset, data, _ = write
    if data is None:
        return range(0)
    return range(offset // _PAGE_BYTES, (offset + len(data) - 1) // _PAGE_BYTES + 1)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(max(0, offset - len(content))))
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Disk:
    """The files of one folder.

    Args:
        pass_moment: called before each change of the disk with what it is; raises `Dead` where its worker has
            died.
        draw_fault: whether a fault of a kind strikes now: `full`, `sync`, `torn`.
    """

    def __init__(
        self,
        folder: Path,
        rng: random.Random,
        pass_moment: Callable[[str], None],
        draw_fault: Callable[[str], bool],
    ) -> None:
        self.folder = folder
        self.rng = rng
        self.pass_moment = pass_moment
        self.draw_fault = draw_fault
        paths = [path for path in folder.iterdir() if not path.name.endswith("-shm")]  # memory of SQLite
        self.names = {path.name: _File(path.read_bytes()) for path in paths}
        self._kept_names = [dict(self.names)]
        """Names as they were synced, and after each change since."""

    def note_names(self) -> None:
        """Note that a file was created, renamed or deleted."""
        self._kept_names.append(dict(self.names))

    def keep_name(self, name: str) -> None:
        """Make one name durable, whatever else happens to the others."""
        for names in self._kept_names:
            names[name] = self.names[name]

    def write_survivors(self, folder: Path) -> None:
        """Write what is there after a loss of power into a new folder."""
        folder.mkdir(mode=0o700)
        for name, file in self.rng.choice(self._kept_names).items():
            path = folder / name
            path.write_bytes(file.survive(self.rng))
            path.chmod(0o600)

    def write(self, file: _File, offset: int, data: bytes, do: Callable[[bytes], Any]) -> int:
        """Write through `do`; how many bytes were written.

        Raises:
            OSError: the disk is full; a part may have been written.
        """
        try:
            self.pass_moment("write")
        except Dead:
            if self.draw_fault("torn"):  # it died within the write
                self._write_part(file, offset, data, do)
            raise
        if self.draw_fault("full"):
            self._write_part(file, offset, data, do)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        do(data)
        file.writes.append([offset, data, _PENDING])
        return len(data)

    def _write_part(self, file: _File, offset: int, data: bytes, do: Callable[[bytes], Any]) -> int:
        part = data[: self.rng.randint(1, len(data))]
        do(part)
        file.writes.append([offset, part, _PENDING])
        return len(part)

    def cut(self, file: _File, length: int, do: Callable[[], Any]) -> None:
        """Cut a file through `do`."""
        self.pass_moment("cut")
        do()
        file.writes.append([length, None, _PENDING])

    def sync(self, file: _File) -> None:
        """Make a file durable.

        Raises:
            OSError: the disk failed.
        """
        self.pass_moment("sync")
        if self.draw_fault("sync"):
            file.fail_to_sync()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        file.sync()


# -- files that are reached by system calls --------------------------------------------------------


class SimulatedOs:
    """The module `os` for the SQLite store: writes and syncs of `-wal` go through a `Disk`.

    Args:
        get_disk: the disk of now.
        read_clock_ns: the time that files are given as that of their last change.
    """

    def __init__(self, get_disk: Callable[[], Disk], read_clock_ns: Callable[[], int]) -> None:
        self._get_disk = get_disk
        self._read_clock_ns = read_clock_ns
        self._files: dict[int, _File] = {}
        self._seen_failures: dict[int, int] = {}
        """By handle: the failed syncs that it was told of."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int) -> int:
        """Open a file."""
        handle, file = os.open(path, flags), self._get_disk().names[os.path.basename(path)]
        self._files[handle], self._seen_failures[handle] = file, file.failures
        self._set_time(handle)
        return handle

    def _set_time(self, handle: int) -> None:
        now = self._read_clock_ns()
        os.utime(handle, ns=(now, now))

    def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        """Write; fewer bytes than asked for where a fault strikes."""
        disk = self._get_disk()
        part = data[: disk.rng.randint(1, len(data))] if disk.draw_fault("short") else data
        try:
            return disk.write(self._files[handle], offset, part, lambda part: os.pwrite(handle, part, offset))
        finally:
            self._set_time(handle)

    def fsync(self, handle: int) -> None:
        """Sync a file."""
        disk, file = self._get_disk(), self._files[handle]
        try:
            disk.sync(file)
        except OSError:
            self._seen_failures[handle] = file.failures
            raise
        if self._seen_failures[handle] != file.failures:  # the system tells each handle of a failure, once
            self._seen_failures[handle] = file.failures
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def close(self, handle: int) -> None:
        """Close a file; a dead process does too."""
        self._files.pop(handle, None)
        self._seen_failures.pop(handle, None)
        os.close(handle)


# -- files of SQLite -------------------------------------------------------------------------------

_P = ctypes.c_void_p
_OK, _IOERR, _FULL, _IOERR_FSYNC = 0, 10, 13, 10 | 4 << 8


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`; what is not replaced is copied as it is. Source: sqlite3.h."""

    _fields_ = (
        ("version", ctypes.c_int),
        *((name, _P) for name in ("close", "read", "write", "truncate", "sync", "size")),
        ("others", _P * 12),
    )


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`. Source: sqlite3.h."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_bytes", ctypes.c_int),
        ("longest_path", ctypes.c_int),
        ("next", _P),
        ("name", ctypes.c_char_p),
        ("data", _P),
        ("open", _P),
        ("delete", _P),
        ("others", _P * 14),
    )


_Close = ctypes.CFUNCTYPE(ctypes.c_int, _P)
_Write = ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, ctypes.c_int, ctypes.c_int64)
_Truncate = ctypes.CFUNCTYPE(ctypes.c_int, _P, ctypes.c_int64)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, _P, ctypes.c_int)
_Open = ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, _P, ctypes.c_int, _P)  # SQLite keeps the pointer to the name
_Delete = ctypes.CFUNCTYPE(ctypes.c_int, _P, ctypes.c_char_p, ctypes.c_int)


def find_sqlite() -> ctypes.PyDLL | None:
    """SQLite as Python uses it; None where its functions cannot be reached: then it is built into Python."""
    library = ctypes.PyDLL(_sqlite3.__file__ if hasattr(_sqlite3, "__file__") else None)
    return library if hasattr(library, "sqlite3_vfs_register") else None


class SqliteDisk:
    """Lets SQLite reach files of the folder of a `Disk` through it, as long as `in_use` lasts.

    Args:
        get_disk: the disk of now; None as long as files are reached directly.
    """

    def __init__(self, get_disk: Callable[[], Disk | None]) -> None:
        library = find_sqlite()
        assert library is not None, "find_sqlite() says so"
        self._library = library
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        library.sqlite3_vfs_find.argtypes = [ctypes.c_char_p]
        library.sqlite3_vfs_register.argtypes = [_P, ctypes.c_int]
        library.sqlite3_vfs_unregister.argtypes = [_P]
        self._get_disk = get_disk
        self._files: dict[int, _File] = {}
        self._seen_failures: dict[int, int] = {}
        """By file: the failed syncs that its process knows of."""
        system = library.sqlite3_vfs_find(None)
        self._vfs = _Vfs()
        ctypes.memmove(ctypes.byref(self._vfs), system, ctypes.sizeof(_Vfs))
        self._vfs.name = b"toolchart-simulated"
        self._vfs.next = None
        self._system_open, self._system_delete = _Open(system[0].open), _Delete(system[0].delete)
        self._open_callback, self._delete_callback = _Open(self._open), _Delete(self._delete)
        self._vfs.open = ctypes.cast(self._open_callback, _P).value
        self._vfs.delete = ctypes.cast(self._delete_callback, _P).value
        self._methods: dict[int, _Methods] = {}
        self._kept: list[Any] = []
        """What SQLite has pointers to."""

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Let connections that are opened in this block use the disk; they are closed in it too."""
        self._library.sqlite3_vfs_register(ctypes.byref(self._vfs), 1)
        try:
            yield
        finally:
            self._library.sqlite3_vfs_unregister(ctypes.byref(self._vfs))

    def _open(self, vfs: int, pointer_to_name: int | None, file: int, flags: int, given_flags: int) -> int:
        disk = self._get_disk()
        name = None if pointer_to_name is None else ctypes.string_at(pointer_to_name)
        is_there = name is not None and os.path.exists(name)
        code = self._system_open(vfs, pointer_to_name, file, flags, given_flags)
        if code != _OK or name is None or disk is None or os.path.dirname(name) != os.fsencode(disk.folder):
            return code
        file_name = os.path.basename(os.fsdecode(name))
        if not is_there or file_name not in disk.names:
            disk.names[file_name] = _File()
            disk.note_names()
        self._files[file] = disk.names[file_name]
        self._seen_failures[file] = disk.names[file_name].failures
        pointer = ctypes.cast(file, ctypes.POINTER(_P))
        address = pointer[0]
        assert address is not None
        if address not in self._methods:
            self._methods[address] = self._replace_methods(address)
        pointer[0] = ctypes.addressof(self._methods[address])
        return _OK

    def _replace_methods(self, address: int) -> _Methods:
        methods = _Methods()
        size = ctypes.sizeof(_Methods)
        ctypes.memmove(ctypes.byref(methods), address, size)
        close, write = _Close(methods.close), _Write(methods.write)
        truncate, sync = _Truncate(methods.truncate), _Sync(methods.sync)

        def close_file(file: int) -> int:
            self._files.pop(file, None)
            return close(file)

        def write_file(file: int, data: int, count: int, offset: int) -> int:
            disk, own = self._get_disk(), self._files[file]
            assert disk is not None
            try:
                content = ctypes.string_at(data, count)
                disk.write(own, offset, content, lambda part: write(file, data, len(part), offset))
            except Dead:
                return _IOERR
            except OSError:
                return _FULL
            return _OK

        def cut_file(file: int, length: int) -> int:
            disk = self._get_disk()
            assert disk is not None
            try:
                disk.cut(self._files[file], length, lambda: truncate(file, length))
            except Dead:
                return _IOERR
            return _OK

        def sync_file(file: int, flags: int) -> int:
            disk, own = self._get_disk(), self._files[file]
            assert disk is not None
            try:
                disk.sync(own)
            except Dead:
                return _IOERR
            except OSError:
                self._seen_failures[file] = own.failures
                return _IOERR_FSYNC
            if self._seen_failures[file] != own.failures:  # the system tells each process of a failure, once
                self._seen_failures[file] = own.failures
                return _IOERR_FSYNC
            for name in [name for name, other in disk.names.items() if other is own]:
                disk.keep_name(name)  # SQLite syncs the folder with the first sync of a new file
            return sync(file, flags)

        callbacks = _Close(close_file), _Write(write_file), _Truncate(cut_file), _Sync(sync_file)
        for field, callback in zip(("close", "write", "truncate", "sync"), callbacks, strict=True):
            setattr(methods, field, ctypes.cast(callback, _P).value)
        self._kept += callbacks
        return methods

    def _delete(self, vfs: int, name: bytes, sync_folder: int) -> int:
        disk = self._get_disk()
        if disk is None or os.path.dirname(name) != os.fsencode(disk.folder):
            return self._system_delete(vfs, name, sync_folder)
        try:
            disk.pass_moment("delete")
        except Dead:
            return _IOERR
        disk.names.pop(os.path.basename(os.fsdecode(name)), None)
        disk.note_names()
        return self._system_delete(vfs, name, sync_folder)
