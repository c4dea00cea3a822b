"""What a model was asked, in one shape for every wire format, so that two requests can be compared.

The shape: `{model, system, messages, tools, options}`. A difference between two of them is a JSON
pointer into it. What does not reach the shape is harmless, and never makes a request another one:

- spelling: `developer` for `system`, parts for a text, null for an empty text, `max_completion_tokens`
  and its kin, upper-case types in Gemini's schemas, defaults said aloud (`tool_choice: auto`);
- ids of calls, which are counted instead (`call` 1, 2, ...); the spelling of arguments as text;
- the envelope of a tool's result (`success`, `tool_name`, `execution_time_ms`), and whether it is sent as
  JSON or as its text: a tool that took longer today does not miss;
- what a host wants back verbatim: reasoning, thoughts, signatures;
- keys that say how and not what: `stream`, `store`, `user`, `metadata`, `strict`, `safetySettings` and
  whatever else `toolchart.states.messages.Request` cannot say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from toolchart.providers.shared.tool_choice import MAX_TOKENS, choice_of, offered_by
from toolchart.states.messages import Request, ToolCall
from toolchart.states.schema_dialects import ANTHROPIC, OLLAMA, Dialect, parameters_for

Asked = dict[str, Any]
"""`{model, system, messages, tools, options}`."""

CallSeen = tuple[str, str, Any]
"""Id, name and arguments of a call."""


@dataclass(slots=True)
class Told:
    """A conversation as it is read from a request, message by message."""

    system: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    _open: list[CallSeen] = field(default_factory=list)
    """Calls without a result yet; the id that stands here may be empty."""
    _numbers: list[int] = field(default_factory=list)
    _calls: int = 0

    def user(self, content: Any) -> None:
        """Something the user said."""
        self.messages.append({"role": "user", "content": content})

    def assistant(self, content: Any, calls: Iterable[CallSeen] = ()) -> None:
        """Something the model said; what it said before without a word between is one message."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": "", "calls": []})
        last = self.messages[-1]
        if isinstance(content, str) and isinstance(last["content"], str):
            last["content"] += content
        elif content:
            last["content"] = content
        for call in calls:
            self._calls += 1
            self._open.append(call)
            self._numbers.append(self._calls)
            last["calls"].append({"call": self._calls, "name": call[1], "arguments": call[2]})

    def result(self, call_id: str | None, name: str | None, content: Any) -> None:
        """A tool's result, for the call of that id, else for the oldest open one of that name."""
        place = self._place(call_id, name)
        number = None
        if place is not None:
            self._open.pop(place)
            number = self._numbers.pop(place)
        self.messages.append({"role": "tool", "call": number, "content": content})

    def _place(self, call_id: str | None, name: str | None) -> int | None:
        for place, (known, _, _) in enumerate(self._open):
            if call_id and known == call_id:
                return place
        for place, (known, called, _) in enumerate(self._open):
            if (not call_id or not known) and (not name or name == called):
                return place
        return None

    def asked(self, model: Any, tools: Mapping[str, Any], options: Mapping[str, Any]) -> Asked:
        """The finished shape."""
        return {
            "model": model,
            "system": "\n\n".join(text for text in self.system if text),
            "messages": self.messages,
            "tools": dict(tools),
            "options": {k: v for k, v in options.items() if v is not None and v != "auto"},
        }


def asked_of(request: Request, dialect: Dialect | None = None) -> Asked:
    """The shape of a request of ours.

    Args:
        dialect: of the host that was asked: the part of JSON Schema in which it was told of the tools,
            which of them it was shown, and what its adapter says without being asked. None: as it is.
    """
    told = Told()
    for message in request.messages:
        match message.role:
            case "system":
                told.system.append(message.content or "")
            case "user":
                told.user(message.content or "")
            case "assistant":
                told.assistant(message.content or "", map(_seen, message.tool_calls))
            case "tool":
                told.result(message.tool_call_id, message.name, outcome(message.content))
    given = request.options
    chosen = given.get("tool_choice")
    shown = offered_by(choice_of(chosen), request.tools, dialect) if dialect else request.tools
    tools = {
        one.name: tool(one.description, parameters_for(one, dialect) if dialect else one.parameters)
        for one in shown
    }
    options = {name: given.get(name) for name in ("max_tokens", "temperature", "top_p", "seed")}
    if dialect is ANTHROPIC:
        options |= {"max_tokens": given.get("max_tokens") or MAX_TOKENS, "seed": None}
    if shown and dialect is not OLLAMA:
        options["tool_choice"] = choice(chosen) if dialect is not ANTHROPIC else _narrowed(chosen)
        options["parallel_tool_calls"] = given.get("parallel_tool_calls")
    options["stop"] = listed(given.get("stop"))
    options["response_format"] = response_format(given.get("response_format"))
    return told.asked(request.model, tools, options)


def _narrowed(chosen: Any) -> str:
    """A choice among several, of which the chosen are all that is offered."""
    made = choice_of(chosen)
    return made.demanded or made.mode


def _seen(call: ToolCall) -> CallSeen:
    return call.id, call.name, call.arguments if call.arguments is not None else call.raw


