"""Engines for tests: agents of one turn, on the hosts and the log of the served agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from toolchart.app.server.site import Site
from toolchart.engine.runtime.engine import Engine
from toolchart.specs.models import AgentSpec


@asynccontextmanager
async def open_side_engine(
    site: Site, spec: AgentSpec, llms: Iterable[str], *, functions: Sequence[Any], approver: Any = None
) -> AsyncIterator[Engine]:
    """An engine on the served log within the block.

    Args:
        llms: entries whose adapters are those of the served agent; they stay open.

    Raises:
        SpecError: a host cannot be used: a variable is missing, for instance.
    """
    served, names = site.engine, tuple(llms)
    providers = {name: served.hosts.get_plain_provider(name) for name in names}
    engine = await asyncio.to_thread(
        lambda: Engine(spec, log=served.store, functions=functions, providers=providers, approver=approver)
    )
    engine.watch_turns(site.figures)
    try:
        yield engine
    finally:
        for name in names:
            engine.hosts.providers.pop(name, None)
        await engine.aclose()
