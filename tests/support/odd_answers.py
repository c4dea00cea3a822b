"""One table of answers in odd forms, for every wire format, whole and streamed.

A row has what a host sends, and what it means: the calls that must run with exactly these arguments, the
calls that must be refused, and the text that must be shown. Rows are facts from public reports of hosts and
gateways, and their siblings on the other wires. `table` and `limit` are optional parameters of the tool, so a
call that lost its arguments would run with the defaults.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from host_answers import encode_frames

WIRES = ("chat", "responses", "messages", "gemini", "converse", "ollama")

MISSING: Any = object()
"""A key that is not there."""

OLD = {"table": "old", "limit": 1}
NEW = {"table": "new", "limit": 2}
REFUSED: Any = None
"""In the place of arguments: the call does not run, and the model reads why."""

TEXT = '{"table": "old", "limit": 1}'
HEAD, TAIL = '{"table": "old", ', '"limit": 1}'
OTHER = '{"table": "new", "limit": 2}'


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An answer and what it means."""

    name: str
    wire: str
    data: bytes
    content_type: str = "application/json"
    runs: list[dict[str, Any]] = []
    """The arguments with which the tool runs, in any order."""
    refused: int = 0
    """How many calls are refused."""
    text: str = ""
    """The text of the reply; where nothing is called, the answer of the turn."""
    tokens: int | None = None
    """The tokens of the prompt that the host counted."""
    warns: str = ""
    """A part of the warning that tells of it."""
    fails: bool = False
    """Whether it is no reply: a failed call of the model."""

    @property
    def is_streamed(self) -> bool:
        """Whether it is an answer to a request for a stream."""
        return self.content_type != "application/json"


def drop(**keys: Any) -> dict[str, Any]:
    """An object without the keys that are missing."""
    return {key: value for key, value in keys.items() if value is not MISSING}


# -- answers in the usual form, with one odd value -----------------------------------------------

_WORDS = {
    "chat": ("stop", "tool_calls"),
    "responses": ("completed", "completed"),
    "messages": ("end_turn", "tool_use"),
    "gemini": ("STOP", "STOP"),
    "converse": ("end_turn", "tool_use"),
    "ollama": ("stop", "stop"),
}
USUAL: Any = object()
"""The host's usual finish word."""

Call = tuple[Any, Any, Any]
"""Id, name and arguments."""


def _choose_word(wire: str, calls: Sequence[Call], word: Any) -> Any:
    return _WORDS[wire][bool(calls)] if word is USUAL else word


def build_whole(
    wire: str, content: Any = MISSING, calls: Sequence[Call] = (), word: Any = USUAL
) -> dict[str, Any]:
    """A whole answer. The values stand where the wire has text, id, name, arguments and finish word."""
    word, texts = _choose_word(wire, calls, word), [] if content is MISSING else [content]
    match wire:
        case "chat":
            wire_calls = [
                drop(id=i, type="function", function=drop(name=n, arguments=a)) for i, n, a in calls
            ]
            message = drop(role="assistant", content=content, tool_calls=wire_calls or MISSING)
            return {"id": "r", "choices": [drop(index=0, message=message, finish_reason=word)]}
        case "responses":
            items = [
                {"type": "message", "id": "m1", "content": [{"type": "output_text", "text": text}]}
                for text in texts
            ]
            items += [drop(type="function_call", call_id=i, name=n, arguments=a) for i, n, a in calls]
            return drop(id="r", status=word, output=items)
        case "messages":
            blocks = [{"type": "text", "text": text} for text in texts]
            blocks += [drop(type="tool_use", id=i, name=n, input=a) for i, n, a in calls]
            return drop(id="r", content=blocks, stop_reason=word)
        case "gemini":
            parts: list[Any] = [{"text": text} for text in texts]
            parts += [{"functionCall": drop(id=i, name=n, args=a)} for i, n, a in calls]
            content = {"role": "model", "parts": parts}
            return {"responseId": "r", "candidates": [drop(content=content, finishReason=word)]}
        case "converse":
            parts = [{"text": text} for text in texts]
            parts += [{"toolUse": drop(toolUseId=i, name=n, input=a)} for i, n, a in calls]
            return drop(output={"message": {"role": "assistant", "content": parts}}, stopReason=word)
    wire_calls = [drop(id=i, function=drop(name=n, arguments=a)) for i, n, a in calls]
    message = drop(role="assistant", content=content, tool_calls=wire_calls or MISSING)
    return drop(model="m", message=message, done=True, done_reason=word)


def build_frames(
    wire: str, pieces: Sequence[Any] = (), calls: Sequence[Call] = (), word: Any = USUAL
) -> list[dict[str, Any]]:
    """The frames of a stream: the text in its pieces, then each call, then the end."""
    word = _choose_word(wire, calls, word)
    match wire:
        case "chat":
            frames = [chat_delta(content=piece) for piece in pieces]
            for number, (i, n, a) in enumerate(calls):
                call = drop(index=number, id=i, type="function", function=drop(name=n, arguments=a))
                frames.append(chat_delta(tool_calls=[call]))
            return [*frames, {"choices": [drop(index=0, delta={}, finish_reason=word)]}]
        case "responses":
            frames = [
                event("output_text.delta", output_index=0, content_index=0, item_id="m1", delta=piece)
                for piece in pieces
            ]
            for place, (i, n, a) in enumerate(calls, start=1 if pieces else 0):
                item = drop(type="function_call", id=f"f{place}", call_id=i, name=n, arguments=a)
                frames.append(event("output_item.added", output_index=place, item={**item, "arguments": ""}))
                if isinstance(a, str) and a:
                    frames.append(event("function_call_arguments.delta", output_index=place, delta=a))
                frames.append(event("output_item.done", output_index=place, item=item))
            return [*frames, event("completed", response=drop(id="r", status=word, output=[]))]
        case "messages":
            frames = [{"type": "message_start", "message": {"id": "r", "content": []}}]
            if pieces:
                frames.append(start_block(0, type="text", text=""))
            frames += [extend_block(0, type="text_delta", text=piece) for piece in pieces]
            for place, (i, n, a) in enumerate(calls, start=1 if pieces else 0):
                value = {} if isinstance(a, str) else a
                frames.append(start_block(place, **drop(type="tool_use", id=i, name=n, input=value)))
                if isinstance(a, str):
                    frames.append(extend_block(place, type="input_json_delta", partial_json=a))
                frames.append({"type": "content_block_stop", "index": place})
            return [
                *frames,
                {"type": "message_delta", "delta": drop(stop_reason=word)},
                {"type": "message_stop"},
            ]
        case "gemini":
            parts = [{"text": piece} for piece in pieces]
            parts += [{"functionCall": drop(id=i, name=n, args=a)} for i, n, a in calls]
            frames = [gemini_parts(part) for part in parts]
            return [*frames, {"candidates": [drop(finishReason=word)]}]
        case "converse":
            frames = [
                {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": piece}}} for piece in pieces
            ]
            for place, (i, n, a) in enumerate(calls, start=1 if pieces else 0):
                value = MISSING if isinstance(a, str) else a
                frames.append(start_use(place, toolUseId=i, name=n, input=value))
                if isinstance(a, str):
                    frames.append(extend_use(place, a))
                frames.append({"contentBlockStop": {"contentBlockIndex": place}})
            return [*frames, {"messageStop": drop(stopReason=word)}]
    lines = [{"message": {"role": "assistant", "content": piece}, "done": False} for piece in pieces]
    for i, n, a in calls:
        call = drop(id=i, function=drop(name=n, arguments=a))
        lines.append({"message": {"content": "", "tool_calls": [call]}, "done": False})
    return [*lines, drop(model="m", message={"content": ""}, done=True, done_reason=word)]


def chat_delta(choice: int = 0, word: Any = None, **delta: Any) -> dict[str, Any]:
    """A chunk of chat completions."""
    return {"choices": [{"index": choice, "delta": delta, "finish_reason": word}]}


def chat_call(index: Any = MISSING, id: Any = MISSING, name: Any = MISSING, arguments: Any = MISSING) -> Any:
    """A chunk of chat completions with a piece of a call."""
    return chat_delta(tool_calls=[_make_piece(index, id, name, arguments)])


def _make_piece(
    index: Any = MISSING, id: Any = MISSING, name: Any = MISSING, arguments: Any = MISSING
) -> Any:
    return drop(index=index, id=id, function=drop(name=name, arguments=arguments))


def event(kind: str, **keys: Any) -> dict[str, Any]:
    """An event of the Responses API."""
    return {"type": f"response.{kind}", **keys}


def start_block(place: Any, **block: Any) -> dict[str, Any]:
    """The event with which a block of Anthropic's begins."""
    return drop(type="content_block_start", index=place, content_block=block)


def extend_block(place: Any, **delta: Any) -> dict[str, Any]:
    """The event with which a block of Anthropic's grows."""
    return drop(type="content_block_delta", index=place, delta=delta)


def gemini_parts(*parts: Any, **keys: Any) -> dict[str, Any]:
    """A chunk of Gemini's."""
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **keys}]}


