"""What a host refuses of a request, by its row in `providers/shared/host_rows.py` and its facts (`facts.py`).

`check_request` reads the JSON of a request as it came, in any wire format, and never through our own
adapters: what they would not write must be seen too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import msgspec

from toolchart.providers.shared.adapted_requests import has_budget, is_thinking, read_switches
from toolchart.providers.shared.host_rows import CERTAIN, Evidence, HostRow, RequestRule, Wire, find_rules
from toolchart.testing.emulators.facts import KNOWN_KEYS, MessageRule, find_message_rules

Body = Mapping[str, Any]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Something of a request that its host refuses."""

    message: str
    """What the host would say."""
    source: str
    """Who says that it does."""
    evidence: Evidence
    status: int = 400
    code: str = "invalid_request_error"
    """The word beside the message."""
    param: str = ""
    """The key that is refused."""

    @property
    def is_certain(self) -> bool:
        """Whether the host is known to refuse it; what somebody only said is a warning."""
        return self.evidence in CERTAIN


# -- one view of five wire formats ---------------------------------------------------------------


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One message, or one item of a message list."""

    role: str
    wire: Body
    calls: tuple[str, ...] = ()
    """Ids of its calls."""
    names: tuple[str, ...] = ()
    """Names of the tools of its calls, in the same order."""
    arguments: tuple[Any, ...] = ()
    """Arguments of its calls, as they came."""
    results: tuple[str, ...] = ()
    """Ids of the calls that it answers."""
    parts: tuple[str, ...] = ()
    """Kinds of its parts besides text: `image`, `audio`, `file`."""


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A function of a request."""

    name: str
    schema: Any
    is_strict: bool = False


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the same form for every wire format."""

    wire: Wire
    model: str
    body: Body
    entries: tuple[Entry, ...]
    tools: tuple[OfferedTool, ...]
    choice: str | None = None
    """`none`, `required`, `named`, `lists`; None for `auto`."""
    forced_name: str = ""
    """The tool that must be called."""

    @property
    def has_results(self) -> bool:
        """Whether a tool has answered since the user spoke last."""
        for entry in reversed(self.entries):
            if entry.results:
                return True
            if entry.role == "user":
                return False
        return False

    @property
    def newest_words(self) -> str:
        """The text that the user said last."""
        entry = next((each for each in reversed(self.entries) if _is_said(each)), None)
        return " ".join(_iterate_texts(entry.wire)) if entry is not None else ""

    @property
    def call_count(self) -> int:
        """How many calls there are since then."""
        said = [index for index, each in enumerate(self.entries) if _is_said(each)]
        return sum(len(each.calls) for each in self.entries[said[-1] if said else 0 :])


def _is_said(entry: Entry) -> bool:
    return entry.role == "user" and not entry.results


def _iterate_texts(value: Any) -> Iterator[str]:
    """The texts of a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _iterate_texts(each)
    elif isinstance(value, Mapping):
        for key in ("text", "content", "parts"):
            yield from _iterate_texts(value.get(key))


def read_view(wire: Wire, body: Body, model: str = "") -> RequestView:
    """The view of a request.

    Args:
        model: where the path names it.
    """
    model = str(body.get("model") or model)
    choice, name = _read_choice(wire, body)
    return RequestView(
        wire=wire,
        model=model,
        body=body,
        entries=tuple(_READERS[wire](body)),
        tools=tuple(_iterate_tools(wire, body)),
        choice=choice,
        forced_name=name,
    )


def _list_mappings(value: Any) -> list[Body]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


_PART_KINDS = {
    **{"image_url": "image", "input_image": "image", "image": "image"},
    **{"input_audio": "audio", "file": "file", "input_file": "file", "document": "file"},
}


def _iterate_chat(body: Body) -> Iterator[Entry]:
    for message in _list_mappings(body.get("messages")):
        parts = [
            _PART_KINDS.get(str(part.get("type")), "") for part in _list_mappings(message.get("content"))
        ]
        result = message.get("tool_call_id")
        calls = _list_mappings(message.get("tool_calls"))
        functions = [_read_either(call, "function") for call in calls]
        yield Entry(
            role=str(message.get("role")),
            wire=message,
            calls=tuple(str(call.get("id", "")) for call in calls),
            names=tuple(str(function.get("name")) for function in functions),
            arguments=tuple(function.get("arguments") for function in functions),
            results=(str(result or ""),) if message.get("role") == "tool" else (),
            parts=tuple(filter(None, parts)),
        )


