"""Canonical requests: one shape for the requests of every wire format, so that they can be compared.

The shape is `{model, system, messages, tools, options}`. `own_requests.py` makes it from one of our own
requests; `recorded_requests.py` in the folder of a host makes it from a recorded body. Requests that differ
only in the following have the same shape:

- spelling: `developer` for `system`, parts for a text, null for an empty text, `max_completion_tokens`
  and its synonyms, upper-case types in Gemini's schemas, defaults that are written out (`tool_choice: auto`);
- ids of calls, which become numbers (`call` 1, 2, ...), and the spelling of arguments sent as text;
- the envelope of a tool's result (`success`, `tool_name`, `execution_time_ms`), and whether the result is
  sent as JSON or as text: a tool that took longer today does not change the request;
- what a host wants back verbatim: reasoning, thoughts, signatures;
- keys about transport and not about content: `stream`, `store`, `user`, `metadata`, `strict`,
  `safetySettings` and everything else that `toolchart.states.messages.Request` has no field for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from toolchart.providers.shared.tool_choice import parse_tool_choice

CanonicalRequest = dict[str, Any]
"""`{model, system, messages, tools, options}`."""

CanonicalCall = tuple[str, str, Any]
"""Id, name and arguments of a call."""

RequestReader = Callable[[Mapping[str, Any], str], CanonicalRequest]
"""Reads a recorded request body and its URI."""

_MODEL_IN_PATH = re.compile(r"/(?:models|deployments)/([^/:]+)|/model/([^/]+)/")
"""Gemini, Azure and Bedrock name the model in the path."""


@dataclass(slots=True)
class CanonicalRequestBuilder:
    """Builds a canonical request message by message, and numbers the calls in it."""

    system: list[str] = field(default_factory=list)
    """Texts of the system prompt."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    _open_calls: list[CanonicalCall] = field(default_factory=list)
    """Calls without a result yet. The id may be empty."""
    _open_numbers: list[int] = field(default_factory=list)
    """The numbers of the open calls, in the same order."""
    _call_count: int = 0

    def add_user_message(self, content: Any) -> None:
        """Add a message of the user."""
        self.messages.append({"role": "user", "content": content})

    def add_assistant_message(self, content: Any, calls: Iterable[CanonicalCall] = ()) -> None:
        """Add a message of the model. Several in a row become one message."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": "", "calls": []})
        last = self.messages[-1]
        if isinstance(content, str) and isinstance(last["content"], str):
            last["content"] += content
        elif content:
            last["content"] = content
        for call in calls:
            self._call_count += 1
            self._open_calls.append(call)
            self._open_numbers.append(self._call_count)
            last["calls"].append({"call": self._call_count, "name": call[1], "arguments": call[2]})

    def add_tool_result(self, call_id: str | None, name: str | None, content: Any) -> None:
        """Add a tool's result: for the call with that id, else for the oldest open call of that name."""
        index = self._find_open_call(call_id, name)
        number = None
        if index is not None:
            self._open_calls.pop(index)
            number = self._open_numbers.pop(index)
        self.messages.append({"role": "tool", "call": number, "content": content})

    def _find_open_call(self, call_id: str | None, name: str | None) -> int | None:
        """The index of the open call that a result belongs to."""
        for index, (open_id, _, _) in enumerate(self._open_calls):
            if call_id and open_id == call_id:
                return index
        for index, (open_id, open_name, _) in enumerate(self._open_calls):
            if (not call_id or not open_id) and (not name or name == open_name):
                return index
        return None

    def build_request(
        self, model: Any, tools: Mapping[str, Any], options: Mapping[str, Any]
    ) -> CanonicalRequest:
        """The canonical request. Options that are None or `auto` are left out."""
        return {
            "model": model,
            "system": "\n\n".join(text for text in self.system if text),
            "messages": self.messages,
            "tools": dict(tools),
            "options": {k: v for k, v in options.items() if v is not None and v != "auto"},
        }


# -- parts that several wire formats share -------------------------------------------------------


