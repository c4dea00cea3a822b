"""Puts the application together: the groups of routes, the guard around them, and what runs beside them.

To add a protocol, write a module with a `RouteGroup` and add it to `ROUTE_GROUPS`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from toolchart import __version__
from toolchart.app.server import metrics, status
from toolchart.app.server.access.guard import Guard
from toolchart.app.server.ag_ui import routes as ag_ui_routes
from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.charts import routes as charts
from toolchart.app.server.conversations import approvals, copies, deletion, exports
from toolchart.app.server.conversations import routes as conversations
from toolchart.app.server.endpoints import Endpoint, RouteGroup, make_route
from toolchart.app.server.mcp_server import routes as mcp_routes
from toolchart.app.server.openai_api import response_routes
from toolchart.app.server.openai_api import routes as openai_routes
from toolchart.app.server.site import Site
from toolchart.app.server.testing_api import chat, collections, configuration, context_tests, models, tools
from toolchart.app.studio import static_files
from toolchart.app.studio.errors import answer_error
from toolchart.app.studio.pages import chart_editor, comparison, layout, run, sign_in
from toolchart.app.studio.pages import charts as charts_page
from toolchart.app.studio.pages import conversations as conversations_page
from toolchart.app.studio.pages import tools as tools_page
from toolchart.states.errors import ToolchartError

# -- the description as OpenAPI -------------------------------------------------------------------------

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")

_ERROR = {
    "description": "Why it was refused.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error", "message", "request_id"],
                "properties": {"error": {}, "message": {}, "request_id": {"type": "string"}},
            }
        }
    },
}


def build_openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The document (OpenAPI 3.1) of the endpoints that are for programs."""
    rows = [endpoint for endpoint in endpoints if endpoint.in_openapi]
    forms = list(dict.fromkeys(endpoint.body for endpoint in rows if endpoint.body is not None))
    # Forms of different protocols may have one name; their components then have their modules' names.
    schemas, components = msgspec.json.schema_components(forms, ref_template="#/components/schemas/{name}")
    references = dict(zip(forms, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in rows:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _describe_endpoint(endpoint, references)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Toolchart", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_endpoint(endpoint: Endpoint, references: Mapping[type[msgspec.Struct], Any]) -> dict[str, Any]:
    description = f"Needs the role `{endpoint.role}`." if endpoint.role else "Needs no token."
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "description": description,
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").strip("_"),
        "security": [{"token": []}] if endpoint.role else [],
        "responses": {"200": {"description": "Done."}, "default": _ERROR},
    }
    names = _PARAMETER.findall(endpoint.path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if endpoint.body is not None:
        content = {"application/json": {"schema": references[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


# -- the application ------------------------------------------------------------------------------------


_API = RouteGroup()


@_API.endpoint("GET", "/openapi.json", "read")
async def describe_api(request: Request) -> JsonAnswer:
    """Show this document."""
    return JsonAnswer(build_openapi(list_endpoints()))


ROUTE_GROUPS: tuple[RouteGroup, ...] = (
    status.ROUTES,
    metrics.ROUTES,
    _API,
    conversations.ROUTES,
    copies.ROUTES,
    exports.ROUTES,
    deletion.ROUTES,
    approvals.ROUTES,
    charts.ROUTES,
    tools.ROUTES,
    models.ROUTES,
    configuration.ROUTES,
    context_tests.ROUTES,
    collections.ROUTES,
    chat.ROUTES,
    static_files.ROUTES,
    sign_in.ROUTES,
    layout.ROUTES,
    conversations_page.ROUTES,
    run.ROUTES,
    comparison.ROUTES,
    tools_page.ROUTES,
    chart_editor.ROUTES,
    charts_page.ROUTES,
    openai_routes.ROUTES,
    response_routes.ROUTES,
    mcp_routes.ROUTES,
    ag_ui_routes.ROUTES,
)
"""Every group of routes, in the order in which their paths are tried."""


def build_application(site: Site, groups: Sequence[RouteGroup] = ROUTE_GROUPS) -> Starlette:
    """The ASGI application that serves a site. It closes the engine when it ends."""

    @asynccontextmanager
    async def run_groups(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(site.engine)
            for group in groups:
                if group.run is not None:
                    await stack.enter_async_context(group.run(site))
            yield

    application = Starlette(
        routes=[make_route(endpoint) for group in groups for endpoint in group.endpoints],
        middleware=[Middleware(Guard, site=site), *_allow_origins(site)],
        exception_handlers=dict.fromkeys((404, 405, Refusal, ToolchartError), _answer_error),
        lifespan=run_groups,
    )
    application.state.site = site
    return application


def list_endpoints() -> list[Endpoint]:
    """Every endpoint of every group."""
    return [endpoint for group in ROUTE_GROUPS for endpoint in group.endpoints]


def _allow_origins(site: Site) -> list[Middleware]:
    """What lets the pages of the operator's other origins read answers; nothing without `--origin`."""
    if not site.settings.origins:
        return []
    cors = Middleware(
        CORSMiddleware,
        allow_origins=site.settings.origins,
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
        allow_credentials=True,
    )
    return [cors]


async def _answer_error(request: Request, error: Exception) -> Response:
    return answer_error(request, error)
