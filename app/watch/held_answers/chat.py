"""Answers of chat completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolchart.app.watch.held_answers.reading import (
    CALL,
    DONE,
    HEAD,
    HELD,
    PLAIN,
    Verdict,
    find_call_word,
    find_other_spelling,
    judge_all,
    read_list,
    read_object,
    tell_unknown,
)
from toolchart.app.watch.held_answers.wire import Json, Wire, get_id, write_arguments
from toolchart.providers.openai.stream import ChatAccumulator
from toolchart.states.messages import Reply, ToolCall

_PLAIN_KEYS = frozenset(
    {
        *("content", "refusal", "reasoning", "reasoning_content", "reasoning_details", "thinking"),
        *("audio", "annotations", "images", "citations", "name", "executed_tools"),
        *("provider_specific_fields", "extra_content"),
    }
)
_PLAIN_PARTS = ("text", "output_text", "thinking", "reasoning", "reference", "refusal", "image_url")


def judge_message(message: Any) -> Verdict:
    """What a message has, or a piece of one."""
    if not isinstance(message, Mapping):
        return HEAD if message is None else tell_unknown("a message that is no object")
    return judge_all(_judge_value(key, value) for key, value in message.items())


def _is_empty(value: Any) -> bool:
    """Whether it says nothing: some hosts send all keys of all kinds of calls, with empty values."""
    return not (any(value.values()) if isinstance(value, Mapping) else value)


def _judge_value(key: str, value: Any) -> Verdict:
    if _is_empty(value) or (key == "role" and isinstance(value, str)):
        return HEAD
    if key == "tool_calls":
        return _judge_calls(value)
    if key == "content" and not isinstance(value, str):
        kinds = [read_object(part).get("type") for part in value] if isinstance(value, list) else [None]
        strange = next((kind for kind in kinds if kind not in _PLAIN_PARTS), "")
        words = strange if isinstance(strange, str) else "content that is no text"
        return PLAIN.join(tell_unknown(words or find_call_word(value)))
    if key == "function_call" or (key not in _PLAIN_KEYS and isinstance(value, Mapping | list)):
        return tell_unknown(key)
    return PLAIN.join(tell_unknown(find_call_word({key: value})))


def _judge_calls(calls: Any) -> Verdict:
    for call in calls if isinstance(calls, list) else [None]:
        if not isinstance(call, Mapping):
            return tell_unknown("tool_calls")
        if call.get("type") not in (None, "", "function"):
            return tell_unknown(str(call["type"]))
        if not _is_empty(call.get("custom")) or not isinstance(call.get("function"), Mapping):
            return tell_unknown("custom" if call.get("custom") else "tool_calls")
        if strange := find_other_spelling(call, call["function"]):
            return tell_unknown(strange)
    return CALL


class ChatWire(Wire):
    """Chat completions. Chunks know nothing of each other but the head and the index of a call."""

    def __init__(self) -> None:
        self._head: Json = {}
        self._counts_apart = False

    def make_accumulator(self) -> ChatAccumulator:
        """A new accumulator of chunks."""
        return ChatAccumulator()

    def judge(self, event: Json) -> Verdict:
        """What a chunk is."""
        if event.get("usage"):
            self._counts_apart = not event.get("choices")
        return self._judge(event)

    def judge_body(self, body: Json) -> Verdict:
        """What a whole completion has."""
        return self._judge(body)

    def _judge(self, event: Json) -> Verdict:
        choices = event.get("choices")
        verdict = tell_unknown(find_call_word(event, ("choices", "usage")))
        if choices is not None and not isinstance(choices, list):
            return verdict.join(tell_unknown("choices that are no list"))
        verdict = verdict.join(HELD) if event.get("error") else verdict
        verdict = verdict.join(judge_all(map(self._judge_choice, choices or [])))
        is_mixed = verdict.has_call and len(choices or ()) > 1
        return verdict.join(tell_unknown("a call in one of several choices" if is_mixed else ""))

    def _judge_choice(self, choice: Any) -> Verdict:
        if not isinstance(choice, Mapping):
            return tell_unknown("a choice that is no object")
        verdict = tell_unknown(find_call_word(choice, ("delta", "message", "usage")))
        for key in ("delta", "message"):
            verdict = verdict.join(judge_message(choice.get(key)))
        if not verdict.is_plain and choice.get("index") not in (None, 0) and not verdict.unknown:
            verdict = tell_unknown("a call of another choice")
        is_end = choice.get("finish_reason") or choice.get("message")
        return verdict.join(HELD) if is_end else verdict

    def note(self, event: Json) -> None:
        """Keep the head of the first chunk that has a choice: Azure's very first one has no id."""
        self._head = self._head or (_read_head(event) if event.get("choices") else {})

    def list_calls(self, body: Json) -> list[tuple[str, str, Json]]:
        """The calls of the first choice."""
        entries = read_list(_get_message(body).get("tool_calls"))
        return [
            (str(entry.get("id") or ""), str(read_object(entry.get("function")).get("name")), entry)
            for entry in map(read_object, entries)
        ]

    def _build_calls(self, body: Json, calls: Sequence[ToolCall]) -> list[Json]:
        return [
            {
                **{key: value for key, value in entry.items() if key != "index"},
                "id": get_id(call),
                "type": "function",
                "function": {"name": call.name, "arguments": write_arguments(call)},
            }
            for call, entry in self.pair_calls(body, calls)
        ]

    def change_body(self, body: Json, reply: Reply) -> Json:
        """The completion with another text and other calls in its first choice."""
        choice, *others = body["choices"]
        message = {key: value for key, value in _get_message(body).items() if key != "tool_calls"}
        content = message.get("content")
        texts = [read_object(part).get("text") for part in read_list(content)]
        if not content or "".join(text for text in texts if isinstance(text, str)) != reply.content:
            message["content"] = reply.content
        if reply.tool_calls:
            message["tool_calls"] = self._build_calls(body, reply.tool_calls)
        word = "tool_calls" if reply.tool_calls else "stop"
        return {**body, "choices": [{**choice, "message": message, "finish_reason": word}, *others]}

    def write_rest(self, body: Json, text: str, calls: Sequence[ToolCall]) -> Iterator[Json | str]:
        """More chunks."""
        head = self._head or _read_head(body)

        def write(delta: Json, word: str | None = None) -> Json:
            return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": word}]}

        if not self._head:
            yield write({"role": "assistant", "content": ""})
        if text:
            yield write({"content": text})
        for index, entry in enumerate(self._build_calls(body, calls)):
            yield write({"tool_calls": [{"index": index, **entry}]})
        end = write({}, "tool_calls" if calls else "stop")
        # Groq and Moonshot have the counts in places of their own.
        counts = {key: body[key] for key in ("usage", "x_groq") if body.get(key)}
        if choice_counts := _get_choice(body).get("usage"):
            end["choices"][0]["usage"] = choice_counts
        if self._counts_apart and counts:
            yield end
            yield {**head, "choices": [], **counts}
        else:
            yield {**end, **counts}
        yield DONE

    def write_error(self, words: str) -> Json:
        """The error that the SDK looks for in each chunk."""
        return {"error": {"message": words, "type": "server_error", "param": None, "code": None}}


def _read_head(event: Json) -> Json:
    head = {key: value for key, value in event.items() if isinstance(value, str | int)}
    return {**head, "object": "chat.completion.chunk"}


def _get_choice(body: Json) -> Json:
    choices = read_list(body.get("choices"))
    return read_object(choices[0]) if choices else {}


def _get_message(body: Json) -> Json:
    return read_object(_get_choice(body).get("message"))
