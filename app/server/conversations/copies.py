"""The endpoints that make something of a recorded conversation: forks, reruns, and the comparison of two."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.access.tokens import Access, Role
from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.conversations.forms import ForkForm, RerunForm, check_new_id
from toolchart.app.server.conversations.reading import find_named_conversation, must_wait
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.repeated_requests import name_by_key
from toolchart.app.server.site import Site, get_access, get_log, get_site
from toolchart.engine.log.fork import ForkChanges, NarrowTurn
from toolchart.engine.log.read_records import ReadRecord
from toolchart.engine.reading.diff import compare_conversations
from toolchart.engine.reading.overview import read_fork_tree
from toolchart.engine.reading.steps import read_from
from toolchart.engine.rerun.campaign import arerun
from toolchart.engine.rerun.changes import RerunChanges
from toolchart.engine.rerun.report import RerunReport
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.parts import DeltaObserver
from toolchart.specs.turn_bounds import TurnBounds
from toolchart.states.errors import SettingsWidened
from toolchart.states.ports import Store

ROUTES = RouteGroup()

_ONE = "/api/conversations/{conversation}"

# -- rights ---------------------------------------------------------------------------------------------
#
# What a request may change of a recorded turn: with the role chat it may only narrow it. The rows say for
# each field of a form what it gives to whoever sends it. A field without a row needs the role `debug`, so a
# new field of a form is refused until somebody has thought about it; a test compares both.

FieldRight = Literal["free", "narrow", "debug"]
"""`free`: gives nothing that a new turn would not give. `narrow`: may change a turn within what its handler
has. `debug`: may give more, so it needs that role."""

DEBUG_ROLE: Role = "debug"

FORK_RIGHTS: Mapping[str, FieldRight] = {
    "at": "free",  # a fork carries no approval, and asks again for what was open at the record
    "settings": "narrow",
    "system": "debug",  # the prompt is the operator's
    "results": "debug",  # charts and rules trust the results of tools; a caller's own words are no result
    "arguments": "debug",  # so are the arguments of calls: the model chose them
    "conversation": "free",
    "run_tools": "free",  # tools of the handler's list; one that is not idempotent still asks
    "from_log": "free",  # the log alone answers
}
"""What each field of `ForkForm` gives."""

RERUN_RIGHTS: Mapping[str, FieldRight] = {
    "settings": "narrow",
    "system": "debug",
    "offline": "free",  # asks the models of the agent with narrowed settings; no tool runs
}
"""What each field of `RerunForm` gives."""


def require_rights(access: Access, form: msgspec.Struct, rights: Mapping[str, FieldRight]) -> None:
    """Refuse a form with a field that needs another role.

    Raises:
        Refusal: 403; it names the field and the role.
    """
    if access.may(DEBUG_ROLE):
        return
    for field in msgspec.structs.fields(form):
        is_set = getattr(form, field.name) != _get_default(field)
        if is_set and rights.get(field.name, "debug") == "debug":
            raise _refuse_field(access, field.name, "it may change more than the agent's handlers give")


def _get_default(field: Any) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def find_narrowing(access: Access, engine: Engine) -> NarrowTurn | None:
    """What remains of recorded settings for a token; None for one that may have any."""
    if access.may(DEBUG_ROLE):
        return None
    return TurnBounds(engine.spec, engine.tools.names(), engine.tools.aliases).narrow


def refuse_widening(access: Access, error: SettingsWidened) -> Refusal:
    """The refusal of a change that gives a turn more than its handler has."""
    return _refuse_field(access, error.path or "settings", error.message)


def _refuse_field(access: Access, field: str, reason: str) -> Refusal:
    return Refusal(
        403,
        f"{field}: {reason}; the token {access.name!r} lacks the role {DEBUG_ROLE!r}",
        details={"field": field},
    )


# -- copies ---------------------------------------------------------------------------------------------


@ROUTES.endpoint("POST", f"{_ONE}/fork", "chat", body=ForkForm)
async def fork(request: Request) -> Response:
    """Begin a new conversation from a record of this one, with changes."""
    form, access = await read_form(request, ForkForm), get_access(request)
    site, parent = get_site(request), find_named_conversation(request)
    require_rights(access, form, FORK_RIGHTS)
    keyed = name_by_key(request, await request.body()) if form.conversation is None else None
    name = check_new_id(form.conversation) or keyed or generate_conversation_id()
    site.claim(access, name)
    if keyed is not None and site.engine.store.read_last_line(name) is not None:
        return await _answer_begun(site, name, parent)
    engine = site.client_tools.find_engine(parent)
    changes = ForkChanges(
        settings=form.settings,
        system=form.system,
        results=form.results,
        arguments=form.arguments,
        narrow=find_narrowing(access, engine),
    )

    async def run_fork(on_delta: DeltaObserver) -> Any:
        return await engine.conversation(parent).afork(
            form.at, changes, name=name, from_log=form.from_log, run_tools=form.run_tools, author=access.name
        )

    task = site.live_turns.begin(name, run_fork)
    try:
        forked = await site.live_turns.wait(name, task, until_rest=must_wait(request))
    except SettingsWidened as error:
        raise refuse_widening(access, error) from None
    if forked is None:
        return JsonAnswer({"conversation": name, "parent": parent}, status_code=202)
    return JsonAnswer(forked.to_dict())


async def _answer_begun(site: Site, name: str, parent: str) -> Response:
    """The answer to a request that has begun this fork already, before a restart: it as it is now."""
    row = {"conversation": name, "parent": parent}
    if site.live_turns.is_running(name):
        return JsonAnswer(row, status_code=202)
    forked = next(read_from(site.engine.store, name, 0)).event["seq"]
    result = await asyncio.to_thread(site.engine.conversation(name).read_turn)
    return JsonAnswer({**row, "at": forked, "stopped": None, "result": result.to_dict()})


@ROUTES.endpoint("GET", f"{_ONE}/forks", "read")
async def list_forks(request: Request) -> Response:
    """The tree of forks that it is part of: its root, and the forks, parents before children."""
    name, engine = find_named_conversation(request), get_site(request).engine
    tree = await asyncio.to_thread(read_fork_tree, get_log(request), engine.known_forks, name)
    return JsonAnswer(tree.to_dict())


@ROUTES.endpoint("POST", f"{_ONE}/rerun", "chat", body=RerunForm)
async def rerun(request: Request) -> Response:
    """Run it again under changes and compare; nothing is written."""
    form, access = await read_form(request, RerunForm), get_access(request)
    site, name = get_site(request), find_named_conversation(request)
    require_rights(access, form, RERUN_RIGHTS)
    engine = site.engine
    changes = RerunChanges(settings=form.settings, system=form.system, narrow=find_narrowing(access, engine))

    async def run_again() -> RerunReport:
        return await arerun(
            engine.store,
            engine.spec,
            conversations=[name],
            changes=changes,
            offline=form.offline,
            providers={} if form.offline else engine.hosts.providers,
        )

    with site.turns.hold():
        # Answers from the log need no connection of this loop, so that work is done beside it.
        try:
            report = await (asyncio.to_thread(asyncio.run, run_again()) if form.offline else run_again())
        except SettingsWidened as error:
            raise refuse_widening(access, error) from None
    return JsonAnswer(to_builtins(report.results[0]))


# -- comparing -----------------------------------------------------------------------------------


@ROUTES.endpoint("GET", f"{_ONE}/diff", "read")
async def compare(request: Request) -> Response:
    """Compare it with another conversation (`?with=ID`): what is equal, and the rest aligned."""
    left, right = find_compared(request)
    return JsonAnswer(await asyncio.to_thread(_describe_comparison, get_log(request), left, right))


def find_compared(request: Request) -> tuple[str, str]:
    """The conversation of the path, and the one that the query names as `with`.

    Raises:
        Refusal: 400 where the query names none, 404 where one does not exist.
    """
    left, right = find_named_conversation(request), request.query_params.get("with", "").strip()
    if not right:
        raise Refusal(400, "name the other conversation: ?with=ID")
    get_site(request).require_conversation(get_access(request), right)
    return left, right


def _describe_comparison(store: Store, left: str, right: str) -> dict[str, Any]:
    compared = compare_conversations(store, left, right)
    origins = compared.origins
    common = zip(compared.common, compared.right_common, strict=True)
    return {
        "left": left,
        "right": right,
        "is_equal": compared.first is None,
        "common": len(compared.common),
        "shared": compared.shared_count,
        "first": to_builtins(compared.first),
        "common_rows": [
            {"left": _place_step(old, origins), "right": _place_step(new, origins)} for old, new in common
        ],
        "rows": [
            {
                "left": _encode_step(row.left, origins),
                "right": _encode_step(row.right, origins),
                "is_equal": row.is_equal,
            }
            for row in compared.align_rest()
        ],
    }


def _place_step(record: ReadRecord, origins: Mapping[str, str]) -> dict[str, Any]:
    """Where a step stands, and what happened."""
    return {
        "conversation": origins[record.hash],
        "seq": record.seq,
        "type": record.event_type,
        "source": record.source,
        "target": record.target,
    }


def _encode_step(record: ReadRecord | None, origins: Mapping[str, str]) -> dict[str, Any] | None:
    return None if record is None else {**_place_step(record, origins), "event": record.event}
