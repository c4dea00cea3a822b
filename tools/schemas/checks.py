"""Whether arguments fit a tool's JSON Schema (2020-12), and what is wrong with them.

A schema is compiled to closures: a predicate that agrees with `jsonschema` on every value and takes about a
microsecond. Where it is false, or a schema uses a keyword that is not compiled here, `jsonschema` is called,
and error texts name the parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.workers.patterns import get_pattern

SchemaCheck = Callable[[Any], bool]
"""Returns whether a value fits a schema."""

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
"""Keywords that do not constrain. `format` is an annotation in 2020-12. Unknown keywords are too, but a
schema with an unknown keyword is left to `jsonschema`."""


class _UnsupportedSchema(Exception):
    """The schema uses something that is not compiled here."""


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


def allows_unknown_parameters(schema: Mapping[str, Any]) -> bool:
    """Whether arguments may have parameters beside those that the schema lists.

    JSON Schema allows them where it says nothing. A tool has none that its schema does not speak of.
    """
    return "properties" not in schema or not _OPEN_SCHEMA_KEYWORDS.isdisjoint(schema)


def compile_schema(schema: Any, *, allows_unknown: bool = True) -> SchemaCheck | None:
    """Compile a schema to a predicate; None where only `jsonschema` can validate it.

    Args:
        allows_unknown: whether it is true for parameters that a tool with this schema does not have.
    """
    root = schema
    if not allows_unknown and not allows_unknown_parameters(schema):
        schema = {**schema, "additionalProperties": False}
    try:
        return _SchemaCompiler(root).compile_node(schema)
    except (_UnsupportedSchema, RecursionError, ValueError):
        return None


def is_json_equal(first: Any, second: Any) -> bool:
    """JSON equality: 1 equals 1.0, but true does not equal 1, at any depth."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(is_json_equal, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(is_json_equal(first[key], second[key]) for key in first)
    return bool(first == second)


def is_integer(value: Any) -> bool:
    """Whether it is an integer for JSON Schema: 3 and 3.0 are, true is not."""
    if type(value) is int:
        return True
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def is_number(value: Any) -> bool:
    """Whether it is a number for JSON Schema: true is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: dict[str, tuple[tuple[type, ...], SchemaCheck]] = {
    "string": ((str,), lambda value: isinstance(value, str)),
    "integer": ((int,), is_integer),
    "number": ((int, float), is_number),
    "boolean": ((bool,), lambda value: isinstance(value, bool)),
    "null": ((type(None),), lambda value: value is None),
    "array": ((list,), lambda value: isinstance(value, list)),
    "object": ((dict,), lambda value: isinstance(value, dict)),
}
"""By type of JSON Schema: the Python types whose values certainly have it, and whether any value has it."""

_OBJECT_KEYWORDS = frozenset({"properties", "required", "additionalProperties"})
"""Keywords that are checked together, and with them `type: object`."""


def find_local_reference(root: Any, target: str) -> Any:
    """The part of a schema that a reference such as `#/$defs/name` names; None where there is none."""
    node = root if target == "#" or target.startswith("#/") else None
    for step in target.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(name)
        elif isinstance(node, list) and name.isdigit() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node


class _SchemaCompiler:
    """Compiles one schema; `$ref` is resolved against its root."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._references: dict[str, list[SchemaCheck]] = {}

    def compile_node(self, schema: Any) -> SchemaCheck:
        """A predicate for the schema or one of its parts.

        Raises:
            _UnsupportedSchema: it has a keyword that is not compiled here.
        """
        if isinstance(schema, bool):
            return lambda value: schema
        if not isinstance(schema, dict):
            raise _UnsupportedSchema
        checks: list[SchemaCheck] = []
        keywords = schema.keys() - _ANNOTATIONS
        if not keywords.isdisjoint(_OBJECT_KEYWORDS):
            checks.append(self._compile_object(schema))
            keywords -= _OBJECT_KEYWORDS
            if schema.get("type") == "object":
                keywords.remove("type")
        for key in schema:
            if key in keywords:
                if key not in _KEYWORDS:
                    raise _UnsupportedSchema
                checks.append(_KEYWORDS[key](self, schema[key], schema))
        if not checks:
            return lambda value: True
        return checks[0] if len(checks) == 1 else lambda value: all(check(value) for check in checks)

    def _compile_object(self, schema: Mapping[str, Any]) -> SchemaCheck:
        """One closure for the keywords of an object.

        Most values have exactly the one type that their schema asks for, and it asks for nothing else. They
        pass by a test on their type; another value is looked at by the schema's own predicate.
        """
        if "patternProperties" in schema:
            raise _UnsupportedSchema
        properties = schema.get("properties", {})
        certain_types = {name: find_certain_types(part) for name, part in properties.items()}
        property_checks = {name: self.compile_node(part) for name, part in properties.items()}
        required_names = tuple(schema.get("required", ()))
        additional = schema.get("additionalProperties", True)
        check_additional = None if additional is True else self.compile_node(additional)
        must_be_object = schema.get("type") == "object"

        def check_object(value: Any) -> bool:
            if not isinstance(value, dict):
                return not must_be_object
            for name in required_names:
                if name not in value:
                    return False
            for name, item in value.items():
                if type(item) not in certain_types.get(name, ()):
                    check = property_checks.get(name, check_additional)
                    if check is not None and not check(item):
                        return False
            return True

        return check_object

    def compile_items(self, operand: Any, schema: Mapping[str, Any]) -> SchemaCheck:
        """A predicate for `items`."""
        if "prefixItems" in schema or isinstance(operand, list):
            raise _UnsupportedSchema
        check_item = self.compile_node(operand)
        return lambda value: not isinstance(value, list) or all(map(check_item, value))

    def compile_any(self, operand: Any, schema: Mapping[str, Any]) -> SchemaCheck:
        """A predicate for `anyOf`."""
        options = [self.compile_node(option) for option in operand]
        return lambda value: any(option(value) for option in options)

    def compile_all(self, operand: Any, schema: Mapping[str, Any]) -> SchemaCheck:
        """A predicate for `allOf`."""
        checks = [self.compile_node(part) for part in operand]
        return lambda value: all(check(value) for check in checks)

    def compile_one(self, operand: Any, schema: Mapping[str, Any]) -> SchemaCheck:
        """A predicate for `oneOf`."""
        choices = [self.compile_node(choice) for choice in operand]
        return lambda value: sum(choice(value) for choice in choices) == 1

    def compile_not(self, operand: Any, schema: Mapping[str, Any]) -> SchemaCheck:
        """A predicate for `not`."""
        negated_check = self.compile_node(operand)
        return lambda value: not negated_check(value)

    def compile_reference(self, target: Any, schema: Mapping[str, Any]) -> SchemaCheck:
        """A predicate for `$ref`. It looks its target up when it is first called, so that a schema may refer
        to itself."""
        if not isinstance(target, str):
            raise _UnsupportedSchema
        slot = self._references.get(target)
        if slot is None:
            part = find_local_reference(self._root, target)
            if part is not self._root and isinstance(part, dict) and "$id" in part:
                raise _UnsupportedSchema
            slot = self._references[target] = []
            slot.append(self.compile_node(part))
        return lambda value: slot[0](value)


