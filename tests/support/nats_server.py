"""A NATS server with JetStream for tests, from a pip package: on a free port of the loopback, in a folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

MAX_WAIT_S = 60.0


class NatsServer:
    """A server that keeps its port and its files when it is started again.

    Args:
        folder: an empty folder.
        settings: lines for its configuration.
    """

    def __init__(self, folder: Path, settings: str = "", *, has_jetstream: bool = True) -> None:
        self._folder = folder
        self._holder = socket.socket()  # it never listens; nobody else can take the port while it is open
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the server sets it too
        self._holder.bind(("127.0.0.1", 0))
        self._port = self._holder.getsockname()[1]
        self._settings = settings
        if has_jetstream:
            self._settings += f'\njetstream {{ store_dir: "{folder}/data" }}'
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def place(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the server and wait until it listens; its port is the same each time."""
        binary = shutil.which("nats-server")
        assert binary is not None, "is_installed() says so"
        config = self._folder / "server.conf"
        config.write_text(
            f'host: "127.0.0.1"\nport: {self._port}\nports_file_dir: "{self._folder}"\n{self._settings}\n'
        )
        for path in self._folder.glob("*.ports"):
            path.unlink()
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen([binary, "-c", str(config)], stdout=output, stderr=output)
        until = time.monotonic() + MAX_WAIT_S
        while not (ports := self._read_ports()):
            assert self._process.poll() is None, (self._folder / "output").read_text()
            assert time.monotonic() < until, "the server does not listen"
            time.sleep(0.02)
        self._port = int(ports.rpartition(":")[2])

    def _read_ports(self) -> str:
        """Where the server listens; empty until it has written that."""
        for path in self._folder.glob("*.ports"):
            try:
                return str(json.loads(path.read_text())["nats"][0])
            except (ValueError, KeyError, IndexError):
                return ""
        return ""

    def kill(self) -> None:
        """End the server with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(MAX_WAIT_S)
            self._process = None

    def build_address(self, folder: Path) -> str:
        """The address of a log for one test; the same folder always gets the same log."""
        name = "t" + hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        return f"nats://{self.place}/{name}"


def is_installed() -> bool:
    """Whether the server and its client are installed."""
    try:
        import nats  # noqa: F401
    except ImportError:
        return False
    return shutil.which("nats-server") is not None
