"""JSON Schema compiled to closures: the quick yes of the hot path.

`compile_check` gives a predicate that agrees with `jsonschema` on every value, or None where a
schema uses a keyword that is not compiled here. A yes is final; on a no `jsonschema` is asked,
which also knows the words for it. Validating a call's arguments this way costs about a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]

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
"""Keywords that do not constrain. `format` is an annotation in 2020-12; unknown keywords too, but a
schema that has some is left to `jsonschema`."""


MOST_PATTERN_TEXT = 5000
"""Characters of a text that is held against a `pattern`: what a model writes is not trusted, and the
time that Python's engine takes may grow with the square of the length."""


class _NotCompiled(Exception):
    """The schema uses something that is not compiled here."""


def compile_check(schema: Any) -> Check | None:
    """A predicate for the schema, or None where only `jsonschema` can judge."""
    try:
        return _Compiler(schema).check(schema)
    except (_NotCompiled, RecursionError, re.error):
        return None


def same(one: Any, other: Any) -> bool:
    """JSON equality: 1 is 1.0, but true is not 1, at any depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def is_integer(value: Any) -> bool:
    """Whether JSON Schema calls it an integer: 3 and 3.0, not true."""
    if type(value) is int:
        return True
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def is_number(value: Any) -> bool:
    """Whether JSON Schema calls it a number: not true."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: dict[str, Check] = {
    "string": lambda value: isinstance(value, str),
    "integer": is_integer,
    "number": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class _Compiler:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._references: dict[str, list[Check]] = {}

    def check(self, schema: Any) -> Check:
        if isinstance(schema, bool):
            return (lambda value: True) if schema else (lambda value: False)
        if not isinstance(schema, dict):
            raise _NotCompiled
        parts = [
            part for key in schema if (part := self._keyword(key, schema[key], schema)) is not None
        ]
        if not parts:
            return lambda value: True
        if len(parts) == 1:
            return parts[0]
        if len(parts) == 2:  # as nearly every object is: its type and its properties
            first, second = parts
            return lambda value: first(value) and second(value)
        return lambda value: all(part(value) for part in parts)

    def _keyword(self, key: str, value: Any, schema: Mapping[str, Any]) -> Check | None:
        if key in _ANNOTATIONS:
            return None
        match key:
            case "type":
                return _type(value)
            case "properties" | "required" | "additionalProperties":
                return self._object(key, schema)
            case "enum":
                return _enum(value)
            case "const":
                return lambda given: same(given, value)
            case "items":
                return self._items(value, schema)
            case "anyOf":
                options = [self.check(option) for option in value]
                return lambda given: any(option(given) for option in options)
            case "allOf":
                needed = [self.check(option) for option in value]
                return lambda given: all(one(given) for one in needed)
            case "oneOf":
                choices = [self.check(option) for option in value]
                return lambda given: sum(choice(given) for choice in choices) == 1
            case "not":
                refused = self.check(value)
                return lambda given: not refused(given)
            case "$ref":
                return self._reference(value)
        return _bound(key, value)

    def _object(self, key: str, schema: Mapping[str, Any]) -> Check | None:
        """One closure for the three keywords together, made for the first of them."""
        if key != next(
            k for k in schema if k in ("properties", "required", "additionalProperties")
        ):
            return None
        if "patternProperties" in schema:
            raise _NotCompiled
        inner = {name: self.check(one) for name, one in schema.get("properties", {}).items()}
        required = tuple(schema.get("required", ()))
        further = self.check(schema.get("additionalProperties", True))
        open_ = schema.get("additionalProperties", True) is True

        def check(given: Any) -> bool:
            if not isinstance(given, dict):
                return True
            for name in required:
                if name not in given:
                    return False
            for name, value in given.items():
                one = inner.get(name)
                if one is not None:
                    if not one(value):
                        return False
                elif not open_ and not further(value):
                    return False
            return True

        return check

    def _items(self, value: Any, schema: Mapping[str, Any]) -> Check:
        if "prefixItems" in schema or isinstance(value, list):
            raise _NotCompiled
        one = self.check(value)
        return lambda given: not isinstance(given, list) or all(map(one, given))

    def _reference(self, target: Any) -> Check:
        """A check that finds its target when first asked, so that a schema may name itself."""
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            raise _NotCompiled
        slot = self._references.get(target)
        if slot is None:
            slot = self._references[target] = []
            slot.append(self.check(self._resolve(target)))
        return lambda given: slot[0](given)

    def _resolve(self, target: str) -> Any:
        here = self._root
        for part in target.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(here, dict) or name not in here:
                raise _NotCompiled
            here = here[name]
        if here is not self._root and isinstance(here, dict) and "$id" in here:
            raise _NotCompiled
        return here


def _type(value: Any) -> Check:
    names = value if isinstance(value, list) else [value]
    if not all(name in _TYPES for name in names):
        raise _NotCompiled
    checks = [_TYPES[name] for name in names]
    if len(checks) == 1:
        return checks[0]
    return lambda given: any(check(given) for check in checks)


def _enum(values: Any) -> Check:
    words = frozenset(value for value in values if isinstance(value, str))
    others = [value for value in values if not isinstance(value, str)]
    if not others:
        return lambda given: isinstance(given, str) and given in words
    return lambda given: (
        given in words if isinstance(given, str) else any(same(given, value) for value in others)
    )


def _bound(key: str, limit: Any) -> Check:
    match key:
        case "minimum":
            return lambda given: not is_number(given) or not given < limit
        case "maximum":
            return lambda given: not is_number(given) or not given > limit
        case "exclusiveMinimum":
            return lambda given: not is_number(given) or not given <= limit
        case "exclusiveMaximum":
            return lambda given: not is_number(given) or not given >= limit
        case "minLength":
            return lambda given: not isinstance(given, str) or len(given) >= limit
        case "maxLength":
            return lambda given: not isinstance(given, str) or len(given) <= limit
        case "minItems":
            return lambda given: not isinstance(given, list) or len(given) >= limit
        case "maxItems":
            return lambda given: not isinstance(given, list) or len(given) <= limit
        case "pattern":
            found = re.compile(limit).search
            return lambda given: (
                not isinstance(given, str)
                or (len(given) <= MOST_PATTERN_TEXT and found(given) is not None)
            )
    raise _NotCompiled
