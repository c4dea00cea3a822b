"""Convert a tool's JSON Schema for providers that support only part of JSON Schema.

A keyword that a provider does not support is written into the description where possible, so that the
model still reads it. Every change is listed with its position in the schema. The arguments of a call are
always checked against the original schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.messages import ToolDefinition


class SchemaDialect(msgspec.Struct, frozen=True, kw_only=True):
    """The part of JSON Schema that a provider supports."""

    name: str
    keywords: frozenset[str] | None
    """Keywords that reach the model; None: all of them."""
    references: bool = True
    """Whether `$ref` is understood."""
    root_alternatives: bool = True
    """Whether the root may be an `anyOf`, `oneOf`, `allOf`, `enum` or `not`."""
    is_strict: bool = False
    """Whether the host keeps the model to the schema; objects then hold no key that it does not name."""
    requires_all: bool = False
    """Whether a strict object must hold every key that it names; what is optional may then be null."""


_BASE_KEYWORDS = frozenset({"type", "description", "enum", "items", "properties", "required", "anyOf"})

OPENAI = SchemaDialect(name="openai", keywords=None, root_alternatives=False)
"""Source: the chat API refuses alternatives at the root of a function's parameters."""
ANTHROPIC = SchemaDialect(name="anthropic", keywords=None, root_alternatives=False)
"""Source: the Messages API refuses an `input_schema` with `oneOf`, `allOf` or `anyOf` at its root."""
OLLAMA = SchemaDialect(name="ollama", keywords=_BASE_KEYWORDS, references=False)
"""Source: the properties of `ToolProperty` and `ToolFunctionParameters` in the server's
`api/types.go`; what is not among them never reaches the model's template."""
GEMINI = SchemaDialect(
    name="gemini",
    keywords=_BASE_KEYWORDS
    | {"title", "format", "minimum", "maximum", "minItems", "maxItems", "prefixItems"}
    | {"additionalProperties", "propertyOrdering", "default", "nullable"},
    references=False,
)
"""Source: google-genai 3.4.0, `types.py`, on `parameters_json_schema`, `response_json_schema` (which
lists `$ref` too, but unrolls it; written out here, a reference means the same to every model, and the
depth is ours to bound) and `Schema`, whose fields `default` and `nullable` are."""