def start_use(place: Any, **use: Any) -> dict[str, Any]:
    """The event with which a call of Bedrock's begins."""
    return {"contentBlockStart": drop(contentBlockIndex=place, start={"toolUse": drop(**use)})}


def extend_use(place: Any, text: str) -> dict[str, Any]:
    """The event with which a call of Bedrock's grows."""
    return {"contentBlockDelta": drop(contentBlockIndex=place, delta={"toolUse": {"input": text}})}


# -- rows ------------------------------------------------------------------------------------------


def make_whole(wire: str, name: str, body: Any, **meaning: Any) -> Row:
    """A row of a whole answer."""
    return Row(wire=wire, name=name, data=json.dumps(body).encode(), **meaning)


def make_stream(wire: str, name: str, frames: list[Any], **meaning: Any) -> Row:
    """A row of a stream."""
    content_type, data = encode_frames(wire, frames)
    return Row(wire=wire, name=name, data=data, content_type=content_type, **meaning)


def make_both(
    wire: str,
    name: str,
    *,
    content: Any = MISSING,
    calls: Sequence[Call] = (),
    word: Any = USUAL,
    **meaning: Any,
) -> list[Row]:
    """The same answer whole and streamed. The content is one value, in the stream one piece."""
    pieces = [] if content is MISSING else [content]
    return [
        make_whole(wire, name, build_whole(wire, content, calls, word), **meaning),
        make_stream(wire, name, build_frames(wire, pieces, calls, word), **meaning),
    ]


ARGUMENTS: dict[str, tuple[Any, Any]] = {
    "an object": (OLD, OLD),
    "a text": (TEXT, OLD),
    "a text in a text": (json.dumps(TEXT), OLD),
    "a text with white space around it": (f"\n {TEXT} ", OLD),
    "a list": (["old", 1], REFUSED),
    "the text of a list": ('["old", 1]', REFUSED),
    "a number": (7, REFUSED),
    "zero": (0, REFUSED),
    "a boolean": (False, REFUSED),
    "a word": ("old", REFUSED),
    "a cut text": ('{"table": "ol', REFUSED),
    "two objects": (TEXT + OTHER, REFUSED),
    "a key twice": ('{"table": "old", "table": "new"}', REFUSED),
    "no number": ('{"limit": NaN}', REFUSED),
    "missing": (MISSING, {}),
    "null": (None, {}),
    "an empty text": ("", {}),
    "white space": (" ", {}),
    "the text null": ("null", {}),
    "the text null in a text": ('"null"', {}),
    "an empty text in a text": ('""', {}),
    "an empty object": ({}, {}),
    "the text of an empty object": ("{}", {}),
}
"""Forms of arguments, and what they mean."""

NAMES = {"missing": MISSING, "null": None, "empty": "", "a number": 5, "unknown": "drop_all"}
IDS = {"missing": MISSING, "null": None, "empty": "", "a number": 5}
WORDS = {"missing": MISSING, "null": None, "empty": "", "the text null": "null"}
CONTENTS = {"a number": 42, "zero": 0, "a boolean": True, "an object": {"a": 1}}


def list_call_rows(wire: str) -> Iterator[Row]:
    """The rows of the forms of arguments, names and ids."""
    for form, (arguments, meaning) in ARGUMENTS.items():
        outcome = {"refused": 1} if meaning is REFUSED else {"runs": [meaning]}
        calls = [("c1", "delete_rows", arguments)]
        yield from make_both(wire, f"arguments: {form}", calls=calls, **outcome)
        yield from make_both(
            wire, f"text, arguments: {form}", content="I look.", calls=calls, text="I look.", **outcome
        )
    for form, name in NAMES.items():
        yield from make_both(wire, f"name: {form}", calls=[("c1", name, TEXT)], refused=1)
    for form, id_ in IDS.items():
        calls = [(id_, "delete_rows", TEXT), (id_, "delete_rows", OTHER)]
        yield from make_both(wire, f"ids: {form}", calls=calls, runs=[OLD, NEW])
    same = [("c1", "delete_rows", TEXT), ("c1", "delete_rows", OTHER)]
    yield make_whole(wire, "ids: the same twice", build_whole(wire, MISSING, same), runs=[OLD, NEW])


OWN_KEYS = {
    "chat": "arguments",
    "responses": "arguments",
    "messages": "input",
    "gemini": "args",
    "converse": "input",
    "ollama": "arguments",
}
OTHER_KEYS = ("arguments", "input", "args", "parameters", "params", "kwargs", "tool_input")
"""Where the arguments stand by the API, and where hosts and gateways write them."""


def _move_arguments(value: Any, own: str, key: str, left: Any, is_outside: bool = False) -> Any:
    """A copy of an answer whose arguments stand under another key.

    Args:
        left: what stands under the host's own key instead.
        is_outside: whether they stand beside the object `function`, not in it.
    """
    if isinstance(value, list):
        return [_move_arguments(item, own, key, left, is_outside) for item in value]
    if not isinstance(value, dict):
        return value
    call = value.get("function") if is_outside else value
    if isinstance(call, dict) and own in call:
        function = drop(**{**call, own: left})
        return {**value, "function": function, key: call[own]} if is_outside else {**function, key: call[own]}
    return {name: _move_arguments(item, own, key, left, is_outside) for name, item in value.items()}


def list_key_rows(wire: str) -> Iterator[Row]:
    """The rows of arguments under another key."""
    own, calls = OWN_KEYS[wire], [("c1", "delete_rows", OLD)]
    places = [(f"under {key}", key, False) for key in OTHER_KEYS if key != own]
    places += [(f"outside, under {key}", key, True) for key in OTHER_KEYS if wire in ("chat", "ollama")]
    for place, key, is_outside in places:
        for form, left in {"": MISSING, ", empty under its own": {}, ", null under its own": None}.items():
            whole, frames = (
                _move_arguments(answer, own, key, left, is_outside)
                for answer in (build_whole(wire, MISSING, calls), build_frames(wire, [], calls))
            )
            yield make_whole(wire, f"arguments {place}{form}", whole, runs=[OLD])
            yield make_stream(wire, f"arguments {place}{form}", frames, runs=[OLD])
        whole = _move_arguments(build_whole(wire, MISSING, calls), own, key, NEW, is_outside)
        yield make_whole(wire, f"arguments {place}, others under its own", whole, refused=1)
        frames = _move_arguments(build_frames(wire, [], calls), own, key, NEW, is_outside)
        yield make_stream(wire, f"arguments {place}, others under its own", frames, refused=1)
    unknown: list[tuple[str, Any, dict[str, Any]]] = [
        ("payload", OLD, {"refused": 1}),
        ("payload", TEXT, {"refused": 1}),
        ("payload", {}, {"runs": [{}]}),
        ("payload", "old", {"runs": [{}]}),
        ("metadata", OLD, {"runs": [{}]}),
    ]
    for key, value, meaning in unknown:
        name, calls = f"no arguments, and {key} with {json.dumps(value)}", [("c1", "delete_rows", value)]
        whole = _move_arguments(build_whole(wire, MISSING, calls), own, key, MISSING)
        yield make_whole(wire, name, whole, **meaning)
        if not isinstance(value, str) or wire in ("chat", "gemini", "ollama"):  # others send text in pieces
            frames = _move_arguments(build_frames(wire, [], calls), own, key, MISSING)
            yield make_stream(wire, name, frames, **meaning)


def list_repeated_rows(wire: str) -> Iterator[Row]:
    """The rows of arguments in whose object a key stands twice."""
    calls = [("c0", "delete_rows", {"limit": 1}), ("c1", "delete_rows", {"@": 1})]
    whole = json.dumps(build_whole(wire, MISSING, calls), indent=1).encode()
    kept: dict[str, Any] = {"runs": [{"limit": 1}], "refused": 1}
    forms = {"": b'{"table": "old", "table": "new"}', ", close": b'{"table":"old","limit":1,"table":"old"}'}
    start = whole.index(b"{", whole.rindex(b'"@": 1') - 20)
    end = whole.index(b"}", start) + 1
    for form, arguments in forms.items():
        data = whole[:start] + arguments + whole[end:]
        yield Row(wire=wire, name=f"a key twice{form}", data=data, **kept)
        if wire != "converse":  # a format of its own
            content_type, frames = encode_frames(wire, build_frames(wire, [], calls))
            data = frames.replace(b'{"@": 1}', arguments)
            yield Row(wire=wire, name=f"a key twice{form}", data=data, content_type=content_type, **kept)
    text = 'Done: {"args": {"a": 1, "a": 2}, "tool": 1}'
    yield from make_both(wire, "a key twice in the answer", content=text, text=text)


