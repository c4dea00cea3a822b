"""Plain Python functions as tools: the schema comes from the signature and the docstring."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "__toolchart_tool__"

_ARGUMENT = re.compile(r"^\s{2,}\*{0,2}(\w+)(?:\s*\([^)]*\))?\s*:\s*(.+)$")


@overload
def tool(function: Function) -> Function: ...
@overload
def tool(**options: Any) -> Callable[[Function], Function]: ...
def tool(function: Any = None, **options: Any) -> Any:
    """Mark a function as a tool; it stays an ordinary function.

        >>> @tool(idempotent=True)
        ... def add(a: int, b: int = 1) -> int:
        ...     '''Add two numbers.'''
        ...     return a + b
        >>> tool_of(add).definition.parameters["required"]
        ['a']
        >>> add(2)
        3

    Args:
        options: `name`, `description`, `timeout_s`, `idempotent`, `requires_approval`, `risk`.
    """
    if function is None:
        return lambda later: _marked(later, options)
    return _marked(function, options)


def _marked(function: Any, options: Mapping[str, Any]) -> Any:
    unknown = set(options) - _OPTIONS
    if unknown:
        raise SpecError(
            f"unknown option {min(unknown)!r} of a tool", hint="known: " + ", ".join(sorted(_OPTIONS))
        )
    setattr(function, _MARK, dict(options))
    return function


_OPTIONS = frozenset(
    {"name", "description", "timeout_s", "idempotent", "requires_approval", "risk"}
)


def tool_of(function: Callable[..., Any]) -> Tool:
    """The tool of a function, marked or not.

    Sync functions run in a thread, async ones are awaited and cancelled at the timeout.

    Raises:
        SpecError: a parameter that cannot be passed by name, or a type that has no schema.
    """
    options = dict(getattr(function, _MARK, {}))
    model = _model(function)
    described = inspect.getdoc(function) or ""
    definition = ToolDefinition(
        name=options.pop("name", function.__name__),
        description=options.pop("description", None) or _summary(described) or function.__name__,
        parameters=_schema(model, _argument_docs(described)),
    )

    def run(arguments: Mapping[str, Any]) -> Any:
        values = model.model_validate(dict(arguments))
        return function(**{name: getattr(values, name) for name in values.model_fields_set})

    way = "async" if inspect.iscoroutinefunction(function) else "thread"
    return Tool(definition=definition, run=run, way=way, kind="python", **options)


def _model(function: Callable[..., Any]) -> Any:
    from pydantic import ConfigDict, create_model
    from pydantic.errors import PydanticUserError

    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise SpecError(
                f"parameter {name!r} of tool {function.__name__!r} cannot be passed by name",
                hint="write it as an ordinary parameter",
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints.get(name, Any), default)
    try:
        return create_model(
            function.__name__, __config__=ConfigDict(arbitrary_types_allowed=False), **fields
        )
    except PydanticUserError as error:
        raise SpecError(f"tool {function.__name__!r}: {str(error).splitlines()[0]}") from None


def _schema(model: Any, docs: Mapping[str, str]) -> dict[str, Any]:
    from pydantic.errors import PydanticInvalidForJsonSchema

    try:
        schema: dict[str, Any] = model.model_json_schema()
    except PydanticInvalidForJsonSchema as error:
        raise SpecError(f"tool {model.__name__!r}: {str(error).splitlines()[0]}") from None
    schema.pop("title", None)
    schema.setdefault("properties", {})
    for name, entry in schema["properties"].items():
        entry.pop("title", None)
        if name in docs and "description" not in entry:
            entry["description"] = docs[name]
    return schema


def _summary(doc: str) -> str:
    """The docstring before its argument section."""
    return re.split(r"\n\s*(?:Args|Arguments|Parameters|Returns|Raises):", doc)[0].strip()


def _argument_docs(doc: str) -> dict[str, str]:
    """What the docstring's `Args:` section says of each parameter."""
    section = re.search(r"\n\s*(?:Args|Arguments):\n(.*?)(?:\n\s*\n|\n\S|\Z)", doc, re.S)
    found: dict[str, str] = {}
    for line in (section.group(1) if section else "").splitlines():
        match = _ARGUMENT.match(line)
        if match:
            found[match.group(1)] = match.group(2).strip()
    return found
