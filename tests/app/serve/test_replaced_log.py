"""`toolchart serve` on a log that is replaced under it: 503, and no turn is acknowledged and lost."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from command_line import START

from toolchart.engine.log.stores import open_store_for_reading

TOKEN = "a-token-for-this-test-only-0123456789"
MAX_WAIT_S = 120


@contextmanager
def run_server(folder: Path, log: str) -> Iterator[httpx.Client]:
    """A client of the real command, in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["serve", "quickstart", "--log", log, "--port", str(port), "--token", "anna:chat"]
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "stderr").open("wb"),
        env={**os.environ, "TOOLCHART_TOKEN_ANNA": TOKEN},
    )
    headers = {"Authorization": f"Bearer {TOKEN}"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=MAX_WAIT_S) as client:
            until = time.monotonic() + MAX_WAIT_S
            while time.monotonic() < until and process.poll() is None:
                try:
                    assert client.get("/health").status_code == 200
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            yield client
    finally:
        process.terminate()
        process.wait(MAX_WAIT_S)


def back_up(folder: Path) -> None:
    """Copy the log as it is now: `log.db` to `backup.db`, or `log/log.db` to `backup/log.db`."""
    log, backup = folder / "log.db", folder / "backup.db"
    if not log.exists():
        log, backup = folder / "log" / "log.db", folder / "backup" / "log.db"
        backup.parent.mkdir()
    source, copy = sqlite3.connect(log), sqlite3.connect(backup)
    source.backup(copy)
    source.close()
    copy.close()


def move_backup(folder: Path) -> None:
    """`mv backup.db log.db`."""
    (folder / "backup.db").rename(folder / "log.db")


def copy_backup(folder: Path) -> None:
    """`cp backup.db log.db`."""
    shutil.copyfile(folder / "backup.db", folder / "log.db")


def delete_log(folder: Path) -> None:
    """`rm log.db log.db-wal log.db-shm`."""
    for name in ("log.db", "log.db-wal", "log.db-shm"):
        (folder / name).unlink()


def swap_folders(folder: Path) -> None:
    """`mv log old; mv backup log`."""
    (folder / "log").rename(folder / "old")
    (folder / "backup").rename(folder / "log")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log", "restore"),
    [("log.db", move_backup), ("log.db", copy_backup), ("log.db", delete_log), ("log/log.db", swap_folders)],
)
def test_a_server_whose_log_is_replaced_answers_503(
    tmp_path: Path, log: str, restore: Callable[[Path], None]
) -> None:
    """From the replacement on, each turn and `/health` are answered with 503, no matter how often they are
    asked, and a turn with what to do; every acknowledged turn is in the log at the path. `/health` shows no
    path to those without a token."""
    with run_server(tmp_path, log) as client:
        client.post("/api/conversations", json={"message": "1 + 1"}).raise_for_status()
        back_up(tmp_path)
        client.post("/api/conversations", json={"message": "2 + 2"}).raise_for_status()
        restore(tmp_path)
        answers = [client.post("/api/conversations", json={"message": "3 + 3"}) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [503] * 5, answers[0].text
        assert "restore the backup again" in answers[0].json()["error"]
        health = client.get("/health", headers={"Authorization": ""})
        assert (health.status_code, health.json()["status"]) == (503, "log unavailable")
        assert str(tmp_path) not in health.text
        acknowledged = [answer.json()["conversation"] for answer in answers if answer.status_code == 200]
    assert "while it was in use" in (tmp_path / "stderr").read_text("utf-8")
    if (tmp_path / log).exists():
        for suffix in ("-wal", "-shm"):
            (tmp_path / f"{log}{suffix}").unlink(missing_ok=True)
        store = open_store_for_reading(str(tmp_path / log))
        assert set(acknowledged) <= set(store.list_conversations())
        store.close()


@pytest.mark.slow
def test_an_idle_server_says_so_by_its_health(tmp_path: Path) -> None:
    """`/health` looks itself: nobody needs to lose a turn before a supervisor restarts the server."""
    with run_server(tmp_path, "log.db") as client:
        client.post("/api/conversations", json={"message": "1 + 1"}).raise_for_status()
        back_up(tmp_path)
        assert client.get("/health").json()["status"] == "ok"
        move_backup(tmp_path)
        assert client.get("/health").status_code == 503
