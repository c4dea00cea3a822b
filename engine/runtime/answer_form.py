"""The event of a reply: whether it can be used, and has the form that is demanded of it.

The form is asked for by its JSON Schema, and checked in one way. A program demands a type (`output_type`), a
handler a `response_format`, a declared effect a `schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    Literal,
    NewType,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
)

from typing_extensions import TypeAliasType

from toolchart.states.content import CitationPart, HostCallPart, TextPart, has_words
from toolchart.states.effects import CallModel
from toolchart.states.errors import SpecError, describe_value
from toolchart.states.events import Failed, Replied
from toolchart.states.messages import Reply
from toolchart.states.response_format import find_format_schema, find_format_type
from toolchart.tools.schemas.output import parse_output, parse_value

if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter, ValidationError


FAILED_REASONS = ("malformed_call", "error")
"""Finish reasons of replies that are failed calls, whatever else they have."""

_WRAPPED = "value"
"""The key of an answer that is no object, since hosts give objects only."""

_WHERE = f'the answer stands in an object: {{"{_WRAPPED}": ...}}'
"""What the model hears that left the object out."""


class AnswerForm(Protocol):
    """What an answer must be."""

    def parse(self, text: str) -> tuple[Any, str]:
        """The value that a text holds, and an empty text; or None and what is wrong."""
        ...


def is_type(value: Any) -> bool:
    """Whether a value is a type: a class, `list[str]`, a union, `Any`, ..."""
    is_form = isinstance(value, type | TypeVar | NewType | TypeAliasType) or get_origin(value) is not None
    return is_form or value is Any or value is None


class AnswerType:
    """The type that a program demands.

    Args:
        output_type: a type that pydantic knows. One that is no object, such as `int`, `list[str]` or a union,
            is asked for as an object with the one key `value`.

    Raises:
        SpecError: it is no type, has no JSON Schema, or may be None, which is a turn without an answer.
    """

    def __init__(self, output_type: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

        _require_type(output_type)
        self.output_type = output_type
        self.name = str(getattr(output_type, "__name__", "answer"))
        self.is_text = output_type is str
        """Whether it is the text of the answer, which needs no form."""
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(output_type)
            schema = self._adapter.json_schema()
        except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
            text = str(error).splitlines()[0]
            hint = "use a pydantic model, a dataclass, a TypedDict or plain types"
            raise SpecError(f"the output type {self.name} has no JSON Schema: {text}", hint=hint) from None
        if schema and not parse_value("null", schema)[1]:
            raise SpecError(
                f"the output type {self.name} may be None, and a turn without an answer has None too",
                hint="put it into a field of a class: the answer is then an object, whose field may be None",
            )
        self._is_wrapped = schema.get("type") != "object"
        self.schema = _wrap_schema(schema) if self._is_wrapped else schema

    def add_to(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a model call that ask for this type, whatever the handler asks for."""
        others = {name: value for name, value in options.items() if name != "response_format"}
        if self.is_text:
            return others
        form = {"name": self.name, "schema": self.schema}
        return {**others, "response_format": {"type": "json_schema", "json_schema": form}}

    def parse(self, text: str) -> tuple[Any, str]:
        """The value that a text holds, and an empty text; or None and what is wrong."""
        if self.is_text:
            return text, ""
        data, problem = parse_output(text, self.schema)
        if data is None:
            value, _ = parse_value(text, None)
            lacks_object = self._is_wrapped and not (isinstance(value, dict) and _WRAPPED in value)
            return None, f"{problem}; {_WHERE}" if lacks_object else problem
        from pydantic import ValidationError

        try:
            return self._adapter.validate_python(data[_WRAPPED] if self._is_wrapped else data), ""
        except ValidationError as error:
            return None, _describe_invalid(error)

    def parse_partially(self, text: str) -> Any:
        """The JSON data of an answer that is still being streamed; None where none of it can be read yet.

        Nothing is checked: what is not there yet is missing, and the last text may be cut.
        """
        from pydantic_core import from_json

        try:
            value = from_json(text, allow_partial="trailing-strings")
        except ValueError:
            return None
        if not self._is_wrapped:
            return value
        return value.get(_WRAPPED) if isinstance(value, dict) else None


