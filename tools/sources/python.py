"""Makes tools from plain Python functions: the schema comes from the signature and the docstring."""

from __future__ import annotations

import inspect
import re
import typing
import warnings
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import ExecutionMode, Risk, Tool, ToolFailure, Trust
from toolchart.tools.execution.context import NO_CONVERSATION, CallContext
from toolchart.tools.option_marks import OptionMark, require_function
from toolchart.tools.schemas.checks import close_schema
from toolchart.tools.tool_context import is_tool_context
from toolchart.tools.whole_definition import describe_function

Function = TypeVar("Function", bound=Callable[..., Any])


class ToolOptions(TypedDict, total=False):
    """The options of `@tool`; those that `Tool` has too have its meanings and defaults."""

    name: str
    """The name by which the model calls the tool; default: the function's."""
    description: str
    """What the tool does, for the model; default: the docstring up to its first section."""
    timeout_s: float
    idempotent: bool
    status: Callable[..., Any]
    requires_approval: bool
    risk: Risk
    trust: Trust
    """Whether strangers may have written what it returns; only `check` reads it."""
    isolation: Literal["none", "inline", "thread", "process"]
    """Where the function runs; `process` can be killed at the timeout. `inline` is for quick sync functions
    that never block: it runs on the event loop, which stands still meanwhile, and has no timeout."""
    parallel: bool
    repeatable: bool
    cacheable: bool
    cache_ttl_s: float | None
    max_result_size: int | None
    listing: bool
    memory_mb: int
    environment: tuple[str, ...]


_PLAIN_TYPES = (str, int, float, bool)
"""Types whose values a model returns as they are."""

_MARK = OptionMark(
    attribute="__toolchart_tool__",
    subject="a tool",
    options=tuple(ToolOptions.__annotations__),
    # A word that nothing knows would let the call run, and silence `check`.
    words={"risk": typing.get_args(Risk), "trust": typing.get_args(Trust)},
)

_SECTIONS = re.compile(
    r"\n\s*(?:(?:Args|Arguments|Parameters|Returns|Yields|Raises|Examples?|Notes?):|:param\b|:return)"
)
_ARGUMENT = re.compile(r"^\s{2,}\*{0,2}(\w+)(?:\s*\([^)]*\))?\s*:\s*(.+)$")
_FIELD = re.compile(r"^\s*:param\s+(?:[\w\[\], |]+\s)?(\w+):\s*(.+)$")


@overload
def tool(function: Function) -> Function: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Function], Function]: ...
def tool(function: Any = None, **options: Unpack[ToolOptions]) -> Any:
    """Mark a function as a tool and store its options; it stays an ordinary function.

        >>> @tool(idempotent=True)
        ... def add(a: int, b: int = 1) -> int:
        ...     '''Add two numbers.'''
        ...     return a + b
        >>> make_tool(add).definition.parameters["required"]
        ['a']
        >>> add(2)
        3

    Args:
        options: `name`, `description`, `timeout_s`, `idempotent`, `status`, `requires_approval`, `risk`
            (`low`, `medium`, `high`), `trust` (`trusted`, `untrusted`), `isolation` (`inline`, `thread`,
            `process`), `parallel`, `repeatable`, `cacheable`, `cache_ttl_s`, `max_result_size`, `listing`,
            `memory_mb`, `environment`.
            `Tool` and `ToolOptions` describe them.

    Raises:
        SpecError: an option is unknown, or has a value that it cannot have.
    """
    return _MARK.decorate(function, options)


def get_own_timeout_s(function: Callable[..., Any] | None) -> float | None:
    """The timeout that `@tool` gave a function; None where it gave none."""
    timeout_s: float | None = read_tool_options(function).get("timeout_s")
    return timeout_s


def read_tool_options(function: Any) -> dict[str, Any]:
    """The options that `@tool` has stored; none for a function that it does not mark."""
    return _MARK.read_options(function)


def make_tool(function: Callable[..., Any], options: Mapping[str, Any] | None = None) -> Tool:
    """Make the tool of a function, whether or not `@tool` marks it.

    Args:
        options: in place of those that `@tool` stored.

    Sync functions run in a thread. Async functions are awaited, and cancelled at the timeout. What any of
    them returns is awaited where it is awaitable, and read to its end where it is an iterator. With
    `isolation="process"` both run in a process that is killed at the timeout. With `isolation="inline"` a
    sync function runs on the event loop: no thread, no timeout, and nothing else runs until it returns.

    Raises:
        SpecError: a parameter cannot be passed by name, a type has no JSON Schema, the function cannot
            be imported by another process, or it is to run inline and is async or has a timeout; or it is
            no function.
    """
    require_function("a tool", function)
    options = read_tool_options(function) if options is None else dict(options)
    has_timeout = "timeout_s" in options
    options.pop("trust", None)  # a statement for `check`, which runs nothing
    docstring = inspect.getdoc(function) or ""
    name = str(getattr(function, "__name__", type(function).__name__))
    run = PythonRunner(function, name)
    definition = ToolDefinition(
        name=options.pop("name", name),
        description=options.pop("description", None) or _extract_summary(docstring) or name,
        parameters=run.build_schema(_extract_argument_docs(docstring)),
    )
    if options.get("status") is not None and not callable(options["status"]):
        raise SpecError(
            f"tool {definition.name!r}: status is a function, not {options['status']!r}",
            hint="@tool(status=find_payment); in a spec `status: module:function`",
        )
    mode = choose_execution_mode(function, definition.name, options.pop("isolation", None))
    if mode == "inline" and has_timeout:
        raise make_inline_timeout_error(definition.name, "timeout_s")
    return Tool(
        definition=definition,
        run=run,
        execution_mode=mode,
        kind="python",
        function=function,
        action=describe_function(function),
        needs_context=run.context_parameter is not None,
        **options,
    )


