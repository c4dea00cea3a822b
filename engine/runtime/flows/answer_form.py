"""The type that a program demands of the answer of a turn: asked for by its JSON Schema, and checked."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from toolchart.states.effects import CallModel
from toolchart.states.errors import SpecError
from toolchart.states.events import Failed
from toolchart.states.messages import Reply
from toolchart.tools.execution.schema_output import parse_output

_WRAPPED = "value"
"""The key of an answer that is no object, since hosts give objects only."""


class AnswerForm:
    """One type of answers.

    Args:
        output_type: a type that pydantic knows.

    Raises:
        SpecError: it has no JSON Schema.
    """

    def __init__(self, output_type: Any) -> None:
        self.name = str(getattr(output_type, "__name__", "answer"))
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(output_type)
            schema = self._adapter.json_schema()
        except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
            text = str(error).splitlines()[0]
            hint = "use a pydantic model, a dataclass, a TypedDict or plain types"
            raise SpecError(f"the output type {self.name} has no JSON Schema: {text}", hint=hint) from None
        self._is_wrapped = schema.get("type") != "object"
        self.schema = _wrap_schema(schema) if self._is_wrapped else schema

    def build_option(self) -> dict[str, Any]:
        """The option `response_format` that asks a host for it."""
        form = {"name": self.name, "schema": self.schema}
        return {"response_format": {"type": "json_schema", "json_schema": form}}

    def parse(self, text: str) -> tuple[Any, str]:
        """The value that a text holds, and an empty text; or None and what is wrong."""
        data, problem = parse_output(text, self.schema)
        if data is None:
            return None, problem
        try:
            return self._adapter.validate_python(data[_WRAPPED] if self._is_wrapped else data), ""
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            return None, f"field {place!r}: {first['msg']}" if place else str(first["msg"])

    def find_failure(self, effect: CallModel, reply: Reply, at: str, host: str | None) -> Failed | None:
        """The `failed` event of an answer that breaks the type; None for any other reply.

        It may be tried again at once: a chart with retries does.
        """
        if reply.tool_calls or reply.refusal or reply.finish_reason not in ("stop", "length"):
            return None
        problem = "the reply was cut off at its token limit"
        if reply.finish_reason == "stop":
            value, problem = self.parse(reply.content or "")
            if value is not None or not problem:
                return None
        return Failed(
            at=at,
            effect=effect.id,
            kind="bad_output",
            message=problem,
            retryable=True,
            retry_after_s=0.0,
            host=host,
            wire_digest=reply.wire_digest,
            reply=reply,
        )


def _wrap_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that holds the value under one key."""
    definitions = schema.pop("$defs", None)
    wrapped: dict[str, Any] = {
        "type": "object",
        "properties": {_WRAPPED: schema},
        "required": [_WRAPPED],
        "additionalProperties": False,
    }
    return {**wrapped, "$defs": definitions} if definitions else wrapped
