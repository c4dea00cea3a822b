"""Attacks on the file tools: they read nothing outside their folder, and never block."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st
from resource_limits import run_bounded

from toolchart.tools.builtin.workspace.files import MAX_BYTES, Folder
from toolchart.tools.definition import ToolFailure

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a secret beside it, and with links, pipes and other ways out in it."""
    (tmp_path / "secret.txt").write_text(SECRET)
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "good.txt").write_text("one\ntwo\nthree\n")
    (root / "inner" / "deep.md").write_text("deep")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    (root / "zero").symlink_to("/dev/zero")
    (root / "inside.txt").symlink_to(root / "good.txt")
    (tmp_path / "root-beside").mkdir()
    (tmp_path / "root-beside" / "x.txt").write_text(SECRET)
    os.mkfifo(root / "pipe")
    (root / "binary").write_bytes(b"\x00\x01" * 100)
    return root


OUTSIDE = (
    *("../secret.txt", "inner/../../secret.txt", "/etc/passwd", "{root}/../secret.txt", "link.txt"),
    *("out/secret.txt", "out", "loop", "zero", "pipe", "binary", "..", "../root-beside/x.txt", "inner"),
    *("good.txt\x00.md", "good.txt/..", "/proc/self/environ", "~", "nothing", "", "\ud800", "good.txt/x"),
    *("//etc/passwd", "./../secret.txt"),
    "a" * 5000,
)


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out(root: Path, path: str) -> None:
    """Issue 6: `..`, absolute paths, links, pipes and devices are refused at once, with an error text."""

    def attack() -> str:
        try:
            return str(Folder(root).read_file({"path": path.replace("{root}", str(root))}))
        except ToolFailure as refusal:
            return f"refused: {refusal}"

    text = run_bounded(attack)
    assert text.startswith("refused: ")
    assert SECRET not in text


@pytest.mark.parametrize("path", ["..", "out", "/", "link.txt", "good.txt", "inner/../.."])
def test_no_listing_leads_out(root: Path, path: str) -> None:
    """Issue 6: only folders inside the root can be listed."""
    with pytest.raises(ToolFailure):
        Folder(root).list_directory({"path": path})


def test_files_inside_can_be_read(root: Path) -> None:
    """Issue 6: files and folders inside the root can be read, also through a link that stays inside."""
    folder = Folder(root)
    assert folder.read_file({"path": "good.txt", "start_line": 2, "lines": 1}) == {
        "path": "good.txt",
        "text": "two\n",
        "start_line": 2,
        "end_line": 2,
        "more": True,
    }
    assert folder.read_file({"path": "inner/../good.txt"})["text"].startswith("one")
    assert folder.read_file({"path": "inside.txt"})["text"].startswith("one")
    entries = folder.list_directory({"path": "."})["entries"]
    assert entries[0] == {"name": "inner", "type": "folder"}
    assert {"name": "link.txt", "type": "link"} in entries
    assert {"name": "good.txt", "type": "file", "size": 14} in entries


def test_a_link_that_appears_after_the_check_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: a link that is created between the check and the opening is not followed."""
    real = os.path.realpath

    def realpath_with_swap(path: Any, **options: Any) -> str:
        resolved = real(path, **options)
        target = root / "inner"
        if str(path).endswith("deep.md") and not target.is_symlink():
            (root / "inner").rename(root / "moved")
            target.symlink_to(root.parent)
            (root.parent / "deep.md").write_text(SECRET)
        return resolved

    folder = Folder(root)
    monkeypatch.setattr(os.path, "realpath", realpath_with_swap)
    with pytest.raises(ToolFailure):
        folder.read_file({"path": "inner/deep.md"})


def test_a_huge_file_is_read_up_to_a_bound(root: Path) -> None:
    """Issue 6: of a huge file only the requested lines are read."""
    with open(root / "huge.txt", "wb") as huge:
        huge.write(b"line\n" * 4000)
        huge.truncate(50 * MAX_BYTES)

    def attack() -> tuple[int, bool]:
        text = Folder(root).read_file({"path": "huge.txt", "lines": 10})
        return text["end_line"], text["more"]

    assert run_bounded(attack) == (10, True)


@settings(max_examples=choose_count(short=50, long=200), deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(["..", ".", "out", "inner", "root", "link.txt", "secret.txt", "/", "x", "\x00"]),
        max_size=6,
    )
)
def test_no_combination_shows_the_secret(parts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Issue 6: no path made of these parts reads the file outside."""
    base = tmp_path_factory.getbasetemp() / "combined"
    root = base / "root"
    if not root.exists():
        (root / "inner").mkdir(parents=True)
        (base / "secret.txt").write_text(SECRET)
        (root / "out").symlink_to(base)
        (root / "link.txt").symlink_to(base / "secret.txt")
    try:
        text = str(Folder(root).read_file({"path": "/".join(parts)}))
    except ToolFailure as refusal:
        text = str(refusal)
    assert SECRET not in text
