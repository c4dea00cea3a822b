"""The child process of an isolated tool: runs one function and prints its result as one JSON line.

`isolation.py` starts this file as a script. It imports only the standard library and `json_data.py`
beside it, so that the start takes no longer than the tool's own imports.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pickle
import signal
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO


def main() -> None:
    """Read one request from standard input, run it, and write one JSON line."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the tool's own prints must not get into the answer
    header = json.loads(requests.readline())
    body = requests.read(int(requests.readline()))
    _set_limits(header)
    threading.Thread(target=_watch_parent, args=(requests,), daemon=True).start()
    sys.path[:] = header["path"]
    answer = _run_request(header, body)
    answers.write(answer + b"\n")
    answers.flush()
    # The parent kills the process group; waiting for the tool's threads would only delay that.
    os._exit(0)


def _set_limits(header: dict[str, Any]) -> None:
    try:
        import resource
    except ImportError:  # this system has no such limits; the timeout still holds
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (header["cpu_s"], header["cpu_s"]))
    resource.setrlimit(resource.RLIMIT_AS, (header["memory"], header["memory"]))


def _watch_parent(requests: BinaryIO) -> None:
    """Kill this process group when the parent dies: its end of the pipe is closed then."""
    requests.read(1)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _run_request(header: dict[str, Any], body: bytes) -> bytes:
    """Run the function; the answer is `{"result": ...}` or `{"error": text}` as JSON."""
    to_json_data = _load_file("_toolchart_json_data", Path(__file__).with_name("json_data.py")).to_json_data
    try:
        function = _import_function(header)
        value = function(**pickle.loads(body))
        if header["is_async"]:
            import asyncio

            value = asyncio.run(value)
        return json.dumps({"result": to_json_data(value)}).encode()
    except MemoryError:
        return json.dumps({"error": f"MemoryError: over {header['memory'] // 2**20} MB"}).encode()
    except BaseException as error:
        name = type(error).__name__
        text = str(error)
        message = text if name == "ToolFailure" else f"{name}: {text}" if text else name
        return json.dumps({"error": message}).encode()


def _import_function(header: dict[str, Any]) -> Any:
    value: Any = _import_tool_module(header["module"], header["file"])
    for name in header["function"].split("."):
        value = getattr(value, name)
    return value


def _import_tool_module(name: str, file: str | None) -> Any:
    """The tool's module; a script that was run as `__main__` is loaded without its main part."""
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


if __name__ == "__main__":
    main()
