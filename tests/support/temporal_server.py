"""Temporal's development server, from a package or installed otherwise, for tests that need a real one."""

from __future__ import annotations

import asyncio
import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.testing import WorkflowEnvironment


def find_server() -> str | None:
    """The program `temporal`, where there is one; nothing is downloaded."""
    return shutil.which("temporal", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")


@contextmanager
def run_server(program: str, *options: str) -> Iterator[str]:
    """Run a server in memory within the block; its address on loopback."""

    async def start() -> WorkflowEnvironment:
        return await WorkflowEnvironment.start_local(
            dev_server_existing_path=program, dev_server_log_level="error", dev_server_extra_args=options
        )

    environment = asyncio.run(start())
    try:
        yield environment.client.service_client.config.target_host
    finally:
        asyncio.run(environment.shutdown())
