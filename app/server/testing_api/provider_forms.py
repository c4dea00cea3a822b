"""The kinds of hosts and document services, with the fields of their entries, for wizards of front ends."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_site
from toolchart.providers.descriptor import HostDescriptor
from toolchart.providers.hosts import HOSTS, find_host
from toolchart.specs.models import AgentSpec, LLMConfig
from toolchart.specs.sections.context import RagService

ROUTES = RouteGroup()

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
    fields = [
        _make_field(
            "base_url",
            "Address",
            "Address of the host.",
            kind="url" if host.default_address else "text",
            required=not (host.default_address or host.list_needs),
            **({"placeholder": host.default_address} if host.default_address else {}),
        )
    ]
    if host.key_variables:
        text = "The key, best as the name of a variable: ${NAME}."
        fields.append(
            _make_field("api_key", "API key", text, kind="secret", env_var_suggestion=host.key_variables[0])
        )
    if host.list_needs:
        text = "Needed for the list of models."
        fields.append(_make_field(host.list_needs, host.list_needs.capitalize(), text))
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
    known = ", ".join(row["id"] for row in kinds[kind])
    raise Refusal(404, f"there is no provider {name!r} of type {kind!r}; providers: {known}")
