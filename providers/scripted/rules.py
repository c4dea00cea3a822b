"""Answers by rules: a pattern on the user's message leads to a tool call, then to a reply with its result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from toolchart.providers.scripted.script import ScriptedCall, ScriptedRule
from toolchart.states.canonical_json import encode_escaped_json
from toolchart.states.errors import SpecError
from toolchart.states.messages import Message, Reply, Request, ToolCall


class RuleBook:
    """Rules in the order in which they are tried.

    Raises:
        SpecError: the pattern of a rule is not a regular expression.
    """

    def __init__(self, rules: Iterable[ScriptedRule]) -> None:
        self._rules = [(_compile_pattern(rule), rule) for rule in rules]

    def answer_request(self, request: Request) -> Reply:
        """The reply of the first rule that matches the newest user message."""
        user_message, results = _split_last_exchange(request.messages)
        for pattern, rule in self._rules:
            match = pattern.search(user_message)
            if match is None:
                continue
            values = {"message": user_message, **_read_captures(match)}
            if rule.call is not None and not results and request.tools:
                return _make_call_reply(rule.call, values)
            return _make_text_reply(_write_answer(rule, values, results))
        return _make_text_reply("This rehearsal has no rule for that message.")


def _compile_pattern(rule: ScriptedRule) -> re.Pattern[str]:
    try:
        return re.compile(rule.match, re.IGNORECASE)
    except re.error as error:
        raise SpecError(f"scripted rule {rule.match!r}: not a regular expression: {error}") from None


def _split_last_exchange(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """The newest user message and the tool results after it. Earlier messages are not read."""
    results: list[Message] = []
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "tool":
            results.append(message)
        elif message.role == "user":
            return message.content or "", results[::-1]
    return "", results[::-1]


def _read_captures(match: re.Match[str]) -> dict[str, str]:
    """The captures of a match by number and by name; an unused group is empty."""
    by_number = {str(number): text or "" for number, text in enumerate(match.groups(), 1)}
    by_name = {name: text or "" for name, text in match.groupdict().items()}
    return {"0": match.group(0), **by_number, **by_name}


def _make_call_reply(call: ScriptedCall, values: Mapping[str, str]) -> Reply:
    """A reply with that call. Arguments that come out empty are left out."""
    arguments = {
        name: _fill_template(value, values).strip() if isinstance(value, str) else value
        for name, value in (call.arguments if isinstance(call.arguments, dict) else {}).items()
    }
    tool_call = ToolCall(
        name=call.name, arguments={name: value for name, value in arguments.items() if value != ""}
    )
    return Reply(tool_calls=(tool_call,), finish_reason="tool_calls", native_reason="tool_calls")


def _write_answer(rule: ScriptedRule, values: Mapping[str, str], results: Sequence[Message]) -> str:
    if not results:
        return _fill_template(rule.reply, values)
    outcome = _read_outcome(results[-1])
    template = rule.reply if outcome.get("success") else rule.on_error
    return _fill_template(
        template,
        {
            **values,
            "tool": results[-1].name or "",
            "result": _format_result(outcome.get("result")),
            "error": _format_result(outcome.get("error")),
        },
    )


def _read_outcome(message: Message) -> dict[str, Any]:
    """The result of a tool. A result that was shortened for the model is taken as text."""
    try:
        outcome = orjson.loads(message.content or "")
    except orjson.JSONDecodeError:
        outcome = None
    return outcome if isinstance(outcome, dict) else {"success": True, "result": message.content}


def _format_result(value: Any) -> str:
    if isinstance(value, dict) and "result" in value:
        value = value["result"]
    return value if isinstance(value, str) else encode_escaped_json(value).decode()


def _fill_template(template: str, values: Mapping[str, str]) -> str:
    """The template with `{name}` filled in, in one pass. Unknown names stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match.group(1), match.group(0)), template)


def _make_text_reply(text: str) -> Reply:
    return Reply(content=text, finish_reason="stop", native_reason="stop")
