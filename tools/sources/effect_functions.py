"""Python functions that charts call by `call_function`: typed, checked, and run like tools.

    @effect
    def count_words(text: str) -> WordCount: ...

A chart names such a function by the name under which the engine got it, or as `module:function`.
"""

from __future__ import annotations

import inspect
import typing
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import msgspec

from toolchart.specs.own_modules import explain_own_fault, load_own_reference
from toolchart.states.descriptors import find_reference_gaps
from toolchart.states.errors import SpecError, suggest_name
from toolchart.tools.definition import Tool
from toolchart.tools.option_marks import OptionMark
from toolchart.tools.schemas.checks import ArgumentCheck, close_schema
from toolchart.tools.sources.python import make_tool
from toolchart.tools.sources.source_digest import digest_function_source
from toolchart.workers.json_data import to_json_data

Function = TypeVar("Function", bound=Callable[..., Any])


class EffectOptions(TypedDict, total=False):
    """The options of `@effect`."""

    name: str
    """The name by which charts call the function; default: the function's."""
    timeout_s: float
    """Seconds for one call; default 30."""
    idempotent: bool
    """Whether it may be called again after a crash; else a call that began ends as `interrupted`."""
    isolation: Literal["none", "inline", "thread", "process"]
    """Where a sync function runs, as for tools."""


_MARK = OptionMark(
    attribute="__toolchart_effect__", subject="an effect", options=tuple(EffectOptions.__annotations__)
)


@overload
def effect(function: Function) -> Function: ...
@overload
def effect(**options: Unpack[EffectOptions]) -> Callable[[Function], Function]: ...
def effect(function: Any = None, **options: Unpack[EffectOptions]) -> Any:
    """Mark a function as one that charts may call by `call_function`; it stays an ordinary function.

        >>> @effect(idempotent=True)
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> make_effect_function(double).schema["properties"]["content"]["type"]
        'integer'

    Its parameters and its result are typed: arguments are checked before it runs, and the fields of an object
    that it returns (a pydantic model, a dataclass, a TypedDict) are facts for guards. Any other result is the
    field `content`.

    Raises:
        SpecError: an option is unknown.
    """
    return _MARK.decorate(function, options)


class EffectFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function that charts may call, ready to run."""

    name: str
    tool: Tool
    """Runs it with checked arguments, within its timeout."""
    check: ArgumentCheck
    """Checks its arguments."""
    schema: dict[str, Any] | None
    """JSON Schema of its result as an object; None where the function says nothing about it."""
    encode: Callable[[Any], Any]
    """Makes JSON data of what it returned.

    Raises:
        ValueError: it is not what the function promises to return.
    """
    source_digest: str
    """Digest of its source."""


def is_effect_function(function: Any) -> bool:
    """Whether `@effect` marks a function."""
    return _MARK.is_on(function)


def name_effect_function(function: Callable[..., Any]) -> str:
    """The name by which charts call a function."""
    options = _MARK.read_options(function)
    return str(options.get("name") or getattr(function, "__name__", type(function).__name__))


def make_effect_function(function: Callable[..., Any]) -> EffectFunction:
    """Make a function callable by charts, whether or not `@effect` marks it.

    Raises:
        SpecError: a parameter cannot be passed by name, or a type has no JSON Schema.
    """
    options = _MARK.read_options(function)
    name = name_effect_function(function)
    tool = make_tool(function, {**options, "name": name})
    schema, encode = _describe_result(function, name)
    return EffectFunction(
        name=name,
        tool=tool,
        check=ArgumentCheck(close_schema(tool.definition.parameters), name),
        schema=schema,
        encode=encode,
        source_digest=digest_function_source(function),
    )


def load_effect_function(
    reference: str, functions: Mapping[str, Callable[..., Any]] | None = None, folder: Path | None = None
) -> EffectFunction:
    """The function that a chart names.

    Args:
        functions: those that the engine was given, by name.
        folder: the folder of the spec, for modules beside it.

    Raises:
        SpecError: there is none, or it cannot be called by a chart.
    """
    if functions and reference in functions:
        return make_effect_function(functions[reference])
    if find_reference_gaps("function", reference, ""):
        known_names = list(functions or ())
        hint = suggest_name(reference, known_names) if known_names else None
        raise SpecError(
            f"there is no function {reference!r}",
            hint=hint or "write `module:function`, or give it to the engine: Engine(spec, functions=[...])",
        )
    try:
        function = load_own_reference(reference, folder)
    except Exception as error:  # the user's module may fail in any way
        reason, fault_hint = explain_own_fault(error, reference, folder)
        message = f"the function {reference!r} cannot be imported: {reason}"
        raise SpecError(message, hint=fault_hint) from error
    if not callable(function):
        raise SpecError(f"{reference!r} is no function, but {type(function).__name__}")
    return make_effect_function(function)


# -- results -------------------------------------------------------------------------------------


def _describe_result(
    function: Callable[..., Any], name: str
) -> tuple[dict[str, Any] | None, Callable[[Any], Any]]:
    """The schema of what a function returns, as an object, and how it becomes JSON data."""
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

    annotation = _read_return_type(function)
    if annotation is None:
        return None, to_json_data
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        with warnings.catch_warnings(action="ignore"):
            schema = adapter.json_schema(mode="serialization")
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise SpecError(f"the result of {name!r} has no JSON Schema: {str(error).splitlines()[0]}") from None

    def encode_typed(value: Any) -> Any:
        try:
            return adapter.dump_python(adapter.validate_python(value), mode="json")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'the result'}: {first['msg']}") from None

    return _wrap_as_object(schema), encode_typed


def _read_return_type(function: Callable[..., Any]) -> Any:
    """The annotated type of the result; None where there is none, or it is `Any` or `None`."""
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        annotation = typing.get_type_hints(target, include_extras=True).get("return")
    except (NameError, TypeError):
        return None
    annotation = _find_read_type(annotation)
    return None if annotation in (None, type(None), Any) else annotation


def _find_read_type(annotation: Any) -> Any:
    """The type of a result as it is read: what an awaitable gives, and the list of an iterator's items."""
    origin, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if not isinstance(origin, type):
        return annotation
    if issubclass(origin, Awaitable):
        # The value is the last argument of a coroutine, and the only one of others.
        return _find_read_type(arguments[-1]) if arguments else Any
    if issubclass(origin, Generator) and len(arguments) == 3 and arguments[2] not in (None, type(None)):
        return Any  # a returned value stands beside the items
    if issubclass(origin, (Iterator, AsyncIterator)) or origin is AsyncIterable:
        return list[arguments[0]] if arguments else list  # type: ignore[valid-type]
    return annotation


def _wrap_as_object(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = schema.pop("$defs", None)
    if "$ref" in schema and definitions is not None:
        schema = dict(definitions[schema["$ref"].rpartition("/")[2]])
    if schema.get("type") != "object" or "properties" not in schema:
        schema = {"type": "object", "properties": {"content": schema}, "required": ["content"]}
    return {**schema, "$defs": definitions} if definitions else schema
