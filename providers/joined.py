"""A recorded stream put together: the whole answer that its pieces tell, as the host would have sent it.

A recording is whole, so nothing has to be shown as it grows; the pieces become the body of an answer that
was not streamed, and are read by the same map as that. What has no terminal marker was cut and is a
failure, and so is an error told inside the stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from toolchart.providers.failures import failure, unreadable

Event = Mapping[str, Any]

_DONE = b"[DONE]"


def whole_body(endpoint: str, body: bytes) -> Any:
    """The whole answer of a streamed body.

    Raises:
        ProviderError: an error told inside the stream, a stream that was cut, or one that is not JSON.
    """
    join = _JOINERS.get(endpoint)
    if join is None:
        raise unreadable(f"recorded streams of {endpoint!r} are not read")
    events = [event for event in _events(body) if isinstance(event, Mapping)]
    for event in events:
        if event.get("error"):
            error = event["error"]
            code = error.get("code") if isinstance(error, Mapping) else None
            raise failure(code if isinstance(code, int) else 200, dict(event))
    return join(events, body.rstrip().endswith(_DONE))


def _events(body: bytes) -> Iterator[Any]:
    """The JSON values of server-sent events, JSON lines, or an array of chunks."""
    text = body.decode("utf-8", "replace").strip()
    try:
        if text.startswith("["):
            yield from json.loads(text)
        elif text.startswith("{"):
            yield from map(json.loads, filter(None, text.splitlines()))
        else:
            yield from map(json.loads, _data(text))
    except ValueError:
        raise unreadable("the recorded stream has a piece that is not JSON") from None


def _data(text: str) -> Iterator[str]:
    """The data of each event up to `[DONE]`. Source: HTML standard, 9.2.6, without ids and retries."""
    # Not splitlines: a JSON text may hold U+2028 and its like, which end no line of an event stream.
    held: list[str] = []
    for line in [*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if line.startswith("data:"):
            held.append(line[5:].removeprefix(" "))
        elif not line and held:
            data, held = "\n".join(held), []
            if data.startswith("[DONE]"):
                return
            yield data


# -- chat completions ----------------------------------------------------------------------------


def _chat(events: Iterable[Event], done: bool) -> Event:
    """A host may leave the finish reason out (recorded from Novita); then its `[DONE]` is the end."""
    message: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    places: dict[int, int] = {}
    whole: dict[str, Any] = {}
    word = None
    for event in events:
        whole |= {k: event[k] for k in ("id", "model", "usage") if event.get(k)}
        choice = _first(event.get("choices"))
        delta = _mapping(choice.get("delta") or choice.get("message"))
        word = choice.get("finish_reason") or word
        for key, value in delta.items():
            if key == "tool_calls":
                _grow_calls(_list(value), calls, places)
            elif value is not None:
                _grow(message, key, value)
    if word is None and not done:
        raise unreadable("the recorded stream ends without a finish reason")
    if calls:
        message["tool_calls"] = calls
    return {**whole, "choices": [{"message": message, "finish_reason": word}]}


def _first(values: Any) -> Mapping[str, Any]:
    return _mapping(next(iter(_list(values)), None))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _grow(message: dict[str, Any], key: str, value: Any) -> None:
    """Texts and lists go on; anything else stands."""
    before: Any = message.get(key)
    grows = key != "role" and isinstance(value, (str, list)) and isinstance(before, type(value))
    message[key] = before + value if grows else value


def _grow_calls(pieces: Iterable[Any], calls: list[dict[str, Any]], places: dict[int, int]) -> None:
    """A piece belongs to the call of its index, unless it brings another id: some hosts number every call
    0, or none."""
    for piece in pieces:
        if not isinstance(piece, Mapping):
            continue
        index = piece.get("index")
        at = index if isinstance(index, int) else max(len(calls) - 1, 0)
        place, new_id = places.get(at), piece.get("id")
        if place is None or (new_id and calls[place]["id"] and new_id != calls[place]["id"]):
            place = places[at] = len(calls)
            function = {"name": "", "arguments": ""}
            calls.append({"id": "", "type": piece.get("type") or "function", "function": function})
        _grow_call(calls[place], piece)


def _grow_call(call: dict[str, Any], piece: Mapping[str, Any]) -> None:
    function = _mapping(piece.get("function"))
    call["id"] = call["id"] or piece.get("id") or ""
    call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
    given = function.get("arguments")
    if isinstance(given, str) and isinstance(call["function"]["arguments"], str):
        call["function"]["arguments"] += given
    elif given is not None:
        call["function"]["arguments"] = given


# -- Gemini --------------------------------------------------------------------------------------


def _gemini(events: Iterable[Event], done: bool) -> Event:
    """Parts stand in their order, unmerged: a signature belongs to its part."""
    whole: dict[str, Any] = {}
    candidate: dict[str, Any] = {}
    parts: list[Any] = []
    for event in events:
        whole |= {key: value for key, value in event.items() if value}
        seen = _first(event.get("candidates"))
        parts += _list(_mapping(seen.get("content")).get("parts"))
        candidate |= {key: value for key, value in seen.items() if value}
    if not candidate.get("finishReason") and not whole.get("promptFeedback"):
        raise unreadable("the recorded stream ends without a finish reason")
    if candidate:
        candidate["content"] = {"role": "model", "parts": parts}
        whole["candidates"] = [candidate]
    return whole


# -- Ollama --------------------------------------------------------------------------------------


def _ollama(events: Iterable[Event], done: bool) -> Event:
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {}
    for event in events:
        for key, value in _mapping(event.get("message")).items():
            _grow(message, key, value)
        whole |= event
    if not whole.get("done"):
        raise unreadable("the recorded stream ends before it is done")
    return {**whole, "message": message}


# -- Responses -----------------------------------------------------------------------------------


_TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def _responses(events: Iterable[Event], done: bool) -> Event:
    """The last event tells the whole response, so nothing has to be joined."""
    for event in events:
        if event.get("type") in _TERMINAL:
            return _mapping(event.get("response"))
        if event.get("type") == "error":
            raise failure(200, dict(event))
    raise unreadable("the recorded stream ends before the response does")


_JOINERS: dict[str, Callable[[Iterable[Event], bool], Event]] = {
    "chat": _chat,
    "gemini": _gemini,
    "ollama": _ollama,
    "responses": _responses,
}
