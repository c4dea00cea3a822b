"""Arguments against their JSON Schema (2020-12), with messages that name the parameter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.tools.execution.compiled_schema import MOST_PATTERN_TEXT, Check, compile_check

MOST_PROBLEMS = 3
"""Problems of one call that are told at once."""

_LONGEST = 60
"""Characters of a value that an error text shows."""


class ArgumentCheck:
    """The schema of one tool, compiled once.

    Args:
        trusted: the schema is known to be a schema (a builtin's own), so that it need not be
        checked
            and `jsonschema` need not be loaded before a call fails.

    Raises:
        SpecError: the schema itself is not valid.
    """

    def __init__(self, schema: Mapping[str, Any], tool: str, *, trusted: bool = False) -> None:
        self.schema = schema
        self._validator: Any = None
        if not trusted:
            check_schema(schema, tool)
        self._quick: Check | None = compile_check(schema)

    def valid(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments fit; quick where the schema could be compiled."""
        try:
            if self._quick is not None:
                return self._quick(arguments)
            return bool(self._full().is_valid(arguments))
        except RecursionError:
            return False

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, or None; at most three problems, the outermost
        first."""
        try:
            if self._quick is not None and self._quick(arguments):
                return None
            errors = sorted(
                self._full().iter_errors(arguments), key=lambda error: len(error.absolute_path)
            )
        except RecursionError:
            return "the arguments are nested too deeply to be checked"
        told = list(dict.fromkeys(_told(error) for error in errors))
        return "; ".join(told[:MOST_PROBLEMS]) or None

    def _full(self) -> Any:
        if self._validator is None:
            self._validator = _validator_class()(self.schema)
        return self._validator


@cache
def _validator_class() -> Any:
    """The validator of 2020-12, with a bound for the texts that patterns are held against."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    known = Draft202012Validator.VALIDATORS["pattern"]

    def pattern(validator: Any, expected: Any, given: Any, schema: Any) -> Iterator[Any]:
        if isinstance(given, str) and len(given) > MOST_PATTERN_TEXT:
            yield ValidationError(
                f"longer than {MOST_PATTERN_TEXT} characters, too long for a pattern"
            )
        else:
            yield from known(validator, expected, given, schema) or ()

    return extend(Draft202012Validator, {"pattern": pattern})  # type: ignore[no-untyped-call]


def check_schema(schema: Any, tool: str) -> None:
    """Whether it is a JSON Schema (2020-12) of an object.

    Raises:
        SpecError: it is not, with the place inside the schema.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    hint = "write JSON Schema: {type: object, properties: {name: {type: string}}, required: [name]}"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = "/".join(["parameters", *map(str, error.absolute_path)])
        message = f"the parameters of tool {tool!r} are not a JSON Schema: {_cut(error.message)}"
        raise SpecError(message, path=place, hint=hint) from None
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise SpecError(f"the parameters of tool {tool!r} are not an object", hint=hint)


def _told(error: Any) -> str:
    place = _place(error.absolute_path)
    subject = f"parameter {place!r}" if place else "the arguments"
    expected, given = error.validator_value, error.instance
    match error.validator:
        case "required":
            missing = next(name for name in expected if name not in given)
            return f"missing required parameter {_inside(place, missing)!r}"
        case "type":
            words = expected if isinstance(expected, list) else [expected]
            return f"{subject} must be {_either(words)}, not {shown(given)}"
        case "enum":
            allowed = ", ".join(map(shown, expected))
            return (
                f"{subject} must be one of {allowed}, not {shown(given)}{_nearest(given, expected)}"
            )
        case "additionalProperties" if expected is False:
            return _unexpected(place, given, error.schema)
        case "anyOf" | "oneOf":
            options = " or ".join(dict.fromkeys(_described(option) for option in expected))
            return f"{subject} must be {options}, not {shown(given)}"
    return f"{subject}: {_cut(error.message)}"


def _place(path: Iterable[Any]) -> str:
    """`filters[0].name` for a path into the arguments."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _unexpected(place: str, given: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    known = [str(name) for name in schema.get("properties", {})]
    extra = next((str(name) for name in given if name not in known), "")
    close = get_close_matches(extra, known, n=1)
    allowed = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
    return f"unknown parameter {_inside(place, extra)!r} ({allowed})"


def _nearest(given: Any, allowed: Iterable[Any]) -> str:
    words = [value for value in allowed if isinstance(value, str)]
    close = get_close_matches(given, words, n=1) if isinstance(given, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""


def _described(option: Any) -> str:
    """An alternative of a schema in a few words."""
    if not isinstance(option, Mapping):
        return "anything"
    if "const" in option:
        return shown(option["const"])
    if "enum" in option:
        return "one of " + ", ".join(map(shown, option["enum"]))
    kind = option.get("type")
    if kind is None:
        return "a value of another alternative"
    return _either(kind if isinstance(kind, list) else [kind])


def _either(words: Iterable[str]) -> str:
    return " or ".join(f"{'an' if word[:1] in 'aeiou' else 'a'} {word}" for word in words)


def shown(value: Any) -> str:
    """A value in an error text, at most sixty characters of it."""
    text = repr(value[: _LONGEST * 2]) if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _cut(text: str) -> str:
    return text if len(text) <= 3 * _LONGEST else text[: 3 * _LONGEST] + "..."
