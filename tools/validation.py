"""Arguments against their JSON Schema (2020-12), with messages that name the parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.states.errors import SpecError


class ArgumentCheck:
    """The compiled schema of one tool.

    Raises:
        SpecError: the schema itself is not valid.
    """

    def __init__(self, schema: Mapping[str, Any], tool: str) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            place = "/".join(map(str, error.absolute_path))
            raise SpecError(
                f"the parameters of tool {tool!r} are not a JSON Schema: {error.message}",
                path=f"parameters/{place}",
            ) from None
        self._validator = Draft202012Validator(schema)

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, or None; at most three problems, the outermost first."""
        if self._validator.is_valid(arguments):
            return None
        errors = sorted(self._validator.iter_errors(arguments), key=lambda e: len(e.absolute_path))
        return "; ".join(_told(error) for error in errors[:3])


def _told(error: Any) -> str:
    place = ".".join(map(str, error.absolute_path))
    subject = f"parameter {place!r}" if place else "the arguments"
    expected = error.validator_value
    match error.validator:
        case "required":
            missing = [name for name in expected if name not in error.instance]
            prefix = f"{place}." if place else ""
            return f"missing required parameter {prefix + missing[0]!r}"
        case "type":
            wanted = " or ".join(expected) if isinstance(expected, list) else expected
            return f"{subject} must be {_article(wanted)}, not {_shown(error.instance)}"
        case "enum":
            allowed = ", ".join(map(_shown, expected))
            return f"{subject} must be one of {allowed}, not {_shown(error.instance)}"
        case "additionalProperties":
            return f"{subject}: {error.message}"
    return f"{subject}: {error.message}"


def _article(word: str) -> str:
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
