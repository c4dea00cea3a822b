"""The host process: it has imported what the work needs, and forks one child for each piece of work.

A fork costs milliseconds where a new interpreter with its imports costs a second, and a child that is killed
leaves the host warm. The host has one thread and touches no untrusted data. For each child it watches three
things: the child's end, its deadline and the memory of everything that it started, and the other end of the
child's socket, which closes when nobody waits any more. However a child ends, everything below it is killed.

    pool  -- one byte with a socket per piece of work -->  host  -- fork -->  child
    pool  <------- request, then one line of answer, on that socket -------->  child

When the pool's process ends, its end of the control socket closes, and the host kills all children and exits.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolchart.workers.error_text import describe_error, list_first_causes, read_error_text
from toolchart.workers.json_data import to_json_data
from toolchart.workers.process_tree import adopt_orphans, kill_tree, list_children, measure_memory
from toolchart.workers.returned_values import await_value, must_be_awaited, read_value

TICK_S = 0.02
"""Seconds between two looks at deadlines and memory, while there are children."""

MAX_HEADER_BYTES = 1_000_000

LIMITS_BYTES = 128
"""Size of the message that passes a socket; it holds the limits, filled up with spaces."""


@dataclass(slots=True)
class _Child:
    """One child and its limits."""

    pid: int
    socket: socket.socket
    deadline: float
    """On the monotonic clock."""
    memory: int
    """Bytes for the child and everything below it."""


def main() -> None:
    """Read the configuration, import what is asked for, say that the host is ready, and fork until the
    end."""
    control = socket.socket(fileno=int(sys.argv[2]))
    with control.makefile("rb", buffering=0) as lines:
        configuration = json.loads(lines.readline(MAX_HEADER_BYTES))
    sys.path[:] = configuration["path"]
    adopt_orphans()
    for name in configuration["preload"]:
        module = importlib.import_module(name)
        if hasattr(module, "prepare"):
            module.prepare()
    control.sendall(b"ready\n")
    _Host(control).serve()


class _Host:
    """Forks children, and ends them at their limits."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, _Child] = {}

    def serve(self) -> None:
        """Start work until the control socket closes; then kill every child."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        while True:
            ready = poller.poll(TICK_S * 1000 if self._children else None)
            if ready and not self._start_child():
                break
            self._look_at_children()
        for child in list(self._children.values()):
            self._end_child(child, "abandoned")
        os._exit(0)

    def _start_child(self) -> bool:
        """Fork a child for the socket that came; false where the control socket has closed."""
        data, descriptors, _, _ = socket.recv_fds(self._control, LIMITS_BYTES, 1)
        if not data or not descriptors:
            return False
        limits = json.loads(data)
        work = socket.socket(fileno=descriptors[0])
        pid = os.fork()
        if pid == 0:
            self._control.close()
            # A copy here would keep the socket of a sibling open after its end.
            for sibling in self._children.values():
                sibling.socket.close()
            _run_child(work, limits["memory"], limits["cpu_s"], limits["processor_s"])
        deadline = time.monotonic() + limits["timeout_s"]
        self._children[pid] = _Child(pid, work, deadline, limits["memory"])
        return True

    def _look_at_children(self) -> None:
        now = time.monotonic()
        for child in list(self._children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._end_child(child, "time" if code == -signal.SIGPROF else "exit", code)
            elif _is_abandoned(child.socket):
                self._end_child(child, "abandoned")
            elif now >= child.deadline:
                self._end_child(child, "time")
            # A child without children has its own limit (`RLIMIT_AS`).
            elif list_children(child.pid) and measure_memory(child.pid) > child.memory:
                self._end_child(child, "memory")

    def _end_child(self, child: _Child, reason: str, code: int | None = None) -> None:
        """Kill a child and everything below it, and say why; with an exit code it has ended itself."""
        del self._children[child.pid]
        if code is None:
            kill_tree(child.pid)
            os.waitpid(child.pid, 0)
        for orphan in list_children(os.getpid()):
            if orphan not in self._children:
                kill_tree(orphan)
                os.waitpid(orphan, 0)
        # After the killing: whoever reads that a limit was reached may count on it that nothing runs any
        # more.
        child.socket.setblocking(False)
        with contextlib.suppress(OSError):  # nobody waits, or the answer is there and not read yet
            child.socket.send(json.dumps({"ended": reason, "code": code}).encode() + b"\n")
        child.socket.close()


def _is_abandoned(work: socket.socket) -> bool:
    """Whether the other end of a socket is closed."""
    poller = select.poll()
    poller.register(work, 0)
    return any(events & select.POLLHUP for _, events in poller.poll(0))


# -- in the child --------------------------------------------------------------------------------

_is_in_child = False


def is_bounded() -> bool:
    """Whether this process is a child with limits, so that what it calls needs no process of its own."""
    return _is_in_child


def _run_child(work: socket.socket, memory: int, cpu_s: int, processor_s: float | None) -> None:
    """Set the limits, read the request, run it, answer, and end. Never returns."""
    global _is_in_child
    _is_in_child = True
    try:
        # A group of its own, by which it is killed where the system does not tell its children.
        os.setsid()
        for stream in (sys.stdout, sys.stderr):  # a process that is killed flushes nothing
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)
        adopt_orphans()
        _set_limits(memory, cpu_s)
        with work.makefile("rb") as requests:
            header = json.loads(requests.readline())
            body = requests.read(header["body_bytes"])
            threading.Thread(target=_watch_host, args=(os.getppid(),), daemon=True).start()
            os.environ.update(header["environment"])
            sys.path[:] = header["path"]
            if processor_s is not None:
                _end_after(processor_s)
            answer = _run_request(header, body, memory)
        with contextlib.suppress(Exception):  # the work may have closed it, or nobody reads it any more
            sys.stdout.flush()
        work.sendall(answer + b"\n")
    finally:
        # The host kills what is left; waiting for threads would only delay that.
        os._exit(0)


def _set_limits(memory: int, cpu_s: int) -> None:
    try:
        import resource
    except ImportError:  # this system has no such limits; the deadline still holds
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _end_after(processor_s: float) -> None:
    """End this process when it has used this much processor time from now on."""
    # The system counts and kills: an engine of patterns runs no Python code in which a clock could be read,
    # and `RLIMIT_CPU` knows whole seconds only. The timer stands still while the process does not run.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, processor_s)


def _watch_host(host: int) -> None:
    """Kill this process and everything below it once the host is gone."""
    while os.getppid() == host:
        time.sleep(0.2)
    kill_tree(os.getpid())


def _run_request(header: dict[str, Any], body: bytes, memory: int) -> bytes:
    """Run the function; the answer is `{"result": ...}`, or `{"error": text, "kind": class name, "described":
    both, and what it was raised from}`, as JSON."""
    try:
        function = _import_function(header)
        value = function(**pickle.loads(body))
        if must_be_awaited(value):
            import asyncio

            value = asyncio.run(await_value(value))
        return json.dumps({"result": to_json_data(read_value(value))}).encode()
    except MemoryError:
        return json.dumps({"error": f"over {memory // 2**20} MB", "kind": "MemoryError"}).encode()
    except BaseException as error:
        causes = list_first_causes(error)
        kinds = {type(cause).__name__ for cause in causes}
        kind = kinds.pop() if len(kinds) == 1 else type(error).__name__
        text = "; ".join(read_error_text(cause) for cause in causes)
        return json.dumps({"error": text, "kind": kind, "described": describe_error(error)}).encode()


def _import_function(header: dict[str, Any]) -> Any:
    value: Any = _import_module(header["module"], header["file"])
    for name in header["function"].split("."):
        value = getattr(value, name)
    return value


def _import_module(name: str, file: str | None) -> Any:
    """A module; a script that was run as `__main__` is loaded without its main part."""
    if name == "__main__" and file:
        module = _load_file("__mp_main__", Path(file))
        sys.modules["__main__"] = module
        return module
    try:
        return importlib.import_module(name)
    except ImportError:
        if not file:
            raise
        return _load_file(name, Path(file))


def _load_file(name: str, file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