def list_content_rows(wire: str) -> Iterator[Row]:
    """The rows of finish words, and of what stands in the place of text."""
    calls = [("c1", "delete_rows", TEXT)]
    for form, word in WORDS.items():
        warned = {"warns": "no finish reason"}
        body = build_whole(wire, "Done it.", word=word)
        yield make_whole(wire, f"finish word: {form}", body, text="Done it.", **warned)
        body = build_whole(wire, MISSING, calls, word)
        yield make_whole(wire, f"finish word beside a call: {form}", body, runs=[OLD], **warned)
        # Gemini's end mark is its finish word, and the last event of Responses says what a word would.
        ends = {"gemini": {"fails": True}, "responses": {"text": "Done it."}}
        meaning = ends.get(wire, {"text": "Done it.", **warned})
        yield make_stream(
            wire, f"finish word: {form}", build_frames(wire, ["Done ", "it."], word=word), **meaning
        )
        empty = build_whole(wire, "", word=word)
        yield make_whole(wire, f"finish word of an empty answer: {form}", empty, fails=True)
    yield from list_word_rows(wire, calls)
    for text in UNSEEN_TEXTS:
        yield from make_both(wire, f"content: {text!r} alone", content=text, fails=True)
        seen = f"{text}Done it."
        yield from make_both(wire, f"content: {text!r} before words", content=seen, text=seen)
    for form, value in CONTENTS.items():
        text, odd = json.dumps(value), {"warns": "in the place of text"}
        yield from make_both(wire, f"content: {form}", content=value, text=text, **odd)
        frames = build_frames(wire, ["It is ", value, "."])
        yield make_stream(wire, f"content: {form} among texts", frames, text=f"It is {text}.", **odd)
    whole = build_whole(wire, "Done it.")
    for path in CONTENT_PLACES[wire]:
        yield make_whole(
            wire, f"a text in the place of {path[-1]}", _put(whole, path, "Done it."), text="Done it."
        )


UNSEEN_TEXTS = (
    *("\u200b", "\ufeff", "\u2060", "\x00", "<|im_end|>", "</s> <|end|>"),
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)


def list_word_rows(wire: str, calls: Sequence[Call]) -> Iterator[Row]:
    """The rows of finish words in another case of letters, and of one for calls in a reply without calls."""
    plain, calling = _WORDS[wire]
    for form, change in {"upper": str.upper, "lower": str.lower, "title": str.title}.items():
        yield from make_both(
            wire, f"finish word: {form} case", content="Done it.", word=change(plain), text="Done it."
        )
        yield from make_both(
            wire, f"finish word beside a call: {form} case", calls=calls, word=change(calling), runs=[OLD]
        )
    if plain != calling:
        yield from make_both(
            wire, "finish word for calls, a text, no call", content="I look.", word=calling, fails=True
        )


CUT_WORDS = {
    "chat": ("length", "content_filter", "error"),
    "responses": ("incomplete",),
    "messages": ("max_tokens", "refusal"),
    "gemini": ("MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL", 2),
    "converse": ("max_tokens", "guardrail_intervened"),
    "ollama": ("length",),
}
"""Finish words of replies whose calls must not run: they are cut, filtered or broken."""


ANY_WORDS = {
    "stop": ("stop", "END_TURN", "endTurn", "FinishReason.STOP", "completed", "eos_token"),
    "tool_calls": ("tool_calls", "tool-calls", "toolUse", "FUNCTION_CALL"),
    "cut": ("length", "MaxTokens", "max_output_tokens", "content-filter", "SAFETY", "error"),
}
"""Finish words that hosts and gateways send over the APIs of others, in any spelling."""


def list_end_rows(wire: str) -> Iterator[Row]:
    """The rows of finish words of other APIs, and of streams that end twice: a word that says that the reply
    is not whole stays."""
    calls = [("c1", "delete_rows", TEXT)]
    for word in ANY_WORDS["stop"]:
        yield from make_both(wire, f"finish word: {word}", content="Done it.", word=word, text="Done it.")
    for word in (*ANY_WORDS["stop"], *ANY_WORDS["tool_calls"]):
        yield from make_both(wire, f"finish word of a call: {word}", calls=calls, word=word, runs=[OLD])
    for word in ANY_WORDS["tool_calls"]:
        yield from make_both(
            wire, f"finish word without a call: {word}", content="I look.", word=word, fails=True
        )
    for word in ANY_WORDS["cut"]:
        yield from make_both(wire, f"finish word of a text: {word}", content="Half", word=word, fails=True)
        yield from make_both(wire, f"finish word of a call: {word}", calls=calls, word=word, fails=True)
    for usual in dict.fromkeys(_WORDS[wire]):
        for cut in CUT_WORDS[wire]:
            for words in ((cut, usual), (usual, cut), (cut, usual, None)):
                for form, pieces, asked in (("text", ["Half"], []), ("call", [], calls)):
                    first, *later = (build_frames(wire, pieces, asked, word) for word in words)
                    ends = [frames[-2 if wire == "messages" else -1] for frames in later]
                    place = len(first) - (wire == "messages")
                    frames = [*first[:place], *ends, *first[place:]]
                    yield make_stream(wire, f"finish words of a {form}: {words}", frames, fails=True)


CONTENT_PLACES: dict[str, list[tuple[Any, ...]]] = {
    "chat": [],
    "responses": [("output", 0, "content"), ("output", 0), ("output",)],
    "messages": [("content",), ("content", 0)],
    "gemini": [
        ("candidates", 0, "content"),
        ("candidates", 0, "content", "parts"),
        ("candidates", 0, "content", "parts", 0),
    ],
    "converse": [("output", "message", "content"), ("output", "message", "content", 0)],
    "ollama": [],
}
"""Where a text may stand in the place of a list, of its block, or of both."""


def _put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a value with another one at a path."""
    if not path:
        return new
    if isinstance(value, list):
        return [_put(item, path[1:], new) if n == path[0] else item for n, item in enumerate(value)]
    return {**value, path[0]: _put(value[path[0]], path[1:], new)}


# -- usage and encoding ----------------------------------------------------------------------------

USAGES: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "chat": (("usage",), {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}, {"choices": []}),
    "responses": (
        ("response", "usage"),
        {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
        event("in_progress", response={"id": "r"}),
    ),
    "messages": (("usage",), {"input_tokens": 5, "output_tokens": 7}, {"type": "message_delta", "delta": {}}),
    "gemini": (
        ("usageMetadata",),
        {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12},
        {"candidates": []},
    ),
    "converse": (
        ("metadata", "usage"),
        {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12},
        {"metadata": {"metrics": {}}},
    ),
    "ollama": ((), {"prompt_eval_count": 5, "eval_count": 7}, {"message": {"content": ""}}),
}
"""The place of the counts in a frame, the counts, and a frame that may have them."""


def _add_usage(wire: str, counts: Any) -> dict[str, Any]:
    path, _, frame = USAGES[wire]
    if not path:
        return {**frame, **(counts or {})}
    return (
        _put({**frame, path[0]: frame.get(path[0], {})}, path, counts)
        if len(path) == 1
        else {**frame, path[0]: {**frame[path[0]], path[1]: counts}}
    )


def list_usage_rows(wire: str) -> Iterator[Row]:
    """The rows of counts that come again as zeros or nulls."""
    counts = USAGES[wire][1]
    real, frames = _add_usage(wire, counts), build_frames(wire, ["Done it."])
    last = frames[-1:] if wire in ("messages", "ollama", "responses") else []
    body = frames[: len(frames) - len(last)]
    for form, value in {
        "zeros": dict.fromkeys(counts, 0),
        "nulls": dict.fromkeys(counts),
        "null": None,
    }.items():
        later = _add_usage(wire, value)
        for name, order in {"after": (real, later), "before": (later, real)}.items():
            yield make_stream(
                wire, f"usage: {form} {name} the counts", [*body, *order, *last], text="Done it.", tokens=5
            )


def list_count_rows() -> Iterator[Row]:
    """The rows of counts under another API's names, as texts, below zero, and in other places."""
    for wire in WIRES:
        counts, body = USAGES[wire][1], build_whole(wire, "Done it.")
        key = {"gemini": "usageMetadata"}.get(wire, "usage")
        for form, value in {
            "texts": {name: str(count) for name, count in counts.items()},
            "numbers with a point": {name: float(count) for name, count in counts.items()},
        }.items():
            whole = {**body, **value} if wire == "ollama" else {**body, key: value}
            yield make_whole(wire, f"usage: {form}", whole, text="Done it.", tokens=5)
    usual = USAGES["chat"][1]
    for wire in WIRES:
        key = {"gemini": "usageMetadata"}.get(wire, "usage")
        for other in ("chat", "responses"):
            names = USAGES[other][1]
            whole = {**build_whole(wire, "Done it."), key: names}
            yield make_whole(wire, f"usage: the names of {other}", whole, text="Done it.", tokens=5)
            counts, frames = _add_usage(wire, names), build_frames(wire, ["Done it."])
            if wire == "ollama":
                counts = {"message": {"content": ""}, "usage": names}
            streamed = [*frames[:-1], counts, *frames[-1:]]
            yield make_stream(wire, f"usage: the names of {other}", streamed, text="Done it.", tokens=5)
    first, last = build_frames("chat", ["Done it."])
    own = {"id": "r", "usage": usual}
    placed = {"choices": [{**last["choices"][0], "usage": usual}]}
    yield make_stream("chat", "usage: in x_groq", [first, {**last, "x_groq": own}], text="Done it.", tokens=5)
    yield make_stream("chat", "usage: in the choice", [first, placed], text="Done it.", tokens=5)


