"""One deterministic repair of a call's arguments, recorded rule by rule.

Models write numbers as text, one value where a list is wanted, `True` for `true`, a name with a
letter too many. What has exactly one sensible reading is put right and written down (rule, before,
after); everything else goes back to the model as an error. A repair never makes up a value: a
missing parameter stays missing, and text that was cut off is never completed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolchart.states.canonical_json import canonical_text
from toolchart.tools.execution.arguments import shown
from toolchart.tools.execution.compiled_schema import compile_check, is_number, same

LONGEST_TEXT = 20_000
"""Characters of broken JSON text that are looked at; repair costs more than reading."""

_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(\d{1,18}(\.\d{1,18})?|\.\d{1,18})([eE][+-]?\d{1,2})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One thing that was put right."""

    rule: str
    place: str
    """Path of the parameter; empty for the arguments as a whole."""
    before: Any
    after: Any

    def __str__(self) -> str:
        where = f" {self.place}" if self.place else ""
        return f"repaired{where} ({self.rule}): {shown(self.before)} -> {shown(self.after)}"


# -- broken JSON text ----------------------------------------------------------------------------


def repaired_text(raw: str | None) -> tuple[dict[str, Any], Repair] | None:
    """The arguments that broken JSON text plainly means, or None.

    None for text that was cut off (an open string or bracket), that names a key twice or uses NaN,
    that is no object, or that is too long; and where the `repair` extra is not installed.
    """
    if not raw or len(raw) > LONGEST_TEXT or _reads(raw) or not _closed(raw):
        return None
    try:
        from json_repair import repair_json
    except ImportError:
        return None
    try:
        value = repair_json(raw, return_objects=True, skip_json_loads=True)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not value or _twice(raw, value):
        return None
    return value, Repair(rule="broken JSON text", place="", before=raw, after=canonical_text(value))


