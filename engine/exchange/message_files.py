"""Files with recorded conversations of other programs, as lists of messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolchart.engine.exchange.forms import spans
from toolchart.engine.exchange.forms.recognition import is_request, read_form
from toolchart.specs.chat_messages import History, read_history
from toolchart.specs.document_files import read_regular_file
from toolchart.states.errors import SpecError
from toolchart.states.json_bounds import ExcessError, check_foreign_json, parse_foreign_json
from toolchart.states.reading_limits import READING, name_limit


def load_history(file: str | Path) -> History:
    """Read the earlier messages of a conversation from a file, of any form that `find_message_lists` knows.

    Raises:
        SpecError: the file cannot be read, has several conversations, or a message breaks its form; names the
            message.
    """
    path, source = Path(file), str(file)
    lists = find_message_lists(read_message_file(path), source)
    if len(lists) != 1:
        raise SpecError(
            f"a history is one conversation, and these are {len(lists)}",
            file=source,
            hint="import them into a log, or write one of them into a file of its own",
        )
    form = read_form(lists[0], source)
    return read_history(lists[0], source) if form is None else form.read_history()


def read_message_file(path: Path) -> Any:
    """The value of a JSON file; of JSON Lines the list of the values of all lines.

    Raises:
        SpecError: it cannot be read.
    """
    try:
        text = read_regular_file(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}", file=str(path)) from None
    return _parse_json(text, path)


def _parse_json(text: str, path: Path) -> Any:
    """The value of a JSON file; of JSON Lines the list of the values of all lines.

    Raises:
        SpecError: it is neither, with the line; or it has more values or lines
            than a file may have, or is nested too deeply.
    """
    try:
        check_foreign_json(text, "file_values")
        if text.count("\n") > READING.file_values:  # a file of nothing but lines is as large a list
            problem = f"it has more than {READING.file_values:,} JSON values, for each line is one"
            raise ExcessError(f"{problem} {name_limit('file_values')}")
    except ExcessError as error:
        hint = "split it into several files, and import each"
        raise SpecError(f"cannot be read: {error}", file=str(path), hint=hint) from None
    try:
        return parse_foreign_json(text, "file_values")
    except ValueError as error:
        problem = SpecError(f"not JSON: {error}", file=str(path))
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    values = []
    for number, line in numbered:
        try:
            values.append(parse_foreign_json(line, "file_values"))
        except ValueError as error:
            if not values:  # the first line is no JSON by itself: these are no JSON Lines
                raise problem from None
            raise SpecError(f"this line is not JSON: {error}", file=str(path), line=number) from None
    return values


def find_message_lists(data: Any, source: str | None = None) -> list[Any]:
    """The conversations of a file, each as a list, a request or a reader that has read it; what is none
    stands among them as it is, to be refused by name.

    Known are: a list of messages of any form in `forms`; spans of OpenTelemetry, of which each chain of calls
    is a conversation; requests of the APIs of Anthropic, Gemini and OpenAI's Responses, whose prompt stands
    beside the list; objects with such a list as `traj` (tau-bench), `history` (SWE-agent), `messages` or
    `conversation`; and conversations of ToolTalk, whose turns have `text` and `apis`. Several objects, or
    lists, in a list are several conversations.
    """
    entries = data if isinstance(data, list) else [data]
    if spans.is_list(entries):
        return list(spans.collect_all(data, source))
    if _is_message(data):
        return [[data]]
    if isinstance(data, dict):
        return [data if is_request(data) else _find_message_list(data)]
    if isinstance(data, list) and any(map(_is_conversation, data)) and not any(map(_is_message, data)):
        return [
            _find_message_list(item) if isinstance(item, dict) and not is_request(item) else item
            for item in data
        ]
    return [data]


def _is_conversation(item: Any) -> bool:
    """Whether an entry of a list is a list, or an object with one."""
    if isinstance(item, dict):
        has_list = any(isinstance(item.get(key), list) for key in _LIST_KEYS)
        return not _is_message(item) and (has_list or is_request(item))
    return isinstance(item, list)


def _is_message(item: Any) -> bool:
    return isinstance(item, dict) and "role" in item


_LIST_KEYS = ("conversation", "traj", "history", "messages")


def _find_message_list(item: dict[str, Any]) -> Any:
    for key in _LIST_KEYS:
        if isinstance(item.get(key), list):
            has_texts = any(isinstance(entry, dict) and "text" in entry for entry in item[key])
            return list(_read_tooltalk(item[key])) if key == "conversation" and has_texts else item[key]
    return item


def _read_tooltalk(turns: list[Any]) -> Iterator[Any]:
    """The messages of a ToolTalk conversation: the calls of a turn and their results come before its text.

    A turn that is none stands among them as it is.
    """
    for number, turn in enumerate(turns):
        apis = turn.get("apis") or [] if isinstance(turn, dict) else None
        if not isinstance(apis, list) or not all(isinstance(api, dict) for api in apis) or "text" not in turn:
            yield turn
            continue
        if apis:
            yield {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    _build_tooltalk_call(api, f"call_{number}_{index}") for index, api in enumerate(apis)
                ],
            }
        for index, api in enumerate(apis):
            result = {key: api.get(key) for key in ("response", "exception")}
            name = _get_request(api).get("api_name")
            content = json.dumps(result, ensure_ascii=False)
            call_id = f"call_{number}_{index}"
            yield {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}
        yield {"role": turn.get("role"), "content": turn.get("text")}


def _build_tooltalk_call(api: dict[str, Any], call_id: str) -> dict[str, Any]:
    request = _get_request(api)
    arguments = json.dumps(request.get("parameters"), ensure_ascii=False)
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": request.get("api_name"), "arguments": arguments},
    }


def _get_request(api: dict[str, Any]) -> dict[str, Any]:
    request = api.get("request")
    return request if isinstance(request, dict) else {}