def _require_type(output_type: Any) -> None:
    """Refuse what is no type, and a name that stands for one: it would mean whatever has that name here.

    Raises:
        SpecError: says what to write in its place.
    """
    if not is_type(output_type):
        name = output_type if isinstance(output_type, str) else type(output_type).__name__
        hint = f"write output_type={name}, the class itself"
        if isinstance(output_type, list | tuple) and output_type:
            names = [describe_value(item) for item in output_type]
            hint = f"write list[{names[0]}] for a list of it, or {' | '.join(names)} for one of several"
        elif callable(output_type):
            hint = "use a pydantic model, a dataclass, a TypedDict or plain types"
        raise SpecError(f"`output_type` is a type, not {describe_value(output_type)}", hint=hint)
    name = _find_name(output_type)
    if name is not None:
        raise SpecError(
            f"`output_type` has the name {name!r} in place of a type", hint=f"write {name}, without quotes"
        )


def _find_name(annotation: Any) -> str | None:
    """A name that stands for a type inside an annotation, as in `list["City"]`."""
    if isinstance(annotation, str | ForwardRef):
        return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        arguments = arguments[:1]
    elif get_origin(annotation) is Literal:
        arguments = ()
    return next((name for item in arguments if (name := _find_name(item)) is not None), None)


def make_answer_type(output_type: Any) -> AnswerType:
    """The `AnswerType` of an `output_type`; itself where the caller has made it before.

    Raises:
        SpecError: it has no JSON Schema.
    """
    return output_type if isinstance(output_type, AnswerType) else AnswerType(output_type)


class AnswerFormat:
    """The `response_format` of a handler: any JSON, a JSON object, or the JSON of a schema.

    Args:
        schema: the JSON Schema; None where the host is asked for JSON without one.
    """

    def __init__(self, schema: Mapping[str, Any] | None, *, demands_object: bool = False) -> None:
        self._schema = schema
        self._demands_object = demands_object

    def parse(self, text: str) -> tuple[Any, str]:
        """The value that a text holds, and an empty text; or None and what is wrong."""
        if self._demands_object:
            return parse_output(text, self._schema or {})
        return parse_value(text, self._schema)


def find_answer_format(options: Mapping[str, Any]) -> AnswerFormat | None:
    """The form that the options of a request demand by `response_format`; None for free text.

    A format that only its host knows (a grammar, for instance) is not checked.
    """
    form = options.get("response_format")
    if not isinstance(form, Mapping):
        return None
    match find_format_type(form):
        case "json_schema":
            return AnswerFormat(find_format_schema(form))
        case "json_object":
            return AnswerFormat(None, demands_object=True)
        case "json":
            return AnswerFormat(None)
    return None


class ResultSchema:
    """The output schema of a declared effect, whose answer is always an object.

    Args:
        output_class: the pydantic class of the result, where the user gave one; its validators count too.
    """

    def __init__(self, schema: Mapping[str, Any], output_class: type[BaseModel] | None) -> None:
        self._schema = schema
        self._class = output_class

    def parse(self, text: str) -> tuple[Any, str]:
        """The value that a text holds, and an empty text; or None and what is wrong."""
        output, problem = parse_output(text, self._schema)
        if output is None or self._class is None:
            return output, problem
        from pydantic import ValidationError

        try:
            self._class.model_validate(output)
        except ValidationError as error:
            return None, _describe_invalid(error)
        return output, ""