def list_host_rows() -> Iterator[Row]:
    """The rows of what is no answer beside an empty text, and of calls that wait for an output of ours."""
    sources = {**build_whole("chat", ""), "citations": ["https://a.example"]}
    yield make_whole("chat", "sources alone", sources, fails=True)
    search = {"type": "web_search_call", "id": "s1", "status": "completed", "action": {"query": "q"}}
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    ground = {"webSearchQueries": ["q"], "groundingChunks": [{"web": {"uri": "https://a.example"}}]}
    system = {"toolUseId": "s1", "name": "nova_grounding", "type": "server_tool_use", "input": {"query": "q"}}
    empty = {wire: build_whole(wire, "") for wire in ("chat", "responses", "messages", "gemini", "converse")}
    candidate = {**empty["gemini"]["candidates"][0], "groundingMetadata": ground}
    executed = [{"type": "search", "arguments": "{}", "search_results": {"results": []}}]
    message = {**empty["chat"]["choices"][0]["message"], "executed_tools": executed}
    searches: dict[str, Any] = {
        "chat": {"choices": [{**empty["chat"]["choices"][0], "message": message}]},
        "responses": {**empty["responses"], "output": [search, *empty["responses"]["output"]]},
        "messages": {**empty["messages"], "content": [use, found, *empty["messages"]["content"]]},
        "gemini": {"candidates": [candidate]},
        "converse": {**empty["converse"], "output": {"message": {"content": [{"toolUse": system}]}}},
    }
    for wire, body in searches.items():
        yield make_whole(wire, "a search alone", body, fails=True)
    ended = [{"type": "response.output_item.done", "output_index": 0, "item": search}]
    last = event("completed", response=searches["responses"])
    yield make_stream("responses", "a search alone", [*ended, last], fails=True)
    yield make_stream("gemini", "a search alone", [searches["gemini"]], fails=True)
    refusal = {"choices": [{"message": {"content": [{"type": "refusal", "refusal": "No."}]}}]}
    yield make_whole("chat", "a refusal among the parts", refusal, fails=True)
    for kind in ("computer_call", "shell_call", "local_shell_call", "apply_patch_call"):
        item = {"type": kind, "id": "i1", "call_id": "c1", "status": "completed"}
        body = build_whole("responses", "Done it.")
        waits = {**body, "output": [*body["output"], item]}
        done = [item, {"type": f"{kind}_output", "call_id": "c1", "output": []}, *body["output"]]
        ended = [{"type": "response.output_item.done", "output_index": 1, "item": item}]
        yield make_whole("responses", f"{kind}: waits for us", waits, fails=True)
        yield make_stream(
            "responses", f"{kind}: waits for us", [*ended, event("completed", response=waits)], fails=True
        )
        yield make_whole("responses", f"{kind}: has its output", {**body, "output": done}, text="Done it.")
    for kind, keys in {
        "mcp_approval_request": {"server_label": "s", "name": "n", "arguments": "{}"},
        "robot_call": {"call_id": "c1"},
        "tool_search_call": {"call_id": "c1", "execution": "client"},
    }.items():
        item = {"type": kind, "id": "i1", "status": "completed", **keys}
        for text, begin in {
            "": [],
            ", beside a text": build_whole("responses", "Done it.")["output"],
        }.items():
            waits = {**build_whole("responses"), "output": [*begin, item]}
            ended = [
                event("output_item.done", output_index=place, item=entry)
                for place, entry in enumerate(waits["output"])
            ]
            yield make_whole("responses", f"{kind}: waits for us{text}", waits, fails=True)
            end = event("completed", response={**waits, "output": []})
            yield make_stream("responses", f"{kind}: waits for us{text}", [*ended, end], fails=True)
    search = {"type": "web_search_call", "id": "i1", "call_id": "c1", "status": "completed"}
    waits = build_whole("responses", "Done it.")
    found = {**waits, "output": [search, *waits["output"]]}
    yield make_whole("responses", "a search with the id of a call", found, text="Done it.")
    yield from list_unknown_rows()
    for status in ("in_progress", "queued"):
        yield make_whole(
            "responses",
            f"status: {status} beside a whole text",
            build_whole("responses", "Done it.", word=status),
            fails=True,
        )
        calls = [("c1", "delete_rows", TEXT)]
        half = build_whole("responses", MISSING, calls, word=status)
        yield make_whole("responses", f"status: {status} beside a call", half, fails=True)
        yield make_whole("responses", f"status: {status}", build_whole("responses", word=status), fails=True)


def list_unknown_rows() -> Iterator[Row]:
    """The rows of blocks, parts and keys that nobody knows, and that ask for an act by their names."""
    call = {"id": "c1", "name": "delete_rows", "input": OLD}
    kinds = {
        "messages": ({"type": "client_tool_use", **call}, {"type": "function_call", **call}),
        "gemini": ({"computerCall": call}, {"function_call": call}),
        "converse": ({"clientToolUse": call},),
    }
    for wire, blocks in kinds.items():
        for block in blocks:
            for text in (MISSING, "Done it."):
                kind = block.get("type") or next(iter(block))
                name = f"a call under {kind}, {'alone' if text is MISSING else 'beside a text'}"
                body = build_whole(wire, text)
                _list_blocks(wire, body).append(block)
                yield make_whole(wire, name, body, fails=True)
    for wire in ("chat", "ollama"):
        for key in ("tool_call", "toolCalls", "function_calls"):
            body = build_whole(wire, "Done it.")
            message = body["choices"][0]["message"] if wire == "chat" else body["message"]
            message[key] = [call]
            yield make_whole(wire, f"calls under {key}", body, fails=True)
    place = start_block(1, type="client_tool_use", **call)
    frames = build_frames("messages", ["Done it."])
    yield make_stream("messages", "an unknown block", [*frames[:-2], place, *frames[-2:]], fails=True)
    frames = build_frames("gemini", ["Done it."])
    part = gemini_parts({"computerCall": call})
    yield make_stream("gemini", "an unknown part", [*frames[:-1], part, *frames[-1:]], fails=True)
    frames = build_frames("converse", ["Done it."])
    begin = {"contentBlockStart": {"contentBlockIndex": 1, "start": {"clientToolUse": call}}}
    yield make_stream("converse", "an unknown block", [*frames[:-1], begin, *frames[-1:]], fails=True)
    for wire in ("chat", "ollama"):
        frames = build_frames(wire, ["Done it."])
        message = {"toolCalls": [call]}
        piece = chat_delta(**message) if wire == "chat" else {"message": message, "done": False}
        yield make_stream(wire, "calls under an unknown key", [*frames[:-1], piece, *frames[-1:]], fails=True)


def _list_blocks(wire: str, body: dict[str, Any]) -> list[Any]:
    """The blocks of a whole answer."""
    match wire:
        case "messages":
            blocks = body["content"]
        case "gemini":
            blocks = body["candidates"][0]["content"]["parts"]
        case _:
            blocks = body["output"]["message"]["content"]
    assert isinstance(blocks, list)
    return blocks


MARK = b"\xef\xbb\xbf"


def list_encoding_rows(wire: str) -> Iterator[Row]:
    """The rows of byte order marks, line ends, comments and fields, as the HTML standard has them."""
    whole = json.dumps(build_whole(wire, "Done it.")).encode()
    yield Row(wire=wire, name="encoding: a mark before JSON", data=MARK + whole, text="Done it.")
    if wire == "converse":  # a format of its own
        return
    content_type, data = encode_frames(wire, build_frames(wire, ["Done it."]))
    forms = {
        "a mark": MARK + data,
        "a mark and empty lines": MARK + b"\n\n" + data,
        "CR LF": data.replace(b"\n", b"\r\n"),
        "no line end at the end": data.rstrip(b"\n"),
        "whole JSON in the place of a stream": whole,
        "whole JSON with a mark in the place of a stream": MARK + whole,
    }
    if wire != "ollama":
        lines = data.replace(b"data: ", b"data:")
        forms |= {
            "CR": data.replace(b"\n", b"\r"),
            "no space": lines,
            "comments": b": begin\n\n" + data.replace(b"\n\n", b"\n\n: still here\n\n"),
            "events, ids and other fields": data.replace(
                b"data: ", b"event: x\nid: 1\nretry: 5\nfoo: bar\ndata: "
            ),
            "events without data": b"event: ping\n\ndata:\n\ndata\n\n" + data,
            "data in two lines": data.replace(b'": ', b'":\ndata: ', 1),
        }
    for name, form in forms.items():
        yield Row(wire=wire, name=f"encoding: {name}", data=form, content_type=content_type, text="Done it.")


