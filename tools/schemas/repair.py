"""Deterministic repair of a call's arguments: at most one attempt, and a record of every change.

Models write numbers as text, one value where a list is expected, `True` for `true`, or a name with one
letter too many. Where such a mistake has exactly one sensible reading, it is repaired and recorded
(rule, before, after). Everything else goes back to the model as an error. A repair never invents a
value: a missing parameter stays missing, and text that was cut off is never completed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from toolchart.states.canonical_json import encode_canonical_text, has_only_finite_numbers
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.tools.schemas.checks import (
    compile_schema,
    find_local_reference,
    format_value,
    is_json_equal,
    is_number,
)

MAX_TEXT = 20_000
"""Longest broken JSON text, in characters, that is repaired; repair costs more than parsing."""

_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(\d{1,18}(\.\d{1,18})?|\.\d{1,18})([eE][+-]?\d{1,2})?")


ABSENT = "null for an optional value"
"""The rule by which a null that stands for no value is left out."""


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """One change to the arguments."""

    rule: str
    path: str
    """Path of the parameter; empty for the arguments as a whole."""
    before: Any
    after: Any

    def __str__(self) -> str:
        subject = f" {self.path}" if self.path else ""
        change = f"{format_value(self.before)} -> {format_value(self.after)}"
        return f"repaired{subject} ({self.rule}): {change}"


# -- broken JSON text ----------------------------------------------------------------------------


def repair_json_text(raw: str | None) -> tuple[dict[str, Any], Repair] | None:
    """The arguments that broken JSON text clearly means, or None.

    None for text that was cut off (an open string or bracket), that has a key twice, uses NaN or a number
    out of range, that is not an object, or that is too long.
    """
    if not raw or len(raw) > MAX_TEXT or _is_json(raw) or not _is_complete_object(raw):
        return None
    from json_repair import repair_json

    try:
        value = repair_json(raw, return_objects=True, skip_json_loads=True)
    except Exception:  # its parser asserts what a model's text may break, so no list of errors is complete
        return None
    if not isinstance(value, dict) or not value or _has_repeated_key(raw, value):
        return None
    if not has_only_finite_numbers(value):
        return None
    after = encode_canonical_text(value)
    return value, Repair(rule="broken JSON text", path="", before=raw, after=after)


def _is_json(raw: str) -> bool:
    """Whether the text is JSON: then the adapter refused it for another reason, such as NaN."""
    try:
        parse_foreign_json(raw)
    except ValueError:
        return False
    return True


def _is_complete_object(raw: str) -> bool:
    """Whether the text is one object in braces, with every string and bracket closed."""
    body = _strip_code_fence(raw).strip()
    if not (body.startswith("{") and body.endswith("}")):
        return False
    closing_brackets, quote, is_escaped = [], "", False
    for character in body:
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = bool(quote)
        elif quote:
            quote = "" if character == quote else quote
        elif character == '"':
            quote = character
        elif character in "{[":
            closing_brackets.append("}" if character == "{" else "]")
        elif character in "}]" and (not closing_brackets or closing_brackets.pop() != character):
            return False
    return not closing_brackets and not quote


def _strip_code_fence(raw: str) -> str:
    """The text inside a Markdown code fence, or the text itself."""
    match = re.fullmatch(r"\s*```[a-z]*\s*\n?(.*?)```\s*", raw, re.S)
    return match.group(1) if match else raw


def _has_repeated_key(raw: str, value: Mapping[str, Any]) -> bool:
    """Whether a key may stand twice in the text; then its value is ambiguous."""
    return any(len(re.findall(rf"\b{re.escape(key)}['\"]?\s*:", raw)) > 1 for key in value)


# -- values that do not fit ----------------------------------------------------------------------


def repair_arguments(
    arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[Repair, ...]]:
    """Repair every mistake that has one sensible reading; the result may still not fit the schema."""
    repairer = _ArgumentRepairer(schema)
    value = repairer.repair_value(dict(arguments), schema, "")
    if not isinstance(value, dict):
        return dict(arguments), ()
    return value, tuple(repairer.repairs)


class _ArgumentRepairer:
    """Repairs values against parts of one schema, and collects the repairs."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.repairs: list[Repair] = []
        self._root = root

    def repair_value(self, value: Any, schema: Any, path: str, depth: int = 0) -> Any:
        """The value changed to fit the schema, or the value itself."""
        schema = self._resolve_reference(schema)
        if not isinstance(schema, Mapping) or depth > 20 or self._is_valid(value, schema):
            return value
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(options, list):
            return self._repair_by_option(value, options, path, depth)
        value = self._apply_rules(value, schema, path)
        if isinstance(value, dict):
            return self._repair_object(value, schema, path, depth)
        item_schema = schema.get("items")
        if isinstance(value, list) and isinstance(item_schema, Mapping):
            return [
                self.repair_value(item, item_schema, f"{path}[{index}]", depth + 1)
                for index, item in enumerate(value)
            ]
        return value

    def _repair_object(
        self, value: dict[str, Any], schema: Mapping[str, Any], path: str, depth: int
    ) -> dict[str, Any]:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return value
        items = self._drop_nulls(self._repair_names(value, properties, path), schema, path)
        return {
            name: self.repair_value(item, properties[name], f"{path}.{name}".lstrip("."), depth + 1)
            if name in properties
            else item
            for name, item in items.items()
        }

    def _drop_nulls(self, value: dict[str, Any], schema: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Leave out an optional parameter that is null and may not be: strict schemas make models say so."""
        properties, required = schema["properties"], schema.get("required", ())
        result = {}
        for name, item in value.items():
            is_optional = name in properties and name not in required
            if item is None and is_optional and not self._is_valid(None, properties[name]):
                self._add_repair(ABSENT, f"{path}.{name}".lstrip("."), None, "left out")
            else:
                result[name] = item
        return result

    def _repair_names(
        self, value: dict[str, Any], properties: Mapping[str, Any], path: str
    ) -> dict[str, Any]:
        """Rename a misspelt parameter where exactly one absent parameter is similar."""
        absent_names = [name for name in properties if name not in value]
        result: dict[str, Any] = {}
        for name, item in value.items():
            similar_names = [
                absent_name
                for absent_name in absent_names
                if name not in properties and is_misspelling(name, absent_name)
            ]
            if len(similar_names) == 1 and similar_names[0] not in result:
                new_name = similar_names[0]
                self._add_repair("misspelt name", f"{path}.{name}".lstrip("."), name, new_name)
                absent_names.remove(new_name)
                name = new_name
            result[name] = item
        return result

    def _repair_by_option(self, value: Any, options: list[Any], path: str, depth: int) -> Any:
        """The repaired value where all alternatives that a repair can satisfy agree on it."""
        candidates: list[tuple[Any, list[Repair]]] = []
        for option in options:
            trial = _ArgumentRepairer(self._root)
            result = trial.repair_value(value, option, path, depth + 1)
            if trial._is_valid(result, option) and not any(
                is_json_equal(result, candidate) for candidate, _ in candidates
            ):
                candidates.append((result, trial.repairs))
        if len(candidates) != 1:
            return value
        ((result, repairs),) = candidates
        self.repairs += repairs
        return result

    def _apply_rules(self, value: Any, schema: Mapping[str, Any], path: str) -> Any:
        """The value changed by the first rule that applies, or the value itself."""
        for rule, convert in _RULES.items():
            new_value = convert(value, schema)
            if new_value is not None and not is_json_equal(new_value, value):
                self._add_repair(rule, path, value, new_value)
                return new_value
        return value

    def _add_repair(self, rule: str, path: str, before: Any, after: Any) -> None:
        self.repairs.append(Repair(rule=rule, path=path, before=before, after=after))

    def _is_valid(self, value: Any, schema: Any) -> bool:
        schema = self._resolve_reference(schema)
        if isinstance(schema, Mapping) and "$defs" in self._root:
            schema = {**schema, "$defs": self._root["$defs"]}
        check = compile_schema(schema)
        try:
            return check is not None and check(value)
        except ValueError:  # a lone surrogate, which is no JSON for it
            return False

    def _resolve_reference(self, schema: Any) -> Any:
        target = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(target, str) or not target.startswith("#/"):
            return schema
        part = find_local_reference(self._root, target)
        return schema if part is None else part


def is_misspelling(name: str, parameter: str) -> bool:
    """Whether a name is a misspelling of a parameter: in case, `_` and `-`, or in one letter.

    One letter may be wrong, missing or added, or two letters swapped. Short names must not differ in a
    letter, and digits never: `x1` is not a misspelling of `x2`.
    """
    first, second = _normalize_name(name), _normalize_name(parameter)
    if first == second:
        return True
    if min(len(first), len(second)) < 4 or re.sub(r"\D", "", first) != re.sub(r"\D", "", second):
        return False
    return _is_one_edit(first, second)


def _normalize_name(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.lower())


def _is_one_edit(first: str, second: str) -> bool:
    if len(first) > len(second):
        first, second = second, first
    pairs = zip(first, second, strict=False)
    start = next((index for index, (a, b) in enumerate(pairs) if a != b), len(first))
    if len(second) - len(first) == 1:
        return first[start:] == second[start + 1 :]
    if len(first) != len(second):
        return False
    if first[start + 1 :] == second[start + 1 :]:
        return True
    is_swap = first[start : start + 2][::-1] == second[start : start + 2]
    return is_swap and first[start + 2 :] == second[start + 2 :]


# -- rules: each returns the new value, or None where it does not apply ---------------------------


def _get_types(schema: Mapping[str, Any]) -> frozenset[str]:
    kind = schema.get("type")
    return frozenset(kind if isinstance(kind, list) else [kind] if kind else [])


def _match_enum_case(value: Any, schema: Mapping[str, Any]) -> Any:
    choices = [choice for choice in schema.get("enum", ()) if isinstance(choice, str)]
    if not isinstance(value, str) or value in choices:
        return None
    matches = [choice for choice in choices if choice.strip().lower() == value.strip().lower()]
    return matches[0] if len(matches) == 1 else None


def _convert_text_to_number(value: Any, schema: Mapping[str, Any]) -> Any:
    types = _get_types(schema)
    if not isinstance(value, str) or "string" in types:
        return None
    text = value.strip()
    if types & {"integer", "number"} and _INTEGER.fullmatch(text):
        return int(text)
    if "number" in types and _NUMBER.fullmatch(text):
        return float(text)
    return None


def _convert_number_to_text(value: Any, schema: Mapping[str, Any]) -> Any:
    if is_number(value) and _get_types(schema) == {"string"}:
        return str(value) if isinstance(value, int) else encode_canonical_text(value)
    return None


def _convert_text_to_boolean(value: Any, schema: Mapping[str, Any]) -> Any:
    types = _get_types(schema)
    if isinstance(value, str) and "boolean" in types and "string" not in types:
        return {"true": True, "false": False}.get(value.strip().lower())
    return None


def _parse_nested_json(value: Any, schema: Mapping[str, Any]) -> Any:
    types = _get_types(schema)
    if not isinstance(value, str) or "string" in types or not types & {"array", "object"}:
        return None
    if len(value) > MAX_TEXT:
        return None
    try:
        parsed_value = parse_foreign_json(value)
    except ValueError:
        return None
    is_list, is_object = isinstance(parsed_value, list), isinstance(parsed_value, dict)
    kind = "array" if is_list else "object" if is_object else None
    return parsed_value if kind in types else None


def _wrap_in_list(value: Any, schema: Mapping[str, Any]) -> Any:
    if "array" in _get_types(schema) and value is not None and not isinstance(value, (list, dict)):
        return [value]
    return None


_RULES: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "letter case of an allowed value": _match_enum_case,
    "a number written as text": _convert_text_to_number,
    "text written as a number": _convert_number_to_text,
    "true or false written as text": _convert_text_to_boolean,
    "JSON written as text": _parse_nested_json,
    "one value where a list is wanted": _wrap_in_list,
}
"""By name, in the order in which they are tried. Only the first that changes a value is applied."""