def read_answer(
    effect: CallModel, reply: Reply, host: str | None, form: AnswerForm | None, deltas: tuple[Any, ...] = ()
) -> Replied | Failed:
    """The event of a reply, which must have a form where somebody demands one.

    It is `replied` where the reply has the form, and for what is no answer: tool calls, a refusal of the
    conversation's model. A reply that breaks the form is `failed` of the kind `bad_output`. It may be tried
    again at once: a chart with retries does, and then its model reads what was wrong. A refusal in a call
    with an output schema is `failed` of the kind `content_filter`.

    Whatever its form, a reply that its host broke off is `failed` of the kind `server`, one with a call that
    the host could not read of the kind `malformed_call`, as is one that ends for calls and has none, and an
    empty one of the kind `empty_reply`: what follows is a row of the chart, and the conversation goes on
    without that reply. An empty one under an output schema breaks its form.

    Each `failed` holds the reply: its usage counts.
    """
    build_failure = partial(_build_failure, effect, reply, host)
    if reply.finish_reason == "malformed_call":
        text = "the reply has a call that cannot be carried out"
        return build_failure("malformed_call", f"{text}{_describe_end(reply)}")
    if reply.finish_reason == "tool_calls" and not reply.tool_calls:
        return build_failure("malformed_call", f"the reply ends for calls and has none{_describe_end(reply)}")
    if reply.finish_reason == "error":
        return build_failure("server", f"the host broke its answer off{_describe_end(reply)}")
    has_output = effect.schema is not None
    if not has_output and _is_empty(reply, effect):
        return build_failure("empty_reply", "the reply is empty: it has neither text nor calls")
    if form is None:
        return Replied(effect=effect.id, reply=reply, deltas=deltas)
    if has_output:
        refusal = _find_refusal(reply)
        if refusal is not None:
            return build_failure("content_filter", refusal)
    elif reply.tool_calls or reply.refusal or reply.finish_reason not in ("stop", "length"):
        return Replied(effect=effect.id, reply=reply, deltas=deltas)
    if reply.finish_reason == "length":
        return build_failure("bad_output", "the reply was cut off at its token limit")
    output, problem = form.parse(reply.content or "")
    if problem:
        return build_failure("bad_output", problem)
    kept_output = output if has_output else None  # else the reply itself holds it
    return Replied(effect=effect.id, reply=reply, output=kept_output, deltas=deltas)


def _is_empty(reply: Reply, effect: CallModel) -> bool:
    """Whether a reply that ended well says nothing: thoughts alone are no answer.

    A refusal is one, and so are pictures, sounds, and what the host did itself, which it might do twice if
    asked again; but no sources or searches alone. A reply that goes on with the model's own words, as after a
    pause, may add nothing to them.
    """
    if has_words(reply.content) or reply.finish_reason not in ("stop", "unknown"):
        return False
    if reply.tool_calls or reply.refusal:
        return False
    for part in reply.parts:
        if not isinstance(part, TextPart | CitationPart) and not (
            isinstance(part, HostCallPart) and part.is_search
        ):
            return False
    return not any(m.role == "assistant" and m.content for m in effect.request.messages[-1:])


def _describe_end(reply: Reply) -> str:
    """What the host says about the end of a reply, in brackets: its word and its sentence, if it has them."""
    words = ": ".join(filter(None, (reply.native_reason, reply.finish_message)))
    return f" ({words})" if words else ""


def _find_refusal(reply: Reply) -> str | None:
    """What the model or its host said in place of an answer; None where it did not refuse."""
    if reply.refusal:
        return reply.refusal
    if reply.finish_reason == "content_filter":
        return reply.content or "the host filtered the reply"
    return None


def _describe_invalid(error: ValidationError) -> str:
    """What a pydantic type says against a value that fits its schema: the first problem."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"field {place!r}: {first['msg']}" if place else str(first["msg"])


def _build_failure(effect: CallModel, reply: Reply, host: str | None, kind: str, message: str) -> Failed:
    # An empty reply is no passing failure: charts ask once more, and not until their attempts are used up.
    is_passing = kind in ("bad_output", "malformed_call", "server")
    return Failed(
        effect=effect.id,
        kind=kind,
        message=message,
        retryable=is_passing,
        retry_after_s=0.0 if is_passing and kind != "server" else None,
        host=host,
        content=reply.content if reply.finish_reason in FAILED_REASONS else None,
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
