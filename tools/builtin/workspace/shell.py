"""The tool `run_shell`: a command in one folder, which a person approves each time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolchart.tools.definition import ToolFailure

MAX_OUTPUT_BYTES = 200_000
"""Bytes of each stream that are kept; the rest is read and dropped."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string", "description": "One command line for /bin/sh."}},
    "required": ["command"],
}

_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""Variables of the environment that a command gets; keys are not among them."""


class Shell:
    """Runs commands in a folder. The folder bounds where a command starts, and not what it reaches: only the
    approval of each command does."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    async def run(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a command: `{exit_code, output, errors, cut}`. Where it is cancelled, all that it started ends.

        Raises:
            ToolFailure: it cannot be started.
        """
        start = asyncio.ensure_future(self._start_process(arguments["command"]))
        try:
            process = await asyncio.shield(start)
        except asyncio.CancelledError:
            _kill_group(await start)  # it may have started other processes already
            raise
        except (OSError, ValueError) as error:
            raise ToolFailure(f"the command cannot be started: {error}") from None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            output, errors = await asyncio.gather(_read_stream(process.stdout), _read_stream(process.stderr))
            exit_code = await process.wait()
        finally:
            _kill_group(process)
            await process.wait()
        return {
            "exit_code": exit_code,
            "output": output[0],
            "errors": errors[0],
            "cut": output[1] or errors[1],
        }

    async def _start_process(self, command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            cwd=self._root,
            env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )


def _kill_group(process: asyncio.subprocess.Process) -> None:
    """End a process and all that it started in its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _read_stream(stream: asyncio.StreamReader) -> tuple[str, bool]:
    """The text of a stream to its end, and whether it was cut."""
    output, is_cut = bytearray(), False
    while chunk := await stream.read(65_536):
        room = MAX_OUTPUT_BYTES - len(output)
        output += chunk[:room]
        is_cut = is_cut or len(chunk) > room
    return output.decode("utf-8", "replace"), is_cut
