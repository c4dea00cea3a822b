"""What requests of several protocols share: tools of a client, forms of the answer, contents, usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from pydantic import WithJsonSchema

from toolchart.app.server.answers import Refusal
from toolchart.engine.runtime.parts import StreamOptions
from toolchart.engine.runtime.result import Turn
from toolchart.specs.chat_messages import History, read_content, read_history, require_words
from toolchart.states.content import ContentPart, HostCallPart, Media, TextPart
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition, Usage

ANY_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


class FunctionForm(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the client runs."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


def make_definition(function: FunctionForm) -> ToolDefinition:
    """The definition of a client's function."""
    return ToolDefinition(
        name=function.name,
        description=function.description or function.name,
        parameters=function.parameters or ANY_ARGUMENTS,
    )


def make_output_type(form: Mapping[str, Any] | None, schema_nodes: int) -> Any:
    """The type of the answer that a request asks for; None for free text.

    Args:
        form: `{type: text | json_object | json_schema, schema, ...}`.
        schema_nodes: most nodes of the schema: it comes from a stranger, and answers are checked with it in
            this process.

    Raises:
        Refusal: 400; there is no such form, or its schema is none.
    """
    kind = (form or {}).get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]
    schema = (form or {}).get("schema")
    if kind != "json_schema" or not isinstance(schema, dict):
        raise Refusal(400, "the form of the answer is `text`, `json_object` or `json_schema` with a schema")
    if schema.get("type") != "object":
        raise Refusal(400, "the schema of the answer must be that of an object")
    if _count_nodes(schema, schema, {}, schema_nodes) > schema_nodes:
        raise Refusal(
            400, f"the schema of the answer has more than {schema_nodes} nodes, references expanded"
        )
    return Annotated[dict[str, Any], WithJsonSchema(schema)]


def _count_nodes(node: Any, root: Mapping[str, Any], counts: dict[str, int], most: int) -> int:
    """The nodes of a schema with its references expanded: what checking a value against it costs.

    Args:
        counts: nodes of the definitions that were counted, by their names.
        most: what a definition that leads to itself has more than.

    Raises:
        Refusal: 400; a reference leads elsewhere than to `$defs`.
    """
    if isinstance(node, list):
        return 1 + sum(_count_nodes(item, root, counts, most) for item in node)
    if not isinstance(node, Mapping):
        return 1
    values = (value for key, value in node.items() if key != "$defs")
    total = 1 + sum(_count_nodes(value, root, counts, most) for value in values)
    if "$ref" in node:
        total += _count_reference(node["$ref"], root, counts, most)
    return total


def _count_reference(reference: Any, root: Mapping[str, Any], counts: dict[str, int], most: int) -> int:
    name = str(reference).removeprefix("#/$defs/")
    definitions = root.get("$defs")
    if not isinstance(definitions, Mapping) or name not in definitions:
        raise Refusal(400, f"the schema of the answer refers to {reference!r}, which is not among its $defs")
    if name not in counts:
        counts[name] = most + 1  # what a definition that leads to itself costs
        counts[name] = _count_nodes(definitions[name], root, counts, most)
    return counts[name]


def require_own_data(parts: Iterable[ContentPart]) -> None:
    """Refuse parts that name an address: this server fetches nothing for a request, and lets no host do so.

    Raises:
        Refusal: 400.
    """
    for part in parts:
        if isinstance(part, Media) and part.url:
            raise Refusal(400, "a picture, sound or file is sent as data: URL or base64, not as an address")


def describe_usage(usage: Usage) -> tuple[int, int, int]:
    """Tokens of the prompts, of the answers, and of both; 0 where a host reports none."""
    prompt, answer = usage.input or 0, usage.output or 0
    return prompt, answer, usage.total or prompt + answer


def describe_turn(result: Turn, *, shown: tuple[type, ...] = ()) -> dict[str, Any]:
    """What this server says about a turn beyond the API, under the key `toolchart`.

    Args:
        shown: the classes of the parts of an answer for which the API has a place of its own.
    """
    data: dict[str, Any] = {"conversation": result.conversation, "state": result.state}
    if result.limit_reached:
        data["limit_reached"] = result.limit_reached
    if result.warnings:
        data["warnings"] = list(result.warnings)
    parts = [part for part in result.parts if not isinstance(part, (TextPart, HostCallPart, *shown))]
    if parts:
        data["parts"] = msgspec.to_builtins(parts)
    if result.host_calls:
        data["host_calls"] = msgspec.to_builtins(result.host_calls)
    return data


PlacedEntry: TypeAlias = tuple[str, Mapping[str, Any]]
"""A message of a request in the form of chat completions, after its place in the request."""


def read_user_message(entries: Sequence[PlacedEntry], *, has_history: bool) -> tuple[str, StreamOptions]:
    """The newest message of a list, and the options of a turn with its attachments and history.

    Args:
        has_history: whether the messages before it are history: the log does not have them.

    Raises:
        Refusal: 400; the newest message is not the user's or is empty, or a message cannot be read.
    """
    place, newest = entries[-1] if entries else ("messages", {})
    if newest.get("role") != "user":
        raise Refusal(400, f"{place}: the last one must be of the role user or tool")
    earlier = entries[:-1] if has_history else []
    try:
        text, parts = read_content(newest.get("content"), None, place)
        require_words(text or "", parts, place)
    except SpecError as error:
        raise read_spec_error(error) from None
    history = read_own_history([entry for _, entry in earlier], [place for place, _ in earlier])
    require_own_data(parts)
    return text or "", {"history": history, "attachments": parts}


def read_own_history(entries: Sequence[Mapping[str, Any]], places: Sequence[str] | None = None) -> History:
    """Earlier messages of a request; as in attachments, nothing in them names an address.

    Args:
        places: where each stands in the request; without them `history[0]` and so on.

    Raises:
        Refusal: 400; one breaks the format, or names an address.
    """
    try:
        history = read_history(entries, places=places)
    except SpecError as error:
        raise read_spec_error(error) from None
    for message in history:
        require_own_data(message.parts)
    return history


def read_spec_error(error: SpecError) -> Refusal:
    """The refusal of messages that cannot be read, with their place in the request and what to do."""
    return Refusal(400, str(error))


def join_texts(texts: Sequence[str | None]) -> str:
    """Texts with empty lines between them; those that are empty are left out."""
    return "\n\n".join(text for text in texts if text)