def find_certain_types(schema: Any) -> tuple[type, ...]:
    """Python types whose values fit a part of a schema, whatever they are; none where it has a condition."""
    keywords = schema.keys() - _ANNOTATIONS if isinstance(schema, dict) else set()
    if keywords == {"anyOf"}:
        return tuple(kind for option in schema["anyOf"] for kind in find_certain_types(option))
    if keywords != {"type"}:
        return ()
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return tuple(kind for name in names if name in _TYPES for kind in _TYPES[name][0])


def _compile_type(compiler: _SchemaCompiler, operand: Any, schema: Mapping[str, Any]) -> SchemaCheck:
    names = operand if isinstance(operand, list) else [operand]
    if not all(name in _TYPES for name in names):
        raise _UnsupportedSchema
    checks = [_TYPES[name][1] for name in names]
    return checks[0] if len(checks) == 1 else lambda value: any(check(value) for check in checks)


def _compile_enum(compiler: _SchemaCompiler, choices: Any, schema: Mapping[str, Any]) -> SchemaCheck:
    texts = frozenset(choice for choice in choices if isinstance(choice, str))
    others = [choice for choice in choices if not isinstance(choice, str)]
    return lambda value: (
        value in texts if isinstance(value, str) else any(is_json_equal(value, other) for other in others)
    )


def _compile_const(compiler: _SchemaCompiler, operand: Any, schema: Mapping[str, Any]) -> SchemaCheck:
    return lambda value: is_json_equal(value, operand)


def _compile_pattern(compiler: _SchemaCompiler, operand: Any, schema: Mapping[str, Any]) -> SchemaCheck:
    pattern = get_pattern(operand)
    if not pattern.is_linear:
        raise _UnsupportedSchema
    return lambda value: not isinstance(value, str) or pattern.occurs_in(value)


_KeywordCompiler = Callable[[_SchemaCompiler, Any, Mapping[str, Any]], SchemaCheck]
"""From the keyword's operand, and the schema in which it stands, to a predicate."""