def read_arguments(arguments: Any) -> Any:
    """The arguments of a call as a value; text that is not JSON stays as it is."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except ValueError:
        return arguments


def read_tool_result(content: Any) -> dict[str, Any]:
    """A tool's result without its envelopes: `{"output": ...}` or `{"error": ...}`.

    >>> read_tool_result('{"success": true, "result": "[1, 2]", "tool_name": "t", "execution_time_ms": 3}')
    {'output': [1, 2]}
    """
    value = _parse_json_text(content)
    while isinstance(value, Mapping):
        if value.get("success") is False:
            return {"error": value.get("error")}
        if value.get("success") is True:
            value = _parse_json_text(value.get("result"))
        elif len(value) == 1 and next(iter(value)) in ("output", "result"):
            value = _parse_json_text(next(iter(value.values())))
        elif set(value) == {"error"}:
            return dict(value)
        else:
            break
    return {"output": value}


def _parse_json_text(value: Any) -> Any:
    """The value of a JSON text; any other value, or a text that is not JSON, unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def canonicalize_tool(description: Any, parameters: Any) -> dict[str, Any]:
    """A tool's definition without its name."""
    schema = _lower_schema_types(parameters) if parameters else {}
    if not schema.get("properties"):
        schema = {"type": "object", "properties": {}}
    return {"description": description or "", "parameters": schema}


def _lower_schema_types(schema: Any) -> Any:
    """A JSON Schema with every `type` in lower case."""
    if isinstance(schema, list):
        return [_lower_schema_types(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _lower_schema_types(value)
        for key, value in schema.items()
    }


def canonicalize_tool_choice(tool_choice: Any) -> Any:
    """A tool choice as our requests spell it: a word, a tool's name, or `{"allowed", "mode"}`."""
    if isinstance(tool_choice, Mapping):
        if "allowed" in tool_choice or tool_choice.get("type") == "allowed_tools":
            choice = parse_tool_choice(tool_choice)
            return choice.required_name or {"allowed": list(choice.names), "mode": choice.mode}
        function = tool_choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else tool_choice.get("name")
        return name or dict(tool_choice)
    return tool_choice


def canonicalize_stop(stop: Any) -> Any:
    """Stop texts as a list; None where there are none."""
    return [stop] if isinstance(stop, str) else list(stop) if stop else None


def canonicalize_response_format(response_format: Any) -> Any:
    """The schema that a reply must have; `json` where any JSON is allowed, None for text."""
    if not isinstance(response_format, Mapping) or response_format.get("type") == "text":
        return None
    json_schema = response_format.get("json_schema")
    if isinstance(json_schema, Mapping):
        return json_schema.get("schema", "json")
    return response_format.get("schema", "json")


# -- reading recorded bodies ---------------------------------------------------------------------


def list_mappings(values: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list; nothing where the value is not a list."""
    items = values if isinstance(values, Sequence) and not isinstance(values, str) else ()
    return [item for item in items if isinstance(item, Mapping)]


def find_value(body: Mapping[str, Any], *names: str) -> Any:
    """The value of the first of these keys that is there and not null."""
    return next((body[name] for name in names if body.get(name) is not None), None)


def find_mapping(body: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """`find_value` as a mapping; empty where it is something else."""
    value = find_value(body, *names)
    return value if isinstance(value, Mapping) else {}


def read_model_name(body: Mapping[str, Any], uri: str) -> Any:
    """The model of a recorded request, from its body or its path."""
    match = _MODEL_IN_PATH.search(urlsplit(uri).path)
    return body.get("model") or (unquote(match.group(1) or match.group(2)) if match else None)


def read_function_tools(tools: Any) -> dict[str, Any]:
    """Tools in OpenAI's forms, nested or flat. A tool that is not a function is kept under its type."""
    definitions: dict[str, Any] = {}
    for tool in list_mappings(tools):
        function = tool.get("function") if isinstance(tool.get("function"), Mapping) else tool
        assert isinstance(function, Mapping)
        name = str(function.get("name") or tool.get("type"))
        definitions[name] = canonicalize_tool(function.get("description"), function.get("parameters"))
    return definitions


def read_function_call(call: Mapping[str, Any]) -> CanonicalCall:
    """A call in the form of chat completions, which Ollama shares."""
    function = find_mapping(call, "function", "custom")
    arguments = read_arguments(find_value(function, "arguments", "input"))
    return str(call.get("id") or ""), str(function.get("name") or ""), arguments
