"""The carriers of one conversation: where values may lie, and the trails of those that strangers wrote.

A carrier is tainted if it has a trail. The carriers are

    messages         the thread of messages, as a whole: who reads one message reads all
    words            the newest reply of the model in the conversation, from which `answer` takes its text
    calls            the open tool calls of that reply
    answer           what the user was told last
    user_message     the user's newest message
    result:NAME      the value of a result; its schema says which fields have free text
    error:NAME       what went wrong with it: the text of the error and the reply that was rejected
    open:STATE.NAME  what an open effect works on

`{{rag_context}}` and `{{topic}}` are values of the turn: the documents that a search has found, and what a
model has made of the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolchart.states.canonical_json import is_whole_number
from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.flows.results import COUNTERS, RESERVED_FIELDS
from toolchart.states.flows.templates import list_template_variables
from toolchart.states.proofs.bounds.costs import get_result_schema
from toolchart.states.proofs.dataflow.agents import FlowHandler, Trail
from toolchart.states.proofs.explored_states import is_agent_list

_TEXTS_OF_FAILURES = ("error", "rejected")


class Carriers:
    """The tainted carriers at one moment. A working copy: `freeze` gives the value that is kept.

    Args:
        handler: the one of the turn.
    """

    def __init__(self, vocabulary: Vocabulary, trails: Mapping[str, Trail], handler: FlowHandler) -> None:
        self._vocabulary = vocabulary
        self._handler = handler
        self._trails = dict(trails)

    def freeze(self) -> dict[str, Trail]:
        """The trails by carrier."""
        return dict(self._trails)

    def find(self, *names: str) -> Trail | None:
        """The trail of the first of these carriers that is tainted."""
        return next((self._trails[name] for name in names if name in self._trails), None)

    def replace(self, name: str, trail: Trail | None) -> None:
        """The carrier has a new value, and its old one is gone."""
        self._trails.pop(name, None)
        self.add(name, trail)

    def add(self, name: str, trail: Trail | None) -> None:
        """The carrier has one more value. The first trail is kept, so that trails do not run in circles."""
        if trail is not None:
            self._trails.setdefault(name, trail)

    def drop(self, prefixes: Iterable[str]) -> None:
        """Forget the carriers whose names begin with one of these."""
        gone = tuple(prefixes)
        self._trails = {name: trail for name, trail in self._trails.items() if not name.startswith(gone)}

    # -- templates -------------------------------------------------------------------------------

    def read_templates(self, templates: Iterable[str], item: str = "") -> Trail | None:
        """The trail of the first tainted value that one of the templates shows.

        Args:
            item: the path of the list that `{{item}}` is from.
        """
        names = dict.fromkeys(name for text in templates for name in list_template_variables(text))
        trails = (self.read_name(name, item) for name in names)
        return next((trail for trail in trails if trail is not None), None)

    def read_prompt(self) -> Trail | None:
        """The trail of the turn's system prompt."""
        trails = (self._read_turn_value(name.split(".")[0]) for name in self._handler.prompt_variables)
        return next((trail for trail in trails if trail is not None), None)

    def read_name(self, path: str, item: str = "") -> Trail | None:
        """The trail of the value that a dotted name in a template stands for."""
        root, *rest = path.split(".")
        if root in self._vocabulary.result_names:
            return self._read_result(root, rest)
        if root == "item" and item:
            return self.read_name(".".join((item, "0", *rest)))
        return self._read_turn_value(root)

    def _read_turn_value(self, name: str) -> Trail | None:
        """The trail of a value that the turn began with."""
        if name == "user_message":
            return self.find("user_message")
        if name == "rag_context":
            return self._handler.documents
        if name == "topic":
            message_trail = self.find("user_message", "messages") if self._handler.finds_topic else None
            return message_trail or self._handler.topic
        return None

    def _read_result(self, name: str, path: list[str]) -> Trail | None:
        if path and path[0] in COUNTERS:
            return None
        if path and path[0] in _TEXTS_OF_FAILURES and (trail := self.find(f"error:{name}")) is not None:
            return trail
        rows = [row for row in self._vocabulary.declared.values() if row.result == name]
        schemas = [None if is_agent_list(row) else get_result_schema(row) for row in rows]
        is_text = all(schema is None for schema in schemas) and "call_function" not in {r.kind for r in rows}
        if is_text and path and path[0] in RESERVED_FIELDS:
            return None  # a text has no field of such a name
        is_open = any(path_allows_free_text(schema, path) for schema in schemas)
        return self.find(f"result:{name}") if is_open else None