# -- parts that several wires share --------------------------------------------------------------


def text(content: Any) -> Any:
    """A content as text; as the list of its parts where one is no text."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    parts = [part for part in content if isinstance(part, Mapping)]
    if all(isinstance(part.get("text"), str) for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def arguments(given: Any) -> Any:
    """Arguments as a value, where they can be read."""
    if not isinstance(given, str):
        return {} if given is None else given
    try:
        return json.loads(given) if given.strip() else {}
    except ValueError:
        return given


def outcome(content: Any) -> dict[str, Any]:
    """A tool's result without its envelopes: `{"output": ...}` or `{"error": ...}`.

    >>> outcome('{"success": true, "result": "[1, 2]", "tool_name": "t", "execution_time_ms": 3}')
    {'output': [1, 2]}
    """
    value = _read(content)
    while isinstance(value, Mapping):
        if value.get("success") is False:
            return {"error": value.get("error")}
        if value.get("success") is True:
            value = _read(value.get("result"))
        elif len(value) == 1 and next(iter(value)) in ("output", "result"):
            value = _read(next(iter(value.values())))
        elif set(value) == {"error"}:
            return dict(value)
        else:
            break
    return {"output": value}


def _read(value: Any) -> Any:
    """What a text says as JSON, else the text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def tool(description: Any, parameters: Any) -> dict[str, Any]:
    """A tool's definition without its name."""
    schema = _plain_types(parameters) if parameters else {}
    if not schema.get("properties"):
        schema = {"type": "object", "properties": {}}
    return {"description": description or "", "parameters": schema}


def _plain_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain_types(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _plain_types(value)
        for key, value in schema.items()
    }


def choice(given: Any) -> Any:
    """A tool choice as our requests spell it: a word, a tool's name, or `{"allowed", "mode"}`."""
    if isinstance(given, Mapping):
        if "allowed" in given or given.get("type") == "allowed_tools":
            made = choice_of(given)
            return made.demanded or {"allowed": list(made.names), "mode": made.mode}
        function = given.get("function")
        named = function.get("name") if isinstance(function, Mapping) else given.get("name")
        return named or dict(given)
    return given


def listed(given: Any) -> Any:
    """Stop texts as a list."""
    return [given] if isinstance(given, str) else list(given) if given else None


def response_format(given: Any) -> Any:
    """The schema that a reply must have, `json` where any JSON will do, None for text."""
    if not isinstance(given, Mapping) or given.get("type") == "text":
        return None
    inner = given.get("json_schema")
    if isinstance(inner, Mapping):
        return inner.get("schema", "json")
    return given.get("schema", "json")


_MOST = 90
"""Characters looked at of one side of a difference."""


# -- comparing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place where what was sent is not what was recorded."""

    pointer: str
    """JSON pointer into the shape."""
    recorded: Any
    sent: Any

    def __str__(self) -> str:
        recorded, sent = _shown(self.recorded, self.sent)
        return f"{self.pointer or '(all)'}: recorded {recorded}, sent {sent}"


def distance(found: Sequence[Difference]) -> float:
    """How far apart two values with these differences are; 0 where there are none."""
    pairs = [(_json(one.recorded)[:_MOST], _json(one.sent)[:_MOST]) for one in found]
    return len(found) + sum(1 - SequenceMatcher(None, *pair).quick_ratio() for pair in pairs)


ABSENT = type("Absent", (), {"__repr__": lambda self: "nothing"})()
"""What stands for a part that one side does not have."""


def differences(recorded: Any, sent: Any, pointer: str = "") -> list[Difference]:
    """Every innermost place where two JSON values differ."""
    if isinstance(recorded, Mapping) and isinstance(sent, Mapping):
        keys = [*recorded, *(key for key in sent if key not in recorded)]
        pairs: Sequence[tuple[Any, Any, Any]] = [
            (key, recorded.get(key, ABSENT), sent.get(key, ABSENT)) for key in keys
        ]
    elif isinstance(recorded, list) and isinstance(sent, list):
        longest = max(len(recorded), len(sent))
        pairs = [(n, _at(recorded, n), _at(sent, n)) for n in range(longest)]
    elif recorded == sent and isinstance(recorded, bool) == isinstance(sent, bool):
        return []
    else:
        return [Difference(pointer=pointer, recorded=recorded, sent=sent)]
    found: list[Difference] = []
    for key, left, right in pairs:
        found += differences(
            left, right, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
        )
    return found


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if place < len(values) else ABSENT


def _shown(recorded: Any, sent: Any) -> tuple[str, str]:
    """Both sides; of long texts the part around the first difference."""
    left, right = _json(recorded), _json(sent)
    same = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
    start = max(0, same - _MOST // 3) if max(len(left), len(right)) > _MOST else 0
    return _part(left, start), _part(right, start)


def _json(value: Any) -> str:
    return repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False, default=str)


def _part(shown: str, start: int) -> str:
    part = shown[start : start + _MOST]
    return ("…" if start else "") + part + ("…" if start + _MOST < len(shown) else "")


Reader = Callable[[Mapping[str, Any], str], Asked]
"""From a recorded request body and its URI to the shape."""
