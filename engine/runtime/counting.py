"""Counting the tokens of a conversation, as the next request shows it."""

from __future__ import annotations

from toolchart.engine.runtime.flows.port import DriverPort
from toolchart.states.core.context_window import estimate_request
from toolchart.states.effects import CountTokens
from toolchart.states.errors import ProviderError
from toolchart.states.flows.compaction import build_counted_request
from toolchart.states.flows.events import Counted
from toolchart.states.ports import CountingProvider


async def count_tokens(driver: DriverPort, effect: CountTokens) -> None:
    """Count by the host where its entry says so, else by an estimate, and apply the event.

    A host that does not answer fails nothing: the estimate takes its place, and the event says why.
    """
    request, messages = build_counted_request(driver.snapshot)
    provider, tokens, problem = driver.dependencies.provider, None, ""
    if isinstance(provider, CountingProvider):
        try:
            tokens = await provider.count_tokens(request)
        except ProviderError as error:
            problem = f"{error.kind}: {error.message}"
    event = Counted(
        at=driver.dependencies.clock.now(),
        effect=effect.id,
        tokens=estimate_request(request) if tokens is None else tokens,
        messages=messages,
        source="estimate" if tokens is None else "host",
        problem=problem,
    )
    driver.apply_event(event)
