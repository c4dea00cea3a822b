"""The endpoints by which a conversation leaves the server: exports, and whether it is what was written."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal, encode_json
from toolchart.app.server.conversations.reading import find_named_conversation
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import Site, get_site
from toolchart.engine.exchange.exports import EXPORT_FORMATS
from toolchart.engine.log.sealing.journal import load_journal
from toolchart.engine.log.sealing.keys import SealVerifier
from toolchart.engine.log.sealing.log_seals import check_log
from toolchart.engine.log.verify import verify_store
from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import LogDamaged, ToolchartError
from toolchart.states.ports import Store

ROUTES = RouteGroup()

_ONE = "/api/conversations/{conversation}"

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@ROUTES.endpoint("GET", f"{_ONE}/export/{{format}}", "read")
async def export(request: Request) -> Response:
    """A conversation as a file: messages or records."""
    site, name = get_site(request), find_named_conversation(request)
    form = str(request.path_params["format"])
    if form not in EXPORT_FORMATS:
        raise Refusal(404, f"there is no format {form!r}; formats: {', '.join(EXPORT_FORMATS)}")
    data, media_type = await asyncio.to_thread(_write_export, site, name, form)
    file_name = _UNSAFE.sub("_", f"{name}-{form}.{EXPORT_FORMATS[form].ending}")
    headers = {"Content-Disposition": f'attachment; filename="{file_name}"'}
    return Response(data, media_type=media_type, headers=headers)


def _write_export(site: Site, name: str, form: str) -> tuple[bytes, str]:
    """The bytes of an export and their media type; known secrets are struck out."""
    value = EXPORT_FORMATS[form].export(site.engine.store, name)
    if isinstance(value, str):
        return strike_secrets(value).encode("utf-8", "replace"), "text/plain"
    return encode_json(value), "application/json"


# -- verification --------------------------------------------------------------------------------


@ROUTES.endpoint("GET", f"{_ONE}/verify", "read")
async def verify(request: Request) -> Response:
    """Check the hashes of all records, and the seals that `--seals` names."""
    site, name = get_site(request), find_named_conversation(request)
    return JsonAnswer(await asyncio.to_thread(_verify_conversation, site, name))


def _verify_conversation(site: Site, name: str) -> dict[str, Any]:
    outcomes = list(verify_store(site.engine.store, [name]))
    problems = [str(outcome) for outcome in outcomes if isinstance(outcome, LogDamaged)]
    seal = describe_seal(site.engine.store, name, site.settings.seals, site.settings.seal_verifier)
    return {"is_sound": not problems, "problems": problems, "seal": seal}


def describe_seal(
    store: Store, conversation: str, path: str, verifier: SealVerifier | None
) -> dict[str, Any]:
    """What a seal journal says about a conversation.

    Args:
        path: the journal; empty where the operator has named none.

    Returns:
        `state`: `none` without a journal, `unsealed`, `sealed`, `broken` where the log lacks what was sealed,
        or `unchecked` where the journal cannot be used; `records` that the newest seal covers, its time `at`,
        and the `problem`.
    """
    row: dict[str, Any] = {"state": "none", "records": 0, "at": None, "problem": ""}
    if not path:
        return row
    try:
        journal = load_journal(path, verifier or SealVerifier(None, []), must_exist=True)
    except ToolchartError as error:
        return {**row, "state": "unchecked", "problem": str(error)}
    points = journal.points.get(conversation)
    if not points:
        return {**row, "state": "unsealed"}
    leaf, at = points[-1]
    row |= {"records": leaf.records, "at": at}
    damage = next(check_log(store, journal, conversation), None)
    if damage is not None:
        return {**row, "state": "broken", "problem": str(damage)}
    return {**row, "state": "sealed"}
