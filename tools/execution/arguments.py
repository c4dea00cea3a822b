"""Validation of a call's arguments against the tool's JSON Schema (2020-12), with error texts that
name the parameter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.tools.execution.compiled_schema import SchemaCheck, compile_schema
from toolchart.workers.patterns import get_pattern

MAX_PROBLEMS = 3
"""Problems of one call that its error text lists."""

_MAX_VALUE_TEXT = 60
"""Characters of a value in an error text."""


class ArgumentCheck:
    """The schema of one tool, compiled once.

    Args:
        is_trusted: the schema is known to be valid (that of a builtin), so that it need not be checked
            and `jsonschema` is not imported before a call fails.

    Raises:
        SpecError: the schema itself is not valid.
    """

    def __init__(self, schema: Mapping[str, Any], tool: str, *, is_trusted: bool = False) -> None:
        self.schema = schema
        self._validator: Any = None
        if not is_trusted:
            check_schema(schema, tool)
        self._compiled_check: SchemaCheck | None = compile_schema(schema)

    @property
    def is_compiled(self) -> bool:
        """Whether `jsonschema` is only needed for error texts."""
        return self._compiled_check is not None

    def is_valid(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments fit; fast where the schema could be compiled."""
        try:
            if self._compiled_check is not None:
                return self._compiled_check(arguments)
            return bool(self._get_validator().is_valid(arguments))
        except Exception:  # the library raises its own errors, for instance for a reference to nothing
            return False

    def describe_problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments: at most three problems, the outermost first; None where
        they fit."""
        try:
            if self._compiled_check is not None and self._compiled_check(arguments):
                return None
            errors = sorted(
                self._get_validator().iter_errors(arguments), key=lambda error: len(error.absolute_path)
            )
        except RecursionError:
            return "the arguments are nested too deeply to be checked"
        except Exception as error:  # as in `is_valid`
            return f"the tool's schema cannot be used: {_shorten_message(str(error))}"
        problems = list(dict.fromkeys(_describe_schema_error(error) for error in errors))
        return "; ".join(problems[:MAX_PROBLEMS]) or None

    def _get_validator(self) -> Any:
        if self._validator is None:
            self._validator = _make_validator_class()(self.schema)
        return self._validator


@cache
def _make_validator_class() -> Any:
    """The 2020-12 validator, with patterns in linear time."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def check_pattern(validator: Any, pattern: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, str) and not get_pattern(pattern).occurs_in(value):
            yield ValidationError(f"{format_value(value)} does not match {pattern!r}")

    return extend(Draft202012Validator, {"pattern": check_pattern})  # type: ignore[no-untyped-call]


def check_schema(schema: Any, tool: str) -> None:
    """Check that a tool's parameters are a JSON Schema (2020-12) of an object.

    Raises:
        SpecError: they are not, with the path inside the schema.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    hint = "write JSON Schema: {type: object, properties: {name: {type: string}}, required: [name]}"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        path = "/".join(["parameters", *map(str, error.absolute_path)])
        problem = _shorten_message(error.message)
        message = f"the parameters of tool {tool!r} are not a JSON Schema: {problem}"
        raise SpecError(message, path=path, hint=hint) from None
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise SpecError(f"the parameters of tool {tool!r} are not an object", hint=hint)


def _describe_schema_error(error: Any) -> str:
    path = _format_argument_path(error.absolute_path)
    subject = f"parameter {path!r}" if path else "the arguments"
    constraint, value = error.validator_value, error.instance
    match error.validator:
        case "required":
            missing_name = next(name for name in constraint if name not in value)
            return f"missing required parameter {_join_argument_path(path, missing_name)!r}"
        case "type":
            types = constraint if isinstance(constraint, list) else [constraint]
            return f"{subject} must be {_format_types(types)}, not {format_value(value)}"
        case "enum":
            choices = ", ".join(map(format_value, constraint))
            hint = _suggest_allowed_value(value, constraint)
            return f"{subject} must be one of {choices}, not {format_value(value)}{hint}"
        case "additionalProperties" if constraint is False:
            return _describe_unknown_parameter(path, value, error.schema)
        case "anyOf" | "oneOf":
            options = " or ".join(dict.fromkeys(_describe_option(option) for option in constraint))
            return f"{subject} must be {options}, not {format_value(value)}"
    return f"{subject}: {_shorten_message(error.message)}"


def _format_argument_path(path: Iterable[Any]) -> str:
    """A path into the arguments, such as `filters[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _join_argument_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _describe_unknown_parameter(path: str, value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    parameters = [str(name) for name in schema.get("properties", {})]
    unknown_name = next((str(name) for name in value if name not in parameters), "")
    similar_names = get_close_matches(unknown_name, parameters, n=1)
    hint = (
        f"did you mean {similar_names[0]!r}?"
        if similar_names
        else f"known: {', '.join(parameters) or 'none'}"
    )
    return f"unknown parameter {_join_argument_path(path, unknown_name)!r} ({hint})"


def _suggest_allowed_value(value: Any, choices: Iterable[Any]) -> str:
    texts = [choice for choice in choices if isinstance(choice, str)]
    similar_texts = get_close_matches(value, texts, n=1) if isinstance(value, str) else []
    return f" (did you mean {similar_texts[0]!r}?)" if similar_texts else ""


def _describe_option(option: Any) -> str:
    """One alternative of an `anyOf` or `oneOf`, in a few words."""
    if not isinstance(option, Mapping):
        return "anything"
    if "const" in option:
        return format_value(option["const"])
    if "enum" in option:
        return "one of " + ", ".join(map(format_value, option["enum"]))
    kind = option.get("type")
    if kind is None:
        return "another kind of value"
    return _format_types(kind if isinstance(kind, list) else [kind])


def _format_types(types: Iterable[str]) -> str:
    return " or ".join(f"{'an' if name[:1] in 'aeiou' else 'a'} {name}" for name in types)


def format_value(value: Any) -> str:
    """A value for an error text, cut to sixty characters."""
    text = repr(value[: _MAX_VALUE_TEXT * 2]) if isinstance(value, str) else repr(value)
    return text if len(text) <= _MAX_VALUE_TEXT else text[: _MAX_VALUE_TEXT - 3] + "..."


def _shorten_message(text: str) -> str:
    return text if len(text) <= 3 * _MAX_VALUE_TEXT else text[: 3 * _MAX_VALUE_TEXT] + "..."
