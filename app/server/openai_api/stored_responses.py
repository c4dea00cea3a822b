"""Responses read again from the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from toolchart.app.server.answers import Refusal
from toolchart.app.server.openai_api.response_ids import ResponseName
from toolchart.app.server.openai_api.response_items import ResponseBuilder
from toolchart.app.server.protocols.served_models import list_models
from toolchart.app.server.site import Site
from toolchart.engine.log.replay import ReplayedStep, load_conversation, replay_conversation
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.result import TurnResult, build_turn_result
from toolchart.engine.runtime.streaming import StepTaken
from toolchart.states.snapshot import Snapshot


def read_stored_response(site: Site, name: ResponseName) -> dict[str, Any]:
    """The response as the log has it.

    Raises:
        Refusal: 404; there is none.
        LogDamaged, ReplayMismatch: the log is not the one that was written.
    """
    steps = list(_iterate_steps(site.engine, name))
    if not steps:
        raise Refusal(404, f"there is no response {name.id!r}")
    last = steps[-1]
    builder = ResponseBuilder(_build_head(site, name, steps), site.client_tools.is_client_tool)
    events: list[Any] = []
    for entry in steps:
        if entry.step.event is not None:
            events += builder.take(StepTaken(event=entry.step.event, step=entry.step))
    events += builder.take(_find_result_at(site.engine, name.conversation, last))
    return builder.response


def _find_result_at(engine: Engine, conversation: str, last: ReplayedStep) -> TurnResult:
    """The result at a record; of the newest one with what waits in the children."""
    newest = engine.store.read_last_line(conversation)
    if newest is not None and newest[0] == last.record.seq:
        return engine.describe_turn(conversation)
    return build_turn_result(last.step.snapshot, conversation)


def _iterate_steps(engine: Engine, name: ResponseName) -> Iterator[ReplayedStep]:
    """The steps of a response: from its first record to where its turn ended, or rested until a later
    response took it up."""
    has_rested = False
    for entry in replay_conversation(engine.store, name.conversation):
        if entry.record.seq < name.seq:
            continue
        kind = entry.record.event["type"]
        if entry.step.snapshot.turn > name.turn or (kind == "resumed" and has_rested):
            return
        # After a reply, or a message that waits for a person, whoever goes on does so by another response.
        has_rested = has_rested or kind in ("replied", "user_said")
        yield entry


def _build_head(site: Site, name: ResponseName, steps: list[ReplayedStep]) -> dict[str, Any]:
    own, *_ = list_models(site.engine.spec)
    handler = next(
        (e.record.event.get("handler") for e in steps if e.record.event["type"] == "turn_started"), ""
    )
    created = datetime.fromisoformat(steps[0].record.at).timestamp()
    return {"id": name.id, "created_at": int(created), "model": handler or own.name}


def require_newest(engine: Engine, name: ResponseName) -> Snapshot:
    """The conversation of a response, if no later turn has followed.

    Raises:
        Refusal: 404 where there is no such response, 409 where a later one exists.
    """
    loaded = load_conversation(engine.store, name.conversation)
    if loaded is None or loaded.snapshot.turn < name.turn:
        raise Refusal(404, f"there is no response {name.id!r}")
    if loaded.snapshot.turn > name.turn:
        raise Refusal(409, "only the newest response of a conversation can be continued")
    return loaded.snapshot