OPENAI_STRICT = SchemaDialect(
    name="openai-strict",
    keywords=_BASE_KEYWORDS
    | {"additionalProperties", "format", "pattern", "minItems", "maxItems", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    references=False,
    root_alternatives=False,
    is_strict=True,
    requires_all=True,
)
"""Source: developers.openai.com, Structured outputs, supported schemas (read for openai 3.52.0)."""
ANTHROPIC_STRICT = SchemaDialect(
    name="anthropic-strict",
    keywords=_BASE_KEYWORDS | {"additionalProperties", "format", "title"},
    references=False,
    root_alternatives=False,
    is_strict=True,
)
"""Source: anthropic 2.12.0, `lib/_parse/_transform.py`, which moves all else into descriptions."""

DIALECTS = {
    dialect.name: dialect for dialect in (OPENAI, OLLAMA, GEMINI, ANTHROPIC, OPENAI_STRICT, ANTHROPIC_STRICT)
}

_DESCRIBABLE_KEYWORDS = frozenset(
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
"""Keywords that a description can express."""

_IGNORED_KEYWORDS = frozenset({"$schema", "$id", "$comment", "$defs", "definitions", "title", "$anchor"})
"""Keywords without meaning for a model; they are dropped and not listed."""


MAX_SCHEMAS = 2000
"""Subschemas in one tool's schema after its references are inlined; beyond that it is cut."""


def lower_schema(schema: Mapping[str, Any], dialect: SchemaDialect) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The schema in a dialect, and the list of changes, each with its position."""
    lowering = _SchemaLowering(schema, dialect)
    result = lowering.lower_subschema(schema, "", ())
    if dialect.is_strict:
        result = lowering.close_objects({"type": "object", **result}, "")
    if not dialect.root_alternatives:
        for keyword in ("anyOf", "oneOf", "allOf", "enum", "not"):
            if keyword in result:
                lowering.add_rewrite("", f"{keyword} at the root left out")
                del result[keyword]
    result.setdefault("type", "object")
    result.setdefault("properties", {})
    return result, tuple(dict.fromkeys(lowering.rewrites))


def find_strict_obstacle(schema: Mapping[str, Any]) -> str | None:
    """Why no strict schema can say what this one says: an object with keys that it does not name; else None.

    A strict schema would forbid such keys, so that the model could not pass what the tool takes.
    """
    return _find_open_object(schema, schema, "", ())


def _find_open_object(root: Any, schema: Any, path: str, references: tuple[str, ...]) -> str | None:
    """The first place where an object may hold any key, or where a schema names itself."""
    if not isinstance(schema, Mapping):
        return None
    target = schema.get("$ref")
    if isinstance(target, str):
        if target in references:
            return f"{path or '(root)'} names itself"
        return _find_open_object(root, _resolve_reference(root, target), path, (*references, target))
    properties = schema.get("properties")
    others = schema.get("additionalProperties")
    is_object = schema.get("type") == "object" or isinstance(properties, Mapping)
    is_open = others not in (None, False) or "patternProperties" in schema
    if is_object and (is_open or (not isinstance(properties, Mapping) and bool(path))):
        return f"{path or '(root)'} takes keys that the schema does not name"
    inner = [
        *((f"{path}.{name}".lstrip("."), item) for name, item in dict(properties or {}).items()),
        (f"{path}[]", schema.get("items")),
        *((path, option) for key in ("anyOf", "oneOf", "allOf") for option in schema.get(key) or ()),
    ]
    problems = (_find_open_object(root, item, place, references) for place, item in inner)
    return next(filter(None, problems), None)


_MAX_CACHED_SCHEMAS = 2048
"""Converted schemas in the cache."""

_schema_cache: dict[tuple[int, str], tuple[ToolDefinition, dict[str, Any] | None]] = {}
"""By the identity of the definition, which is fast. The entry holds the definition, so that its id is
not reused."""


def lower_parameters(tool: ToolDefinition, dialect: SchemaDialect) -> dict[str, Any]:
    """The tool's parameters in a dialect, converted once and cached."""
    parameters = _find_parameters(tool, dialect)
    assert parameters is not None, "only a strict dialect has obstacles"
    return parameters


def lower_strict_parameters(tool: ToolDefinition, dialect: SchemaDialect) -> dict[str, Any] | None:
    """The tool's parameters in a strict dialect, converted once and cached; None where none can say it."""
    return _find_parameters(tool, dialect)


def _find_parameters(tool: ToolDefinition, dialect: SchemaDialect) -> dict[str, Any] | None:
    key = (id(tool), dialect.name)
    match = _schema_cache.get(key)
    if match is None:
        if len(_schema_cache) >= _MAX_CACHED_SCHEMAS:
            _schema_cache.clear()
        has_obstacle = dialect.is_strict and find_strict_obstacle(tool.parameters) is not None
        parameters = None if has_obstacle else lower_schema(tool.parameters, dialect)[0]
        match = _schema_cache[key] = (tool, parameters)
    return match[1]


class _SchemaLowering:
    def __init__(self, root: Mapping[str, Any], dialect: SchemaDialect) -> None:
        self.rewrites: list[str] = []
        self._subschema_count = 0
        self._root = root
        self._dialect = dialect

    def add_rewrite(self, path: str, change: str) -> None:
        self.rewrites.append(f"{path or '(root)'}: {change}")

    def lower_subschema(self, schema: Any, path: str, open_references: tuple[str, ...]) -> dict[str, Any]:
        """One subschema and everything inside it."""
        if not isinstance(schema, Mapping):
            if schema is not True:
                self.add_rewrite(path, "a schema that refuses everything cannot be described")
            return {}
        if self._dialect.keywords is None:
            return dict(schema)
        self._subschema_count += 1
        if self._subschema_count > MAX_SCHEMAS:
            self.add_rewrite("", f"too large once its references are written out: cut at {MAX_SCHEMAS}")
            return {}
        schema, open_references = self._inline_reference(schema, path, open_references)
        schema = self._rephrase_keywords(schema, path)
        result: dict[str, Any] = {}
        described_keywords: list[str] = []
        for key, value in schema.items():
            if key in self._dialect.keywords:
                result[key] = self._lower_keyword(key, value, path, open_references)
            elif key in _DESCRIBABLE_KEYWORDS:
                described_keywords.append(f"{key}: {encode_canonical_text(value)}")
                self.add_rewrite(path, f"{key} moved into the description")
            elif key not in _IGNORED_KEYWORDS:
                self.add_rewrite(path, f"{key} left out")
        if described_keywords:
            description = f"({', '.join(described_keywords)})"
            result["description"] = f"{result.get('description', '')} {description}".strip()
        return result

    def close_objects(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        """A lowered schema whose objects hold the keys that it names, and no others."""
        result = dict(schema)
        if isinstance(result.get("items"), dict):
            result["items"] = self.close_objects(result["items"], f"{path}[]")
        if "anyOf" in result:
            result["anyOf"] = [self.close_objects(option, path) for option in result["anyOf"]]
        if result.get("type") != "object" and "properties" not in result:
            return result
        required = list(result.get("required", ()))
        properties = {}
        for name, item in result.get("properties", {}).items():
            place = f"{path}.{name}".lstrip(".")
            item = self.close_objects(item, place)
            if self._dialect.requires_all and name not in required:
                self.add_rewrite(place, "optional, so it may be null")
                item = _allow_null(item)
            properties[name] = item
        names = list(properties) if self._dialect.requires_all else required
        return {**result, "properties": properties, "required": names, "additionalProperties": False}

    def _lower_keyword(self, key: str, value: Any, path: str, open_references: tuple[str, ...]) -> Any:
        if key == "properties" and isinstance(value, Mapping):
            return {
                name: self.lower_subschema(subschema, f"{path}.{name}".lstrip("."), open_references)
                for name, subschema in value.items()
            }
        if key == "items" and isinstance(value, (Mapping, bool)):
            return self.lower_subschema(value, f"{path}[]", open_references)
        if key == "additionalProperties" and isinstance(value, Mapping):
            return self.lower_subschema(value, f"{path}.*".lstrip("."), open_references)
        if key in ("anyOf", "prefixItems") and isinstance(value, list):
            return [self.lower_subschema(subschema, path, open_references) for subschema in value]
        return value

    def _inline_reference(
        self, schema: Mapping[str, Any], path: str, open_references: tuple[str, ...]
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """The schema with its `$ref` replaced by the schema that it names."""
        target = schema.get("$ref")
        if self._dialect.references or not isinstance(target, str):
            return schema, open_references
        other_keywords = {key: value for key, value in schema.items() if key != "$ref"}
        if target in open_references:
            self.add_rewrite(path, f"{target} names itself: cut there")
            return {"type": "object", **other_keywords}, open_references
        match = _resolve_reference(self._root, target)
        if match is None:
            self.add_rewrite(path, f"{target} names nothing: left open")
            return other_keywords, open_references
        self.add_rewrite(path, f"{target} written out")
        return self._inline_reference({**match, **other_keywords}, path, (*open_references, target))

    def _rephrase_keywords(self, schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        """`const`, `oneOf` and `allOf` expressed by keywords that more providers support."""
        result = dict(schema)
        if "const" in result:
            result["enum"] = [result.pop("const")]
            self.add_rewrite(path, "const written as enum")
        if "oneOf" in result and "anyOf" not in result:
            result["anyOf"] = result.pop("oneOf")
            self.add_rewrite(path, "oneOf written as anyOf")
        if "allOf" in result:
            self.add_rewrite(path, "allOf merged")
            for part in result.pop("allOf"):
                result = self._merge_part(result, part, path)
        return result

    def _merge_part(self, target: dict[str, Any], part: Any, path: str) -> dict[str, Any]:
        part, _ = self._inline_reference(part if isinstance(part, Mapping) else {}, path, ())
        # `additionalProperties: false` of one part would forbid the properties of another part.
        part = {key: value for key, value in part.items() if key != "additionalProperties"}
        result = {**part, **target}
        if "properties" in part or "properties" in target:
            result["properties"] = {**part.get("properties", {}), **target.get("properties", {})}
        if "required" in part or "required" in target:
            required_names = [*target.get("required", ()), *part.get("required", ())]
            result["required"] = list(dict.fromkeys(required_names))
        return result


def _allow_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or null."""
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return schema if kind == "null" else {**schema, "type": [kind, "null"]}
    if isinstance(kind, list) and "enum" not in schema:
        return schema if "null" in kind else {**schema, "type": [*kind, "null"]}
    description = {"description": schema["description"]} if "description" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "description"}
    return {"anyOf": [inner, {"type": "null"}], **description}


def _resolve_reference(root: Any, target: str) -> Mapping[str, Any] | None:
    """The schema that a local reference names; None where there is none."""
    if target == "#":
        return root if isinstance(root, Mapping) else None
    if not target.startswith("#/"):
        return None
    node: Any = root
    for part in target.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        node = node.get(name) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else None
