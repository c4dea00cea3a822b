"""What the pages of existing front ends load at their start: hosts, collections, whether a chat can begin."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_site
from toolchart.app.server.testing_api.collections import ServiceListing, describe_services, list_services
from toolchart.providers.entries import find_api_key
from toolchart.providers.hosts import find_host
from toolchart.specs.models import AgentSpec, LLMConfig
from toolchart.specs.secrets import resolve_environment
from toolchart.specs.sections.preparation import DEFAULT_TOPIC_PROMPT
from toolchart.states.errors import SpecError

ROUTES = RouteGroup()


@ROUTES.endpoint("GET", "/api/ui-config", "read")
async def describe_interface(request: Request) -> Response:
    """List what a front end loads at its start; never keys. Document services are asked, model hosts are
    not."""
    spec = get_site(request).engine.spec
    listings = await list_services(spec)
    hosts = {name: _describe_host(name, entry) for name, entry in spec.llms.items()}
    has_working_hosts = any(row["connected"] for row in hosts.values())
    return JsonAnswer(
        {
            **describe_services(listings),
            # Pages that choose models themselves are not supported: the handler names its model.
            "modelSelection": {"enabled": False, "providers": {}},
            "llms": {name: {"provider": entry.provider} for name, entry in spec.llms.items()},
            "defaultHandlerIndex": _find_default_handler(spec),
            "defaultTopicPrompt": (spec.topic.prompt if spec.topic else None) or DEFAULT_TOPIC_PROMPT,
            "hasConfig": bool(spec.llms),
            "isZeroConfig": not spec.llms,
            "providerStatus": {
                "llms": hosts,
                "rag_services": {listing.name: _describe_service(listing) for listing in listings},
            },
            "hasWorkingProviders": has_working_hosts,
            "hasResponseHandlers": bool(spec.responses),
            "chatReady": has_working_hosts and bool(spec.responses),
        }
    )


def _find_default_handler(spec: AgentSpec) -> int:
    """The number of the first handler that always matches; -1 for none."""
    return next((index for index, handler in enumerate(spec.responses) if not handler.match), -1)


def _describe_host(name: str, entry: LLMConfig) -> dict[str, Any]:
    if is_configured(entry):
        return {"connected": True, "status": "configured"}
    error = f"there is no API key for the entry {name!r}, or a variable of it is not set"
    return {"connected": False, "status": "not configured", "error": error}


def _describe_service(listing: ServiceListing) -> dict[str, Any]:
    if listing.problem:
        return {"connected": False, "status": "disconnected", "details": {}, "error": listing.problem}
    return {"connected": True, "status": "connected", "details": {}}


def is_configured(config: LLMConfig) -> bool:
    """Whether an entry has the key that its host wants, as far as can be said without asking the host."""
    if config.base_url and not config.api_key:
        return True
    try:
        key = find_api_key(config, partial(resolve_environment, where="api_key"))
    except SpecError:
        return False
    return bool(key) or not find_host(config.provider).key_variables
