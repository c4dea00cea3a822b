"""The endpoints about models: what the agent names, what a host offers, and whether a host answers."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import Site, get_site
from toolchart.app.server.testing_api.entries import explain_no_entry, find_entry
from toolchart.app.server.testing_api.forms import DiscoveryForm
from toolchart.app.server.testing_api.tools import get_bench
from toolchart.providers.catalogs import OfferedModel, list_models
from toolchart.providers.entries import can_list_models
from toolchart.specs.secrets import resolve_environment
from toolchart.states.errors import ProviderError, SpecError

ROUTES = RouteGroup()


@ROUTES.endpoint("GET", "/api/models/list", "read")
async def list_named_models(request: Request) -> Response:
    """List the models that the agent names or that were tested, with their scores."""
    site = get_site(request)
    statuses = await asyncio.to_thread(get_bench(site).list_statuses)
    rows = []
    for status in statuses:
        llm, _, model = status["modelId"].partition("/")
        provider = site.engine.spec.llms[llm].provider
        row = {"id": status["modelId"], "name": model, "model": model, "llm": llm, "provider": provider}
        rows.append({**row, "validation": status})
    return JsonAnswer({"models": rows, "count": len(rows)})


@ROUTES.endpoint("POST", "/api/connections/llm/discovery/models", "chat", body=DiscoveryForm)
async def discover_models(request: Request) -> Response:
    """List the models that a host of the agent offers."""
    form = await read_form(request, DiscoveryForm)
    try:
        models = await _ask_host(get_site(request), form)
    except (SpecError, ProviderError) as error:
        details = {"message": str(error), "provider": form.provider}
        raise Refusal(400, "LLM model discovery failed", details=details) from None
    rows = [_describe_model(model) for model in models]
    return JsonAnswer({"provider": form.provider, "count": len(rows), "models": rows})


@ROUTES.endpoint("POST", "/api/models/{llm}/offered", "chat")
async def list_offered(request: Request) -> Response:
    """List the models that the host of an `llms` entry offers; the entry is named, so that nothing of it
    leaves here."""
    llms, name = get_site(request).engine.spec.llms, str(request.path_params["llm"])
    if name not in llms:
        raise Refusal(404, f"the agent has no `llms` entry {name!r}; entries: {', '.join(llms)}")
    models = await _list_models(get_site(request), name)
    return JsonAnswer({"llm": name, "models": to_builtins(models), "count": len(models)})


@ROUTES.endpoint("POST", "/api/connections/llm/test", "chat", body=DiscoveryForm)
async def try_host(request: Request) -> Response:
    """Tell whether a host of the agent answers; one without a list of models is not asked.

    Raises:
        Refusal: 400; it does not, or the configuration is none of the agent's entries.
    """
    form, site = await read_form(request, DiscoveryForm), get_site(request)
    begin_s = time.monotonic()
    try:
        name = _find_named_entry(site, form)
        entry = site.engine.spec.llms[name]
        if can_list_models(entry):
            count = len(await _list_models(site, name))
            method, details = "list_models", {"llm": name, "models": count}
            message = f"The host of {name!r} answers and offers {count} models."
        else:
            site.engine.hosts.get_provider(name)
            method, details = "configuration", {"llm": name}
            message = f"The entry {name!r} can be used. Its host has no list of models, so it was not asked."
    except (SpecError, ProviderError) as error:
        kind = error.kind if isinstance(error, ProviderError) else "configuration"
        raise Refusal(400, str(error), details={"success": False, "errorType": kind}) from None
    return JsonAnswer(
        {
            "success": True,
            "message": message,
            "provider": form.provider,
            "type": "llm",
            "duration": round((time.monotonic() - begin_s) * 1000),
            "method": method,
            "details": details,
        }
    )


async def _ask_host(site: Site, form: DiscoveryForm) -> list[OfferedModel]:
    """The models of the entry that a request describes; no other host is ever asked.

    Raises:
        SpecError: the agent has no such entry, or its host has no list.
        ProviderError: the host cannot be reached.
    """
    return await _list_models(site, _find_named_entry(site, form))


def _find_named_entry(site: Site, form: DiscoveryForm) -> str:
    """The entry that a request describes.

    Raises:
        SpecError: the agent has no such entry.
    """
    llms = site.engine.spec.llms
    name = find_entry(llms, {"provider": form.provider, **form.config})
    if name is None:
        raise SpecError(explain_no_entry("llms", llms))
    return name


async def _list_models(site: Site, name: str) -> list[OfferedModel]:
    """The models that the host of an entry offers.

    Raises:
        SpecError: its host has no list.
        ProviderError: the host cannot be reached.
    """
    spec = site.engine.spec
    resolve = partial(resolve_environment, where=f"llms.{name}")
    folder = Path(spec.source).parent if spec.source else None
    return await asyncio.to_thread(list_models, spec.llms[name], resolve, folder)


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
