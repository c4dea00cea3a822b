"""The endpoints by which a conversation leaves the server: exports, and whether it is what was written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal, encode_json
from toolchart.app.server.conversations.reading import find_named_conversation
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import Site, get_log, get_site
from toolchart.engine.exchange.exports import EXPORT_FORMATS
from toolchart.engine.log.verify import verify_store
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import Store

ROUTES = RouteGroup()

_ONE = "/api/conversations/{conversation}"

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@ROUTES.endpoint("GET", f"{_ONE}/export/{{format}}", "read")
async def export(request: Request) -> Response:
    """A conversation as a file: messages or records."""
    store, name = get_log(request), find_named_conversation(request)
    form = str(request.path_params["format"])
    if form not in EXPORT_FORMATS:
        raise Refusal(404, f"there is no format {form!r}; formats: {', '.join(EXPORT_FORMATS)}")
    data, media_type = await asyncio.to_thread(_write_export, store, name, form)
    file_name = _UNSAFE.sub("_", f"{name}-{form}.{EXPORT_FORMATS[form].ending}")
    headers = {"Content-Disposition": f'attachment; filename="{file_name}"'}
    return Response(data, media_type=media_type, headers=headers)


def _write_export(store: Store, name: str, form: str) -> tuple[bytes, str]:
    """The bytes of an export and their media type; known secrets are struck out of messages."""
    value = EXPORT_FORMATS[form].export(store, name)
    if isinstance(value, Iterator):
        return b"".join(value), "text/plain"
    return encode_json(value), "application/json"


# -- verification --------------------------------------------------------------------------------


@ROUTES.endpoint("GET", f"{_ONE}/verify", "read")
async def verify(request: Request) -> Response:
    """Check the hashes of all records."""
    site, name = get_site(request), find_named_conversation(request)
    return JsonAnswer(await asyncio.to_thread(_verify_conversation, site, name))


def _verify_conversation(site: Site, name: str) -> dict[str, Any]:
    outcomes = list(verify_store(site.engine.store, [name]))
    problems = [str(outcome) for outcome in outcomes if isinstance(outcome, LogDamaged)]
    return {"is_sound": not problems, "problems": problems}