def list_error_rows() -> Iterator[Row]:
    """The rows of errors in the middle of a stream, in lines that are no events, and of `null` that keeps a
    connection alive."""
    error, end = json.dumps({"error": {"message": "boom", "code": 500}}), b"data: [DONE]\n\n"
    errors = {
        "a line of JSON": f"{error}\n\n",
        "lines of JSON": json.dumps(json.loads(error), indent=1) + "\n\n",
        "a line of JSON behind another field": f"foo: bar\n{error}\n\n",
        "a field": f"error: {error}\n\n",
        "a field without its object": 'error: {"message": "boom", "code": 500}\n\n',
        "a field with text": "error: boom\n\n",
        "a field in another case": "Error: boom\n\n",
        "an event of another name": 'event: error\ndata: {"message": "boom"}\n\n',
    }
    for wire in WIRES:
        if wire in ("converse", "ollama"):  # formats of their own
            continue
        calls = [("c1", "delete_rows", TEXT)]
        for answer, frames in {
            "a text": build_frames(wire, ["Done ", "it."]),
            "a call": build_frames(wire, [], calls),
        }.items():
            content_type, data = encode_frames(wire, frames[:-1])
            data = data.replace(end, b"")
            for form, lines in errors.items():
                yield Row(
                    wire=wire,
                    name=f"error behind {answer}: {form}, then the end mark",
                    data=data + lines.encode() + end,
                    content_type=content_type,
                    fails=True,
                )
        content_type, data = encode_frames(wire, build_frames(wire, ["Done it."]))
        for null in (b"data: null\n\n", b"data: null \n\n"):
            yield Row(
                wire=wire,
                name=f"{null!r} keeps the connection alive",
                data=null + data.replace(b"\n\n", b"\n\n" + null, 1),
                content_type=content_type,
                text="Done it.",
            )


# -- pieces of calls -------------------------------------------------------------------------------