def _iterate_responses(body: Body) -> Iterator[Entry]:
    if isinstance(body.get("input"), str):
        yield Entry(role="user", wire={"content": body["input"]})
    for item in _list_mappings(body.get("input")):
        kind, call_id = item.get("type", "message"), str(item.get("call_id", ""))
        if kind in ("function_call", "custom_tool_call"):
            arguments = (item.get("arguments"),) if kind == "function_call" else ("{}",)
            name = str(item.get("name"))
            yield Entry(role="assistant", wire=item, calls=(call_id,), names=(name,), arguments=arguments)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            yield Entry(role="tool", wire=item, results=(call_id,))
        elif kind == "message":
            parts = [
                _PART_KINDS.get(str(part.get("type")), "") for part in _list_mappings(item.get("content"))
            ]
            yield Entry(role=str(item.get("role")), wire=item, parts=tuple(filter(None, parts)))
        else:
            yield Entry(role="assistant", wire=item)


def _iterate_messages(body: Body) -> Iterator[Entry]:
    for message in _list_mappings(body.get("messages")):
        blocks = _list_mappings(message.get("content"))
        calls = [block for block in blocks if block.get("type") == "tool_use"]
        yield Entry(
            role=str(message.get("role")),
            wire=message,
            calls=tuple(str(call.get("id")) for call in calls),
            names=tuple(str(call.get("name")) for call in calls),
            arguments=tuple(call.get("input") for call in calls),
            results=tuple(
                str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"
            ),
            parts=tuple(filter(None, (_PART_KINDS.get(str(block.get("type")), "") for block in blocks))),
        )


def _iterate_gemini(body: Body) -> Iterator[Entry]:
    for content in _list_mappings(body.get("contents")):
        parts = _list_mappings(content.get("parts"))
        calls = [_read_either(part, "functionCall") for part in parts if _holds(part, "functionCall")]
        results = [
            _read_either(part, "functionResponse") for part in parts if _holds(part, "functionResponse")
        ]
        yield Entry(
            role=str(content.get("role", "user")),
            wire=content,
            calls=tuple(str(call.get("name")) for call in calls),
            names=tuple(str(call.get("name")) for call in calls),
            arguments=tuple(call.get("args", {}) for call in calls),
            results=tuple(str(result.get("name")) for result in results),
        )


def _iterate_converse(body: Body) -> Iterator[Entry]:
    for message in _list_mappings(body.get("messages")):
        blocks = _list_mappings(message.get("content"))
        calls = [use for block in blocks if isinstance(use := block.get("toolUse"), Mapping)]
        results = [one for block in blocks if isinstance(one := block.get("toolResult"), Mapping)]
        calls, results = (
            [one for one in items if not one.get("type")] for items in (calls, results)
        )  # with a type they are those of a tool that the host ran
        yield Entry(
            role=str(message.get("role")),
            wire=message,
            calls=tuple(str(call.get("toolUseId")) for call in calls),
            names=tuple(str(call.get("name")) for call in calls),
            arguments=tuple(call.get("input") for call in calls),
            results=tuple(str(result.get("toolUseId")) for result in results),
            parts=tuple(kind for block in blocks for kind in ("image", "audio", "document") if kind in block),
        )


def _holds(part: Any, name: str) -> bool:
    """Whether a part has a key, in either spelling of Gemini's JSON."""
    return name in part or re.sub("[A-Z]", lambda match: "_" + match.group().lower(), name) in part


def _read_either(part: Any, name: str) -> Body:
    """A key in either spelling of Gemini's JSON: `functionCall` or `function_call`."""
    if not isinstance(part, Mapping):
        return {}
    snake_name = re.sub("[A-Z]", lambda match: "_" + match.group().lower(), name)
    value = part.get(name, part.get(snake_name))
    return value if isinstance(value, Mapping) else {}


_READERS = {
    "chat": _iterate_chat,
    "responses": _iterate_responses,
    "messages": _iterate_messages,
    "converse": _iterate_converse,
    "gemini": _iterate_gemini,
    "ollama": _iterate_chat,
}


_GEMINI_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema", "parameters")
"""Where a function's schema stands. google-genai writes the second one."""


