"""Starts bounded work in child processes, and waits for it: from any thread, or on an event loop.

    run_bounded(Work(module="json", function="loads", arguments={"s": "[1]"}), timeout_s=1.0)   # [1]

Each piece of work runs in a process of its own with limits of time, memory (of everything that it starts,
together), processor time and size of its answer, and with an environment that holds no key. The processes are
forked by a host that stays warm (`host.py`); there is one host for each set of preloaded modules. The
arguments go to the child pickled, the answer comes back as JSON and is never unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from toolchart.workers.host import LIMITS_BYTES

_PACKAGE = Path(__file__).resolve().parents[1]

_BOOTSTRAP = """
import importlib.util, sys
root = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "toolchart", root + "/__init__.py", submodule_search_locations=[root])
module = importlib.util.module_from_spec(spec)
sys.modules["toolchart"] = module
spec.loader.exec_module(module)
from toolchart.workers.host import main
main()
"""
"""The host's program; the package is the one of this process, whatever its folder is called."""

PLAIN_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
    *("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "TOOLCHART_LIMITS"),
)
"""Variables of the environment that every child gets, beside those that begin with `LC_`. No key is in
one."""

MAX_ANSWER_BYTES = 16_000_000
MEMORY_MB = 512
START_TIMEOUT_S = 60.0
STARVED_S = 60.0
"""Seconds until work ends whose limit is processor time: a machine that is busy with other things gives it
little, and that is no fault of the work."""
GRACE_S = 5.0
"""Seconds beyond the deadline after which a silent host is given up."""


class BoundExceeded(Exception):
    """Work reached one of its limits. `limit` is `time`, `memory`, `size` or `exit` (ended without an
    answer)."""

    def __init__(self, limit: str, code: int | None = None) -> None:
        self.limit = limit
        self.code = code
        """With `exit`: the exit code, or the negative number of a signal."""
        super().__init__(f"the work reached its limit: {limit}")


class WorkFailed(Exception):
    """The function raised. `kind` is the class of its exception, `text` what it said, or what the first
    causes of a group said. Its own text has both, and what the exception was raised from."""

    def __init__(self, kind: str, text: str, description: str = "") -> None:
        self.kind = kind
        self.text = text
        super().__init__(description or (f"{kind}: {text}" if text else kind))


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A function and its arguments."""

    module: str
    function: str
    """Its qualified name in the module."""
    arguments: Mapping[str, Any]
    """By parameter name; they are pickled."""
    file: str | None = None
    """File of the module, where it cannot be imported by its name."""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Variables beyond the plain ones."""
    preload: tuple[str, ...] = ()
    """Modules that the host has imported before it forks. Where one has a function `prepare`, it was
    called."""
    processor_s: float | None = None
    """Seconds of processor time of the child alone; None where only the deadline counts. Then `timeout_s` is
    `STARVED_S`."""
    memory_mb: int = MEMORY_MB
    max_answer_bytes: int = MAX_ANSWER_BYTES

    def encode(self) -> bytes:
        """The request as the child reads it.

        Raises:
            pickle.PicklingError, AttributeError, TypeError: the arguments cannot be pickled.
        """
        body = pickle.dumps(dict(self.arguments))
        header = {
            "path": sys.path,
            "module": self.module,
            "file": self.file,
            "function": self.function,
            "environment": dict(self.environment),
            "body_bytes": len(body),
        }
        return json.dumps(header).encode() + b"\n" + body


def run_bounded(work: Work, *, timeout_s: float) -> Any:
    """Run work and return its result as JSON data; blocks this thread for `timeout_s` at most.

    The first work with these preloaded modules also waits until its host has started.

    Raises:
        BoundExceeded: a limit was reached; everything that the work started has been killed.
        WorkFailed: the function raised.
    """
    request = work.encode()
    with contextlib.closing(_find_host(work.preload).open_work(work, timeout_s)) as channel:
        end = time.monotonic() + timeout_s + GRACE_S
        answer = bytearray()
        try:
            channel.settimeout(timeout_s + GRACE_S)
            _send_request(channel, request)
            while not answer.endswith(b"\n"):
                channel.settimeout(max(0.01, end - time.monotonic()))
                piece = channel.recv(1 << 16)
                answer += piece
                _check_answer_size(answer, piece, work.max_answer_bytes)
        except TimeoutError:
            _find_host(work.preload).close()
            raise BoundExceeded("time") from None
        return _decode_answer(bytes(answer))


