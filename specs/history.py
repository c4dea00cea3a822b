"""Earlier messages from a file, in the form that OpenAI's chat API made common, checked strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.states.messages import ROLES, Message, ToolCall


def load_history(path: str | Path) -> tuple[Message, ...]:
    """The messages of a file: a JSON list, or one JSON object a line.

    Raises:
        SpecError: not such a file, or a message that no provider would take; names its number.
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the history cannot be read: {error}", file=str(path)) from None
    return messages_of(_listed(text, str(path)), str(path))


def _listed(text: str, source: str) -> list[Any]:
    try:
        if text.lstrip().startswith("["):
            data = json.loads(text)
        else:
            data = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise SpecError(f"not JSON: {error}", file=source) from None
    return list(data)


def messages_of(
    data: list[Any], source: str | None = None, *, open_end: bool = False
) -> tuple[Message, ...]:
    """Messages of plain data; a system message at the beginning is left out: the prompt is the spec's.

    Args:
        open_end: whether the last calls may still wait for their answers.

    Raises:
        SpecError: names the message by its place in the list.
    """
    messages: list[Message] = []
    waiting: dict[str, str] = {}
    for place, entry in enumerate(data):
        where = f"[{place}]"
        message = _message(entry, source, where)
        if message.role == "tool":
            _answer(message, waiting, source, where)
        elif waiting:
            missing = next(iter(waiting))
            raise SpecError(
                f"the call {missing!r} before it has no answer", file=source, path=where
            )
        waiting.update({call.id: call.name for call in message.tool_calls})
        if message.role != "system":
            messages.append(message)
        elif place:
            raise SpecError(
                "a system message stands only at the beginning", file=source, path=where
            )
    if waiting and not open_end:
        raise SpecError(
            f"the call {next(iter(waiting))!r} has no answer", file=source, path="[end]"
        )
    return tuple(messages)


def _answer(message: Message, waiting: dict[str, str], source: str | None, where: str) -> None:
    if not message.tool_call_id:
        raise SpecError("a tool message needs `tool_call_id`", file=source, path=where)
    if message.tool_call_id not in waiting:
        raise SpecError(
            f"it answers the call {message.tool_call_id!r}, which nobody made",
            file=source,
            path=where,
        )
    del waiting[message.tool_call_id]


def _message(entry: Any, source: str | None, where: str) -> Message:
    if not isinstance(entry, dict):
        raise SpecError("a message is an object", file=source, path=where)
    role = entry.get("role")
    if role not in ROLES:
        raise SpecError(
            f"unknown role {role!r}",
            file=source,
            path=f"{where}.role",
            hint="known: " + ", ".join(ROLES),
        )
    calls = tuple(
        _call(call, source, f"{where}.tool_calls[{index}]")
        for index, call in enumerate(entry.get("tool_calls") or ())
    )
    return Message(
        role=role,
        content=_text(entry.get("content"), source, where),
        tool_calls=calls,
        tool_call_id=entry.get("tool_call_id"),
        name=entry.get("name") if role == "tool" else None,
    )


def _text(content: Any, source: str | None, where: str) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    ):
        return "".join(str(part.get("text", "")) for part in content)
    raise SpecError("content is text or a list of text parts", file=source, path=f"{where}.content")


def _call(entry: Any, source: str | None, where: str) -> ToolCall:
    function = entry.get("function") if isinstance(entry, dict) else None
    if not isinstance(function, dict) or not function.get("name") or not entry.get("id"):
        raise SpecError("a call needs `id` and `function.name`", file=source, path=where)
    raw = function.get("arguments", "{}")
    try:
        arguments = raw if isinstance(raw, dict) else json.loads(raw)
    except (ValueError, TypeError) as error:
        raise SpecError(f"its arguments are not JSON: {error}", file=source, path=where) from None
    if not isinstance(arguments, dict):
        raise SpecError("its arguments are not an object", file=source, path=where)
    return ToolCall(
        id=str(entry["id"]),
        name=str(function["name"]),
        arguments=arguments,
        raw=raw if isinstance(raw, str) else None,
    )
