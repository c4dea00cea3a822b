"""Files with recorded conversations of other programs, as message lists of OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def find_message_lists(data: Any) -> list[Any]:
    """The message lists of a file; what is none stands among them as it is, to be refused by name.

    Known are: a list of messages; objects with such a list as `traj` (tau-bench), `history` (SWE-agent),
    `messages` or `conversation`; and conversations of ToolTalk, whose turns have `text` and `apis`. Several
    objects, or lists, in a list are several conversations.
    """
    if isinstance(data, dict):
        return [_find_message_list(data)]
    if isinstance(data, list) and any(map(_is_conversation, data)) and not any(map(_is_message, data)):
        return [_find_message_list(item) if isinstance(item, dict) else item for item in data]
    return [data]


def _is_conversation(item: Any) -> bool:
    """Whether an entry of a list is a list, or an object with one."""
    if isinstance(item, dict):
        return not _is_message(item) and any(isinstance(item.get(key), list) for key in _LIST_KEYS)
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
