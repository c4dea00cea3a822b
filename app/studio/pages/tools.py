"""The page of tools: the test bench, and a card with a form for each tool."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import Site, get_access, get_site
from toolchart.app.server.testing_api.tools import describe_tool, get_bench
from toolchart.app.studio.pages.layout import show_page
from toolchart.engine.reading.figures import SeenLimits, find_seen_limits
from toolchart.providers.entries import can_list_models
from toolchart.providers.prices import PriceTable, load_price_table
from toolchart.providers.transport.limits import describe_rate_limits
from toolchart.specs.models import LLMConfig
from toolchart.specs.sections.context_limits import find_context_limit

ROUTES = RouteGroup()

EXAMPLES = ("What is 17 * (23 + 4)?", "What time is it in Europe/Prague?", "Make a UUID.", "Echo: hello")
"""The four example questions of the test bench."""


@ROUTES.page("/tools")
async def show_tools(request: Request) -> Response:
    """Show the test bench and the tools."""
    site = get_site(request)
    statuses = await asyncio.to_thread(get_bench(site).list_statuses)
    return show_page(
        request,
        "tools.html",
        "/tools",
        tools=[describe_tool(tool) for tool in site.engine.tools.registry],
        statuses=statuses,
        llms=list(site.engine.spec.llms),
        named_llms={status["modelId"].partition("/")[0] for status in statuses},
        examples=EXAMPLES,
    )


# -- chat ----------------------------------------------------------------------------------------


@ROUTES.page("/chat")
@ROUTES.page("/chat/{conversation}")
async def show_chat(request: Request) -> Response:
    """Show a chat: a new one, or the one of the path."""
    conversation = str(request.path_params.get("conversation", ""))
    if conversation:
        get_site(request).require_conversation(get_access(request), conversation)
    return show_page(request, "chat.html", "/chat", conversation=conversation)


# -- models --------------------------------------------------------------------------------------


@ROUTES.page("/models")
async def show_models(request: Request) -> Response:
    """Show the hosts of the agent and their models."""
    site = get_site(request)
    values = await asyncio.to_thread(read_hosts, site)
    return show_page(request, "models.html", "/models", max_looked_at=site.limits.hosts_in, **values)


def read_hosts(site: Site) -> dict[str, Any]:
    """Each `llms` entry with its models, and the currency of the prices."""
    spec, store = site.engine.spec, site.engine.store
    prices = load_price_table(spec.prices, Path(spec.source).parent if spec.source else None)
    seen = find_seen_limits(store, islice(store.iterate_newest_first(), site.limits.hosts_in))
    statuses = get_bench(site).list_statuses()
    rows = []
    for name, entry in spec.llms.items():
        own = [status for status in statuses if status["modelId"].partition("/")[0] == name]
        models = [_describe_model(status, entry, prices) for status in own]
        rows.append({**_describe_host(name, entry, seen.get(name)), "models": models})
    return {"hosts": rows, "currency": prices.currency if prices is not None else None}


def _describe_host(name: str, entry: LLMConfig, seen: SeenLimits | None) -> dict[str, Any]:
    return {
        "name": name,
        "provider": entry.provider,
        "address": clean_address(entry.base_url or ""),
        "timeout_s": entry.timeout_s,
        "limits": {
            "requests a minute": entry.requests_per_minute,
            "tokens a minute": entry.tokens_per_minute,
            "at the same time": entry.concurrent,
        },
        "has_list": can_list_models(entry),
        "seen": describe_rate_limits(seen.limits) if seen is not None else "",
        "seen_at": seen.at if seen is not None else "",
    }


def _describe_model(status: dict[str, Any], entry: LLMConfig, prices: PriceTable | None) -> dict[str, Any]:
    model = status["modelId"].partition("/")[2]
    return {
        "name": model,
        "status": status,
        "context": find_context_limit(entry, model),
        "price": prices.find_price(model) if prices is not None else None,
    }


def clean_address(address: str) -> str:
    """An address as the spec writes it, without what may be a secret: user, password, query and fragment.

    >>> clean_address("https://me:secret@host.example:8080/v1?key=1")
    'https://host.example:8080/v1'
    """
    if address.startswith("${") and address.endswith("}"):
        return address
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