def _reads(raw: str) -> bool:
    """Whether it is JSON after all: then it was refused for what it says, not for how."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def _closed(raw: str) -> bool:
    """Whether the text is one object in braces, every string and bracket closed."""
    body = _fenced(raw).strip()
    if not (body.startswith("{") and body.endswith("}")):
        return False
    open_, quote, skip = [], "", False
    for mark in body:
        if skip:
            skip = False
        elif mark == "\\":
            skip = bool(quote)
        elif quote:
            quote = "" if mark == quote else quote
        elif mark == '"':
            quote = mark
        elif mark in "{[":
            open_.append("}" if mark == "{" else "]")
        elif mark in "}]" and (not open_ or open_.pop() != mark):
            return False
    return not open_ and not quote


def _fenced(raw: str) -> str:
    """The inside of a Markdown fence, where the text is one."""
    match = re.fullmatch(r"\s*```[a-z]*\s*\n?(.*?)```\s*", raw, re.S)
    return match.group(1) if match else raw


def _twice(raw: str, value: Mapping[str, Any]) -> bool:
    """Whether a key may stand twice in the text; which one was meant cannot be known."""
    return any(len(re.findall(rf"\b{re.escape(key)}['\"]?\s*:", raw)) > 1 for key in value)


# -- values that do not fit ----------------------------------------------------------------------


def repaired_arguments(
    arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[Repair, ...]]:
    """The arguments with what has one sensible reading put right; they may still not fit."""
    work = _Work(schema)
    value = work.mended(dict(arguments), schema, "")
    return (value, tuple(work.repairs)) if isinstance(value, dict) else (dict(arguments), ())


class _Work:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.repairs: list[Repair] = []
        self._root = root

    def mended(self, value: Any, schema: Any, place: str, depth: int = 0) -> Any:
        """The value as the schema wants it, or the value itself."""
        schema = self._resolved(schema)
        if not isinstance(schema, Mapping) or depth > 20 or self._fits(value, schema):
            return value
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(options, list):
            return self._by_option(value, options, place, depth)
        value = self._coerced(value, schema, place)
        if isinstance(value, dict):
            return self._object(value, schema, place, depth)
        items = schema.get("items")
        if isinstance(value, list) and isinstance(items, Mapping):
            return [
                self.mended(item, items, f"{place}[{index}]", depth + 1)
                for index, item in enumerate(value)
            ]
        return value

    def _object(
        self, value: dict[str, Any], schema: Mapping[str, Any], place: str, depth: int
    ) -> dict[str, Any]:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return value
        named = self._renamed(value, properties, place)
        return {
            name: self.mended(item, properties[name], f"{place}.{name}".lstrip("."), depth + 1)
            if name in properties
            else item
            for name, item in named.items()
        }

    def _renamed(
        self, value: dict[str, Any], properties: Mapping[str, Any], place: str
    ) -> dict[str, Any]:
        """Misspelt names, where exactly one parameter that is not given is near."""
        absent = [name for name in properties if name not in value]
        result: dict[str, Any] = {}
        for name, item in value.items():
            near = [one for one in absent if name not in properties and is_near(name, one)]
            if len(near) == 1 and near[0] not in result:
                self._note("misspelt name", f"{place}.{name}".lstrip("."), name, near[0])
                absent.remove(near[0])
                name = near[0]
            result[name] = item
        return result

    def _by_option(self, value: Any, options: list[Any], place: str, depth: int) -> Any:
        """What the alternatives agree on: a repair that only one of them makes possible."""
        found: list[tuple[Any, list[Repair]]] = []
        for option in options:
            trial = _Work(self._root)
            result = trial.mended(value, option, place, depth + 1)
            if trial._fits(result, option) and not any(same(result, one) for one, _ in found):
                found.append((result, trial.repairs))
        if len(found) != 1:
            return value
        self.repairs += found[0][1]
        return found[0][0]

    def _coerced(self, value: Any, schema: Mapping[str, Any], place: str) -> Any:
        for rule, change in _RULES.items():
            changed = change(value, schema)
            if changed is not None and not same(changed, value):
                self._note(rule, place, value, changed)
                return changed
        return value

    def _note(self, rule: str, place: str, before: Any, after: Any) -> None:
        self.repairs.append(Repair(rule=rule, place=place, before=before, after=after))

    def _fits(self, value: Any, schema: Any) -> bool:
        schema = self._resolved(schema)
        if isinstance(schema, Mapping) and "$defs" in self._root:
            schema = {**schema, "$defs": self._root["$defs"]}
        check = compile_check(schema)
        return check is not None and check(value)

    def _resolved(self, schema: Any) -> Any:
        target = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(target, str) or not target.startswith("#/"):
            return schema
        here: Any = self._root
        for part in target.split("/")[1:]:
            here = here.get(part) if isinstance(here, Mapping) else None
        return here if here is not None else schema


def is_near(given: str, known: str) -> bool:
    """Whether a name is a slip of another one: its writing (case, `_`, `-`) or one letter.

    One letter wrong, missing, too many, or two swapped; not in short names, and never a digit:
    `x1` is not a slip of `x2`.
    """
    one, other = _letters(given), _letters(known)
    if one == other:
        return True
    if min(len(one), len(other)) < 4 or re.sub(r"\D", "", one) != re.sub(r"\D", "", other):
        return False
    return _one_edit(one, other)


def _letters(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.lower())


def _one_edit(one: str, other: str) -> bool:
    if len(one) > len(other):
        one, other = other, one
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if len(other) - len(one) == 1:
        return one[start:] == other[start + 1 :]
    if len(one) != len(other):
        return False
    if one[start + 1 :] == other[start + 1 :]:
        return True
    swapped = one[start : start + 2][::-1] == other[start : start + 2]
    return swapped and one[start + 2 :] == other[start + 2 :]


# -- rules: the changed value, or None where the rule does not apply -------------------------------


def _wants(schema: Mapping[str, Any]) -> frozenset[str]:
    kind = schema.get("type")
    return frozenset(kind if isinstance(kind, list) else [kind] if kind else [])


def _enum_case(value: Any, schema: Mapping[str, Any]) -> Any:
    allowed = [one for one in schema.get("enum", ()) if isinstance(one, str)]
    if not isinstance(value, str) or value in allowed:
        return None
    near = [one for one in allowed if one.strip().lower() == value.strip().lower()]
    return near[0] if len(near) == 1 else None


def _text_for_number(value: Any, schema: Mapping[str, Any]) -> Any:
    wants = _wants(schema)
    if not isinstance(value, str) or "string" in wants:
        return None
    text = value.strip()
    if wants & {"integer", "number"} and _INTEGER.fullmatch(text):
        return int(text)
    if "number" in wants and _NUMBER.fullmatch(text):
        return float(text)
    return None


def _number_for_text(value: Any, schema: Mapping[str, Any]) -> Any:
    if is_number(value) and _wants(schema) == {"string"}:
        return canonical_text(value)
    return None


def _word_for_truth(value: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(value, str) and "boolean" in _wants(schema) and "string" not in _wants(schema):
        return {"true": True, "false": False}.get(value.strip().lower())
    return None


def _json_in_text(value: Any, schema: Mapping[str, Any]) -> Any:
    wants = _wants(schema)
    if not isinstance(value, str) or "string" in wants or not wants & {"array", "object"}:
        return None
    if len(value) > LONGEST_TEXT:
        return None
    try:
        inner = json.loads(value)
    except (ValueError, RecursionError):
        return None
    kind = "array" if isinstance(inner, list) else "object" if isinstance(inner, dict) else None
    return inner if kind in wants else None


def _one_for_list(value: Any, schema: Mapping[str, Any]) -> Any:
    if "array" in _wants(schema) and value is not None and not isinstance(value, (list, dict)):
        return [value]
    return None


_RULES: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "letter case of an allowed value": _enum_case,
    "a number written as text": _text_for_number,
    "text written as a number": _number_for_text,
    "true or false written as text": _word_for_truth,
    "JSON written as text": _json_in_text,
    "one value where a list is wanted": _one_for_list,
}
"""In the order in which they are tried; the first that changes a value is the only one for it."""
