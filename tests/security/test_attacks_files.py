"""Attacks on the file tools: nothing outside the folder is seen, and nothing is waited for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from bounded import bounded
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.tools.builtin.files import MOST_BYTES, Folder
from toolchart.tools.definition import ToolFailure

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a secret beside it and every kind of way out inside it."""
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
    "../secret.txt",
    "inner/../../secret.txt",
    "/etc/passwd",
    "{root}/../secret.txt",
    "link.txt",
    "out/secret.txt",
    "out",
    "loop",
    "zero",
    "pipe",
    "binary",
    "..",
    "../root-beside/x.txt",
    "inner",
    "good.txt\x00.md",
    "good.txt/..",
    "/proc/self/environ",
    "~",
    "nothing",
    "",
    "\ud800",
    "a" * 5000,
    "good.txt/x",
    "//etc/passwd",
    "./../secret.txt",
)


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out(root: Path, path: str) -> None:
    """Issue 6: `..`, absolute paths, links, pipes and devices are refused, at once, in words."""

    def attack() -> str:
        try:
            return str(Folder(root).read_file({"path": path.replace("{root}", str(root))}))
        except ToolFailure as refusal:
            return f"refused: {refusal}"

    told = bounded(attack)
    assert told.startswith("refused: ")
    assert SECRET not in told


@pytest.mark.parametrize("path", ["..", "out", "/", "link.txt", "good.txt", "inner/../.."])
def test_no_listing_leads_out(root: Path, path: str) -> None:
    """Issue 6: only folders inside can be listed."""
    with pytest.raises(ToolFailure):
        Folder(root).list_directory({"path": path})


def test_what_is_inside_can_be_read(root: Path) -> None:
    """Issue 6: files and folders inside work, also through a link that stays inside."""
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
    listed = folder.list_directory({"path": "."})["entries"]
    assert listed[0] == {"name": "inner", "type": "folder"}
    assert {"name": "link.txt", "type": "link"} in listed
    assert {"name": "good.txt", "type": "file", "size": 14} in listed


def test_a_link_that_appears_after_the_check_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: the check and the opening cannot be parted by a link that is put in between."""
    real = os.path.realpath

    def swapped(path: Any, **options: Any) -> str:
        found = real(path, **options)
        target = root / "inner"
        if str(path).endswith("deep.md") and not target.is_symlink():
            (root / "inner").rename(root / "moved")
            target.symlink_to(root.parent)
            (root.parent / "deep.md").write_text(SECRET)
        return found

    folder = Folder(root)
    monkeypatch.setattr(os.path, "realpath", swapped)
    with pytest.raises(ToolFailure):
        folder.read_file({"path": "inner/deep.md"})


def test_a_huge_file_is_read_no_further_than_wanted(root: Path) -> None:
    """Issue 6: a file larger than any memory is read up to a bound."""
    with open(root / "huge.txt", "wb") as huge:
        huge.write(b"line\n" * 4000)
        huge.truncate(50 * MOST_BYTES)

    def attack() -> tuple[int, bool]:
        told = Folder(root).read_file({"path": "huge.txt", "lines": 10})
        return told["end_line"], told["more"]

    assert bounded(attack) == (10, True)


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(
            ["..", ".", "out", "inner", "root", "link.txt", "secret.txt", "/", "x", "\x00"]
        ),
        max_size=6,
    )
)
def test_no_combination_shows_the_secret(
    parts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Issue 6: no path made of these parts reads what lies outside."""
    base = tmp_path_factory.getbasetemp() / "combined"
    root = base / "root"
    if not root.exists():
        (root / "inner").mkdir(parents=True)
        (base / "secret.txt").write_text(SECRET)
        (root / "out").symlink_to(base)
        (root / "link.txt").symlink_to(base / "secret.txt")
    try:
        told = str(Folder(root).read_file({"path": "/".join(parts)}))
    except ToolFailure as refusal:
        told = str(refusal)
    assert SECRET not in told
