"""Whether arguments fit a tool's JSON Schema (2020-12), and what is wrong with them.

`jsonschema` is the authority and says what is wrong. It takes tens of microseconds, and importing it takes
much longer. So most schemas are compiled by `jsonschema-rs`, which says yes or no in less than a microsecond.
A schema that the two may not read alike is not compiled. Nor is one that contains itself or nests deep: it or
its values may be deeper than the stack of a thread, and then compiled code ends the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from toolchart.states.canonical_json import has_only_finite_numbers, is_whole_number
from toolchart.states.errors import SpecError
from toolchart.workers.patterns import get_pattern

SchemaCheck = Callable[[Any], bool]
"""Returns whether a JSON value fits a schema. It raises for what is no JSON, such as a lone surrogate."""

_ANNOTATIONS = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "format",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$schema",
        "$defs",
        "definitions",
    }
)
"""Keywords that do not constrain. `format` is an annotation in 2020-12."""

_PLAIN_KEYWORDS = _ANNOTATIONS | {
    "type",
    "enum",
    "const",
    "required",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
}
"""Keywords without a schema in them that both libraries read alike. `multipleOf` is not one of them: one
counts in decimals, the other in binary fractions."""

_PART_KEYWORDS = frozenset({"items", "not", "additionalProperties"})
"""Keywords whose operand is a schema."""

_LIST_KEYWORDS = frozenset({"anyOf", "allOf", "oneOf"})
"""Keywords whose operand is a list of schemas."""

_NAMING_KEYWORDS = frozenset(
    {"$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"}
)
"""Keywords with which a reference leads elsewhere than to a part counted from the root."""

_PLAIN_REFERENCE = re.compile(r"#(?:/[\w.~!$&'()*+,;=:@?/-]*)?", re.ASCII)
"""What both libraries read as a pointer from the root: the characters of an address, none of them escaped."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_MAX_LEVELS = 64
"""Levels that a tool's schema may have; a compiled one has no more with its references written out."""

_OPEN_SCHEMA_KEYWORDS = frozenset(
    {
        "additionalProperties",
        "patternProperties",
        "unevaluatedProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "if",
    }
)
"""Keywords that may allow parameters beside those listed in `properties`."""


def close_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a tool's parameters, without parameters beside those that it lists.

    JSON Schema allows them where it says nothing. A tool has none that its schema does not speak of.
    """
    if "properties" not in schema or not _OPEN_SCHEMA_KEYWORDS.isdisjoint(schema):
        return schema
    return {**schema, "additionalProperties": False}


def compile_schema(schema: Any) -> SchemaCheck | None:
    """Compile a schema to a predicate; None where only `jsonschema` can validate it, or it is no schema."""
    try:
        levels = _count_levels(schema, schema, {}) if _has_plain_references(schema) else None
    except RecursionError:
        return None
    if levels is None or levels > _MAX_LEVELS:
        return None
    from jsonschema_rs import Draft202012Validator

    try:
        validator = Draft202012Validator(
            schema, validate_formats=False, offline=True, keywords={"pattern": _PatternKeyword}
        )
    except ValueError:
        return None
    is_valid: SchemaCheck = validator.is_valid
    if _has_only_typed_values(schema):
        return is_valid  # no type is that of infinity, so nothing needs to look for it
    return lambda value: is_valid(value) and has_only_finite_numbers(value)


def _has_only_typed_values(schema: Any) -> bool:
    """Whether each value that a compiled schema accepts, at any depth, has a type that the schema names.
    False also where that is not seen at once, as behind a reference."""
    if not isinstance(schema, dict):
        return False
    if "anyOf" in schema:
        return all(map(_has_only_typed_values, schema["anyOf"]))
    types = schema.get("type")
    if types is None or ("array" in types and not _has_only_typed_values(schema.get("items"))):
        return False
    return "object" not in types or (
        schema.get("additionalProperties") is False
        and all(map(_has_only_typed_values, schema.get("properties", {}).values()))
    )


def _has_plain_references(schema: Any) -> bool:
    """Whether all references are pointers from the root, and nothing in it, used or not, changes where they
    lead."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        if not isinstance(node, dict):
            continue
        target, dialect = node.get("$ref"), node.get("$schema")
        if not _NAMING_KEYWORDS.isdisjoint(node):
            return False
        if isinstance(target, str) and not _PLAIN_REFERENCE.fullmatch(target):
            return False
        if isinstance(dialect, str) and dialect != _DIALECT:
            return False
        pending += node.values()
    return True


def _count_levels(schema: Any, root: Any, levels_of: dict[str, int | None]) -> int | None:
    """How deep a schema, or a part of one, nests with its references written out; None where it contains
    itself or uses what the two libraries may not read alike.

    Args:
        levels_of: the same for each reference that was met; None while the walk is inside of what it names.
    """
    if not isinstance(schema, dict):
        return 1 if isinstance(schema, bool) else None
    deepest = 0
    for keyword, operand in schema.items():
        if keyword in _PLAIN_KEYWORDS:
            continue
        parts: Iterable[Any]
        if keyword in _PART_KEYWORDS:
            parts = (operand,)
        elif keyword in _LIST_KEYWORDS and isinstance(operand, list):
            parts = operand
        elif keyword == "properties" and isinstance(operand, dict):
            parts = operand.values()
        elif keyword == "pattern":
            if not _is_compilable_pattern(operand):
                return None
            continue
        elif keyword == "$ref" and isinstance(operand, str):
            if operand not in levels_of:
                levels_of[operand] = None
                levels_of[operand] = _count_levels(find_local_reference(root, operand), root, levels_of)
            levels = levels_of[operand]
            if levels is None:
                return None
            deepest = max(deepest, levels)
            continue
        else:
            return None
        for part in parts:
            levels = _count_levels(part, root, levels_of)
            if levels is None:
                return None
            deepest = max(deepest, levels)
    return deepest + 1