async def run_bounded_async(work: Work, *, timeout_s: float) -> Any:
    """Await work on the running event loop, with the result and the errors of `run_bounded`.

    A cancellation kills the work.
    """
    import asyncio

    request, loop = work.encode(), asyncio.get_running_loop()
    host = await asyncio.to_thread(_find_host, work.preload)
    with contextlib.closing(host.open_work(work, timeout_s)) as channel:
        channel.setblocking(False)
        answer = bytearray()
        try:
            async with asyncio.timeout(timeout_s + GRACE_S):
                with contextlib.suppress(ConnectionError):
                    await loop.sock_sendall(channel, request)
                while not answer.endswith(b"\n"):
                    piece = await loop.sock_recv(channel, 1 << 16)
                    answer += piece
                    _check_answer_size(answer, piece, work.max_answer_bytes)
        except TimeoutError:
            host.close()
            raise BoundExceeded("time") from None
        return _decode_answer(bytes(answer))


def _send_request(channel: socket.socket, request: bytes) -> None:
    # A child that ended before it read all has left an answer that says why.
    with contextlib.suppress(ConnectionError):
        channel.sendall(request)


def _check_answer_size(answer: bytearray, piece: bytes, limit: int) -> None:
    if not piece:
        raise BoundExceeded("exit")
    if len(answer) > limit:
        raise BoundExceeded("size")


def _decode_answer(answer: bytes) -> Any:
    """The result in the first line of an answer.

    Raises:
        BoundExceeded: it says that a limit was reached, or is incomplete.
        WorkFailed: it says that the function raised.
    """
    try:
        message = json.loads(answer.partition(b"\n")[0])
    except ValueError:
        raise BoundExceeded("exit") from None
    if "ended" in message:
        raise BoundExceeded(message["ended"], message.get("code"))
    if "error" in message:
        if message["kind"] == "MemoryError":
            raise BoundExceeded("memory")
        raise WorkFailed(message["kind"], message["error"], message["described"])
    return message["result"]


# -- hosts ---------------------------------------------------------------------------------------


class _HostHandle:
    """A running host, and the socket over which work is passed to it."""

    def __init__(self, preload: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self.control, child_end = socket.socketpair()
        # What a tool prints goes to standard error, as in a thread; work on untrusted input says nothing.
        output = subprocess.DEVNULL if preload else _find_error_output()
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP, str(_PACKAGE), str(child_end.fileno())],
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=build_plain_environment(),
                start_new_session=True,
            )
        configuration = {"path": sys.path, "preload": preload}
        self.control.settimeout(START_TIMEOUT_S)
        self.control.sendall(json.dumps(configuration).encode() + b"\n")
        if self.control.recv(16) != b"ready\n":
            self.close()
            raise RuntimeError("the host of bounded work did not start")

    @property
    def is_alive(self) -> bool:
        """Whether work can be passed to it."""
        return self._process.poll() is None and self.control.fileno() >= 0

    def open_work(self, work: Work, timeout_s: float) -> socket.socket:
        """Have a child forked, and return the socket on which it reads its request."""
        limits = {
            "memory": work.memory_mb * 2**20,
            "cpu_s": int(timeout_s) + 2,
            "timeout_s": round(timeout_s, 3),
            "processor_s": work.processor_s,
        }
        own_end, child_end = socket.socketpair()
        with child_end, self._lock:
            message = json.dumps(limits).encode().ljust(LIMITS_BYTES)
            socket.send_fds(self.control, [message], [child_end.fileno()])
        return own_end

    def close(self) -> None:
        """Close the control socket, at which the host ends, and collect the process."""
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
            return
        self._process.kill()
        self._process.wait()


_hosts: dict[tuple[str, ...], _HostHandle] = {}
_hosts_lock = threading.Lock()


def _find_host(preload: tuple[str, ...]) -> _HostHandle:
    """The running host with these modules; starts one where there is none."""
    with _hosts_lock:
        host = _hosts.get(preload)
        if host is None or not host.is_alive:
            if host is not None:
                host.close()
            host = _hosts[preload] = _HostHandle(preload)
        return host


def _find_error_output() -> int:
    """The descriptor of standard error, or `subprocess.DEVNULL` where it is closed."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def build_plain_environment(names: tuple[str, ...] = PLAIN_VARIABLES) -> dict[str, str]:
    """The variables of the environment that every child gets; keys are not among them."""
    return {name: text for name, text in os.environ.items() if name in names or name.startswith("LC_")}


def _forget_hosts() -> None:
    """Start without hosts in a forked child: they belong to the parent."""
    global _hosts_lock
    for host in _hosts.values():
        host.control.close()
    _hosts.clear()
    _hosts_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_hosts)