def _iterate_tools(wire: Wire, body: Body) -> Iterator[OfferedTool]:
    for tool in _list_mappings(body.get("tools")):
        if wire == "gemini":
            declared = tool.get("functionDeclarations", tool.get("function_declarations"))
            for one in _list_mappings(declared):
                schema = next((one[key] for key in _GEMINI_SCHEMAS if key in one), None)
                yield OfferedTool(name=str(one.get("name")), schema=schema)
        elif wire == "messages" and "input_schema" in tool:
            yield OfferedTool(
                name=str(tool.get("name")), schema=tool["input_schema"], is_strict=bool(tool.get("strict"))
            )
        elif tool.get("type", "function") == "function":
            function = tool.get("function", tool)
            if isinstance(function, Mapping) and wire != "messages":
                yield OfferedTool(
                    name=str(function.get("name")),
                    schema=function.get("parameters"),
                    is_strict=bool(function.get("strict")),
                )


_CHOICE_WORDS = {"none": "none", "required": "required", "any": "required"}


def _read_choice(wire: Wire, body: Body) -> tuple[str | None, str]:
    """The form of the tool choice, and the tool that must be called."""
    choice = body.get("tool_choice")
    if wire == "gemini":
        config = body.get("toolConfig", body.get("tool_config"))
        calling = _read_either(config, "functionCallingConfig") if isinstance(config, Mapping) else {}
        names = calling.get("allowedFunctionNames") or calling.get("allowed_function_names") or []
        mode = str(calling.get("mode", "AUTO")).upper()
        forced = str(names[0]) if len(names) == 1 and mode == "ANY" else ""
        if mode == "ANY":
            return "named" if forced else "required", forced
        return "none" if mode == "NONE" else None, ""
    if isinstance(choice, str):
        return _CHOICE_WORDS.get(choice), ""
    if not isinstance(choice, Mapping):
        return None, ""
    kind = choice.get("type")
    function = choice.get("function", choice)
    name = str(function.get("name", "")) if isinstance(function, Mapping) else ""
    if kind == "allowed_tools":
        return "lists", ""
    if kind in ("any", "none", "auto"):
        return _CHOICE_WORDS.get(str(kind)), ""
    return ("named", name) if name else (None, "")


# -- the checks ----------------------------------------------------------------------------------


def check_request(row: HostRow, view: RequestView, headers: Mapping[str, str] | None = None) -> list[Refusal]:
    """Everything of a request that its host refuses, and what it is only said to refuse.

    Args:
        headers: of the request, names in lower case; None: they are not checked.
    """
    return [*_check_headers(row, view, headers or {}), *_check_form(view), *_check_rules(row, view)]


def _check_headers(row: HostRow, view: RequestView, headers: Mapping[str, str]) -> Iterator[Refusal]:
    if not headers:
        return
    names = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
    if row.key_variables and row.name != "ollama" and not any(headers.get(name) for name in names):
        yield Refusal(
            message="no API key was provided",
            source="every host with a key",
            evidence="page",
            status=401,
            code="authentication_error",
        )
    if view.wire == "messages" and not headers.get("anthropic-version"):
        yield Refusal(
            message="anthropic-version: header is required", source="platform.claude.com", evidence="page"
        )


_ROLES = {
    "chat": ("system", "developer", "user", "assistant", "tool", "function"),
    "responses": ("system", "developer", "user", "assistant", "tool"),
    "messages": ("user", "assistant"),
    "converse": ("user", "assistant"),
    "gemini": ("user", "model", "function"),
    "ollama": ("system", "user", "assistant", "tool"),
}


def _check_form(view: RequestView) -> Iterator[Refusal]:
    """What the wire format itself demands."""

    def refuse(message: str, param: str, source: str = "the API's reference") -> Refusal:
        return Refusal(message=message, param=param, source=source, evidence="page")

    body, wire = view.body, view.wire
    if not view.model:
        yield refuse("you must provide a model parameter", "model")
    key = {"gemini": "contents", "responses": "input"}.get(wire, "messages")
    is_stored = wire == "responses" and any(
        body.get(name) for name in ("previous_response_id", "conversation", "prompt")
    )
    if not view.entries and not is_stored:
        yield refuse(f"{key}: at least one is required", key)
    for entry in view.entries:
        if entry.role not in _ROLES[wire]:
            yield refuse(f"{key}: {entry.role!r} is not one of {', '.join(_ROLES[wire])}", key)
    if wire == "messages":
        yield from _check_messages(view, refuse)
    if wire == "gemini":
        yield from _check_contents(view, refuse)
    if wire == "responses":
        yield from _check_items(view, refuse)
    for entry in view.entries:
        if wire in _OBJECT_ARGUMENTS and not all(isinstance(one, Mapping) for one in entry.arguments):
            yield refuse(_OBJECT_ARGUMENTS[wire], key)
        if wire in ("chat", "responses") and not all(isinstance(one, str) for one in entry.arguments):
            yield refuse(f"Invalid type for {key!r}: expected a string of arguments", key)
        for name in _list_nulls(entry.wire, _NEVER_NULL.get(wire, ())):
            yield refuse(f"{key}: {name}: Input should be a valid value, got null", key)
        is_answer = wire == "chat" and entry.role == "assistant" and not entry.calls
        if is_answer and not isinstance(entry.wire.get("content"), str | list):
            yield refuse("Invalid value for 'content': expected a string, got null.", key)
        if wire in ("messages", "converse") and not entry.wire.get("content"):
            yield refuse(f"{key}: all messages must have non-empty content", key)