def choose_execution_mode(
    function: Callable[..., Any] | None, name: str, isolation: str | None
) -> ExecutionMode:
    """Choose how a Python function runs, from the isolation that its author or the spec demands.

    Raises:
        SpecError: the isolation is unknown, the function cannot be imported by another process or takes a
            `ToolContext` there, or it is async and is to run inline.
    """
    is_async = _is_async(function)
    if isolation == "process":
        from toolchart.tools.execution.isolation import check_isolable

        check_isolable(function, name)
        if function is not None and _find_context_parameter(_read_type_hints(function, name), name):
            raise SpecError(
                f"tool {name!r}: its ToolContext cannot be sent to a child process",
                hint="use isolation: thread, or leave the context out",
            )
        return "process"
    if isolation == "inline":
        if is_async:
            raise SpecError(
                f"tool {name!r} is async and cannot run inline: only a sync function can",
                hint="leave isolation out: an async function is awaited on the event loop anyway",
            )
        return "inline"
    if isolation not in (None, "none", "thread"):
        raise SpecError(
            f"tool {name!r}: {isolation!r} is not an isolation", hint="known: none, inline, thread, process"
        )
    return "async" if is_async else "thread"


def _is_async(function: Callable[..., Any] | None) -> bool:
    """Whether a call of the function, or of the object with a `__call__` method, gives a coroutine or an
    async generator.
    """
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(is_kind(function) or is_kind(type(function).__call__) for is_kind in kinds)


def make_inline_timeout_error(name: str, key: str) -> SpecError:
    """The error for a timeout that could not be kept.

    Args:
        key: the setting that gives the timeout.
    """
    return SpecError(
        f"tool {name!r}: {key} cannot hold with isolation: inline, which nothing can interrupt",
        hint=f"leave {key} out, or use isolation: thread",
    )


