"""JSON Schema for providers that understand a part of it, every rewrite listed.

A model can only keep to what it is told, so nothing is dropped in silence: what a provider has no
keyword for is written into the description, and each change is listed with its place. The arguments
are always checked against the whole schema, whatever the model was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolchart.states.canonical_json import canonical_text
from toolchart.states.messages import ToolDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The part of JSON Schema that a provider takes."""

    name: str
    keywords: frozenset[str] | None
    """Keywords that reach the model; None: all of them."""
    references: bool = True
    """Whether `$ref` is understood."""
    root_alternatives: bool = True
    """Whether the root may be an `anyOf`, `oneOf`, `allOf`, `enum` or `not`."""


_BASE = frozenset({"type", "description", "enum", "items", "properties", "required", "anyOf"})

OPENAI = Dialect(name="openai", keywords=None, root_alternatives=False)
"""Source: the chat API refuses alternatives at the root of a function's parameters."""
ANTHROPIC = Dialect(name="anthropic", keywords=None, root_alternatives=False)
"""Source: the Messages API refuses an `input_schema` with `oneOf`, `allOf` or `anyOf` at its root."""
OLLAMA = Dialect(name="ollama", keywords=_BASE, references=False)
"""Source: the properties of `ToolProperty` and `ToolFunctionParameters` in the server's
`api/types.go`; what is not among them never reaches the model's template."""
GEMINI = Dialect(
    name="gemini",
    keywords=_BASE
    | {"title", "format", "minimum", "maximum", "minItems", "maxItems", "prefixItems"}
    | {"additionalProperties", "propertyOrdering", "default", "nullable"},
    references=False,
)
"""Source: google-genai 3.4.0, `types.py`, on `parameters_json_schema`, `response_json_schema` (which
lists `$ref` too, but unrolls it; written out here, a reference means the same to every model, and the
depth is ours to bound) and `Schema`, whose fields `default` and `nullable` are."""

DIALECTS = {dialect.name: dialect for dialect in (OPENAI, OLLAMA, GEMINI, ANTHROPIC)}

_TOLD = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "uniqueItems",
        "format",
        "default",
        "examples",
        "minProperties",
        "maxProperties",
    }
)
"""Keywords that say something a description can say as well."""

_SILENT = frozenset({"$schema", "$id", "$comment", "$defs", "definitions", "title", "$anchor"})
"""Keywords that tell a model nothing; leaving them out changes nothing."""


MOST_SCHEMAS = 2000
"""Schemas inside one tool's schema, once its references are written out."""


def lowered(schema: Mapping[str, Any], dialect: Dialect) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The schema in a dialect, and what was rewritten, each with its place."""
    work = _Lowering(schema, dialect)
    result = work.lower(schema, "", ())
    if not dialect.root_alternatives:
        for keyword in ("anyOf", "oneOf", "allOf", "enum", "not"):
            if keyword in result:
                work.note("", f"{keyword} at the root left out")
                del result[keyword]
    result.setdefault("type", "object")
    result.setdefault("properties", {})
    return result, tuple(dict.fromkeys(work.rewrites))


_MOST_KEPT = 2048
"""Lowered schemas that are kept for further requests."""

_kept: dict[tuple[int, str], tuple[ToolDefinition, dict[str, Any]]] = {}
"""By identity, which is quick; the definition is kept too, so that its identity stays its own."""


def parameters_for(tool: ToolDefinition, dialect: Dialect) -> dict[str, Any]:
    """The tool's parameters as a provider of this dialect is told them, converted once."""
    key = (id(tool), dialect.name)
    found = _kept.get(key)
    if found is None:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        found = _kept[key] = (tool, lowered(tool.parameters, dialect)[0])
    return found[1]