_NEVER_NULL: Mapping[Wire, tuple[str, ...]] = {
    "messages": ("text", "thinking", "signature", "data"),
    "converse": ("text", "signature", "redactedContent", "reasoningText"),
    "responses": ("id", "text", "summary", "annotations", "name"),
}
"""Keys of messages and items that are refused where they are null: texts and lists of the API's schema."""


def _list_nulls(value: Any, names: tuple[str, ...]) -> Iterator[str]:
    """The names that are null in a value, outside of the arguments of calls and their results."""
    if isinstance(value, list):
        for item in value:
            yield from _list_nulls(item, names)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if item is None and key in names:
                yield key
            elif key not in ("input", "arguments", "output", "json"):
                yield from _list_nulls(item, names)


_OBJECT_ARGUMENTS: Mapping[Wire, str] = {
    "ollama": "json: cannot unmarshal string into Go value of type api.ToolCallFunctionArguments",
    "messages": "messages: tool_use.input: Input should be a valid dictionary",
    "gemini": "Proto field is not repeating, cannot start list: function_call.args",
    "converse": "messages.content.toolUse.input is invalid. Provide a json object for the field.",
}
"""What a host says where the arguments of a call are no object."""


def _check_contents(view: RequestView, refuse: Callable[[str, str], Refusal]) -> Iterator[Refusal]:
    """What Gemini demands of contents. Source: the API's refusals of empty contents and parts."""
    for entry in view.entries:
        parts = entry.wire.get("parts")
        if not parts:
            yield refuse("contents.parts must not be empty.", "contents")
        # null is the same as a key that is not there: the JSON form of Protocol Buffers
        if any(not _names_data(part) for part in _list_mappings(parts)):
            yield refuse("required oneof field 'data' must have one initialized field", "contents")
        if any(not name or name == "None" for name in entry.results):
            yield refuse("function_response.name: Name cannot be empty.", "contents")


def _names_data(part: Body) -> bool:
    """Whether a part of Gemini has its data."""
    return bool({key for key, value in part.items() if value is not None} - {"thoughtSignature", "thought"})


def _check_items(view: RequestView, refuse: Callable[[str, str], Refusal]) -> Iterator[Refusal]:
    """What the Responses API demands of items. Sources: vercel/ai#7099, openai/openai-dotnet#1050."""
    items = [entry.wire for entry in view.entries]
    for item, following in zip(items, [*items[1:], {}], strict=False):
        is_own = following.get("type") not in (None, "function_call_output", "custom_tool_call_output")
        if item.get("type") == "reasoning" and not (is_own or following.get("role") == "assistant"):
            yield refuse("type 'reasoning' was provided without its required following item.", "input")


def _check_messages(view: RequestView, refuse: Callable[[str, str], Refusal]) -> Iterator[Refusal]:
    """What Anthropic's Messages demand. Source: platform.claude.com, Messages, Extended thinking, Errors."""
    body = view.body
    most, thinking = body.get("max_tokens"), body.get("thinking")
    if not isinstance(most, int):
        yield refuse("max_tokens: Field required", "max_tokens")
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    if isinstance(budget, int) and isinstance(most, int) and budget >= most:
        yield refuse("`max_tokens` must be greater than `thinking.budget_tokens`", "thinking")
    if isinstance(budget, int) and budget < 1024:
        yield refuse("thinking.budget_tokens: Input should be greater than or equal to 1024", "thinking")
    ids = [call_id for entry in view.entries for call_id in entry.calls]
    if len(set(ids)) != len(ids):
        yield refuse("messages: `tool_use` ids must be unique", "messages")
    for entry in view.entries:
        blocks = _list_mappings(entry.wire.get("content"))
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for block in blocks:
            if block.get("type") == "text" and not str(block.get("text", "")).strip():
                yield refuse("messages: text content blocks must contain non-whitespace text", "messages")
            if block.get("type") == "thinking" and not block.get("signature"):
                yield refuse("messages: thinking.signature: Field required", "messages")
        if any(block.get("type") == "thinking" for block in blocks[-1:]):
            yield refuse("messages: The final block in an assistant message cannot be `thinking`", "messages")
        if blocks[: len(results)] != results:
            yield refuse("messages: `tool_result` blocks must be first in their message", "messages")