# -- free text -----------------------------------------------------------------------------------
# Whether a JSON Schema leaves room for free text.
#
# Booleans, `null`, enums, constants and numbers with both bounds do not. Lists of such values do not where
# `maxItems` is set, objects of such fields where `additionalProperties: false` is. Everything else does: a
# text of whatever length or pattern, a number without bounds, an open object, and every value without a
# schema.


_MAX_DEPTH = 20


def allows_free_text(schema: Any, root: Any = None, depth: int = 0) -> bool:
    """Whether a value that fits may hold free text.

    Args:
        root: the schema that `$ref` refers to; by default `schema` itself.
    """
    root = schema if root is None else root
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        # Too deep, or nothing is said: open is the safe answer.
        return schema is not False
    if "const" in schema or "enum" in schema:
        return False

    def is_open(part: Any) -> bool:
        return allows_free_text(part, root, depth + 1)

    if "$ref" in schema:
        return is_open(_find_reference(root, schema["$ref"]))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return any(map(is_open, schema[key]))
    # A value must fit every part, so one that leaves no room is enough.
    if isinstance(schema.get("allOf"), list) and not all(map(is_open, schema["allOf"])):
        return False
    types = schema.get("type")
    type_list = types if isinstance(types, list) else [types]
    return any(_type_allows_free_text(name, schema, is_open) for name in type_list)


def _type_allows_free_text(name: Any, schema: Mapping[str, Any], is_open: Any) -> bool:
    match name:
        case "boolean" | "null":
            return False
        case "integer" | "number":
            has_least = "minimum" in schema or "exclusiveMinimum" in schema
            return not (has_least and ("maximum" in schema or "exclusiveMaximum" in schema))
        case "array":
            return "maxItems" not in schema or "prefixItems" in schema or is_open(schema.get("items"))
        case "object":
            is_closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
            return not is_closed or any(map(is_open, (schema.get("properties") or {}).values()))
    return True


def path_allows_free_text(schema: Any, path: Sequence[str]) -> bool:
    """Whether the value at a path of names and indexes may hold free text; false where nothing can be."""
    return _path_is_open(schema, schema, path, 0)


def _path_is_open(schema: Any, root: Any, path: Sequence[str], depth: int) -> bool:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return schema is not False
    if not path or "const" in schema or "enum" in schema:
        return allows_free_text(schema, root)
    if "$ref" in schema:
        return _path_is_open(_find_reference(root, schema["$ref"]), root, path, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return any(_path_is_open(part, root, path, depth + 1) for part in schema[key])
    return _path_is_open(_find_inner(schema, path[0]), root, path[1:], depth + 1)


def _find_inner(schema: Mapping[str, Any], name: str) -> Any:
    """The schema of a field or an item; False where there can be none."""
    if schema.get("type") == "array":
        return schema.get("items") if is_whole_number(name) and "prefixItems" not in schema else None
    properties = schema.get("properties") or {}
    if schema.get("type") != "object" or schema.get("patternProperties"):
        return None
    return properties.get(name, schema.get("additionalProperties"))


def _find_reference(root: Any, reference: Any) -> Any:
    """The part of a schema that a local `$ref` names; None, which allows everything, for any other."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    schema_part = root
    for part in reference[2:].split("/"):
        schema_part = schema_part.get(part) if isinstance(schema_part, Mapping) else None
    return schema_part
