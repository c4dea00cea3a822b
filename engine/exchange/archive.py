"""Archives: the records of whole conversations, written elsewhere before retention removes them.

An archive in a folder is a log of its own (JSON Lines): `verify`, `show` and `export` read it. At a URL
(`s3://`, `gs://`, `sftp://`, whatever fsspec and its packages know) each conversation is one object of the
same form, with the name that it has in such a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolchart.engine.log.reading.records import read_conversation
from toolchart.engine.log.stores.jsonl import JsonlStore
from toolchart.engine.log.stores.jsonl_files import build_file_name
from toolchart.states.descriptors import load_reference
from toolchart.states.errors import LogUnavailable, SpecError, format_install
from toolchart.states.ports import Store


def archive_conversations(store: Store, names: list[str], target: str) -> None:
    """Write conversations to an archive; all of them are there on return, and one that was is equal.

    Args:
        target: a folder, or a URL that fsspec opens.

    Raises:
        SpecError: the archive has another conversation of that name, or fsspec is needed and not installed.
        LogDamaged: a conversation is damaged: it is not archived, and must not be removed.
        LogUnavailable: the archive cannot be written.
    """
    write = _open_url(target) if "://" in target else _open_folder(target)
    for name in names:
        write(name, [record.line for record in read_conversation(store, name)])


def _open_folder(target: str) -> Callable[[str, list[bytes]], None]:
    archive = JsonlStore(Path(target))

    def write(name: str, lines: list[bytes]) -> None:
        stored_lines = list(archive.read_lines(name))
        if not stored_lines:
            archive.append(name, 0, lines)
        elif stored_lines != lines:
            raise _build_conflict(name, target)

    return write


def _open_url(target: str) -> Callable[[str, list[bytes]], None]:
    try:
        open_system = load_reference("fsspec.core:url_to_fs")
    except ImportError:
        raise SpecError(
            f"an archive at {target} needs a package that is not installed", hint=format_install("archive")
        ) from None
    try:
        system, folder = open_system(target)
    except (ValueError, ImportError) as error:
        raise SpecError(f"the archive {target} cannot be opened: {error}") from None

    def write(name: str, lines: list[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        path = f"{folder.rstrip('/')}/{build_file_name(name)}.jsonl"
        try:
            _write_object(system, path, data, name, target)
        except OSError as error:
            raise LogUnavailable(f"the archive {target} cannot be written: {error}") from None

    return write


def _write_object(system: Any, path: str, data: bytes, name: str, target: str) -> None:
    """Write one object, and read it back: the log is about to lose what it holds."""
    if system.exists(path):
        if system.cat_file(path) != data:
            raise _build_conflict(name, target)
        return
    system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    system.pipe_file(path, data)
    if system.cat_file(path) != data:
        raise LogUnavailable(f"the archive {target} does not give back conversation {name!r}")


def _build_conflict(name: str, target: str) -> SpecError:
    return SpecError(
        f"the archive {target} has another conversation {name!r}",
        hint="choose another archive; nothing was deleted",
    )
