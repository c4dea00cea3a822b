"""The OpenAPI document of the server, made from the rows of its endpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from toolchart import __version__
from toolchart.app.server.endpoints import Endpoint

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
    found, components = msgspec.json.schema_components(forms, ref_template="#/components/schemas/{name}")
    references = dict(zip(forms, found, strict=True))
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
