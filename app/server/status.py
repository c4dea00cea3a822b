"""`/livez`, `/readyz`, `/health`: whether the process answers, and takes on turns. They need no token."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
from starlette.requests import Request

from toolchart import __version__
from toolchart.app.server.access.rates import STOPPING_S
from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import Site, get_site
from toolchart.states.errors import DurableHostUnavailable, LogUnavailable
from toolchart.states.ports import Store

ROUTES = RouteGroup()


@ROUTES.endpoint("GET", "/livez", None)
async def report_life(request: Request) -> JsonAnswer:
    """Tell that the process answers, also while it stops. Where this does not answer, start it again."""
    return JsonAnswer({"status": "ok"})


@ROUTES.endpoint("GET", "/readyz", None)
async def report_readiness(request: Request) -> JsonAnswer:
    """Tell whether the server takes on turns and its log can be used (else 503, and why). With `--durable` a
    worker must live that runs them."""
    return _answer_state(await _find_state(get_site(request)), {})


@ROUTES.endpoint("GET", "/health", None)
async def report_health(request: Request) -> JsonAnswer:
    """As `/readyz`, with what front ends show: the version, and the names of hosts and document services."""
    site = get_site(request)
    spec = site.engine.spec
    names = {"ai_providers": list(spec.llms), "rag_providers": list(spec.rag_services)}
    about = {"version": __version__, "config_loaded": True, **names}
    return _answer_state(await _find_state(site), about)


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a server takes on turns."""

    status: str = "ok"
    problem: str = ""
    """What whoever runs the server can do something about."""


async def _find_state(site: Site) -> _State:
    if site.is_stopping:
        return _State(status="stopping")
    problem, log_s = "", site.limits.log_s
    try:
        await asyncio.wait_for(asyncio.to_thread(_look_at_log, site.engine.store), log_s)
    except TimeoutError:
        problem = f"the log has not answered within {log_s:g} s"
    except LogUnavailable:  # its text has the path of the log, no business of whoever has no token
        problem = "the log cannot be read, or was replaced or deleted while the server had it open"
    if problem:
        return _State(status="log unavailable", problem=f"{problem}: see the server's messages")
    return await _find_worker_state(site)


async def _find_worker_state(site: Site) -> _State:
    """Whether somebody runs the turns that this server takes on."""
    if site.find_workers is None:
        return _State()
    try:
        workers = await asyncio.wait_for(asyncio.to_thread(site.find_workers), site.limits.log_s)
    except (TimeoutError, DurableHostUnavailable):
        return _State(status="queue unavailable", problem="the queue of the workers cannot be used")
    if workers == "ready":
        return _State()
    problem = "no worker runs" if workers == "none" else "the workers that run have another chart"
    return _State(status="no worker", problem=f"{problem}: turns wait until one of this agent's chart begins")


def _answer_state(state: _State, about: dict[str, Any]) -> JsonAnswer:
    answer = {"status": state.status, **about}
    if state.status == "ok":
        return JsonAnswer(answer)
    if state.problem:
        return JsonAnswer({**answer, "problem": state.problem}, 503)
    return JsonAnswer(answer, 503, headers={"Retry-After": str(math.ceil(STOPPING_S))})


def _look_at_log(store: Store) -> None:
    """Read something; there need be no such conversation.

    Raises:
        LogUnavailable: the log cannot be read, or its files were replaced.
    """
    store.read_last_line("health")
    store.check_place()
