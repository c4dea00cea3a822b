"""Runs a job of a native library in a process with limits on time and memory.

A library that aborts, hangs or eats memory ends its own process; the caller gets a `SpecError`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from toolchart.states.errors import SpecError, format_install

_WORKER = Path(__file__).with_name("worker.py")
_CPU_S = 20
_MEMORY_BYTES = 2 * 1024**3
_TIMEOUT_S = 30.0
_LATER_HINT = "draw it as `mermaid`, `dot` or `text`"


def run_job(job: str, data: Any, *, timeout_s: float = _TIMEOUT_S, cpu_s: int = _CPU_S) -> bytes:
    """The answer of a job of `worker.py`.

    Args:
        job: `layers` or `png`.
        data: its input, as JSON data.
        timeout_s: seconds before the process is killed.
        cpu_s: whole seconds of processor time that it may use.

    Raises:
        SpecError: the library is not installed, it aborted, or it needed too long or too much memory.
    """
    request = {"job": job, "data": data, "path": sys.path, "cpu_s": cpu_s, "memory": _MEMORY_BYTES}
    try:
        process = subprocess.run(
            [sys.executable, "-I", str(_WORKER)],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise SpecError(f"the picture was not ready after {timeout_s:g} s", hint=_LATER_HINT) from None
    except OSError as error:
        raise SpecError(f"the process that draws cannot be started: {error}", hint=_LATER_HINT) from None
    if process.returncode:
        raise _build_error(process.returncode, process.stderr.decode(errors="replace"))
    return process.stdout


def _build_error(code: int, errors: str) -> SpecError:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    if lines and lines[-1].startswith("ModuleNotFoundError"):
        return SpecError(
            f"pictures need a package that is not installed: {lines[-1].rpartition(' ')[2]}",
            hint=f"{format_install('pictures')}, or {_LATER_HINT}",
        )
    reason = f"it was ended by signal {-code}" if code < 0 else f"it ended with code {code}"
    detail = next((line for line in lines if "panicked" not in line), "")
    return SpecError(
        f"the picture cannot be drawn: the process that draws failed, {reason}"
        + (f" ({detail[:200]})" if detail else ""),
        hint=_LATER_HINT,
    )
