"""The other side of `process.py`: runs one function in a process of its own and prints the answer.

Started as a script; it uses the standard library and `json_data.py` beside it, so that a tool pays for
its own imports alone.
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
    """Read one request from standard input, run it, write one JSON line."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the tool prints goes nowhere, not into the answer
    head = json.loads(requests.readline())
    body = requests.read(int(requests.readline()))
    _limit(head)
    threading.Thread(target=_watch, args=(requests,), daemon=True).start()
    sys.path[:] = head["path"]
    answer = _answer(head, body)
    answers.write(answer + b"\n")
    answers.flush()
    # The group is killed from outside; waiting for threads of the tool would only delay it.
    os._exit(0)


def _limit(head: dict[str, Any]) -> None:
    try:
        import resource
    except ImportError:  # no such limits on this system; the timeout still holds
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (head["cpu_s"], head["cpu_s"]))
    resource.setrlimit(resource.RLIMIT_AS, (head["memory"], head["memory"]))


def _watch(requests: BinaryIO) -> None:
    """End this group when the parent is gone: its end of the pipe closes then."""
    requests.read(1)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _answer(head: dict[str, Any], body: bytes) -> bytes:
    plain = _beside("json_data").plain
    try:
        function = _found(head)
        value = function(**pickle.loads(body))
        if head["is_async"]:
            import asyncio

            value = asyncio.run(value)
        return json.dumps({"result": plain(value)}).encode()
    except MemoryError:
        return json.dumps({"error": f"MemoryError: over {head['memory'] // 2**20} MB"}).encode()
    except BaseException as error:
        name = type(error).__name__
        text = str(error)
        told = text if name == "ToolFailure" else f"{name}: {text}" if text else name
        return json.dumps({"error": told}).encode()


def _found(head: dict[str, Any]) -> Any:
    here: Any = _module(head["module"], head["file"])
    for name in head["function"].split("."):
        here = getattr(here, name)
    return here


def _module(name: str, file: str | None) -> Any:
    """The tool's module; a script that was run as `__main__` is loaded without its main part."""
    if name == "__main__" and file:
        module = _loaded("__mp_main__", Path(file))
        sys.modules["__main__"] = module
        return module
    try:
        return importlib.import_module(name)
    except ImportError:
        if not file:
            raise
        return _loaded(name, Path(file))


def _beside(name: str) -> Any:
    return _loaded(f"_toolchart_{name}", Path(__file__).with_name(f"{name}.py"))


def _loaded(name: str, file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