def _is_compilable_pattern(operand: Any) -> bool:
    """Whether it is a pattern for the metaschema too, which reads it as Python does."""
    try:
        return isinstance(operand, str) and bool(re.compile(operand)) and get_pattern(operand).is_linear
    except (re.error, OverflowError, RecursionError, ValueError):
        return False


class _PatternKeyword:
    """`pattern` in a compiled schema: the dialect and the engine of all patterns of authors.

    Args:
        parent_schema: the schema in which it stands.
        value: the pattern.
        schema_path: where it stands.
    """

    def __init__(self, parent_schema: Any, value: str, schema_path: Any) -> None:
        self._pattern = get_pattern(value)

    def validate(self, instance: Any) -> None:
        """Accept a value. Raises ValueError where it is a text that does not match."""
        if isinstance(instance, str) and not self._pattern.occurs_in(instance):
            raise ValueError("it does not match")


def is_json_equal(first: Any, second: Any) -> bool:
    """JSON equality: 1 equals 1.0, but true does not equal 1, at any depth."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(is_json_equal, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(is_json_equal(first[key], second[key]) for key in first)
    return bool(first == second)


def is_number(value: Any) -> bool:
    """Whether it is a number for JSON Schema: true is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def find_local_reference(root: Any, target: str) -> Any:
    """The part of a schema that a reference such as `#/$defs/name` names; None where there is none."""
    node = root if target == "#" or target.startswith("#/") else None
    for step in target.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(name)
        elif isinstance(node, list) and is_whole_number(name) and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node


def allows_any_of_its_types(schema: Any) -> bool:
    """Whether a part of a schema names types, or alternatives that do, and has no other condition."""
    keywords = schema.keys() - _ANNOTATIONS if isinstance(schema, dict) else set()
    return keywords == {"type"} or (
        keywords == {"anyOf"} and all(map(allows_any_of_its_types, schema["anyOf"]))
    )


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
        self.is_valid_at_once: SchemaCheck | None = compile_schema(schema)
        """Whether arguments fit, without `jsonschema`; None where only that can say. It may raise."""

    @property
    def is_compiled(self) -> bool:
        """Whether `jsonschema` is only needed for error texts."""
        return self.is_valid_at_once is not None

    def is_valid(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments fit; fast where the schema could be compiled."""
        is_fit = self._check_at_once(arguments)
        if is_fit is not None:
            return is_fit
        try:
            return bool(self._get_validator().is_valid(arguments)) and has_only_finite_numbers(arguments)
        except Exception:  # the library raises its own errors, for instance for a reference to nothing
            return False

    def describe_problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments: at most three problems, the outermost first; None where
        they fit."""
        if self._check_at_once(arguments):
            return None
        try:
            errors = sorted(
                self._get_validator().iter_errors(arguments), key=lambda error: len(error.absolute_path)
            )
        except RecursionError:
            return "the arguments are nested too deeply to be checked"
        except Exception as error:  # as in `is_valid`
            return f"the tool's schema cannot be used: {_shorten_message(str(error))}"
        problems = list(dict.fromkeys(_describe_schema_error(error) for error in errors))
        if not problems and not has_only_finite_numbers(arguments):
            return "the arguments have a number out of range"
        return "; ".join(problems[:MAX_PROBLEMS]) or None

    def _check_at_once(self, arguments: Mapping[str, Any]) -> bool | None:
        """Whether the arguments fit, without `jsonschema`; None where only it can say."""
        if self.is_valid_at_once is None:
            return None
        try:
            return self.is_valid_at_once(arguments)
        except (ValueError, TypeError):
            return None

    def _get_validator(self) -> Any:
        if self._validator is None:
            from jsonschema_specifications import REGISTRY

            # With a registry of its own the library fetches nothing: a reference to an address is an error.
            self._validator = make_validator_class()(self.schema, registry=REGISTRY)
        return self._validator


@cache
def make_validator_class() -> Any:
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
        SpecError: they are not, with the path inside the schema; or the schema nests too deeply.
    """
    hint = "write JSON Schema: {type: object, properties: {name: {type: string}}, required: [name]}"
    too_deep = SpecError(
        f"the schema of the parameters of tool {tool!r} nests too deeply",
        hint=f"a schema has at most {_MAX_LEVELS} levels",
    )
    if _nests_too_deeply(schema):
        raise too_deep
    # Compiling includes the check against the metaschema, and `jsonschema` takes a hundred times as long.
    if compile_schema(schema) is None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            path = "/".join(["parameters", *map(str, error.absolute_path)])
            problem = _shorten_message(error.message)
            message = f"the parameters of tool {tool!r} are not a JSON Schema: {problem}"
            raise SpecError(message, path=path, hint=hint) from None
        except RecursionError:
            raise too_deep from None
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise SpecError(f"the parameters of tool {tool!r} are not an object", hint=hint)


def _nests_too_deeply(schema: Any) -> bool:
    """Whether a schema has more levels than `_MAX_LEVELS`. Each is two levels of JSON: the keyword's operand,
    and the part inside."""
    level = [schema]
    for _ in range(2 * _MAX_LEVELS):
        level = [
            part
            for node in level
            if isinstance(node, (Mapping, list))
            for part in (node.values() if isinstance(node, Mapping) else node)
        ]
        if not level:
            return False
    return True


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
