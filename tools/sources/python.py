"""Plain Python functions as tools: the schema comes from the signature and the docstring."""

from __future__ import annotations

import inspect
import re
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.suggestions import nearest
from toolchart.tools.definition import Tool, ToolFailure, Way

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "__toolchart_tool__"

_OPTIONS = (
    "name",
    "description",
    "timeout_s",
    "idempotent",
    "requires_approval",
    "risk",
    "isolation",
    "parallel",
    "repeatable",
    "cacheable",
    "cache_ttl_s",
    "max_result_size",
    "listing",
    "memory_mb",
)

_SECTIONS = re.compile(
    r"\n\s*(?:(?:Args|Arguments|Parameters|Returns|Yields|Raises|Examples?|Notes?):|:param\b|:return)"
)
_ARGUMENT = re.compile(r"^\s{2,}\*{0,2}(\w+)(?:\s*\([^)]*\))?\s*:\s*(.+)$")
_FIELD = re.compile(r"^\s*:param\s+(?:[\w\[\], |]+\s)?(\w+):\s*(.+)$")


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
        options: `name`, `description`, `timeout_s`, `idempotent`, `requires_approval`, `risk`
            (`low`, `medium`, `high`), `isolation` (`thread`, `process`), `parallel`, `repeatable`,
            `cacheable`, `cache_ttl_s`, `max_result_size`, `listing`, `memory_mb`: the fields of
            `toolchart.tools.definition.Tool`.

    Raises:
        SpecError: an option that there is not.
    """
    for option in options:
        if option not in _OPTIONS:
            raise SpecError(f"unknown option {option!r} of a tool", hint=nearest(option, _OPTIONS))
    if function is None:
        return lambda later: _marked(later, options)
    return _marked(function, options)


def _marked(function: Any, options: Mapping[str, Any]) -> Any:
    setattr(function, _MARK, dict(options))
    return function


def tool_of(function: Callable[..., Any]) -> Tool:
    """The tool of a function, marked or not.

    Sync functions run in a thread, async ones are awaited and cancelled at the timeout; with
    `isolation="process"` either runs in a process that is ended at the timeout.

    Raises:
        SpecError: a parameter that cannot be passed by name, a type that has no schema, or a
            function that another process could not find.
    """
    options = dict(getattr(function, _MARK, {}))
    described = inspect.getdoc(function) or ""
    name = str(getattr(function, "__name__", type(function).__name__))
    run = PythonRunner(function, name)
    definition = ToolDefinition(
        name=options.pop("name", name),
        description=options.pop("description", None) or _summary(described) or name,
        parameters=run.schema(_argument_docs(described)),
    )
    way = way_of(function, definition.name, options.pop("isolation", None))
    return Tool(
        definition=definition, run=run, way=way, kind="python", function=function, **options
    )


def way_of(function: Callable[..., Any] | None, name: str, isolation: str | None) -> Way:
    """How a Python function runs, given the isolation that its author or the spec asks for.

    Raises:
        SpecError: an unknown isolation, or a function that another process could not find.
    """
    if isolation == "process":
        from toolchart.tools.execution.isolation import check_isolable

        check_isolable(function, name)
        return "process"
    if isolation not in (None, "none", "thread"):
        raise SpecError(
            f"tool {name!r}: {isolation!r} is no isolation", hint="known: none, thread, process"
        )
    return "async" if inspect.iscoroutinefunction(function) else "thread"


class PythonRunner:
    """Calls a function with arguments converted to the types of its signature."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self._model, self._names = _model(function, name)
        self._tool = name

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        """The function's own answer, or its coroutine."""
        return self._function(**self.values(arguments))

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function wants them; those not given are left to its defaults.

        Raises:
            ToolFailure: a type refuses what the schema let pass.
        """
        from pydantic import ValidationError

        try:
            made = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ToolFailure(f"parameter {place!r}: {first['msg']}") from None
        return {
            name: getattr(made, field)
            for field, name in self._names.items()
            if field in made.model_fields_set
        }

    def schema(self, docs: Mapping[str, str]) -> dict[str, Any]:
        """The JSON Schema of the arguments, described by the docstring where the types do not."""
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            with warnings.catch_warnings(action="ignore"):  # defaults that JSON cannot say
                schema: dict[str, Any] = self._model.model_json_schema()
        except PydanticInvalidForJsonSchema as error:
            raise SpecError(f"tool {self._tool!r}: {str(error).splitlines()[0]}") from None
        schema.pop("title", None)
        schema.setdefault("properties", {})
        for name, entry in schema["properties"].items():
            entry.pop("title", None)
            if name in docs and "description" not in entry:
                entry["description"] = docs[name]
        return schema


def _model(function: Callable[..., Any], name: str) -> tuple[Any, dict[str, str]]:
    """A pydantic model of the parameters, and the parameter of each of its fields.

    The fields have names of their own and the parameters are their aliases: a parameter may be
    called `json` or `_x`, a field may not.
    """
    from pydantic import ConfigDict, Field, create_model
    from pydantic.errors import PydanticUserError

    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    hints = _hints(function, name)
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise SpecError(
                f"parameter {parameter.name!r} of tool {name!r} cannot be passed by name",
                hint="write it as an ordinary parameter",
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        field = f"argument_{place}"
        names[field] = parameter.name
        fields[field] = (hints.get(parameter.name, Any), Field(default, alias=parameter.name))
    try:
        return create_model(name, __config__=ConfigDict(), **fields), names
    except PydanticUserError as error:
        raise SpecError(f"tool {name!r}: {str(error).splitlines()[0]}") from None


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise SpecError(
            f"tool {name!r}: its types cannot be resolved: {error}",
            hint="types must be visible in the function's module",
        ) from None


def _summary(doc: str) -> str:
    """The docstring before its argument section."""
    return _SECTIONS.split(f"\n{doc}")[0].strip()


def _argument_docs(doc: str) -> dict[str, str]:
    """What the docstring says of each parameter, in an `Args:` section or as `:param name:`."""
    section = re.search(r"\n\s*(?:Args|Arguments):\n(.*?)(?:\n\s*\n|\n\S|\Z)", doc, re.S)
    found: dict[str, str] = {}
    last = ""
    for line in (section.group(1) if section else "").splitlines():
        match = _ARGUMENT.match(line)
        if match:
            last = match.group(1)
            found[last] = match.group(2).strip()
        elif last and line.strip():
            found[last] += f" {line.strip()}"
    matches = (_FIELD.match(line) for line in doc.splitlines())
    return found | {match.group(1): match.group(2).strip() for match in matches if match}
