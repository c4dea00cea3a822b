"""Replies under an output schema: read as JSON and checked, whatever the host promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from toolchart.states.effects import CallModel
from toolchart.states.events import Failed, Replied
from toolchart.states.messages import Reply
from toolchart.tools.schemas.output import parse_output


def read_output(
    effect: CallModel, reply: Reply, at: str, host: str | None, classes: Mapping[str, type[BaseModel]]
) -> Replied | Failed:
    """The event of a reply to a call with an output schema.

    It is `replied` with the parsed object. A reply that breaks the schema is `failed` of the kind
    `bad_output`, a refusal `failed` of the kind `content_filter`; both hold the reply, whose usage counts.

    Args:
        classes: pydantic classes by result name, where the user gave one; their validators count too.
    """
    assert effect.schema is not None, "the caller has looked"
    refusal = _find_refusal(reply)
    if refusal is not None:
        return _build_failure(effect, reply, at, host, "content_filter", refusal)
    if reply.finish_reason == "length":
        return _build_failure(
            effect, reply, at, host, "bad_output", "the reply was cut off at its token limit"
        )
    output, problem = parse_output(reply.content or "", effect.schema)
    if output is not None:
        problem = _find_class_problem(output, classes.get(effect.result))
    if output is None or problem:
        return _build_failure(effect, reply, at, host, "bad_output", problem)
    return Replied(at=at, effect=effect.id, reply=reply, output=output)


def _find_refusal(reply: Reply) -> str | None:
    """What the model or its host said in place of an answer; None where it did not refuse."""
    if reply.refusal:
        return reply.refusal
    if reply.finish_reason == "content_filter":
        return reply.content or "the host filtered the reply"
    return None


def _find_class_problem(output: dict[str, Any], output_class: type[BaseModel] | None) -> str:
    """What a pydantic class says against an object that fits the schema; empty where it accepts it."""
    if output_class is None:
        return ""
    try:
        output_class.model_validate(output)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"field {place!r}: {first['msg']}" if place else first["msg"]
    return ""


def _build_failure(
    effect: CallModel, reply: Reply, at: str, host: str | None, kind: str, message: str
) -> Failed:
    return Failed(
        at=at,
        effect=effect.id,
        kind=kind,
        message=message,
        host=host,
        wire_digest=reply.wire_digest,
        reply=reply,
    )