def _check_rules(row: HostRow, view: RequestView) -> Iterator[Refusal]:
    """What the rules of the host and of the model refuse."""
    body = view.body
    switches = read_switches(body)
    thinks = is_thinking(row.name, view.model, switches)
    budget = has_budget(None, body)
    scope = view.wire, row.name, view.model
    for rule in (*find_rules(*scope), *find_message_rules(*scope)):
        if rule.is_thinking in (None, thinks) and rule.has_budget in (None, budget):
            breaches = (
                _iterate_message_breaches(rule, view)
                if isinstance(rule, MessageRule)
                else _iterate_breaches(rule, view, thinks)
            )
            for message, param in breaches:
                yield Refusal(message=message, param=param, source=rule.source, evidence=rule.evidence)


def _iterate_breaches(rule: RequestRule, view: RequestView, thinks: bool | None) -> Iterator[tuple[str, str]]:
    """What breaks one rule: the host's words, and the key."""
    body, entries = view.body, view.entries
    for option in rule.refuses:
        value = _read_option(view, option.name)
        if option.refuses(value):
            yield (
                f"Unsupported value: {option.name!r} does not support {value!r} with this model",
                option.name,
            )
    if view.choice in rule.refused_choices:
        yield f"tool_choice: the form {view.choice!r} is not supported", "tool_choice"
    for key in rule.refused_keys:
        if body.get(key) is not None:
            yield f"Unsupported parameter: {key!r}", key
    for entry in entries:
        for part in set(entry.parts) & set(rule.refused_parts):
            yield f"messages: content of the type {part!r} is not supported", "messages"
    yield from _iterate_tool_breaches(rule, view)
    if rule.id_form is not None:
        for call_id in {one for entry in entries for one in (*entry.calls, *entry.results)}:
            if view.wire != "gemini" and not rule.id_form.takes(call_id):
                yield f"the id {call_id!r} of a tool call must match {rule.id_form.pattern}", "messages"
    roles = [entry.role for entry in entries]
    if rule.needs_reply_after_results and ("tool", "user") in pairwise(roles):
        yield "Unexpected role 'user' after role 'tool'", "messages"
    form = body.get("response_format")
    if isinstance(form, Mapping) and form.get("type") in rule.refused_formats:
        yield f"'response_format.type' {form.get('type')!r} is not supported", "response_format"
    if rule.name_form is not None:
        for name in {name for entry in entries for name in entry.names}:
            if not rule.name_form.takes(name):
                yield f"the name {name!r} of a call must match {rule.name_form.pattern}", "messages"
    if not rule.takes_empty_replies:
        for entry in entries:
            if entry.role == "assistant" and not entry.calls and not entry.wire.get("content"):
                yield "Assistant message must have either content or tool_calls, but not none.", "messages"
    if not rule.takes_budget and has_budget(None, body):
        yield "thinking.type.enabled is not supported for this model. Use thinking.type.adaptive", "thinking"
    if rule.tools_need_effort_none and view.tools and thinks:
        yield "Function tools with reasoning_effort are not supported in chat completions", "reasoning_effort"
    if rule.needs_call_signatures and _lacks_signature(view):
        yield "Function call is missing a thought_signature in functionCall parts.", "contents"
    include = body.get("include")
    if rule.never_thinks and isinstance(include, list) and "reasoning.encrypted_content" in include:
        yield "Encrypted content is not supported with this model.", "include"


