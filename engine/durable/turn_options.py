"""The options of a turn as JSON, as a stretch carries them to a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

import msgspec
from pydantic import WithJsonSchema

from toolchart.engine.runtime.parts import TurnOptions, build_hooks
from toolchart.specs.chat_messages import History, read_history
from toolchart.states.content import decode_parts
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.messages import Message
from toolchart.tools.sources.attachments import load_attachments

_PLAIN = ("handler", "variables", "owner", "tags", "author", "key", "llm", "model")

_SCHEMA = "output_schema"

_NAMES = (*_PLAIN, "history", "attachments", _SCHEMA)
"""What a stretch may carry."""


async def encode_turn_options(options: TurnOptions) -> dict[str, Any]:
    """The options that a worker needs, as JSON data; attachments are read here.

    Raises:
        SpecError: an attachment or the history cannot be read, `output_type` has no JSON Schema, or a value
            is no JSON.
    """
    option_values = cast("dict[str, Any]", options)
    data = {name: option_values[name] for name in _PLAIN if option_values.get(name)}
    attachments = options.get("attachments", ())
    if earlier_messages := options.get("history"):
        history = read_history(earlier_messages)
        data["history"] = {"messages": msgspec.to_builtins(tuple(history)), "warnings": history.warnings}
    if attachments:
        data["attachments"] = msgspec.to_builtins(await load_attachments(attachments))
    refuse_dependencies(options.get("dependencies"))
    form = build_hooks(options).answer_form
    if form is not None and not form.is_text:
        data[_SCHEMA] = form.schema
    try:
        msgspec.json.encode(data)
    except TypeError as error:
        raise SpecError(f"a turn for workers has values that are no JSON: {error}") from None
    return data


def refuse_dependencies(dependencies: Any) -> None:
    """Refuse objects of this process for a turn that a worker runs.

    Raises:
        SpecError: there are some.
    """
    if dependencies is not None:
        raise SpecError(
            "a turn for workers takes no dependencies: objects of this process do not reach them",
            hint="give them to the engine of each worker: Engine(..., dependencies=...)",
        )


def decode_turn_options(data: Mapping[str, Any]) -> TurnOptions:
    """Options as `Engine.arun` takes them.

    Raises:
        SpecError: a turn has no such option.
        ValueError: a value is none of its option.
    """
    options = dict(data)
    for name in options:
        if name not in _NAMES:
            raise SpecError(f"a turn has no option {name!r}", hint=suggest_name(name, _NAMES))
    schema = options.pop(_SCHEMA, None)
    if schema is not None:
        options["output_type"] = Annotated[dict[str, Any], WithJsonSchema(schema)]
    if isinstance(history := options.get("history"), Mapping):
        messages = msgspec.convert(history["messages"], tuple[Message, ...])
        options["history"] = History(messages, history["warnings"])
    if "attachments" in options:
        options["attachments"] = decode_parts(options["attachments"])
    return cast("TurnOptions", options)
