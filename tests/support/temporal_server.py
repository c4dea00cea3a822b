"""Temporal's development server, from a package or installed otherwise, for tests that need a real one."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from temporalio.testing import WorkflowEnvironment

# A thread of the SDK that still returns from its last call when the interpreter ends stops the process with
# "PyGILState_Release: thread state must be current". So the end waits until it has returned.
atexit.register(time.sleep, 0.5)


def find_server() -> str | None:
    """The program `temporal`, where there is one; nothing is downloaded."""
    return shutil.which("temporal", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")


@contextmanager
def run_server(program: str, *options: str) -> Iterator[str]:
    """Run a server in memory within the block; its address on loopback."""

    async def start() -> WorkflowEnvironment:
        return await WorkflowEnvironment.start_local(
            dev_server_existing_path=program,
            dev_server_log_level="error",
            dev_server_extra_args=options,
            dev_server_startup_timeout=timedelta(minutes=2),
        )

    environment = asyncio.run(start())
    try:
        yield environment.client.service_client.config.target_host
    finally:
        asyncio.run(environment.shutdown())
