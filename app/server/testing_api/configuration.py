"""The endpoints about the configuration: read it, check another one, and compare it with its file.

The agent of a server stays the one that it was started with, because every conversation records it. So a
request cannot change it, and `reload` only says whether its file has changed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.site import get_site
from toolchart.app.server.testing_api.forms import ConfigForm
from toolchart.providers.hosts import find_host
from toolchart.specs.loader import load_spec
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import find_references
from toolchart.states.errors import SpecError


async def export_config(request: Request) -> Response:
    """The configuration of the agent as the log has it: references such as `${KEY}`, and no key."""
    spec = get_site(request).engine.spec
    return JsonAnswer({"config": spec.to_public_dict(), "name": spec.name})


async def validate_config(request: Request) -> Response:
    """Whether a configuration could be an agent. It is only read: no variable, file or host of it is used."""
    form = await read_form(request, ConfigForm)
    if not isinstance(form.config, dict):
        raise Refusal(400, "Missing required parameters: config")
    try:
        spec = await asyncio.to_thread(load_spec, form.config)
    except SpecError as error:
        return JsonAnswer({"valid": False, "errors": describe_problem(error), "warnings": []})
    return JsonAnswer({"valid": True, "errors": [], "warnings": list(spec.warnings)})


def describe_problem(error: SpecError) -> list[dict[str, Any]]:
    """The problems of a configuration; the hint of the first names the others."""
    return [{"message": error.message, "path": error.path, "line": error.line, "hint": error.hint}]


async def reload_config(request: Request) -> Response:
    """Whether the file of the agent is still what is served.

    Raises:
        Refusal: 409; it has changed, so that the server must be started again.
    """
    spec = get_site(request).engine.spec
    if spec.source is None:
        return _answer_unchanged("the agent has no file that could change")
    try:
        stored = await asyncio.to_thread(load_spec, Path(spec.source))
    except SpecError as error:
        text = "the file of the agent has changed and cannot be used; the agent is served as it was"
        raise Refusal(409, text, details=_describe_change(describe_problem(error))) from None
    if not _is_same_agent(stored, spec):
        text = "the file of the agent has changed; start `toolchart serve` again to serve what it says now"
        raise Refusal(409, text, details=_describe_change([]))
    return _answer_unchanged("the agent is what its file says")


def _answer_unchanged(message: str) -> Response:
    return JsonAnswer({"success": True, "changed": False, "message": message})


def _describe_change(errors: list[dict[str, Any]]) -> dict[str, Any]:
    return {"success": False, "changed": True, "valid": not errors, "errors": errors}


def _is_same_agent(one: AgentSpec, other: AgentSpec) -> bool:
    return one.model_dump() == other.model_dump()


async def list_variables(request: Request) -> Response:
    """The variables of the environment that the agent refers to, and whether they are set; never a value."""
    spec = get_site(request).engine.spec
    places: dict[str, list[str]] = {}
    for name, place in _find_variables(spec):
        places.setdefault(name, []).append(place)
    rows = [
        {"name": name, "is_set": bool(os.environ.get(name)), "used_by": sorted(set(used_by))}
        for name, used_by in sorted(places.items())
    ]
    return JsonAnswer({"variables": rows, "count": len(rows)})


def _find_variables(spec: AgentSpec) -> Iterator[tuple[str, str]]:
    """Each variable with the key path of its place: those that are written, and those that hosts look for."""
    yield from _find_written(spec.to_public_dict(), "")
    for name, entry in spec.llms.items():
        if not entry.api_key:
            for variable in find_host(entry.provider).key_variables or ():
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


ROUTES = RouteGroup(
    name="configuration",
    endpoints=(
        Endpoint(
            method="GET",
            path="/api/config/export",
            role="read",
            answer=export_config,
            summary="The configuration of the agent, without keys.",
        ),
        Endpoint(
            method="POST",
            path="/api/config/validate",
            role="chat",
            answer=validate_config,
            body=ConfigForm,
            summary="Tell whether a configuration could be an agent; nothing of it is used.",
        ),
        Endpoint(
            method="POST",
            path="/api/config/reload",
            role="chat",
            answer=reload_config,
            summary="Tell whether the agent's file has changed since the start.",
        ),
        Endpoint(
            method="GET",
            path="/api/connections/env-vars",
            role="read",
            answer=list_variables,
            summary="List the variables that the agent refers to, and whether they are set.",
        ),
    ),
)
