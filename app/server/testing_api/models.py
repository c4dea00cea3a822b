"""The endpoints about models: what the agent names, what a host offers, and whether a host answers."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.site import Site, get_site
from toolchart.app.server.testing_api.bench import find_entry
from toolchart.app.server.testing_api.forms import DiscoveryForm
from toolchart.app.server.testing_api.tools import get_bench
from toolchart.providers.hosts import find_host
from toolchart.providers.model_catalog import OfferedModel, list_models
from toolchart.specs.secrets import resolve_environment
from toolchart.states.errors import ProviderError, SpecError


async def list_named_models(request: Request) -> Response:
    """The models that the agent names or that were tested, with their scores."""
    site = get_site(request)
    statuses = await asyncio.to_thread(get_bench(site).list_statuses)
    rows = []
    for status in statuses:
        llm, _, model = status["modelId"].partition("/")
        provider = site.engine.spec.llms[llm].provider
        row = {"id": status["modelId"], "name": model, "model": model, "llm": llm, "provider": provider}
        rows.append({**row, "validation": status})
    return JsonAnswer({"models": rows, "count": len(rows)})


async def discover_models(request: Request) -> Response:
    """The models that a host of the agent offers."""
    form = await read_form(request, DiscoveryForm)
    try:
        models = await _ask_host(get_site(request), form)
    except (SpecError, ProviderError) as error:
        details = {"message": str(error), "provider": form.provider}
        raise Refusal(400, "LLM model discovery failed", details=details) from None
    rows = [_describe_model(model) for model in models]
    return JsonAnswer({"provider": form.provider, "count": len(rows), "models": rows})


async def list_offered(request: Request) -> Response:
    """The models that the host of one entry offers; the entry is named, so that nothing of it leaves here."""
    llms, name = get_site(request).engine.spec.llms, str(request.path_params["llm"])
    if name not in llms:
        raise Refusal(404, f"the agent has no `llms` entry {name!r}; entries: {', '.join(llms)}")
    resolve = partial(resolve_environment, where=f"llms.{name}")
    source = get_site(request).engine.spec.source
    folder = Path(source).parent if source else None
    models = await asyncio.to_thread(list_models, llms[name], resolve, folder)
    return JsonAnswer({"llm": name, "models": to_builtins(models), "count": len(models)})


async def try_host(request: Request) -> Response:
    """Whether a host of the agent answers."""
    form = await read_form(request, DiscoveryForm)
    try:
        models = await _ask_host(get_site(request), form)
    except (SpecError, ProviderError) as error:
        return JsonAnswer({"success": False, "provider": form.provider, "error": str(error)})
    return JsonAnswer({"success": True, "provider": form.provider, "models": len(models)})


async def _ask_host(site: Site, form: DiscoveryForm) -> list[OfferedModel]:
    """The models of the entry that a request describes; no other host is ever asked.

    Raises:
        SpecError: the agent has no such entry, or its host has no list.
        ProviderError: the host cannot be reached.
    """
    llms = site.engine.spec.llms
    name = find_entry(llms, {"provider": form.provider, **form.config})
    if name is None:
        known = ", ".join(f"{name} ({entry.provider})" for name, entry in llms.items())
        raise SpecError("this host is no entry of the agent's `llms`", hint=f"entries: {known}")
    resolve = partial(resolve_environment, where=f"llms.{name}")
    source = site.engine.spec.source
    return await asyncio.to_thread(list_models, llms[name], resolve, Path(source).parent if source else None)


def _describe_model(model: OfferedModel) -> dict[str, Any]:
    names = {"function-calling": model.tools, "vision": model.vision, "thinking": model.thinking}
    return {
        "id": model.name,
        "name": model.name,
        "type": "chat",
        "capabilities": ["chat", *(name for name, is_there in names.items() if is_there)],
        "maxTokens": model.context,
        "description": "",
    }


async def list_hosts(request: Request) -> Response:
    """The hosts of the agent, without their keys."""
    llms = get_site(request).engine.spec.llms
    rows = [
        {
            "name": name,
            "provider": entry.provider,
            "model": entry.model,
            "has_models": find_host(entry.provider).can_list_models(entry.extra_options()),
        }
        for name, entry in llms.items()
    ]
    return JsonAnswer({"providers": rows, "count": len(rows)})


ROUTES = RouteGroup(
    name="models",
    endpoints=(
        Endpoint(
            method="GET",
            path="/api/models/list",
            role="read",
            answer=list_named_models,
            summary="List the models that the agent names or that were tested.",
        ),
        Endpoint(
            method="POST",
            path="/api/models/{llm}/offered",
            role="chat",
            answer=list_offered,
            summary="Ask the host of an `llms` entry which models it offers.",
        ),
        Endpoint(
            method="POST",
            path="/api/connections/llm/discovery/models",
            role="chat",
            answer=discover_models,
            body=DiscoveryForm,
            summary="List the models that a host of the agent offers.",
        ),
        Endpoint(
            method="POST",
            path="/api/connections/llm/test",
            role="chat",
            answer=try_host,
            body=DiscoveryForm,
            summary="Tell whether a host of the agent answers.",
        ),
        Endpoint(
            method="GET",
            path="/api/connections/providers",
            role="read",
            answer=list_hosts,
            summary="List the hosts of the agent.",
        ),
    ),
)
