"""Serves the files of `static/`: they are read once, by name, so that no path of a request is ever opened."""

from __future__ import annotations

import hashlib
from functools import cache

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import Refusal
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.studio.rendering import FOLDER
from toolchart.states.diagram.picture.style import PAGE_STYLE

ROUTES = RouteGroup()

MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class StaticFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file as it is sent."""

    data: bytes
    media_type: str
    tag: str
    """The ETag: a browser that has the file asks whether it is still the same."""


@cache
def load_static_files() -> dict[str, StaticFile]:
    """Every file of `static/` by its name, and the style of drawings."""
    files = {"diagram.css": _make_file(PAGE_STYLE.encode(), "text/css")}
    for path in sorted((FOLDER / "static").iterdir()):
        if path.suffix in MEDIA_TYPES:
            files[path.name] = _make_file(path.read_bytes(), MEDIA_TYPES[path.suffix])
    return files


def _make_file(data: bytes, media_type: str) -> StaticFile:
    tag = f'"{hashlib.sha256(data).hexdigest()[:24]}"'
    return StaticFile(data=data, media_type=media_type, tag=tag)


@ROUTES.endpoint("GET", "/static/{name}", None, in_openapi=False)
async def send_static_file(request: Request) -> Response:
    """Send one file."""
    file = load_static_files().get(request.path_params["name"])
    if file is None:
        raise Refusal(404, "there is no such file")
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.data, media_type=file.media_type, headers=headers)