def _iterate_message_breaches(rule: MessageRule, view: RequestView) -> Iterator[tuple[str, str]]:
    """What breaks one rule about messages: the host's words, and the key."""
    entries = view.entries
    for entry in entries:
        for key in rule.refused_message_keys:
            if key in entry.wire:
                yield f"'messages' : property {key!r} is unsupported", "messages"
        if entry.role in rule.refused_roles:
            yield f"messages: role {entry.role!r} is not supported", "messages"
    roles = [entry.role for entry in entries]
    if rule.needs_user_message and "user" not in roles:
        yield "messages: at least one message of the user is needed", "messages"
    if rule.single_system and "system" in roles[1:]:
        yield "System message must be at the beginning.", "messages"
    if rule.matches_results:
        yield from _iterate_mismatches(view)
    if rule.parses_arguments:
        for text in (one for entry in entries for one in entry.arguments if not _is_object_text(one)):
            yield f"Failed to parse the arguments {text!r} of a call as JSON", "messages"
    if rule.needs_reasoning != "never" and any(entry.calls for entry in entries):
        own = [e for e in entries if e.role == "assistant" and (e.calls or rule.needs_reasoning == "always")]
        if any("reasoning_content" not in entry.wire for entry in own):
            yield "The `reasoning_content` in the thinking mode must be passed back to the API.", "messages"
    if rule.has_closed_keys:
        for key in set(view.body) - KNOWN_KEYS[view.wire]:
            yield f"Unrecognized request argument supplied: {key}", key


def _iterate_tool_breaches(rule: RequestRule, view: RequestView) -> Iterator[tuple[str, str]]:
    if not rule.takes_tools and view.tools:
        yield "tools are not supported with this model", "tools"
    if rule.max_tools is not None and len(view.tools) > rule.max_tools:
        yield f"Invalid 'tools': array too long, with a maximum length of {rule.max_tools}", "tools"
    for tool in view.tools:
        if rule.name_form is not None and not rule.name_form.takes(tool.name):
            yield f"tools: the name {tool.name!r} must match {rule.name_form.pattern}", "tools"
        if tool.is_strict and any(option.name == "strict_tools" for option in rule.refuses):
            yield "tools: function.strict is not supported", "tools"
        if not rule.takes_closed_schemas and _holds_closed_object(tool.schema):
            yield "tools: `additionalProperties: false` is not supported", "tools"


def _is_object_text(arguments: Any) -> bool:
    """Whether arguments are an object, or the text of one."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return False
    return isinstance(arguments, Mapping)


def _holds_closed_object(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_holds_closed_object, schema))
    if not isinstance(schema, Mapping):
        return False
    return schema.get("additionalProperties") is False or any(map(_holds_closed_object, schema.values()))


def _iterate_mismatches(view: RequestView) -> Iterator[tuple[str, str]]:
    """Calls without a result before the next message, and results without a call."""
    waiting: Counter[str] = Counter()  # Gemini's results name their tool, which may be called twice
    is_list = view.wire == "responses"
    is_stored = any(view.body.get(name) for name in ("previous_response_id", "conversation"))
    for entry in view.entries:
        for result in entry.results:
            if not waiting[result] and not is_stored:
                yield f"no tool call was found for the result {result!r}", "messages"
            waiting = waiting - Counter([result])
        if waiting and not entry.results and not is_list:
            yield f"the tool calls {', '.join(sorted(waiting))} have no result", "messages"
            waiting = Counter()
        waiting += Counter(entry.calls)
    if waiting:
        yield f"the tool calls {', '.join(sorted(waiting))} have no result", "messages"


def _lacks_signature(view: RequestView) -> bool:
    """Whether the first call of a message since the user spoke last has no thought signature."""
    entries: list[Entry] = []
    for entry in reversed(view.entries):
        if entry.role == "user" and not entry.results:
            break
        entries.append(entry)
    for entry in (entry for entry in entries if entry.calls):
        if view.wire == "gemini":
            parts = [
                part for part in _list_mappings(entry.wire.get("parts")) if _read_either(part, "functionCall")
            ]
            if not parts[0].get("thoughtSignature", parts[0].get("thought_signature")):
                return True
        else:
            call = _list_mappings(entry.wire.get("tool_calls"))[0]
            google = _read_either(_read_either(call, "extra_content"), "google")
            if not google.get("thought_signature"):
                return True
    return False


def _read_option(view: RequestView, name: str) -> Any:
    """The value of one of our options in a body, in the spelling of its wire format."""
    body = view.body
    if name == "reasoning_effort":
        holder = {"responses": "reasoning", "messages": "output_config"}.get(view.wire)
        inner = body.get(holder) if holder else None
        return inner.get("effort") if isinstance(inner, Mapping) else body.get(name)
    if view.wire == "responses" and name == "logprobs":
        return body.get("top_logprobs")
    return body.get(name)