def list_chat_streams() -> Iterator[Row]:
    """Pieces of calls with odd indexes, ids and names, and arguments that come again."""
    end, name = chat_delta(word="tool_calls"), "delete_rows"
    head = chat_call(0, "c1", name, "")
    no_index, other = chat_call(MISSING, "c1", name, ""), chat_call(MISSING, "c2", name, "")
    both = {"runs": [OLD, NEW]}
    once: dict[str, Any] = {"runs": [OLD]}
    call = _make_piece(0, "c1", name, TEXT)
    rows: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "the index of the call": ([head, chat_call(0, arguments=HEAD), chat_call(0, arguments=TAIL)], once),
        "no index": ([head, chat_call(arguments=HEAD), chat_call(arguments=TAIL)], once),
        "index null": ([head, chat_call(None, arguments=HEAD), chat_call(None, arguments=TAIL)], once),
        "the index as text": ([chat_call("0", "c1", name, HEAD), chat_call("0", arguments=TAIL)], once),
        "another index": ([head, chat_call(1, arguments=HEAD), chat_call(1, arguments=TAIL)], once),
        "a growing index": ([head, chat_call(1, arguments=HEAD), chat_call(2, arguments=TAIL)], once),
        "a growing index, two calls": (
            [
                *(head, chat_call(1, arguments=HEAD), chat_call(2, arguments=TAIL)),
                *(chat_call(3, "c2", name, ""), chat_call(4, arguments=OTHER)),
            ],
            both,
        ),
        "new ids": ([head, chat_call(0, "c2", arguments=HEAD), chat_call(0, "c3", arguments=TAIL)], once),
        "new ids, no index": (
            [no_index, chat_call(id="c2", arguments=HEAD), chat_call(id="c3", arguments=TAIL)],
            once,
        ),
        "the name in each piece": (
            [
                chat_call(0, "c1", name, ""),
                chat_call(0, name=name, arguments=HEAD),
                chat_call(0, name=name, arguments=TAIL),
            ],
            once,
        ),
        "name and id in each piece": (
            [head, chat_call(0, "c1", name, HEAD), chat_call(0, "c1", name, TAIL)],
            once,
        ),
        "the name and a new id in each piece": (
            [head, chat_call(0, "c2", name, HEAD), chat_call(0, "c3", name, TAIL)],
            once,
        ),
        "the name alone in each piece": (
            [chat_call(name=name, arguments=HEAD), chat_call(name=name, arguments=TAIL)],
            once,
        ),
        "the name in the last piece": (
            [chat_call(0, "c1", arguments=HEAD), chat_call(0, arguments=TAIL), chat_call(0, name=name)],
            once,
        ),
        "an empty name in later pieces": (
            [head, chat_call(0, "", "", HEAD), chat_call(0, "", "", TAIL)],
            once,
        ),
        "no name at all": (
            [chat_call(0, "c1", arguments=HEAD), chat_call(0, arguments=TAIL)],
            {"refused": 1},
        ),
        "two calls by index in turns": (
            [
                *(head, chat_call(1, "c2", name, ""), chat_call(0, arguments=HEAD)),
                *(chat_call(1, arguments=OTHER), chat_call(0, arguments=TAIL)),
            ],
            both,
        ),
        "two calls by id in turns": (
            [
                *(no_index, other, chat_call(id="c1", arguments=HEAD), chat_call(id="c2", arguments=OTHER)),
                chat_call(id="c1", arguments=TAIL),
            ],
            both,
        ),
        "two calls on one index by id in turns": (
            [
                *(head, chat_call(0, "c2", name, ""), chat_call(0, "c1", arguments=HEAD)),
                *(chat_call(0, "c2", arguments=OTHER), chat_call(0, "c1", arguments=TAIL)),
            ],
            both,
        ),
        "two calls with one id by index": (
            [
                *(chat_call(0, "c", name, HEAD), chat_call(1, "c", "count", "")),
                *(chat_call(1, "c", arguments="{}"), chat_call(0, "c", arguments=TAIL)),
            ],
            {"runs": [OLD], "refused": 1},
        ),
        "two calls on one index, with ids": (
            [chat_call(0, "c1", name, TEXT), chat_call(0, "c2", name, OTHER)],
            both,
        ),
        "two calls on one index": (
            [chat_call(0, name=name, arguments=TEXT), chat_call(0, name=name, arguments=OTHER)],
            both,
        ),
        "two equal calls on one index": (
            [chat_call(0, name=name, arguments=TEXT), chat_call(0, name=name, arguments=TEXT)],
            {"runs": [OLD, OLD]},
        ),
        "two calls without arguments on one index": (
            [chat_call(0, "c1", name, ""), chat_call(0, "c2", name, "")],
            {"runs": [{}, {}]},
        ),
        "two objects on one index": (
            [chat_call(0, name=name, arguments=OLD), chat_call(0, name=name, arguments=NEW)],
            both,
        ),
        "two calls without index and id": (
            [chat_call(name=name, arguments=TEXT), chat_call(name=name, arguments=OTHER)],
            both,
        ),
        "two calls in one chunk without index and id": (
            [
                chat_delta(
                    tool_calls=[_make_piece(name=name, arguments=HEAD), _make_piece(name=name, arguments="")]
                ),
                chat_delta(tool_calls=[_make_piece(arguments=TAIL), _make_piece(arguments=OTHER)]),
            ],
            both,
        ),
        "two calls in pieces on one index": (
            [
                *(chat_call(0, name=name, arguments=HEAD), chat_call(0, arguments=TAIL)),
                *(chat_call(0, name=name, arguments=""), chat_call(0, arguments=OTHER)),
            ],
            both,
        ),
        "another name on one index": (
            [chat_call(0, name="count", arguments=""), chat_call(0, name=name, arguments=TEXT)],
            {"runs": [OLD], "refused": 1},
        ),
        "the whole again at the end": (
            [head, *(chat_call(0, arguments=text) for text in (HEAD, TAIL, TEXT))],
            once,
        ),
        "the whole again, compact": (
            [
                head,
                *(
                    chat_call(0, arguments=text)
                    for text in (HEAD, TAIL, json.dumps(OLD, separators=(",", ":")))
                ),
            ],
            once,
        ),
        "the whole three times": ([head, *(chat_call(0, arguments=TEXT) for _ in range(3))], once),
        "the whole again as an object": (
            [head, chat_call(0, arguments=TEXT), chat_call(0, arguments=OLD)],
            once,
        ),
        "the call again at the end": (
            [head, chat_call(0, arguments=TEXT), chat_call(0, "c1", name, TEXT)],
            once,
        ),
        "the call again without its id": (
            [head, chat_call(0, arguments=TEXT), chat_call(0, name=name, arguments=TEXT)],
            once,
        ),
        "the first brace, then the whole": (
            [head, chat_call(0, arguments="{"), chat_call(0, arguments=TEXT)],
            once,
        ),
        "the text so far in each piece": (
            [head, *(chat_call(0, arguments=text) for text in ('{"table"', HEAD, TEXT))],
            once,
        ),
        "an empty object, then the pieces": (
            [chat_call(0, "c1", name, "{}"), chat_call(0, arguments=HEAD), chat_call(0, arguments=TAIL)],
            once,
        ),
        "an empty object, then null": (
            [head, chat_call(0, arguments=TEXT), chat_call(0, arguments=None)],
            once,
        ),
        "a name in pieces": (
            [
                chat_call(0, "c1", "delete", ""),
                chat_call(0, name="_rows", arguments=""),
                chat_call(0, arguments=TEXT),
            ],
            once,
        ),
        "a name in pieces, with its id": (
            [chat_call(0, "c1", "delete", ""), chat_call(0, "c1", "_rows", ""), chat_call(0, arguments=TEXT)],
            once,
        ),
        "a name in pieces, without an id": (
            [chat_call(0, name=name, arguments=""), chat_call(0, name="_all"), chat_call(0, arguments=TEXT)],
            {"refused": 2},
        ),
        "a name in pieces, of which nothing says the call": (
            [
                chat_call(name="delete"),
                chat_call(name="_rows"),
                *(chat_call(arguments=a) for a in (HEAD, TAIL)),
            ],
            once,
        ),
        "a name in pieces, the first with an index": (
            [chat_call(0, name="delete"), chat_call(name="_rows", arguments=TEXT)],
            once,
        ),
        "a name in pieces, the first with index and id": (
            [
                chat_call(0, "c1", "delete", ""),
                chat_call(name="_rows", arguments=""),
                chat_call(arguments=TEXT),
            ],
            once,
        ),
        "a name that may be the beginning of the next one": (
            [chat_call(name="delete"), chat_call(name=name, arguments=TEXT)],
            {"runs": [OLD], "refused": 1},
        ),
        "the name so far in each piece": (
            [chat_call(0, "c1", "delete", ""), chat_call(0, "c1", name, ""), chat_call(0, arguments=TEXT)],
            once,
        ),
        "a name that begins with that of a tool": (
            [head, chat_call(0, "c1", name + "_all", ""), chat_call(0, arguments=TEXT)],
            {"refused": 1},
        ),
        "a blank name with the arguments": ([head, chat_call(0, name=" ", arguments=TEXT)], once),
        "one id, own indexes": ([chat_call(0, "c1", name, TEXT), chat_call(1, "c1", name, OTHER)], both),
        "one id, own indexes, in pieces": (
            [
                *(head, chat_call(0, arguments=HEAD), chat_call(0, arguments=TAIL)),
                *(
                    chat_call(1, "c1", name, ""),
                    chat_call(1, arguments=OTHER[:9]),
                    chat_call(1, arguments=OTHER[9:]),
                ),
            ],
            both,
        ),
        "one id, own indexes, in turns": (
            [
                *(head, chat_call(1, "c1", name, "")),
                *(chat_call(0, arguments=TEXT), chat_call(1, arguments=OTHER)),
            ],
            both,
        ),
        "the call again with another index": (
            [head, chat_call(0, arguments=TEXT), chat_call(1, "c1", name, TEXT)],
            once,
        ),
        "the head again with another index": (
            [head, chat_call(0, arguments=TEXT), chat_call(1, "c1", name, "")],
            once,
        ),
        "null, then the pieces": (
            [chat_call(0, "c1", name, "null"), chat_call(0, arguments=HEAD), chat_call(0, arguments=TAIL)],
            once,
        ),
        "the pieces, then the text null": (
            [head, *(chat_call(0, arguments=text) for text in (HEAD, TAIL, "null"))],
            once,
        ),
        "the pieces, then an empty object": (
            [head, *(chat_call(0, arguments=text) for text in (HEAD, TAIL, "{}"))],
            once,
        ),
        "an object of calls": (
            [
                chat_delta(tool_calls={"0": drop(id="c1", function={"name": name, "arguments": HEAD})}),
                chat_delta(tool_calls={"1": drop(id="c2", function={"name": name, "arguments": OTHER})}),
                chat_delta(tool_calls={"0": {"function": {"arguments": TAIL}}}),
            ],
            both,
        ),
        "the older form beside the newer": (
            [
                chat_delta(tool_calls=[call], function_call={"name": name, "arguments": HEAD}),
                chat_delta(function_call={"arguments": TAIL}),
            ],
            once,
        ),
        "another call in the older form": (
            [chat_delta(tool_calls=[call]), chat_delta(function_call={"name": name, "arguments": OTHER})],
            both,
        ),
        "two different objects": (
            [head, chat_call(0, arguments=TEXT), chat_call(0, arguments=OTHER)],
            {"refused": 1},
        ),
        "two different values": (
            [head, chat_call(0, arguments=OLD), chat_call(0, arguments=NEW)],
            {"refused": 1},
        ),
        "a cut call": ([head, chat_call(0, arguments=HEAD)], {"refused": 1}),
        "a single call without its list": ([chat_delta(tool_calls=call)], once),
        "a call that is text": ([chat_delta(tool_calls=["delete_rows"])], {"refused": 1}),
        "a call without an object around its name": (
            [chat_delta(tool_calls=[{"index": 0, "id": "c1", "name": name, "arguments": TEXT}])],
            once,
        ),
        "the older form": (
            [
                chat_delta(function_call={"name": name, "arguments": HEAD}),
                chat_delta(function_call={"arguments": TAIL}),
            ],
            once,
        ),
        "the older form, twice": (
            [chat_delta(function_call={"name": name, "arguments": text}) for text in (TEXT, OTHER)],
            both,
        ),
        "the text in one choice, the call in another": (
            [
                *(chat_delta(content="I look."), chat_delta(1, tool_calls=[call])),
                chat_delta(1, word="tool_calls"),
            ],
            {**once, "text": "I look."},
        ),
        "the call in one choice, the text in another": (
            [
                *(chat_delta(tool_calls=[call]), chat_delta(1, content="I look.")),
                chat_delta(1, word="tool_calls"),
            ],
            {**once, "text": "I look."},
        ),
        "each call in a choice of its own": (
            [
                *(chat_delta(content="I look."), chat_delta(1, tool_calls=[call])),
                chat_delta(2, tool_calls=[_make_piece(0, "c2", name, OTHER)]),
            ],
            {**both, "text": "I look."},
        ),
        "a whole message at the end": (
            [
                *(chat_delta(content="I "), chat_delta(content="look."), head, chat_call(0, arguments=TEXT)),
                {"choices": [{"index": 0, "message": {"content": "I look.", "tool_calls": [call]}}]},
            ],
            {**once, "text": "I look."},
        ),
        "another call in a whole message at the end": (
            [
                *(head, chat_call(0, arguments=TEXT)),
                {
                    "choices": [
                        {"index": 0, "message": {"tool_calls": [call, _make_piece(1, "c2", name, OTHER)]}}
                    ]
                },
            ],
            both,
        ),
        "other arguments in a whole message at the end": (
            [
                *(head, chat_call(0, arguments=OTHER)),
                {"choices": [{"index": 0, "message": {"tool_calls": [call]}}]},
            ],
            {"refused": 1},
        ),
        "a whole message alone": (
            [{"choices": [{"index": 0, "message": {"content": "I look.", "tool_calls": [call]}}]}],
            {**once, "text": "I look."},
        ),
        "two choices with calls": (
            [chat_delta(tool_calls=[call]), chat_delta(1, tool_calls=[_make_piece(0, "c2", name, OTHER)])],
            {**once, "warns": "2 choices"},
        ),
    }
    for label, (chunks, meaning) in rows.items():
        yield make_stream("chat", f"pieces: {label}", [*chunks, end], **meaning)


