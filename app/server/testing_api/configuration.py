"""The endpoints about the configuration: read it, check another one, and compare it with its file.

The agent of a server stays the one that it was started with, because every conversation records it. So a
request cannot change it, and `reload` only says whether its file has changed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_json
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_site
from toolchart.app.server.testing_api.collections import ServiceListing, describe_services, list_services
from toolchart.providers.descriptor import HostDescriptor
from toolchart.providers.entries import find_api_key
from toolchart.providers.hosts import HOSTS, find_host
from toolchart.specs.loader import load_spec
from toolchart.specs.models import AgentSpec, LLMConfig
from toolchart.specs.secrets import find_references, resolve_environment
from toolchart.specs.sections.context import RagService
from toolchart.specs.sections.preparation import DEFAULT_TOPIC_PROMPT
from toolchart.states.errors import SpecError

ROUTES = RouteGroup()


@ROUTES.endpoint("GET", "/api/config/export", "read")
async def export_config(request: Request) -> Response:
    """Show the configuration of the agent as the log has it: references such as `${KEY}`, and no key."""
    return JsonAnswer(get_site(request).engine.spec.to_public_dict())


@ROUTES.endpoint("POST", "/api/config/validate", "chat")
async def validate_config(request: Request) -> Response:
    """Tell whether a configuration, which is the body, could be an agent.

    It is only read: no variable, file or host of it is used.
    """
    config = await read_json(request)
    if not isinstance(config, dict):
        text = "the configuration is a JSON object with the keys llms and responses"
        return JsonAnswer({"valid": False, "errors": [text], "warnings": []})
    try:
        spec = await asyncio.to_thread(load_spec, config)
    except SpecError as error:
        return JsonAnswer({"valid": False, "errors": [str(error)], "warnings": []})
    return JsonAnswer({"valid": True, "errors": [], "warnings": list(spec.warnings)})


@ROUTES.endpoint("POST", "/api/config/reload", "chat")
async def reload_config(request: Request) -> Response:
    """Tell whether a configuration, which is the body, is what is served; with `{}` whether the agent's
    file is.

    Raises:
        Refusal: 409; it is another one, so that the server must be started again with it.
    """
    spec, config = get_site(request).engine.spec, await read_json(request)
    if config:
        return await asyncio.to_thread(_compare_config, spec, config)
    if spec.source is None:
        return _answer_unchanged("the agent has no file that could change")
    try:
        stored_spec = await asyncio.to_thread(load_spec, Path(spec.source))
    except SpecError:
        raise _refuse_change(
            "the file of the agent has changed and cannot be used; the agent is served as it was"
        ) from None
    if stored_spec.model_dump() != spec.model_dump():
        raise _refuse_change(
            "the file of the agent has changed; start `toolchart serve` again to serve what it says now"
        )
    return _answer_unchanged("the agent is what its file says")


def _compare_config(spec: AgentSpec, config: Any) -> Response:
    """Compare a configuration of a request with the one that is served, as it is exported.

    Raises:
        Refusal: 409; it is another one, or none.
    """
    exported = spec.to_public_dict()
    if config == exported:
        return _answer_unchanged("this configuration is served already")
    try:
        sent = load_spec(config) if isinstance(config, dict) else None
    except SpecError as error:
        raise _refuse_change(
            f"Nothing was changed, because this configuration is not valid: {error}"
        ) from None
    # Pages leave out what they do not know, or write a default: what counts is what an agent reads.
    if sent is not None and sent.model_dump() == load_spec(exported).model_dump():
        return _answer_unchanged("this configuration is served already")
    raise _refuse_change(
        "Nothing was changed: this server serves the configuration of its start, because every conversation "
        "records it. Export this one, put it in place of the agent's file and start `toolchart serve` again."
    )


def _answer_unchanged(message: str) -> Response:
    return JsonAnswer({"success": True, "message": message})


def _refuse_change(message: str) -> Refusal:
    return Refusal(409, message, details={"success": False})


@ROUTES.endpoint("GET", "/api/connections/env-vars", "read")
async def list_variables(request: Request) -> Response:
    """List the variables that the agent refers to, and whether they are set; never a value."""
    spec = get_site(request).engine.spec
    places: dict[str, list[str]] = {}
    for name, place in _find_variables(spec):
        places.setdefault(name, []).append(place)
    rows = [
        {"name": name, "exists": bool(os.environ.get(name)), "used_by": sorted(set(used_by))}
        for name, used_by in sorted(places.items())
    ]
    return JsonAnswer({"variables": rows, "count": len(rows)})


def _find_variables(spec: AgentSpec) -> Iterator[tuple[str, str]]:
    """Each variable with the key path of its place: those that are written, and those that hosts look for."""
    yield from _find_written(spec.to_public_dict(), "")
    for name, entry in spec.llms.items():
        if not entry.api_key:
            for variable in find_host(entry.provider).own_row.key_variables:
                yield variable, f"llms.{name}"


def _find_written(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _find_written(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_written(item, f"{place}[{index}]")
    elif isinstance(value, str):
        for name, _ in find_references(value):
            yield name, place


# -- kinds of connections ------------------------------------------------------------------------


_DEFAULT_SERVICE = "chromadb-wrapper"
"""The kind of service that is offered where the agent has none; the word changes nothing."""


def list_kinds(spec: AgentSpec) -> dict[str, list[dict[str, Any]]]:
    """The kinds of entries that a wizard offers: every host that is contacted, and those of the agent."""
    hosts = [row for row in HOSTS.known_rows if row.needs_network]
    hosts += [find_host(entry.provider) for entry in spec.llms.values()]
    hosts = list({row.name: row for row in hosts}.values())
    words = [service.provider for service in spec.rag_services.values() if service.provider]
    kinds = list(dict.fromkeys(words))
    return {
        "llm": [_describe_kind(_describe_host(host)) for host in hosts],
        "rag": [_describe_kind(_describe_service(kind)) for kind in kinds or [_DEFAULT_SERVICE]],
    }


def _describe_kind(schema: dict[str, Any]) -> dict[str, Any]:
    names = {"display_name": schema["display_name"], "description": schema["description"]}
    return {"id": schema["provider"], **names, "schema": schema}


def _describe_host(host: HostDescriptor) -> dict[str, Any]:
    return {
        "provider": host.name,
        "display_name": host.summary,
        "description": f"An entry of `llms` with `provider: {host.name}`.",
        "fields": _list_host_fields(host) if host.needs_network else [],
    }


def _list_host_fields(host: HostDescriptor) -> list[dict[str, Any]]:
    """The fields of an entry. A default is what an entry without the key has, since it is written there."""
    address = host.own_row.base_url
    fields = [
        _make_field(
            "base_url",
            "Address",
            "Address of the host.",
            kind="url" if address else "text",
            required=not address,
            **({"placeholder": address} if address else {}),
        )
    ]
    if host.own_row.key_variables:
        text = "The key, best as the name of a variable: ${NAME}."
        fields.append(
            _make_field(
                "api_key", "API key", text, kind="secret", env_var_suggestion=host.own_row.key_variables[0]
            )
        )
    timeout_s = LLMConfig.model_fields["timeout_s"].default
    return [
        *fields,
        _make_timeout_field(timeout_s),
        _make_number_field(
            "temperature", "Temperature", "Of handlers that set none.", min=0, max=2, step=0.1
        ),
        _make_number_field(
            "maxTokens", "Tokens", "Most tokens of a reply of handlers that set no limit.", min=1
        ),
        _make_number_field("retries", "Retries", "How often a failed call is tried again.", min=0),
    ]


def _describe_service(kind: str) -> dict[str, Any]:
    defaults = {
        name: RagService.model_fields[name].default
        for name in ("match_threshold", "partial_threshold", "max_distance", "timeout_s")
    }
    distances = {
        "match_threshold": ("Match below", "Distance below which a passage is a match."),
        "partial_threshold": ("Partial match below", "Distance below which it is a partial match."),
        "max_distance": ("Dropped above", "Distance above which a passage is dropped."),
    }
    return {
        "provider": kind,
        "display_name": "Document service",
        "description": "An entry of `rag_services`: a service that searches collections of documents.",
        "fields": [
            _make_field(
                "url",
                "Address",
                "Address of the service.",
                required=True,
                placeholder="http://localhost:5101",
            ),
            _make_field("collection", "Collection", "The only collection that is searched; empty for all."),
            *(
                _make_number_field(name, label, text, default=defaults[name], min=0, max=2, step=0.01)
                for name, (label, text) in distances.items()
            ),
            _make_timeout_field(defaults["timeout_s"]),
        ],
    }


def _make_timeout_field(default_s: float) -> dict[str, Any]:
    text = "Milliseconds for one request."
    return _make_number_field("timeout", "Timeout", text, default=int(default_s * 1000), min=1000, step=1000)


def _make_number_field(name: str, label: str, description: str, **more: Any) -> dict[str, Any]:
    return _make_field(name, label, description, kind="number", **more)


def _make_field(
    name: str, label: str, description: str, *, kind: str = "text", required: bool = False, **more: Any
) -> dict[str, Any]:
    """A field of a form. One that is required has a text as its value: pages check it as one."""
    row = {"name": name, "type": kind, "label": label, "description": description, "required": required}
    return {**row, **more}


@ROUTES.endpoint("GET", "/api/connections/providers", "read")
async def list_providers(request: Request) -> Response:
    """List the kinds of hosts and document services."""
    return JsonAnswer(list_kinds(get_site(request).engine.spec))


@ROUTES.endpoint("GET", "/api/connections/providers/{provider}/schema", "read")
async def describe_provider(request: Request) -> Response:
    """The fields of an entry of one kind (`type=llm` or `type=rag`)."""
    kind = request.query_params.get("type", "llm")
    kinds, name = list_kinds(get_site(request).engine.spec), str(request.path_params["provider"])
    if kind not in kinds:
        raise Refusal(400, f"unknown type {kind!r}; allowed: {', '.join(kinds)}")
    for row in kinds[kind]:
        if row["id"] == name:
            return JsonAnswer(row["schema"])
    provider_names = ", ".join(row["id"] for row in kinds[kind])
    raise Refusal(404, f"there is no provider {name!r} of type {kind!r}; providers: {provider_names}")


# -- what a front end loads ----------------------------------------------------------------------


@ROUTES.endpoint("GET", "/api/ui-config", "read")
async def describe_interface(request: Request) -> Response:
    """List what a front end loads at its start; never keys. Document services are asked, model hosts are
    not."""
    spec = get_site(request).engine.spec
    listings = await list_services(spec)
    hosts = {name: _describe_entry(name, entry) for name, entry in spec.llms.items()}
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
                "rag_services": {listing.name: _describe_listing(listing) for listing in listings},
            },
            "hasWorkingProviders": has_working_hosts,
            "hasResponseHandlers": bool(spec.responses),
            "chatReady": has_working_hosts and bool(spec.responses),
        }
    )


def _find_default_handler(spec: AgentSpec) -> int:
    """The number of the first handler that always matches; -1 for none."""
    return next((index for index, handler in enumerate(spec.responses) if not handler.match), -1)


def _describe_entry(name: str, entry: LLMConfig) -> dict[str, Any]:
    if is_configured(entry):
        return {"connected": True, "status": "configured"}
    error = f"there is no API key for the entry {name!r}, or a variable of it is not set"
    return {"connected": False, "status": "not configured", "error": error}


def _describe_listing(listing: ServiceListing) -> dict[str, Any]:
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
    return bool(key) or not find_host(config.provider).own_row.key_variables