def _bound(is_bounded: SchemaCheck, keeps: Callable[[Any, Any], bool]) -> _KeywordCompiler:
    """The compiler of a keyword that bounds values of one type.

    Args:
        keeps: whether a value keeps within a limit. Written so that NaN, of which every comparison is false,
            keeps within all, as it does for `jsonschema`.
    """

    def compile_bound(compiler: _SchemaCompiler, limit: Any, schema: Mapping[str, Any]) -> SchemaCheck:
        return lambda value: not is_bounded(value) or keeps(value, limit)

    return compile_bound


_is_text, _is_list = _TYPES["string"][1], _TYPES["array"][1]

_KEYWORDS: dict[str, _KeywordCompiler] = {
    "type": _compile_type,
    "enum": _compile_enum,
    "const": _compile_const,
    "pattern": _compile_pattern,
    "items": _SchemaCompiler.compile_items,
    "anyOf": _SchemaCompiler.compile_any,
    "allOf": _SchemaCompiler.compile_all,
    "oneOf": _SchemaCompiler.compile_one,
    "not": _SchemaCompiler.compile_not,
    "$ref": _SchemaCompiler.compile_reference,
    "minimum": _bound(is_number, lambda value, limit: not value < limit),
    "maximum": _bound(is_number, lambda value, limit: not value > limit),
    "exclusiveMinimum": _bound(is_number, lambda value, limit: not value <= limit),
    "exclusiveMaximum": _bound(is_number, lambda value, limit: not value >= limit),
    "minLength": _bound(_is_text, lambda value, limit: len(value) >= limit),
    "maxLength": _bound(_is_text, lambda value, limit: len(value) <= limit),
    "minItems": _bound(_is_list, lambda value, limit: len(value) >= limit),
    "maxItems": _bound(_is_list, lambda value, limit: len(value) <= limit),
}
"""Every keyword that is compiled, beside those of objects."""

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
    hint = "write JSON Schema: {type: object, properties: {name: {type: string}}, required: [name]}"
    # Checking against the metaschema takes a millisecond, and importing `jsonschema` many more.
    if not _is_plain_schema(schema):
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            path = "/".join(["parameters", *map(str, error.absolute_path)])
            problem = _shorten_message(error.message)
            message = f"the parameters of tool {tool!r} are not a JSON Schema: {problem}"
            raise SpecError(message, path=path, hint=hint) from None
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise SpecError(f"the parameters of tool {tool!r} are not an object", hint=hint)


def _is_plain_schema(schema: Any) -> bool:
    """Whether a schema has only keywords whose operands are looked at here, and all of them are valid.

    It is then valid by the metaschema too. Of a schema for which it is false nothing is known.
    """
    if type(schema) is bool:
        return True
    return type(schema) is dict and all(
        key in _PLAIN_OPERANDS and _PLAIN_OPERANDS[key](operand) for key, operand in schema.items()
    )


def _are_plain_schemas(operand: Any) -> bool:
    return type(operand) is list and len(operand) > 0 and all(map(_is_plain_schema, operand))


def _are_named_plain_schemas(operand: Any) -> bool:
    return (
        type(operand) is dict
        and all(type(name) is str for name in operand)
        and all(map(_is_plain_schema, operand.values()))
    )


def _are_different_texts(operand: Any) -> bool:
    is_list = type(operand) is list and all(type(item) is str for item in operand)
    return is_list and len(set(operand)) == len(operand)


def _are_types(operand: Any) -> bool:
    if type(operand) is str:
        return operand in _TYPES
    return bool(operand) and _are_different_texts(operand) and all(name in _TYPES for name in operand)


def _is_size(operand: Any) -> bool:
    return type(operand) is int and operand >= 0


_LOCAL_REFERENCE = re.compile(r"#(/[A-Za-z0-9_$.-]+)*")

_PLAIN_OPERANDS: dict[str, SchemaCheck] = {
    **dict.fromkeys(("title", "description", "format", "$comment"), _is_text),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly"), _TYPES["boolean"][1]),
    **dict.fromkeys(("default", "const"), lambda operand: True),
    **dict.fromkeys(("enum", "examples"), _is_list),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_size),
    **dict.fromkeys(("items", "not", "additionalProperties"), _is_plain_schema),
    **dict.fromkeys(("anyOf", "allOf", "oneOf"), _are_plain_schemas),
    **dict.fromkeys(("properties", "$defs"), _are_named_plain_schemas),
    "type": _are_types,
    "required": _are_different_texts,
    "$ref": lambda operand: _is_text(operand) and _LOCAL_REFERENCE.fullmatch(operand) is not None,
}
"""By keyword: whether its operand certainly is as the metaschema demands. `pattern` is not here, because the
metaschema demands a regular expression."""


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