def list_response_streams() -> Iterator[Row]:
    """Streams of Responses that leave out some of the forms in which events say the same."""
    name = "delete_rows"

    def item(arguments: Any = MISSING, number: int = 1, **keys: Any) -> dict[str, Any]:
        base = {"type": "function_call", "id": f"f{number}", "call_id": f"c{number}", "name": name}
        return drop(**{**base, "arguments": arguments, **keys})

    def added(place: Any = 0, **keys: Any) -> dict[str, Any]:
        return drop(**event("output_item.added", output_index=place, item=item(**{"arguments": "", **keys})))

    def delta(text: str, place: Any = 0, item_id: Any = "f1") -> dict[str, Any]:
        return drop(**event("function_call_arguments.delta", output_index=place, item_id=item_id, delta=text))

    def done(arguments: Any, place: Any = 0, **keys: Any) -> dict[str, Any]:
        return drop(**event("output_item.done", output_index=place, item=item(arguments, **keys)))

    def args_done(arguments: Any) -> dict[str, Any]:
        return event("function_call_arguments.done", output_index=0, item_id="f1", arguments=arguments)

    def completed(*output: Any, **keys: Any) -> dict[str, Any]:
        return event("completed", response={"id": "r", "status": "completed", "output": list(output), **keys})

    def text_event(kind: str, **keys: Any) -> dict[str, Any]:
        return event(kind, output_index=0, content_index=0, item_id="m1", **keys)

    once: dict[str, Any] = {"runs": [OLD]}
    both = {"runs": [OLD, NEW]}
    said: dict[str, Any] = {"text": "Done it."}
    empty = completed()
    message = {"type": "message", "id": "m1", "role": "assistant", "content": []}
    full = {**message, "content": [{"type": "output_text", "text": "Done it.", "annotations": []}]}
    halves = [text_event("output_text.delta", delta="Done "), text_event("output_text.delta", delta="it.")]
    begun = event("output_item.added", output_index=0, item=message)
    ended = event("output_item.done", output_index=0, item=message)
    rows: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "deltas alone": ([added(), delta(HEAD), delta(TAIL), empty], once),
        "the end of the arguments alone": ([added(), args_done(TEXT), empty], once),
        "the end of the item alone": ([done(TEXT), empty], once),
        "the end of the response alone": ([completed(item(TEXT))], once),
        "the item ends without arguments": ([added(), delta(TEXT), done(""), empty], once),
        "the item ends with null": ([added(), delta(TEXT), done(None), empty], once),
        "the item ends with an empty object": (
            [added(), delta(TEXT), done("{}"), completed(item("{}"))],
            once,
        ),
        "the item ends without its key": ([added(), delta(TEXT), done(MISSING), empty], once),
        "the item ends without its name": ([added(), delta(TEXT), done(TEXT, name=None), empty], once),
        "the response ends without arguments": (
            [added(), delta(TEXT), done(TEXT), completed(item(""))],
            once,
        ),
        "the response ends without the call": (
            [added(), delta(TEXT), completed(full)],
            {**once, "text": "Done it."},
        ),
        "the response ends with an object": ([added(), delta(TEXT), completed(item(OLD))], once),
        "the response ends with new ids": (
            [added(), delta(TEXT), completed(item(TEXT, 7, call_id="c1"))],
            once,
        ),
        "the response counts and names the call anew": (
            [added(3), delta(TEXT, 3), done(TEXT, 3), completed(full, item(TEXT, 7))],
            {**once, "text": "Done it."},
        ),
        "the items end on one index": ([done(TEXT), done(OTHER, number=2), empty], both),
        "deltas on another index": ([added(), delta(HEAD, 1, MISSING), delta(TAIL, 2, MISSING), empty], once),
        "no first event": ([delta(HEAD), delta(TAIL), done(TEXT), empty], once),
        "no first event and no last one": ([delta(HEAD), delta(TAIL), empty], {"refused": 1}),
        "no index": ([added(MISSING), delta(HEAD, MISSING), delta(TAIL, MISSING), empty], once),
        "no index and no id": (
            [added(MISSING), delta(HEAD, MISSING, MISSING), delta(TAIL, MISSING, MISSING), empty],
            once,
        ),
        "no ids of items": (
            [added(id=MISSING), delta(TEXT, 0, MISSING), done(TEXT, id=MISSING), empty],
            once,
        ),
        "two calls in turns": (
            [added(), added(1, number=2), delta(HEAD), delta(OTHER, 1, "f2"), delta(TAIL), empty],
            both,
        ),
        "two calls in turns by id": (
            [
                *(added(MISSING), added(MISSING, number=2), delta(HEAD, MISSING)),
                *(delta(OTHER, MISSING, "f2"), delta(TAIL, MISSING), empty),
            ],
            both,
        ),
        "two calls on one index": (
            [
                added(),
                delta(TEXT),
                done(TEXT),
                added(0, number=2),
                delta(OTHER, 0, "f2"),
                done(OTHER, number=2),
                empty,
            ],
            both,
        ),
        "one id of items, two calls": (
            [
                *(added(), delta(TEXT), done(TEXT)),
                *(added(1, call_id="c2"), delta(OTHER, 1), done(OTHER, 1, call_id="c2")),
                completed(item(TEXT), item(OTHER, call_id="c2")),
            ],
            both,
        ),
        "one id of items, two calls in turns": (
            [
                *(added(), added(1, call_id="c2"), delta(HEAD), delta(OTHER, 1), delta(TAIL)),
                *(done(TEXT), done(OTHER, 1, call_id="c2"), empty),
            ],
            both,
        ),
        "the item ends with the whole name": ([added(name="delete"), delta(TEXT), done(TEXT), empty], once),
        "the end has the calls in another order": (
            [
                *(added(), added(1, number=2), delta(TEXT), delta(OTHER, 1, "f2")),
                completed(item("", 2), item("")),
            ],
            both,
        ),
        "deltas and the end of the item differ": ([added(), delta(TEXT), done(OTHER), empty], {"refused": 1}),
        "the item and the response differ": ([done(TEXT), completed(item(OTHER))], {"refused": 1}),
        "one of three differs": ([added(), delta(OTHER), done(TEXT), completed(item(TEXT))], {"refused": 1}),
        "cut deltas, a whole item": ([added(), delta(HEAD), done(TEXT), empty], once),
        "whole deltas, a cut item": ([added(), delta(TEXT), done(HEAD), empty], {"refused": 1}),
        "the text so far in each delta": ([added(), delta(HEAD), delta(TEXT), empty], once),
        "text: deltas alone": ([begun, *halves, empty], said),
        "text: deltas on another index": (
            [
                begun,
                *(
                    event("output_text.delta", output_index=1, content_index=0, delta=t)
                    for t in ("Done ", "it.")
                ),
                completed(full),
            ],
            said,
        ),
        "text: the response names the item anew": ([begun, *halves, completed({**full, "id": "m9"})], said),
        "text: deltas without the item": ([*halves, empty], said),
        "text: the end of the text alone": (
            [begun, text_event("output_text.done", text="Done it."), empty],
            said,
        ),
        "text: the end of the part alone": (
            [begun, text_event("content_part.done", part=full["content"][0]), empty],
            said,
        ),
        "text: the end of the item alone": (
            [event("output_item.done", output_index=0, item=full), empty],
            said,
        ),
        "text: the end of the response alone": ([completed(full)], said),
        "text: the item ends empty": ([begun, *halves, ended, completed(message)], said),
        "text: the part ends empty": (
            [begun, *halves, completed({**message, "content": [{"type": "output_text", "text": ""}]})],
            said,
        ),
        "text: said by all": (
            [begun, *halves, text_event("output_text.done", text="Done it."), completed(full)],
            said,
        ),
        "text: the deltas miss the end": ([begun, halves[0], completed(full)], said),
        "text: no output in the response": ([begun, *halves, event("completed", response={"id": "r"})], said),
        "text: no response in the last event": ([begun, *halves, event("completed")], said),
        "text: the response is still in progress": ([begun, *halves, completed(status="in_progress")], said),
    }
    for label, (events, meaning) in rows.items():
        yield make_stream("responses", f"events: {label}", events, **meaning)


