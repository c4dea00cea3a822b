"""JSON Schema compiled to Python closures: fast validation of valid arguments.

`compile_schema` returns a predicate that agrees with `jsonschema` on every value, or None where a
schema uses a keyword that is not compiled here. Where the predicate is false, `jsonschema` is called
for the error messages. Validating a call's arguments this way takes about a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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


def compile_schema(schema: Any) -> SchemaCheck | None:
    """Compile a schema to a predicate; None where only `jsonschema` can validate it."""
    try:
        return _SchemaCompiler(schema).compile_node(schema)
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


_TYPES: dict[str, SchemaCheck] = {
    "string": lambda value: isinstance(value, str),
    "integer": is_integer,
    "number": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


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
            return (lambda value: True) if schema else (lambda value: False)
        if not isinstance(schema, dict):
            raise _UnsupportedSchema
        checks = [
            check for key in schema if (check := self._compile_keyword(key, schema[key], schema)) is not None
        ]
        if not checks:
            return lambda value: True
        if len(checks) == 1:
            return checks[0]
        if len(checks) == 2:  # most objects have two: their type and their properties
            first, second = checks
            return lambda value: first(value) and second(value)
        return lambda value: all(check(value) for check in checks)

    def _compile_keyword(self, key: str, operand: Any, schema: Mapping[str, Any]) -> SchemaCheck | None:
        if key in _ANNOTATIONS:
            return None
        match key:
            case "type":
                return _compile_type(operand)
            case "properties" | "required" | "additionalProperties":
                return self._compile_object(key, schema)
            case "enum":
                return _compile_enum(operand)
            case "const":
                return lambda value: is_json_equal(value, operand)
            case "items":
                return self._compile_items(operand, schema)
            case "anyOf":
                options = [self.compile_node(option) for option in operand]
                return lambda value: any(option(value) for option in options)
            case "allOf":
                checks = [self.compile_node(part) for part in operand]
                return lambda value: all(check(value) for check in checks)
            case "oneOf":
                choices = [self.compile_node(choice) for choice in operand]
                return lambda value: sum(choice(value) for choice in choices) == 1
            case "not":
                negated_check = self.compile_node(operand)
                return lambda value: not negated_check(value)
            case "$ref":
                return self._compile_reference(operand)
        return _compile_bound(key, operand)

    def _compile_object(self, key: str, schema: Mapping[str, Any]) -> SchemaCheck | None:
        """One closure for the three object keywords together, made for the first of them."""
        if key != next(k for k in schema if k in ("properties", "required", "additionalProperties")):
            return None
        if "patternProperties" in schema:
            raise _UnsupportedSchema
        property_checks = {
            name: self.compile_node(part) for name, part in schema.get("properties", {}).items()
        }
        required_names = tuple(schema.get("required", ()))
        check_additional = self.compile_node(schema.get("additionalProperties", True))
        allows_any = schema.get("additionalProperties", True) is True

        def check_object(value: Any) -> bool:
            if not isinstance(value, dict):
                return True
            for name in required_names:
                if name not in value:
                    return False
            for name, item in value.items():
                check_property = property_checks.get(name)
                if check_property is not None:
                    if not check_property(item):
                        return False
                elif not allows_any and not check_additional(item):
                    return False
            return True

        return check_object

    def _compile_items(self, operand: Any, schema: Mapping[str, Any]) -> SchemaCheck:
        if "prefixItems" in schema or isinstance(operand, list):
            raise _UnsupportedSchema
        check_item = self.compile_node(operand)
        return lambda value: not isinstance(value, list) or all(map(check_item, value))

    def _compile_reference(self, target: Any) -> SchemaCheck:
        """A check that looks its target up when it is first called, so that a schema may refer to
        itself."""
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            raise _UnsupportedSchema
        slot = self._references.get(target)
        if slot is None:
            slot = self._references[target] = []
            slot.append(self.compile_node(self._find_reference_target(target)))
        return lambda value: slot[0](value)

    def _find_reference_target(self, target: str) -> Any:
        node = self._root
        for part in target.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or name not in node:
                raise _UnsupportedSchema
            node = node[name]
        if node is not self._root and isinstance(node, dict) and "$id" in node:
            raise _UnsupportedSchema
        return node


def _compile_type(operand: Any) -> SchemaCheck:
    names = operand if isinstance(operand, list) else [operand]
    if not all(name in _TYPES for name in names):
        raise _UnsupportedSchema
    checks = [_TYPES[name] for name in names]
    if len(checks) == 1:
        return checks[0]
    return lambda value: any(check(value) for check in checks)


def _compile_enum(choices: Any) -> SchemaCheck:
    texts = frozenset(choice for choice in choices if isinstance(choice, str))
    others = [choice for choice in choices if not isinstance(choice, str)]
    if not others:
        return lambda value: isinstance(value, str) and value in texts
    return lambda value: (
        value in texts if isinstance(value, str) else any(is_json_equal(value, other) for other in others)
    )


def _compile_bound(key: str, limit: Any) -> SchemaCheck:
    match key:
        case "minimum":
            return lambda value: not is_number(value) or not value < limit
        case "maximum":
            return lambda value: not is_number(value) or not value > limit
        case "exclusiveMinimum":
            return lambda value: not is_number(value) or not value <= limit
        case "exclusiveMaximum":
            return lambda value: not is_number(value) or not value >= limit
        case "minLength":
            return lambda value: not isinstance(value, str) or len(value) >= limit
        case "maxLength":
            return lambda value: not isinstance(value, str) or len(value) <= limit
        case "minItems":
            return lambda value: not isinstance(value, list) or len(value) >= limit
        case "maxItems":
            return lambda value: not isinstance(value, list) or len(value) <= limit
        case "pattern":
            pattern = get_pattern(limit)
            if not pattern.is_linear:
                raise _UnsupportedSchema
            return lambda value: not isinstance(value, str) or pattern.occurs_in(value)
    raise _UnsupportedSchema