class PythonRunner:
    """Calls a function with arguments converted to the types of its signature."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        hints = _read_type_hints(function, name)
        self.context_parameter = _find_context_parameter(hints, name)
        """Name of the parameter that gets the `ToolContext`, if there is one."""
        self._model, self._names = _build_argument_model(function, name, hints, self.context_parameter)
        self._decimal_names = frozenset(
            self._names[field]
            for field, info in self._model.model_fields.items()
            if _names_decimal(info.annotation)
        )
        self._schema: dict[str, Any] = {}
        self._plain_types, self._required_names = _list_plain_types(self._model, self._names)
        self._tool = name

    def __call__(self, arguments: Mapping[str, Any], context: CallContext = NO_CONVERSATION) -> Any:
        """Call the function; returns its result, or its coroutine if it is async."""
        values = self.convert_arguments(arguments)
        if self.context_parameter is not None:
            values[self.context_parameter] = context.describe_call()
        return self._function(**values)

    def convert_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert arguments to the types of the signature; missing ones are left to its defaults.

        Raises:
            ToolFailure: a value fits the JSON Schema but not the type, or would become another time or
                number.
        """
        # Where every argument has exactly the plain type of its parameter, and none is missing, the model
        # would return the same values. Asking it takes several times as long.
        plain_types = self._plain_types
        for name, value in arguments.items():
            if type(value) is not plain_types.get(name):
                return self._convert_by_model(arguments)
        if self._required_names <= arguments.keys():
            return dict(arguments)
        return self._convert_by_model(arguments)

    def _convert_by_model(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        from pydantic import ValidationError

        from toolchart.tools.schemas.forms import find_form_problem, find_inexact_number

        problem = find_form_problem(arguments, self._schema)
        if problem is not None:
            raise ToolFailure(problem)
        for name in self._decimal_names & arguments.keys():
            number = find_inexact_number(arguments[name])
            if number is not None:
                raise ToolFailure(f"parameter {name!r}: {number!r} may have lost digits: write it as a text")
        try:
            values = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ToolFailure(f"parameter {place!r}: {first['msg']}") from None
        return {
            name: getattr(values, field)
            for field, name in self._names.items()
            if field in values.model_fields_set
        }

    def build_schema(self, docs: Mapping[str, str]) -> dict[str, Any]:
        """The JSON Schema of the arguments.

        Args:
            docs: descriptions of parameters, used where the type itself has none.

        Raises:
            SpecError: a type has no JSON Schema.
        """
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            with warnings.catch_warnings(action="ignore"):  # of defaults that JSON cannot express
                schema: dict[str, Any] = self._model.model_json_schema()
        except PydanticInvalidForJsonSchema as error:
            raise SpecError(f"tool {self._tool!r}: {str(error).splitlines()[0]}") from None
        schema.pop("title", None)
        schema.setdefault("properties", {})
        # A class makes its objects without the fields that it does not know. The call is refused instead.
        for name, entry in schema.get("$defs", {}).items():
            schema["$defs"][name] = close_schema(entry)
        for name, entry in schema["properties"].items():
            entry.pop("title", None)
            if name in docs and "description" not in entry:
                entry["description"] = docs[name]
        self._schema = schema
        return schema


def _names_decimal(annotation: Any) -> bool:
    return annotation is Decimal or any(map(_names_decimal, typing.get_args(annotation)))


def _find_context_parameter(hints: Mapping[str, Any], name: str) -> str | None:
    """The parameter that is annotated with `ToolContext`.

    Raises:
        SpecError: there are several.
    """
    parameters = [key for key, hint in hints.items() if key != "return" and is_tool_context(hint)]
    if len(parameters) > 1:
        raise SpecError(f"tool {name!r}: {', '.join(parameters)} are all a ToolContext", hint="keep one")
    return parameters[0] if parameters else None


def _build_argument_model(
    function: Callable[..., Any], name: str, hints: Mapping[str, Any], context_parameter: str | None
) -> tuple[Any, dict[str, str]]:
    """A pydantic model of the parameters, and the parameter name of each of its fields.

    The fields get generated names, with the parameter names as aliases, because a parameter may be
    called `json` or `_x` and a field may not.
    """
    from pydantic import ConfigDict, Field, create_model
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise SpecError(
                f"parameter {parameter.name!r} of tool {name!r} cannot be passed by name",
                hint="write it as an ordinary parameter",
            )
        if parameter.name == context_parameter:
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        field = f"argument_{place}"
        names[field] = parameter.name
        fields[field] = (hints.get(parameter.name, Any), Field(default, alias=parameter.name))
    try:
        return create_model(name, __config__=ConfigDict(), **fields), names
    except PydanticSchemaGenerationError:
        raise _build_type_error(name, {names[field]: kind for field, (kind, _) in fields.items()}) from None
    except PydanticUserError as error:
        raise SpecError(f"tool {name!r}: {str(error).splitlines()[0]}") from None


def _build_type_error(name: str, hints: Mapping[str, Any]) -> SpecError:
    """The error for a tool with a parameter whose type no JSON describes."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    for parameter, hint in hints.items():
        try:
            TypeAdapter(hint)
        except PydanticUserError:
            kind = getattr(hint, "__name__", str(hint))
            return SpecError(
                f"tool {name!r}: the parameter {parameter!r} has the type {kind}, which no JSON describes",
                hint="use plain types, a dataclass, a TypedDict or a pydantic model; "
                "a service of the program is no argument: take it from ToolContext.dependencies",
            )
    return SpecError(f"tool {name!r}: its parameters have no JSON Schema")


def _list_plain_types(model: Any, names: Mapping[str, str]) -> tuple[dict[str, type], frozenset[str]]:
    """By parameter name: the type, where it is plain and has no constraints; and the required names."""
    fields = {names[field]: info for field, info in model.model_fields.items()}
    plain_types = {
        name: info.annotation
        for name, info in fields.items()
        if info.annotation in _PLAIN_TYPES and not info.metadata
    }
    return plain_types, frozenset(name for name, info in fields.items() if info.is_required())


def _read_type_hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise SpecError(
            f"tool {name!r}: its types cannot be resolved: {error}",
            hint="types must be visible in the function's module",
        ) from None


def _extract_summary(docstring: str) -> str:
    """The part of a docstring before its first section."""
    return _SECTIONS.split(f"\n{docstring}")[0].strip()


def _extract_argument_docs(docstring: str) -> dict[str, str]:
    """The description of each parameter, from an `Args:` section or from `:param name:` lines."""
    section = re.search(r"\n\s*(?:Args|Arguments):\n(.*?)(?:\n\s*\n|\n\S|\Z)", docstring, re.S)
    descriptions: dict[str, str] = {}
    name = ""
    for line in (section.group(1) if section else "").splitlines():
        match = _ARGUMENT.match(line)
        if match:
            name = match.group(1)
            descriptions[name] = match.group(2).strip()
        elif name and line.strip():
            descriptions[name] += f" {line.strip()}"
    matches = (_FIELD.match(line) for line in docstring.splitlines())
    return descriptions | {match.group(1): match.group(2).strip() for match in matches if match}
