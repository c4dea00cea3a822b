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
from toolchart.app.server.bodies import read_json
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_site
from toolchart.providers.hosts import find_host
from toolchart.specs.loader import load_spec
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import find_references
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
        stored = await asyncio.to_thread(load_spec, Path(spec.source))
    except SpecError:
        raise _refuse_change(
            "the file of the agent has changed and cannot be used; the agent is served as it was"
        ) from None
    if stored.model_dump() != spec.model_dump():
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
