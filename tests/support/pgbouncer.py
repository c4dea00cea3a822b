"""A real PgBouncer in front of the tests' PostgreSQL server, on a free port of loopback."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

POOL_SIZE = 2
"""Sessions of the server for all clients of a pool: few, so that clients share them."""


def find_program() -> str:
    """The path of PgBouncer; the test is skipped where it is not installed."""
    program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if program is None:
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    return program


@contextlib.contextmanager
def run_pgbouncer(address: str, *, mode: str = "transaction", size: int = POOL_SIZE) -> Iterator[str]:
    """Run PgBouncer within the block; the address of a database by way of it.

    Args:
        address: that of the database, on a server that listens at a socket of Unix.
        mode: `transaction` or `session`.
        size: most sessions of the server.
    """
    program = find_program()
    parts = urlsplit(address)
    (place,) = parse_qs(parts.query)["host"]
    name, port = parts.path.strip("/"), _find_port()
    # It refuses to run as root; whoever runs the server may read its socket.
    owner = pwd.getpwuid(os.stat(place).st_uid).pw_name
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer"))  # whose parents its user may read
    folder.chmod(0o755)
    users, settings, log = folder / "users.txt", folder / "pgbouncer.ini", folder / "pgbouncer.log"
    users.write_text('"postgres" ""\n')
    settings.write_text(
        f"[databases]\n{name} = host={place} dbname={name} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {users}\npool_mode = {mode}\ndefault_pool_size = {size}\n"
        "max_client_conn = 200\n"
    )
    words = [program, *(["-u", owner] if os.getuid() == 0 else []), str(settings)]
    for path in (users, settings):
        path.chmod(0o644)
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output)
    try:
        _wait_until_open(port, process, log)
        yield f"postgresql://postgres@127.0.0.1:{port}/{name}"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def _find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while True:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        assert time.monotonic() < until, "PgBouncer does not listen"
        time.sleep(0.02)