class _Lowering:
    def __init__(self, root: Mapping[str, Any], dialect: Dialect) -> None:
        self.rewrites: list[str] = []
        self._written = 0
        self._root = root
        self._dialect = dialect

    def note(self, place: str, what: str) -> None:
        self.rewrites.append(f"{place or '(root)'}: {what}")

    def lower(self, schema: Any, place: str, seen: tuple[str, ...]) -> dict[str, Any]:
        """One schema and what is inside it."""
        if not isinstance(schema, Mapping):
            if schema is not True:
                self.note(place, "a schema that refuses everything cannot be told")
            return {}
        if self._dialect.keywords is None:
            return dict(schema)
        self._written += 1
        if self._written > MOST_SCHEMAS:
            self.note("", f"too large once its references are written out: cut at {MOST_SCHEMAS}")
            return {}
        schema, seen = self._inlined(schema, place, seen)
        schema = self._rephrased(schema, place)
        result: dict[str, Any] = {}
        told: list[str] = []
        for key, value in schema.items():
            if key in self._dialect.keywords:
                result[key] = self._inside(key, value, place, seen)
            elif key in _TOLD:
                told.append(f"{key}: {canonical_text(value)}")
                self.note(place, f"{key} moved into the description")
            elif key not in _SILENT:
                self.note(place, f"{key} left out")
        if told:
            words = f"({', '.join(told)})"
            result["description"] = f"{result.get('description', '')} {words}".strip()
        return result

    def _inside(self, key: str, value: Any, place: str, seen: tuple[str, ...]) -> Any:
        if key == "properties" and isinstance(value, Mapping):
            return {
                name: self.lower(one, f"{place}.{name}".lstrip("."), seen)
                for name, one in value.items()
            }
        if key == "items" and isinstance(value, (Mapping, bool)):
            return self.lower(value, f"{place}[]", seen)
        if key == "additionalProperties" and isinstance(value, Mapping):
            return self.lower(value, f"{place}.*".lstrip("."), seen)
        if key in ("anyOf", "prefixItems") and isinstance(value, list):
            return [self.lower(one, place, seen) for one in value]
        return value

    def _inlined(
        self, schema: Mapping[str, Any], place: str, seen: tuple[str, ...]
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """The schema with its `$ref` replaced by what it names."""
        target = schema.get("$ref")
        if self._dialect.references or not isinstance(target, str):
            return schema, seen
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        if target in seen:
            self.note(place, f"{target} names itself: cut there")
            return {"type": "object", **rest}, seen
        found = _found(self._root, target)
        if found is None:
            self.note(place, f"{target} names nothing: left open")
            return rest, seen
        self.note(place, f"{target} written out")
        return self._inlined({**found, **rest}, place, (*seen, target))

    def _rephrased(self, schema: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        """`const`, `oneOf` and `allOf` in words that more providers know."""
        result = dict(schema)
        if "const" in result:
            result["enum"] = [result.pop("const")]
            self.note(place, "const written as enum")
        if "oneOf" in result and "anyOf" not in result:
            result["anyOf"] = result.pop("oneOf")
            self.note(place, "oneOf written as anyOf")
        if "allOf" in result:
            self.note(place, "allOf merged")
            for part in result.pop("allOf"):
                result = self._merged(result, part, place)
        return result

    def _merged(self, into: dict[str, Any], part: Any, place: str) -> dict[str, Any]:
        part, _ = self._inlined(part if isinstance(part, Mapping) else {}, place, ())
        # What one part forbids beyond its own properties, another may bring: merged, it would refuse it.
        part = {key: value for key, value in part.items() if key != "additionalProperties"}
        result = {**part, **into}
        if "properties" in part or "properties" in into:
            result["properties"] = {**part.get("properties", {}), **into.get("properties", {})}
        if "required" in part or "required" in into:
            both = [*into.get("required", ()), *part.get("required", ())]
            result["required"] = list(dict.fromkeys(both))
        return result


def _found(root: Any, target: str) -> Mapping[str, Any] | None:
    """What a local reference names."""
    if target == "#":
        return root if isinstance(root, Mapping) else None
    if not target.startswith("#/"):
        return None
    here: Any = root
    for part in target.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        here = here.get(name) if isinstance(here, Mapping) else None
    return here if isinstance(here, Mapping) else None