def list_block_streams() -> Iterator[Row]:
    """Streams of Anthropic and Bedrock with odd indexes, and with deltas that no block fits."""
    name = "delete_rows"
    once: dict[str, Any] = {"runs": [OLD]}
    both = {"runs": [OLD, NEW]}

    def begin(place: Any, number: int = 1, value: Any = None) -> tuple[Any, Any]:
        return (
            start_block(place, type="tool_use", id=f"c{number}", name=name, input=value or {}),
            start_use(place, toolUseId=f"c{number}", name=name, input=value or MISSING),
        )

    def grow(place: Any, text: str) -> tuple[Any, Any]:
        return extend_block(place, type="input_json_delta", partial_json=text), extend_use(place, text)

    def say(place: Any, text: str) -> tuple[Any, Any]:
        words = drop(contentBlockIndex=place, delta={"text": text})
        return extend_block(place, type="text_delta", text=text), {"contentBlockDelta": words}

    def stop(place: Any) -> tuple[Any, Any]:
        return drop(type="content_block_stop", index=place), {
            "contentBlockStop": drop(contentBlockIndex=place)
        }

    rows: dict[str, tuple[list[tuple[Any, Any]], dict[str, Any]]] = {
        "two calls": ([begin(0), grow(0, TEXT), stop(0), begin(1, 2), grow(1, OTHER), stop(1)], both),
        "two calls in turns": ([begin(0), begin(1, 2), grow(0, HEAD), grow(1, OTHER), grow(0, TAIL)], both),
        "two calls on one index": (
            [begin(0), grow(0, TEXT), stop(0), begin(0, 2), grow(0, OTHER), stop(0)],
            both,
        ),
        "no index": (
            [begin(MISSING), grow(MISSING, TEXT), stop(MISSING), begin(MISSING, 2), grow(MISSING, OTHER)],
            both,
        ),
        "the index of a text": (
            [say(0, "I look."), begin(1), grow(0, HEAD), grow(0, TAIL)],
            {**once, "text": "I look."},
        ),
        "a text with the index of a call": (
            [begin(0), grow(0, TEXT), say(0, "I look.")],
            {**once, "text": "I look."},
        ),
        "the input at the beginning": ([begin(0, 1, OLD), stop(0)], once),
        "the input at the beginning and in pieces": ([begin(0, 1, OLD), grow(0, HEAD), grow(0, TAIL)], once),
        "another input at the beginning": ([begin(0, 1, NEW), grow(0, TEXT)], {"refused": 1}),
        "the text so far in each piece": ([begin(0), grow(0, HEAD), grow(0, TEXT)], once),
        "the beginning twice": ([begin(0), begin(0), grow(0, TEXT)], once),
        "one id, two blocks": ([begin(0), grow(0, TEXT), stop(0), begin(1), grow(1, OTHER), stop(1)], both),
        "one id, two blocks in turns": (
            [begin(0), begin(1), grow(0, HEAD), grow(1, OTHER), grow(0, TAIL)],
            both,
        ),
        "no beginning": ([grow(0, TEXT)], {"refused": 1}),
        "no beginning of a text": ([say(0, "Done "), say(0, "it.")], {"text": "Done it."}),
        "an empty piece at the end": ([begin(0), grow(0, TEXT), grow(0, "")], once),
    }
    for label, (pairs, meaning) in rows.items():
        word = "tool_use" if "runs" in meaning or "refused" in meaning else "end_turn"
        first, last = {"type": "message_start", "message": {"id": "r"}}, {"type": "message_stop"}
        end = {"type": "message_delta", "delta": {"stop_reason": word}}
        yield make_stream(
            "messages", f"blocks: {label}", [first, *(a for a, _ in pairs), end, last], **meaning
        )
        stopped = {"messageStop": {"stopReason": word}}
        yield make_stream("converse", f"blocks: {label}", [*(b for _, b in pairs), stopped], **meaning)


def list_other_rows() -> Iterator[Row]:
    """Gemini's and Ollama's calls in odd forms, and answers in several choices."""
    name = "delete_rows"
    once: dict[str, Any] = {"runs": [OLD]}
    call = {"functionCall": {"id": "c1", "name": name, "args": OLD}}
    end = {"candidates": [{"finishReason": "STOP"}]}
    yield make_stream("gemini", "a call again", [gemini_parts(call), gemini_parts(call), end], **once)
    changed = {"functionCall": {"id": "c1", "name": name, "args": NEW}}
    yield make_stream("gemini", "two calls with one id", [gemini_parts(call, changed), end], runs=[OLD, NEW])
    whole = {"candidates": [{"content": {"parts": call}, "finishReason": "STOP"}]}
    yield make_whole("gemini", "a part without its list", whole, **once)
    text = {"functionCall": f"{name}()"}
    yield make_whole("gemini", "a call that is text", gemini_parts(text, finishReason="STOP"), refused=1)
    split = {
        "candidates": [
            {"index": 0, "content": {"parts": [{"text": "I look."}]}},
            {"index": 1, "content": {"parts": [call]}, "finishReason": "STOP"},
        ]
    }
    yield make_whole(
        "gemini", "the text in one candidate, the call in another", split, text="I look.", **once
    )
    yield make_stream(
        "gemini", "the text in one candidate, the call in another", [split], text="I look.", **once
    )
    first = {"function": {"index": 0, "name": name, "arguments": OLD}}
    second = {"function": {"index": 0, "name": name, "arguments": NEW}}
    none = {"function": {"index": 0, "name": name, "arguments": {}}}
    line = {"message": {"content": ""}, "done": True, "done_reason": "stop"}

    def lines(*calls: Any) -> list[dict[str, Any]]:
        return [*({"message": {"content": "", "tool_calls": calls}} for calls in calls), line]

    yield make_stream("ollama", "two calls on one index", lines([first], [second]), runs=[OLD, NEW])
    yield make_stream("ollama", "two calls without arguments", lines([none], [none]), runs=[{}, {}])
    yield make_stream("ollama", "a call without its list", lines(first), **once)
    yield make_stream("ollama", "a call that is text", lines([name]), refused=1)
    bare = {"function": {"name": name}}
    other = {"function": {"name": "count"}}
    yield make_stream(
        "ollama",
        "two calls whose arguments are not there",
        lines([bare], [other], [bare]),
        runs=[{}, {}],
        refused=1,
    )
    pieces = [{"function": {"name": name, "arguments": HEAD}}], [{"function": {"arguments": TAIL}}]
    yield make_stream("ollama", "arguments in pieces", lines(*pieces), **once)
    flat = {"id": "c1", "name": name, "arguments": TEXT}
    yield make_whole(
        "ollama",
        "a call without an object around its name",
        {**line, "message": {"tool_calls": [flat]}},
        **once,
    )
    choices = [
        {"index": 0, "message": {"content": "I look."}, "finish_reason": "tool_calls"},
        {"index": 1, "message": {"tool_calls": [flat]}, "finish_reason": "tool_calls"},
    ]
    yield make_whole(
        "chat", "the text in one choice, the call in another", {"choices": choices}, text="I look.", **once
    )
    yield make_whole(
        "chat",
        "the call in one choice, the text in another",
        {"choices": choices[::-1]},
        text="I look.",
        **once,
    )
    yield make_whole(
        "chat",
        "a cut text in one choice, the call in another",
        {"choices": [{**choices[0], "finish_reason": "length"}, choices[1]]},
        fails=True,
    )
    cut = {**split["candidates"][0], "finishReason": "STOP"}, {**split["candidates"][1], "finishReason": 2}
    yield make_whole(
        "gemini", "a text in one candidate, a cut call in another", {"candidates": cut}, fails=True
    )
    empty = {"index": 0, "message": {"content": ""}, "finish_reason": "stop"}
    answer = {"index": 1, "message": {"content": "Done it."}, "finish_reason": "stop"}
    yield make_whole(
        "chat", "an empty choice before the answer", {"choices": [empty, answer]}, text="Done it."
    )
    yield make_whole(
        "chat",
        "texts without parts",
        {"choices": [{**answer, "message": {"content": ["Done ", "it."]}}]},
        text="Done it.",
    )
    by_index = {"0": flat, "1": {**flat, "arguments": OTHER}}
    for form, message, runs in (
        ("calls by their indexes", {"tool_calls": by_index}, [OLD, NEW]),
        ("the older form again", {"tool_calls": [flat], "function_call": flat}, [OLD]),
        ("the older form too", {"tool_calls": [flat], "function_call": by_index["1"]}, [OLD, NEW]),
    ):
        body = {"choices": [{"message": {"content": "I look.", **message}, "finish_reason": "stop"}]}
        yield make_whole("chat", form, body, text="I look.", runs=runs)
    body = {"choices": [{"message": {"tool_calls": [{"odd": {"name": name}}]}, "finish_reason": "stop"}]}
    yield make_whole("chat", "an entry that is no call", body, refused=1)
    one = {"choices": [{"message": {"tool_calls": flat}, "finish_reason": "tool_calls"}]}
    yield make_whole("chat", "a call without its list", one, **once)
    custom = {"id": "c1", "type": "custom", "custom": {"name": name, "input": {"a": 1}}}
    body = {"choices": [{"message": {"tool_calls": [custom]}, "finish_reason": "tool_calls"}]}
    yield make_whole("chat", "free text that is an object", body, refused=1)
    plain = {"id": "r", "status": "completed", "output": [], "output_text": "Done it."}
    yield make_whole("responses", "the short form alone", plain, text="Done it.")
    part = {"type": "text", "text": "Done it."}
    other = {"id": "r", "status": "completed", "output": [{"type": "message", "content": [part]}]}
    yield make_whole("responses", "the part of another API", other, text="Done it.")


def list_rows() -> list[Row]:
    """All rows."""
    rows = [
        row
        for wire in WIRES
        for rows in (
            list_call_rows,
            list_key_rows,
            list_repeated_rows,
            list_content_rows,
            list_end_rows,
            list_usage_rows,
            list_encoding_rows,
        )
        for row in rows(wire)
    ]
    rows += [
        *list_error_rows(),
        *list_count_rows(),
        *list_host_rows(),
        *list_chat_streams(),
        *list_response_streams(),
        *list_block_streams(),
        *list_other_rows(),
    ]
    return rows
